"""The one table of routes. `/v1/config`, the log and the OpenAPI file's test are made from it."""

from __future__ import annotations

from frazil.rest import namespaces, planning, service, tables, views
from frazil.rest.routing import Route
from frazil.wire.planning import FetchScanTasksRequest, PlanTableScanRequest
from frazil.wire.requests import (
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

_NAMESPACES = "/v1/namespaces"
_NAMESPACE = "/v1/namespaces/{namespace}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"
_PLAN = f"{_TABLE}/plan/{{plan-id}}"
_VIEWS = f"{_NAMESPACE}/views"
_VIEW = f"{_VIEWS}/{{view}}"


ROUTES: tuple[Route, ...] = (
    # the server itself
    Route("GET", "/healthz", "getHealth", service.get_health, open=True),
    Route("HEAD", "/healthz", "headHealth", service.get_health, open=True),
    Route("GET", "/readyz", "getReadiness", service.get_readiness, open=True),
    Route("HEAD", "/readyz", "headReadiness", service.get_readiness, open=True),
    Route("GET", "/openapi.json", "getOpenApi", service.get_openapi),
    Route("GET", "/metrics", "getMetrics", service.get_metrics),
    Route("GET", "/v1/config", "getConfig", service.get_config),
    # namespaces
    Route("GET", _NAMESPACES, "listNamespaces", namespaces.list_namespaces),
    Route(
        "POST",
        _NAMESPACES,
        "createNamespace",
        namespaces.create_namespace,
        CreateNamespaceRequest,
        changes=True,
    ),
    Route("GET", _NAMESPACE, "loadNamespaceMetadata", namespaces.load_namespace),
    Route("HEAD", _NAMESPACE, "namespaceExists", namespaces.namespace_exists),
    Route("DELETE", _NAMESPACE, "dropNamespace", namespaces.drop_namespace, changes=True),
    Route(
        "POST",
        f"{_NAMESPACE}/properties",
        "updateProperties",
        namespaces.update_properties,
        UpdateNamespacePropertiesRequest,
        changes=True,
    ),
    # tables
    Route("GET", _TABLES, "listTables", tables.list_tables),
    Route("POST", _TABLES, "createTable", tables.create_table, CreateTableRequest, changes=True),
    Route(
        "POST",
        f"{_NAMESPACE}/register",
        "registerTable",
        tables.register_table,
        RegisterTableRequest,
        changes=True,
    ),
    Route("GET", _TABLE, "loadTable", tables.load_table),
    Route("HEAD", _TABLE, "tableExists", tables.table_exists),
    Route(
        "POST",
        _TABLE,
        "updateTable",
        tables.update_table,
        CommitTableRequest,
        changes=True,
        commits=True,
    ),
    Route("DELETE", _TABLE, "dropTable", tables.drop_table, changes=True, commits=True),
    Route(
        "POST",
        f"{_TABLE}/unregister",
        "unregisterTable",
        tables.unregister_table,
        changes=True,
        commits=True,
    ),
    Route(
        "POST", f"{_TABLE}/metrics", "reportMetrics", tables.report_metrics, ReportMetricsRequest
    ),
    Route(
        "POST",
        "/v1/tables/rename",
        "renameTable",
        tables.rename_table,
        RenameTableRequest,
        changes=True,
        commits=True,
    ),
    Route(
        "POST",
        "/v1/transactions/commit",
        "commitTransaction",
        tables.commit_transaction,
        CommitTransactionRequest,
        changes=True,
        commits=True,
    ),
    # scans
    Route(
        "POST", f"{_TABLE}/plan", "planTableScan", planning.plan_table_scan, PlanTableScanRequest
    ),
    Route("GET", _PLAN, "fetchPlanningResult", planning.fetch_planning_result),
    Route("DELETE", _PLAN, "cancelPlanning", planning.cancel_planning),
    Route(
        "POST",
        f"{_TABLE}/tasks",
        "fetchScanTasks",
        planning.fetch_scan_tasks,
        FetchScanTasksRequest,
    ),
    # views
    Route("GET", _VIEWS, "listViews", views.list_views),
    Route("POST", _VIEWS, "createView", views.create_view, CreateViewRequest, changes=True),
    Route(
        "POST",
        f"{_NAMESPACE}/register-view",
        "registerView",
        views.register_view,
        RegisterViewRequest,
        changes=True,
    ),
    Route("GET", _VIEW, "loadView", views.load_view),
    Route("HEAD", _VIEW, "viewExists", views.view_exists),
    Route(
        "POST",
        _VIEW,
        "replaceView",
        views.replace_view,
        CommitViewRequest,
        changes=True,
        commits=True,
    ),
    Route("DELETE", _VIEW, "dropView", views.drop_view, changes=True, commits=True),
    Route(
        "POST",
        "/v1/views/rename",
        "renameView",
        views.rename_view,
        RenameTableRequest,
        changes=True,
        commits=True,
    ),
)
