"""The table of all routes, from which `/v1/config` and the log take their names."""

from __future__ import annotations

from functools import partial

from frazil.rest import catalog_routes as catalog
from frazil.rest import job_routes as jobs
from frazil.rest import lease_routes as leases
from frazil.rest import server_routes as server
from frazil.rest.housekeeping_routes import explain_file
from frazil.rest.routing import Route
from frazil.wire.job_messages import ClaimJobRequest, ReportJobRequest, StartJobRequest
from frazil.wire.leases import DeclareIntentRequest, RenewRequest, TakeLeaseRequest
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
_OWN = "/frazil/v1"
"""The routes that the REST specification does not know."""
_OWN_TABLE = f"{_OWN}/namespaces/{{namespace}}/tables/{{table}}"
_LEASES = f"{_OWN_TABLE}/leases"
_LEASE = f"{_LEASES}/{{lease-id}}"
_INTENTS = f"{_OWN_TABLE}/intents"
_INTENT = f"{_INTENTS}/{{intent-id}}"

_change = partial(Route, changes=True)
"""A route that changes the catalog."""
_commit = partial(Route, changes=True, commits=True)
"""A route that commits through a queue."""


ROUTES: tuple[Route, ...] = (
    # the server itself
    Route("GET", "/healthz", "getHealth", server.get_health, open=True),
    Route("HEAD", "/healthz", "headHealth", server.get_health, open=True),
    Route("GET", "/readyz", "getReadiness", server.get_readiness, open=True),
    Route("HEAD", "/readyz", "headReadiness", server.get_readiness, open=True),
    Route("GET", "/openapi.json", "getOpenApi", server.get_openapi),
    Route("GET", "/metrics", "getMetrics", server.get_metrics),
    Route("GET", "/v1/config", "getConfig", server.get_config),
    # namespaces
    Route("GET", _NAMESPACES, "listNamespaces", catalog.list_namespaces),
    _change(
        "POST", _NAMESPACES, "createNamespace", catalog.create_namespace, CreateNamespaceRequest
    ),
    Route("GET", _NAMESPACE, "loadNamespaceMetadata", catalog.load_namespace),
    Route("HEAD", _NAMESPACE, "namespaceExists", catalog.namespace_exists),
    _change("DELETE", _NAMESPACE, "dropNamespace", catalog.drop_namespace),
    _change(
        "POST",
        f"{_NAMESPACE}/properties",
        "updateProperties",
        catalog.update_properties,
        UpdateNamespacePropertiesRequest,
    ),
    # tables
    Route("GET", _TABLES, "listTables", catalog.list_tables),
    _change("POST", _TABLES, "createTable", catalog.create_table, CreateTableRequest),
    _change(
        "POST",
        f"{_NAMESPACE}/register",
        "registerTable",
        catalog.register_table,
        RegisterTableRequest,
    ),
    Route("GET", _TABLE, "loadTable", catalog.load_table),
    Route("HEAD", _TABLE, "tableExists", catalog.table_exists),
    _commit("POST", _TABLE, "updateTable", catalog.update_table, CommitTableRequest),
    _commit("DELETE", _TABLE, "dropTable", catalog.drop_table),
    _commit("POST", f"{_TABLE}/unregister", "unregisterTable", catalog.unregister_table),
    Route(
        "POST", f"{_TABLE}/metrics", "reportMetrics", catalog.report_metrics, ReportMetricsRequest
    ),
    _commit("POST", "/v1/tables/rename", "renameTable", catalog.rename_table, RenameTableRequest),
    _commit(
        "POST",
        "/v1/transactions/commit",
        "commitTransaction",
        catalog.commit_transaction,
        CommitTransactionRequest,
    ),
    # scans
    Route("POST", f"{_TABLE}/plan", "planTableScan", catalog.plan_table_scan, PlanTableScanRequest),
    Route("GET", _PLAN, "fetchPlanningResult", catalog.fetch_planning_result),
    Route("DELETE", _PLAN, "cancelPlanning", catalog.cancel_planning),
    Route(
        "POST",
        f"{_TABLE}/tasks",
        "fetchScanTasks",
        catalog.fetch_scan_tasks,
        FetchScanTasksRequest,
    ),
    # views
    Route("GET", _VIEWS, "listViews", catalog.list_views),
    _change("POST", _VIEWS, "createView", catalog.create_view, CreateViewRequest),
    _change(
        "POST",
        f"{_NAMESPACE}/register-view",
        "registerView",
        catalog.register_view,
        RegisterViewRequest,
    ),
    Route("GET", _VIEW, "loadView", catalog.load_view),
    Route("HEAD", _VIEW, "viewExists", catalog.view_exists),
    _commit("POST", _VIEW, "replaceView", catalog.replace_view, CommitViewRequest),
    _commit("DELETE", _VIEW, "dropView", catalog.drop_view),
    _commit("POST", "/v1/views/rename", "renameView", catalog.rename_view, RenameTableRequest),
    # jobs of maintenance
    Route("GET", f"{_OWN}/files", "explainFile", explain_file),
    Route("GET", f"{_OWN}/jobs", "listJobs", jobs.list_jobs),
    _change("POST", f"{_OWN}/jobs/claim", "claimJob", jobs.claim_job, ClaimJobRequest),
    _change(
        "POST", f"{_OWN}/jobs/{{job-id}}/progress", "reportJob", jobs.report_job, ReportJobRequest
    ),
    Route("GET", f"{_OWN_TABLE}/health", "getTableHealth", jobs.get_table_health),
    Route("GET", f"{_OWN_TABLE}/jobs", "listTableJobs", jobs.list_table_jobs),
    _change("POST", f"{_OWN_TABLE}/jobs", "startJob", jobs.start_job, StartJobRequest),
    Route("GET", f"{_OWN_TABLE}/jobs/{{job-id}}", "loadTableJob", jobs.load_table_job),
    _change("DELETE", f"{_OWN_TABLE}/jobs/{{job-id}}", "cancelTableJob", jobs.cancel_table_job),
    # leases and intents
    Route("POST", _LEASES, "takeLease", leases.take_lease, TakeLeaseRequest),
    Route("GET", _LEASES, "listLeases", leases.list_leases),
    Route("POST", _LEASE, "renewLease", leases.renew_lease, RenewRequest),
    Route("DELETE", _LEASE, "releaseLease", leases.release_lease),
    _change("POST", _INTENTS, "declareIntent", leases.declare_intent, DeclareIntentRequest),
    Route("GET", _INTENTS, "listIntents", leases.list_intents),
    _change("POST", _INTENT, "renewIntent", leases.renew_intent, RenewRequest),
    _change("DELETE", _INTENT, "endIntent", leases.end_intent),
)
