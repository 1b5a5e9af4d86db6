"""The table of all routes, from which `/v1/config` and the log take their names."""

from __future__ import annotations

from functools import partial

from frazil.rest import namespace_routes, planning_routes, server_routes, table_routes, view_routes
from frazil.rest.routing import Route
from frazil.wire.rest_messages import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RegisterViewRequest,
    RenameTableRequest,
    ReportMetricsRequest,
    UpdateNamespacePropertiesRequest,
)
from frazil.wire.scan_planning import FetchScanTasksRequest, PlanTableScanRequest

_NAMESPACES = "/v1/namespaces"
_NAMESPACE = "/v1/namespaces/{namespace}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"
_PLAN = f"{_TABLE}/plan/{{plan-id}}"
_VIEWS = f"{_NAMESPACE}/views"
_VIEW = f"{_VIEWS}/{{view}}"

_change = partial(Route, changes=True)
"""A route that changes the catalog."""
_commit = partial(Route, changes=True, commits=True)
"""A route that commits through a queue."""


ROUTES: tuple[Route, ...] = (
    # the server itself
    Route("GET", "/healthz", "getHealth", server_routes.get_health, open=True),
    Route("HEAD", "/healthz", "headHealth", server_routes.get_health, open=True),
    Route("GET", "/readyz", "getReadiness", server_routes.get_readiness, open=True),
    Route("HEAD", "/readyz", "headReadiness", server_routes.get_readiness, open=True),
    Route("GET", "/openapi.json", "getOpenApi", server_routes.get_openapi),
    Route("GET", "/metrics", "getMetrics", server_routes.get_metrics),
    Route("GET", "/v1/config", "getConfig", server_routes.get_config),
    # namespaces
    Route("GET", _NAMESPACES, "listNamespaces", namespace_routes.list_namespaces),
    _change(
        "POST",
        _NAMESPACES,
        "createNamespace",
        namespace_routes.create_namespace,
        CreateNamespaceRequest,
    ),
    Route("GET", _NAMESPACE, "loadNamespaceMetadata", namespace_routes.load_namespace),
    Route("HEAD", _NAMESPACE, "namespaceExists", namespace_routes.namespace_exists),
    _change("DELETE", _NAMESPACE, "dropNamespace", namespace_routes.drop_namespace),
    _change(
        "POST",
        f"{_NAMESPACE}/properties",
        "updateProperties",
        namespace_routes.update_properties,
        UpdateNamespacePropertiesRequest,
    ),
    # tables
    Route("GET", _TABLES, "listTables", table_routes.list_tables),
    _change("POST", _TABLES, "createTable", table_routes.create_table, CreateTableRequest),
    _change(
        "POST",
        f"{_NAMESPACE}/register",
        "registerTable",
        table_routes.register_table,
        RegisterTableRequest,
    ),
    Route("GET", _TABLE, "loadTable", table_routes.load_table),
    Route("HEAD", _TABLE, "tableExists", table_routes.table_exists),
    _commit("POST", _TABLE, "updateTable", table_routes.update_table, CommitTableRequest),
    _commit("DELETE", _TABLE, "dropTable", table_routes.drop_table),
    _commit("POST", f"{_TABLE}/unregister", "unregisterTable", table_routes.unregister_table),
    Route(
        "POST",
        f"{_TABLE}/metrics",
        "reportMetrics",
        table_routes.report_metrics,
        ReportMetricsRequest,
    ),
    _commit(
        "POST", "/v1/tables/rename", "renameTable", table_routes.rename_table, RenameTableRequest
    ),
    _commit(
        "POST",
        "/v1/transactions/commit",
        "commitTransaction",
        table_routes.commit_transaction,
        CommitTransactionRequest,
    ),
    # scans
    Route(
        "POST",
        f"{_TABLE}/plan",
        "planTableScan",
        planning_routes.plan_table_scan,
        PlanTableScanRequest,
    ),
    Route("GET", _PLAN, "fetchPlanningResult", planning_routes.fetch_planning_result),
    Route("DELETE", _PLAN, "cancelPlanning", planning_routes.cancel_planning),
    Route(
        "POST",
        f"{_TABLE}/tasks",
        "fetchScanTasks",
        planning_routes.fetch_scan_tasks,
        FetchScanTasksRequest,
    ),
    # views
    Route("GET", _VIEWS, "listViews", view_routes.list_views),
    _change("POST", _VIEWS, "createView", view_routes.create_view, CreateViewRequest),
    _change(
        "POST",
        f"{_NAMESPACE}/register-view",
        "registerView",
        view_routes.register_view,
        RegisterViewRequest,
    ),
    Route("GET", _VIEW, "loadView", view_routes.load_view),
    Route("HEAD", _VIEW, "viewExists", view_routes.view_exists),
    _commit("POST", _VIEW, "replaceView", view_routes.replace_view, CommitViewRequest),
    _commit("DELETE", _VIEW, "dropView", view_routes.drop_view),
    _commit("POST", "/v1/views/rename", "renameView", view_routes.rename_view, RenameTableRequest),
)
