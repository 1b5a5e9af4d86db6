"""`frazil.Client`: the namespaces and tables of a catalog, and changes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
from msgspec import Struct

from frazil.client.catalog_config import (
    CA_FILE_PROPERTY,
    client_arguments,
    outage_timeout_of,
    resolve_catalog,
)
from frazil.client.declare import client_view
from frazil.client.declare.client_table import Snapshot, SnapshotChoice, Table
from frazil.client.declare.client_view import LoadedView, View, ViewOptions, ViewText
from frazil.client.declare.metadata_updates import creation
from frazil.client.declare.table_definition import (
    CreateOptions,
    SchemaInput,
    creation_request,
)
from frazil.client.declare.table_verbs import (
    CatalogVerbs,
    Change,
    Commit,
    CommittedSnapshot,
    Pending,
    TableName,
    Transaction,
)
from frazil.client.rows.row_verbs import CatalogRowVerbs
from frazil.client.send.catalog_calls import (
    NAMESPACE_SEPARATOR,
    Calls,
    IdentifierName,
    NamespaceName,
    decode,
    identifier_of,
    namespace_of,
    namespace_path,
    table_path,
    tables_path,
    view_path,
    views_path,
)
from frazil.client.send.http_transport import (
    DEFAULT_TIMEOUT_S,
    Answer,
    HttpTransport,
    Request,
    Transport,
)
from frazil.client.send.job_calls import JobCalls
from frazil.client.send.lease_calls import (
    INTENT_TTL_S,
    LEASE_TTL_S,
    Holds,
    Intent,
    IntentCalls,
    Lease,
    LeaseCalls,
)
from frazil.client.send.outages import OUTAGE_TIMEOUT_S
from frazil.client.send.retry_policy import RetryPolicy
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    CommitStateUnknown,
    FrazilError,
    NoSuchView,
    NotFound,
)
from frazil.wire.file_actions import MAIN, Once
from frazil.wire.identifiers import Identifier, Namespace
from frazil.wire.rest_messages import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    RegisterTableRequest,
    RenameTableRequest,
    TableIdentifier,
    UpdateNamespacePropertiesRequest,
    table_identifier,
)
from frazil.wire.rest_updates import AssertTableUUID, TableRequirement

if TYPE_CHECKING:
    from frazil.client.declare.scan_plans import Plan, PlanOptions
    from frazil.wire.filter_builders import Filter

_MINIMAL = {"Prefer": "return=minimal"}


class _Loaded(Struct, frozen=True, rename="kebab"):
    metadata: dict[str, Any]
    metadata_location: str | None = None
    """None for a staged table."""
    config: dict[str, str] = {}


class _Committed(Struct, frozen=True, rename="kebab"):
    metadata_location: str
    committed: tuple[CommittedSnapshot, ...] = ()
    already_committed: bool = False
    identifier: TableIdentifier | None = None


class _CommittedTables(Struct, frozen=True):
    tables: tuple[_Committed, ...]


class Client(CatalogVerbs[Commit], CatalogRowVerbs):
    """A catalog. It is safe for use from several threads. Close it, or use it in `with`."""

    def __init__(
        self,
        uri: str | None = None,
        *,
        catalog: str | None = None,
        token: str | None = None,
        warehouse: str | None = None,
        prefix: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        ca_file: str | None = None,
        client_certificate: tuple[str, str] | None = None,
        retry: RetryPolicy | None = None,
        properties: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        outage_timeout_s: float | None = None,
        outage_default_s: float = OUTAGE_TIMEOUT_S,
    ) -> None:
        """Create a client of the catalog at `uri`, or of the configured catalog `catalog`.

        Without both, `FRAZIL_URI` or the configuration names the address; `resolve_catalog` says
        how. `retry` wins over the `commit.retry.*` properties of tables. `transport` replaces all
        options of the connection. `properties`, such as `s3.access-key-id`, are for reading
        Parquet footers.

        A call waits up to `outage_timeout_s` for a server that is away, or as long as the property
        `frazil.outage-timeout-s` says, or else for `outage_default_s`. A time that is chosen also
        ends the wait for an unknown outcome, which by default lasts as long as the server
        remembers the request.
        """
        self._properties = dict(properties or {})
        self._http = None
        address = None
        if transport is None:
            named = {"uri": uri, "token": token, "warehouse": warehouse, CA_FILE_PROPERTY: ca_file}
            resolved = resolve_catalog(named, catalog=catalog)
            arguments = client_arguments(resolved.properties)
            self._properties = {**resolved.storage_properties, **self._properties}
            warehouse, prefix = arguments.get("warehouse"), prefix or arguments.get("prefix")
            address = arguments["uri"]
            transport = self._http = HttpTransport(
                arguments["uri"],
                token=arguments.get("token"),
                headers={**arguments.get("headers", {}), **(headers or {})},
                timeout_s=timeout_s,
                ca_file=arguments.get("ca_file"),
                client_certificate=client_certificate or arguments.get("client_certificate"),
            )
        if outage_timeout_s is None:
            outage_timeout_s = outage_timeout_of(self._properties)
        self._calls = Calls(
            transport,
            warehouse=warehouse,
            prefix=prefix,
            retry=retry,
            address=address,
            outage_timeout_s=outage_timeout_s,
            outage_default_s=outage_default_s,
        )
        self._holds = Holds(self._calls)
        self.jobs = JobCalls(self._calls)
        """The jobs of maintenance."""

    def close(self) -> None:
        """Close the connections. Leases and intents that are still held end by themselves."""
        self._holds.close()
        if self._http is not None:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- namespaces ----------------------------------------------------------------------------

    def list_namespaces(self, parent: NamespaceName | None = None) -> list[Namespace]:
        """Return the namespaces inside `parent`, or those of the first level."""
        levels = () if parent is None else namespace_of(parent)
        query = {"parent": NAMESPACE_SEPARATOR.join(levels)} if levels else {}
        with self._calls.hints(namespace_path(levels)):
            pages = self._calls.pages("namespaces", query)
            return [tuple(each) for page in pages for each in page["namespaces"]]

    def create_namespace(
        self,
        namespace: NamespaceName,
        properties: Mapping[str, str] | None = None,
        *,
        if_not_exists: bool = False,
    ) -> None:
        """Create a namespace, and its parents if they are missing.

        A name is `"a.b"` or `("a", "b")`. With `if_not_exists`, a namespace that is there already
        stays as it is.
        """
        request = CreateNamespaceRequest(namespace_of(namespace), dict(properties or {}))
        with _tolerated(AlreadyExists, tolerated=if_not_exists):
            self._post("namespaces", request)

    def load_namespace(self, namespace: NamespaceName) -> dict[str, str]:
        """Return the properties of a namespace."""
        answer = self._calls.get(namespace_path(namespace_of(namespace)))
        properties: dict[str, str] = decode(answer, dict[str, Any]).get("properties") or {}
        return properties

    def namespace_exists(self, namespace: NamespaceName) -> bool:
        """Return whether there is a namespace of this name."""
        return self._calls.exists(namespace_path(namespace_of(namespace)))

    def drop_namespace(self, namespace: NamespaceName, *, if_exists: bool = False) -> None:
        """Drop an empty namespace; with `if_exists` it may be missing."""
        with _tolerated(NotFound, tolerated=if_exists):
            self._delete(namespace_path(namespace_of(namespace)))

    def update_namespace(
        self,
        namespace: NamespaceName,
        updates: Mapping[str, str] | None = None,
        removals: Iterable[str] = (),
    ) -> list[str]:
        """Set and remove properties of a namespace; return the removals that were not set."""
        request = UpdateNamespacePropertiesRequest(tuple(removals), dict(updates or {}))
        answer = self._post(f"{namespace_path(namespace_of(namespace))}/properties", request)
        return list(decode(answer, dict[str, Any], CommitStateUnknown).get("missing") or ())

    # --- tables --------------------------------------------------------------------------------

    def list_tables(self, namespace: NamespaceName) -> list[Identifier]:
        """Return the names of the tables in a namespace."""
        return self._identifiers(tables_path(namespace_of(namespace)))

    def load_table(self, name: IdentifierName, snapshots: SnapshotChoice = "all") -> Table:
        """Load a table; with `snapshots="refs"` only the snapshots that refs point to."""
        identifier = identifier_of(name)
        answer = self._calls.get(table_path(identifier), {"snapshots": snapshots})
        return self._table(identifier, decode(answer, _Loaded))

    def table_exists(self, name: IdentifierName) -> bool:
        """Return whether there is a table of this name; a view is none."""
        return self._calls.exists(table_path(identifier_of(name)))

    def create_table(
        self,
        name: IdentifierName,
        schema: SchemaInput,
        *,
        if_not_exists: bool = False,
        **options: Unpack[CreateOptions],
    ) -> Table:
        """Create a table.

        `schema` is a pyarrow schema, a text such as `"id long not null, at timestamptz"`, a mapping
        from names to types, or the JSON of Iceberg's specification. With `if_not_exists`, return
        the table that is there already, whatever its columns are.
        """
        try:
            return self._create(name, schema, options, stage=False)
        except AlreadyExists:
            if not if_not_exists:
                raise
        return self.load_table(name)

    def stage_table(
        self, name: IdentifierName, schema: SchemaInput, **options: Unpack[CreateOptions]
    ) -> Table:
        """Return a table that its first change creates: it appears with its data, or not at all."""
        return self._create(name, schema, options, stage=True)

    def _create(
        self, name: IdentifierName, schema: SchemaInput, options: CreateOptions, *, stage: bool
    ) -> Table:
        identifier = identifier_of(name)
        request = creation_request(identifier, schema, options, stage=stage)
        answer = self._post(tables_path(identifier.namespace), request)
        table = self._table(identifier, decode(answer, _Loaded, CommitStateUnknown))
        return replace(table, is_staged=stage)

    def register_table(
        self, name: IdentifierName, metadata_location: str, *, overwrite: bool = False
    ) -> Table:
        """Register a table whose files exist, by the URL of its newest metadata file."""
        identifier = identifier_of(name)
        request = RegisterTableRequest(identifier.name, metadata_location, overwrite)
        answer = self._post(f"{namespace_path(identifier.namespace)}/register", request)
        return self._table(identifier, decode(answer, _Loaded, CommitStateUnknown))

    def drop_table(
        self,
        name: IdentifierName,
        *,
        purge: bool = False,
        now: bool = False,
        if_exists: bool = False,
    ) -> None:
        """Drop a table. With `purge` its files are deleted after its quarantine, with `now` at
        once. With `if_exists` it may be missing."""
        query = {"purgeRequested": "true" if purge else "false"}
        if now:
            query["frazil-now"] = "true"
        with _tolerated(NotFound, tolerated=if_exists):
            self._delete(table_path(identifier_of(name)), query)

    def unregister_table(self, name: IdentifierName) -> str:
        """Remove a table from the catalog without its files; return its metadata location."""
        answer = self._post(f"{table_path(identifier_of(name))}/unregister")
        return decode(answer, _Loaded, CommitStateUnknown).metadata_location or ""

    def rename_table(self, name: IdentifierName, to: IdentifierName) -> None:
        """Rename a table, or move it to another namespace; its files stay where they are."""
        self._rename("tables", name, to)

    def history(self, table: TableName, ref: str | int = MAIN) -> list[Snapshot]:
        """Load the snapshots of a branch or tag, newest first; an empty table has none.

        `Table.ancestors` returns those that were known when the table was loaded.
        """
        loaded = self.load_table(table.identifier if isinstance(table, Table) else table)
        if ref == MAIN and MAIN not in loaded.refs:
            return []
        return list(loaded.ancestors(ref))

    # --- views ---------------------------------------------------------------------------------

    def list_views(self, namespace: NamespaceName) -> list[Identifier]:
        """Return the names of the views in a namespace."""
        return self._identifiers(views_path(namespace_of(namespace)))

    def load_view(self, name: IdentifierName) -> View:
        """Load a view with all of its versions."""
        identifier = identifier_of(name)
        return decode(self._calls.get(view_path(identifier)), LoadedView).view(identifier)

    def view_exists(self, name: IdentifierName) -> bool:
        """Return whether there is a view of this name."""
        return self._calls.exists(view_path(identifier_of(name)))

    def create_view(
        self,
        name: IdentifierName,
        schema: SchemaInput,
        sql: ViewText,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Create a view. `sql` is a text in Spark's dialect, or has the texts by dialect.

        `schema` describes the columns of the query, as for `create_table`.
        """
        identifier = identifier_of(name)
        request = client_view.creation(identifier, schema, sql, options)
        answer = self._post(views_path(identifier.namespace), request)
        return decode(answer, LoadedView, CommitStateUnknown).view(identifier)

    def replace_view(
        self,
        name: IdentifierName,
        schema: SchemaInput,
        sql: ViewText,
        *,
        or_create: bool = False,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Give a view a new version. `properties` are set; the view keeps its others."""
        if not or_create:
            return self._change_view(
                name, lambda view: client_view.replacement(view, schema, sql, options)
            )
        try:
            return self.replace_view(name, schema, sql, **options)
        except NoSuchView:
            pass
        try:
            return self.create_view(name, schema, sql, **options)
        except AlreadyExists as taken:
            try:
                return self.replace_view(name, schema, sql, **options)
            except NoSuchView:
                raise taken from None  # The name is that of a table.

    def update_view(
        self,
        name: IdentifierName,
        updates: Mapping[str, str] | None = None,
        removals: Iterable[str] = (),
    ) -> View:
        """Set and remove properties of a view."""
        removed = tuple(removals)
        return self._change_view(
            name, lambda view: client_view.property_change(view, updates or {}, removed)
        )

    def rename_view(self, name: IdentifierName, to: IdentifierName) -> None:
        """Rename a view, or move it to another namespace."""
        self._rename("views", name, to)

    def drop_view(self, name: IdentifierName, *, if_exists: bool = False) -> None:
        """Drop a view; with `if_exists` it may be missing."""
        with _tolerated(NotFound, tolerated=if_exists):
            self._delete(view_path(identifier_of(name)))

    def _change_view(
        self, name: IdentifierName, change: Callable[[View], CommitViewRequest]
    ) -> View:
        """Commit a change, which is built again on the current metadata if that has moved."""
        identifier = identifier_of(name)
        path = self._calls.path(view_path(identifier))

        def build() -> Request:
            return Request("POST", path, msgspec.json.encode(change(self.load_view(identifier))))

        answer = self._calls.submit(build, rebuilds=True).answer
        return decode(answer, LoadedView, CommitStateUnknown).view(identifier)

    # --- changes -------------------------------------------------------------------------------

    def table(self, name: TableName) -> Table:
        """Load a table with its current heads as the base of changes."""
        return name if isinstance(name, Table) else self.load_table(name, snapshots="refs")

    def transaction(self) -> Transaction:
        """Begin a transaction: changes of several tables in one commit."""
        return Transaction(self.table, self._commit_all)

    # --- leases and intents ---------------------------------------------------------------------

    def lease(
        self,
        table: TableName,
        snapshot: str | int | None = None,
        *,
        ttl_s: float = LEASE_TTL_S,
        holder: str | None = None,
    ) -> Lease:
        """Hold a snapshot in a `with` block, so that it does not expire and keeps its files.

        `snapshot` is an id, a branch or a tag, by default the head of main; for a loaded table the
        head that was loaded. The lease is renewed until the block ends, and ends `ttl_s` seconds
        after this process has died.
        """
        if isinstance(table, Table):
            return table.lease(snapshot, ttl_s=ttl_s, holder=holder)
        return self._holds.lease(identifier_of(table), snapshot, ttl_s=ttl_s, holder=holder)

    def intent(
        self,
        table: TableName,
        prefix: str,
        *,
        ttl_s: float = INTENT_TTL_S,
        holder: str | None = None,
    ) -> Intent:
        """Hold a folder in a `with` block, so that no file in it is deleted before its commit.

        `prefix` is a new folder below the table's folder of data, which no other write uses.
        """
        identifier = table.identifier if isinstance(table, Table) else identifier_of(table)
        return self._holds.intent(identifier, prefix, ttl_s=ttl_s, holder=holder)

    @property
    def leases(self) -> LeaseCalls:
        """Take, renew, release and list leases, without a thread that renews them."""
        return self._holds.leases

    @property
    def intents(self) -> IntentCalls:
        """Declare, renew, end and list intents, without a thread that renews them."""
        return self._holds.intents

    # --- requests -------------------------------------------------------------------------------

    def _commit(self, table: Table, change: Change) -> Commit:
        path = self._calls.path(table_path(table.identifier))

        def build() -> Request:
            body = _request(self._fresh_base(table, (change,)), (change,))
            return Request("POST", path, msgspec.json.encode(body), _MINIMAL)

        accepted = self._calls.submit(build, table.properties, rebuilds=change.rebuilds)
        committed = decode(accepted.answer, _Committed, CommitStateUnknown)
        return _commit_of(table.identifier, committed, accepted.attempts)

    def _commit_all(self, pending: Sequence[Pending]) -> tuple[Commit, ...]:
        path = self._calls.path("transactions/commit")

        def build() -> Request:
            requests = tuple(
                _request(
                    self._fresh_base(table, changes), changes, table_identifier(table.identifier)
                )
                for table, changes in pending
            )
            body = CommitTransactionRequest(table_changes=requests)
            return Request("POST", path, msgspec.json.encode(body), _MINIMAL)

        rebuilds = any(change.rebuilds for _, changes in pending for change in changes)
        properties = pending[0][0].properties
        accepted = self._calls.submit(build, properties, rebuilds=rebuilds)
        committed = decode(accepted.answer, _CommittedTables, CommitStateUnknown).tables
        return tuple(
            _commit_of(table.identifier, result, accepted.attempts)
            for (table, _), result in zip(pending, committed, strict=True)
        )

    def _fresh_base(self, table: Table, changes: Sequence[Change]) -> Table:
        """Return the table to build changes on, loaded again at each attempt if they depend on it.

        Changes that depend on the table's state need all of its snapshots as they are now: `table`
        may be old or know only the heads of refs. Declared files keep the base that was read.
        """
        if table.is_staged or not any(change.rebuilds for change in changes):
            return table
        return self._reload(table)

    def _table(self, identifier: Identifier, loaded: _Loaded) -> Table:
        catalog = self._calls.config
        # The order of Iceberg's clients: the catalog's defaults, the user's properties, the
        # catalog's overrides, the table's own config. Later ones win.
        config = {**catalog.defaults, **self._properties, **catalog.overrides, **loaded.config}
        return Table(
            identifier,
            loaded.metadata,
            loaded.metadata_location or "",
            config,
            committer=self._commit,
            planner=self._plan,
            reloader=self._reload,
            retries=lambda table: self._calls.retry_budget(table.properties),
            holds=self._holds,
            job_calls=self.jobs,
        )

    def _reload(self, table: Table, snapshots: SnapshotChoice = "all") -> Table:
        loaded = self.load_table(table.identifier, snapshots)
        if loaded.uuid != table.uuid:
            raise BadRequest(f"{table} is another table now than when it was loaded: load it again")
        return loaded

    def _plan(self, table: Table, filter: Filter | None, options: PlanOptions) -> Plan:
        from frazil.client.declare.scan_plans import Planning, plan_request

        request = plan_request(table, filter, options)
        return Planning(self._calls, table.identifier, options).plan(request)

    def _identifiers(self, path: str) -> list[Identifier]:
        return [
            Identifier(tuple(item["namespace"]), item["name"])
            for page in self._calls.pages(path)
            for item in page["identifiers"]
        ]

    def _post(self, path: str, request: Struct | None = None) -> Answer:
        body = None if request is None else msgspec.json.encode(request)
        post = Request("POST", self._calls.path(path), body)
        with self._calls.hints(path):
            return self._calls.submit(lambda: post).answer

    def _rename(self, kind: str, name: IdentifierName, to: IdentifierName) -> None:
        old, new = identifier_of(name), identifier_of(to)
        request = RenameTableRequest(table_identifier(old), table_identifier(new))
        path = table_path(old) if kind == "tables" else view_path(old)
        with self._calls.hints(namespace_path(new.namespace)), self._calls.hints(path):
            self._post(f"{kind}/rename", request)

    def _delete(self, path: str, query: Mapping[str, str] | None = None) -> None:
        delete = Request("DELETE", self._calls.path(path), query=query or {})
        with self._calls.hints(path):
            self._calls.submit(lambda: delete)


@contextmanager
def _tolerated(error: type[FrazilError], *, tolerated: bool) -> Iterator[None]:
    """Ignore an error which shows that there is nothing to do."""
    try:
        yield
    except error:
        if not tolerated:
            raise


def _request(
    table: Table, changes: Sequence[Change], identifier: TableIdentifier | None = None
) -> CommitTableRequest:
    built = [change.build(table) for change in changes]
    guard: tuple[TableRequirement, ...] = ()
    if table.is_staged:
        built.insert(0, creation(table))
    else:
        guard = (AssertTableUUID(table.uuid),)
    requirements = {requirement: None for _, asserted in built for requirement in asserted}
    return CommitTableRequest(
        requirements=(*guard, *requirements),
        updates=tuple(update for updates, _ in built for update in updates),
        identifier=identifier,
        once=_once(changes),
    )


def _once(changes: Sequence[Change]) -> Once | None:
    epochs = {change.once for change in changes if change.once is not None}
    if len(epochs) > 1:
        raise BadRequest("once: all operations on a table must carry the same stream and epoch")
    return next(iter(epochs), None)


def _commit_of(identifier: Identifier, committed: _Committed, attempts: int) -> Commit:
    return Commit(
        identifier=identifier,
        metadata_location=committed.metadata_location,
        snapshots=committed.committed,
        already_committed=committed.already_committed,
        attempts=attempts,
    )
