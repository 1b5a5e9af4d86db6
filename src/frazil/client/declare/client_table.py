"""A table as it was loaded: an immutable view of its metadata.

The head of the branch at the time of loading is the base of operations: it is what the caller read,
and the server checks the commits since then for conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from msgspec import Struct, convert

from frazil.client.declare.table_verbs import Change, Commit, TableVerbs
from frazil.client.rows.row_verbs import RowVerbs
from frazil.client.send.lease_calls import INTENT_TTL_S, LEASE_TTL_S, Holds, Intent, Lease
from frazil.datafiles.portable_table import TableMetadataMixin
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.declare.scan_plans import Plan, PlanOptions
    from frazil.client.send.job_calls import JobCalls
    from frazil.client.send.retry_policy import RetryBudget
    from frazil.wire.filter_builders import Filter


SnapshotChoice: TypeAlias = Literal["all", "refs"]
"""Which snapshots to load: all, or only those that refs point to."""


class Ref(Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A branch or a tag."""

    snapshot_id: int
    type: str
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


class Snapshot(Struct, frozen=True, rename="kebab"):
    """One snapshot of the table, without its files."""

    snapshot_id: int
    timestamp_ms: int
    manifest_list: str | None = None
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    """0 in tables of version 1, which have no sequence numbers."""
    summary: dict[str, str] = {}
    schema_id: int | None = None

    @property
    def operation(self) -> str | None:
        return self.summary.get("operation")


@dataclass(frozen=True)
class Table(TableMetadataMixin, TableVerbs[Commit], RowVerbs):
    """A loaded table, whose methods such as `append_files` commit at once."""

    identifier: Identifier
    metadata: Mapping[str, Any] = field(repr=False)
    """The JSON of the table's metadata as the catalog returned it."""
    metadata_location: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The catalog's properties for access to this table's files."""
    committer: Callable[[Table, Change], Commit] | None = field(
        default=None, repr=False, compare=False
    )
    """Commits changes; a method of the client that loaded the table."""
    planner: Callable[[Table, Filter | None, PlanOptions], Plan] | None = field(
        default=None, repr=False, compare=False
    )
    """Plans scans; a method of the client that loaded the table."""
    reloader: Callable[[Table, SnapshotChoice], Table] | None = field(
        default=None, repr=False, compare=False
    )
    """Loads the table as it is now; a method of the client that loaded it."""
    retries: Callable[[Table], RetryBudget] | None = field(default=None, repr=False, compare=False)
    """Returns how often and how long a statement is retried; a method of the client."""
    holds: Holds | None = field(default=None, repr=False, compare=False)
    """Holds leases and intents, for the client that loaded the table."""
    job_calls: JobCalls | None = field(default=None, repr=False, compare=False)
    """The jobs of maintenance of the client that loaded the table."""
    is_staged: bool = False
    """The table does not exist yet; its first change creates it."""

    def __str__(self) -> str:
        return str(self.identifier)

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])

    def refreshed(self, snapshots: SnapshotChoice = "all") -> Table:
        """Load the table again, as it is now; a staged table is not there yet."""
        if self.is_staged:
            return self
        if self.reloader is None:
            raise BadRequest(f"{self} was not loaded by a client, so it cannot be loaded again")
        return self.reloader(self, snapshots)

    @property
    def jobs(self) -> JobCalls:
        """Return the jobs of the catalog that the table was loaded from."""
        if self.job_calls is None:
            raise BadRequest(f"{self} was not loaded by a client, so it has no jobs")
        return self.job_calls

    def retry_budget(self) -> RetryBudget:
        """Return the retries of one statement, by the client's policy or the table's properties."""
        if self.retries is None:
            raise BadRequest(f"{self} was not loaded by a client, so nothing can be committed")
        return self.retries(self)

    # --- snapshots and refs --------------------------------------------------------------------

    @cached_property
    def refs(self) -> Mapping[str, Ref]:
        refs = convert(self.metadata.get("refs") or {}, dict[str, Ref])
        current = self.metadata.get("current-snapshot-id")
        if MAIN not in refs and current is not None and current >= 0:
            # Old metadata has no refs; the current snapshot is the head of main.
            refs[MAIN] = Ref(current, "branch")
        return MappingProxyType(refs)

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The loaded snapshots; with `snapshots="refs"` only the heads of branches and tags."""
        return convert(self.metadata.get("snapshots") or [], tuple[Snapshot, ...])

    @cached_property
    def _snapshots_by_id(self) -> Mapping[int, Snapshot]:
        return {snapshot.snapshot_id: snapshot for snapshot in self.snapshots}

    def head(self, branch: str = MAIN) -> int | None:
        """Return the parent of the next snapshot on a branch.

        A branch that does not exist yet starts at the head of main.
        """
        ref = self.refs.get(branch) or self.refs.get(MAIN)
        return None if ref is None else ref.snapshot_id

    def snapshot(self, ref_or_id: str | int) -> Snapshot:
        """Return the snapshot of a branch, a tag or an id; a ref named like an id wins."""
        snapshot_id: int | None = None
        if isinstance(ref_or_id, int):
            snapshot_id = ref_or_id
        elif ref_or_id in self.refs:
            snapshot_id = self.refs[ref_or_id].snapshot_id
        elif ref_or_id.isdigit():
            snapshot_id = int(ref_or_id)
        snapshot = None if snapshot_id is None else self._snapshots_by_id.get(snapshot_id)
        if snapshot is None:
            refs = ", ".join(sorted(self.refs)) or "none"
            raise NotFound(f"{self} has no snapshot, branch or tag {ref_or_id}; its refs: {refs}")
        return snapshot

    def ancestors(self, ref_or_id: str | int = MAIN) -> Iterator[Snapshot]:
        """Yield a snapshot and its ancestors, newest first, as far as they are known."""
        snapshot: Snapshot | None = self.snapshot(ref_or_id)
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._snapshots_by_id.get(parent)

    # --- scans ---------------------------------------------------------------------------------

    def plan(self, filter: Filter | None = None, **options: Unpack[PlanOptions]) -> Plan:
        """Let the catalog plan a scan: the files to read, with their deletes and residual filters.

        Plans `snapshot`, a ref or an id, by default the head of main when the table was loaded. Or
        plans the files appended after `from_snapshot` up to `to_snapshot`, by default that head.
        """
        if self.planner is None:
            raise BadRequest(f"{self} was not loaded by a client, so nothing can be planned")
        return self.planner(self, filter, options)

    @contextmanager
    def leased_plans(self, *, is_base: bool = False) -> Iterator[Table]:
        """Yield this table with plans whose snapshots keep their files until the block ends.

        The same holds for tables that the yielded one is refreshed to. With `is_base` the snapshots
        after them stay too, because a commit is checked against them. Without leases of its own,
        the catalog keeps a planned snapshot for a day, because it cannot know when its reader has
        finished.
        """
        if self.planner is None or self.reloader is None:
            yield self
            return
        planner, reloader, holds = self.planner, self.reloader, self._holds
        with ExitStack() as held:

            def plan(table: Table, filter: Filter | None, options: PlanOptions) -> Plan:
                lease = holds.plan_lease(table.identifier, is_base=is_base)
                planned = planner(table, filter, {**options, "lease_id": lease.lease_id})
                if planned.is_leased:
                    held.enter_context(lease)
                return planned

            def reload(table: Table, snapshots: SnapshotChoice) -> Table:
                return replace(reloader(table, snapshots), planner=plan, reloader=reload)

            yield replace(self, planner=plan, reloader=reload)

    # --- leases and intents --------------------------------------------------------------------

    def lease(
        self,
        snapshot: str | int | None = None,
        *,
        ttl_s: float = LEASE_TTL_S,
        holder: str | None = None,
    ) -> Lease:
        """Hold a snapshot in a `with` block, so that it does not expire and keeps its files.

        `snapshot` is an id, a branch or a tag, by default the head of main, all as the table was
        loaded.
        """
        if snapshot is None and MAIN not in self.refs:
            raise NotFound(f"{self} has no snapshot yet, so there is nothing to lease")
        if not isinstance(snapshot, int):
            snapshot = self.snapshot(MAIN if snapshot is None else snapshot).snapshot_id
        return self._holds.lease(self.identifier, snapshot, ttl_s=ttl_s, holder=holder)

    def intent(
        self, prefix: str, *, ttl_s: float = INTENT_TTL_S, holder: str | None = None
    ) -> Intent:
        """Hold a folder in a `with` block, so that no file in it is deleted before its commit.

        `prefix` is a new folder below the table's folder of data, which no other write uses.
        """
        return self._holds.intent(self.identifier, prefix, ttl_s=ttl_s, holder=holder)

    @property
    def _holds(self) -> Holds:
        if self.holds is None:
            raise BadRequest(f"{self} was not loaded by a client, so nothing can be held")
        return self.holds

    # --- changes -------------------------------------------------------------------------------

    def _base(self) -> Table:
        return self

    def _apply(self, change: Change) -> Commit:
        if self.committer is None:
            raise BadRequest(f"{self} was not loaded by a client, so nothing can be committed")
        return self.committer(self, change)


# --- history --------------------------------------------------------------------------------------


def snapshot_at(table: Table, timestamp_ms: int) -> int:
    """Return the snapshot that was main's head then: the last of the log at or before that time."""
    snapshot_id: int | None = None
    for entry in table.metadata.get("snapshot-log") or []:
        if entry["timestamp-ms"] <= timestamp_ms:
            snapshot_id = int(entry["snapshot-id"])
    if snapshot_id is None:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat()
        raise NotFound(f"{table} had no snapshot at {time}")
    return snapshot_id


def schema_of(table: Table, snapshot_id: int) -> StructType:
    """Return a snapshot's schema; the table's if an old writer did not name it."""
    schema_id = table.snapshot(snapshot_id).schema_id
    known = {schema.get("schema-id") for schema in table.metadata["schemas"]}
    if schema_id is None or schema_id not in known:
        return table.schema
    return table.schema_by_id(schema_id)
