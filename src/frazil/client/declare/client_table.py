"""A table as it was loaded: an immutable view of its metadata.

Operations that must not run over unseen changes take their base from it: the head of the branch at
the time of loading is what the caller has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert

from frazil.client.declare.table_verbs import Change, Changes, Commit
from frazil.datafiles.portable_table import TableMetadataMixin
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.declare.scan_plans import Plan, PlanExtras
    from frazil.wire.filter_builders import Filter
    from frazil.wire.scan_planning import PlanTableScanRequest


class Ref(Struct, frozen=True, rename="kebab"):
    """A branch or a tag."""

    snapshot_id: int
    type: str
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


class Snapshot(Struct, frozen=True, rename="kebab"):
    """One state of the table, without its files."""

    snapshot_id: int
    timestamp_ms: int
    manifest_list: str | None = None
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    """Tables of version 1 have none."""
    summary: dict[str, str] = {}
    schema_id: int | None = None

    @property
    def operation(self) -> str | None:
        return self.summary.get("operation")


@dataclass(frozen=True)
class Table(TableMetadataMixin, Changes[Commit]):
    """Its verbs (`append_files` and the like) commit at once."""

    identifier: Identifier
    metadata: Mapping[str, Any]
    """The JSON of the table's metadata, as the catalog gave it."""
    metadata_location: str
    config: Mapping[str, str] = field(default_factory=dict)
    """What the catalog says about reading and writing this table's files."""
    committer: Callable[[Table, Change], Commit] | None = field(
        default=None, repr=False, compare=False
    )
    """The client that loaded the table, which carries out its changes."""
    planner: Callable[[Table, PlanTableScanRequest, PlanExtras, int | None], Plan] | None = field(
        default=None, repr=False, compare=False
    )
    """The same client, which has its scans planned."""
    is_staged: bool = False
    """It does not exist yet: the first change creates it, if nobody else has done so."""

    def __str__(self) -> str:
        return str(self.identifier)

    # --- what the metadata says ----------------------------------------------------------------

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])

    # --- snapshots and refs --------------------------------------------------------------------

    @cached_property
    def refs(self) -> Mapping[str, Ref]:
        refs = convert(self.metadata.get("refs") or {}, dict[str, Ref])
        current = self.metadata.get("current-snapshot-id")
        if MAIN not in refs and current is not None and current >= 0:
            # Written before refs were: the current snapshot is the head of main.
            refs[MAIN] = Ref(current, "branch")
        return MappingProxyType(refs)

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """As loaded: with `snapshots="refs"` only the heads of branches and tags."""
        return convert(self.metadata.get("snapshots") or [], tuple[Snapshot, ...])

    @cached_property
    def _snapshots_by_id(self) -> Mapping[int, Snapshot]:
        return {snapshot.snapshot_id: snapshot for snapshot in self.snapshots}

    def head(self, branch: str = MAIN) -> int | None:
        """The snapshot that a commit to the branch goes on from.

        A branch that does not exist yet starts at the head of main.
        """
        ref = self.refs.get(branch) or self.refs.get(MAIN)
        return None if ref is None else ref.snapshot_id

    def snapshot(self, ref_or_id: str | int) -> Snapshot:
        """The snapshot of a branch, a tag or an id; digits are an id unless a ref is named so."""
        snapshot_id: int | None = None
        if isinstance(ref_or_id, int):
            snapshot_id = ref_or_id
        elif ref_or_id in self.refs:
            snapshot_id = self.refs[ref_or_id].snapshot_id
        elif ref_or_id.isdigit():
            snapshot_id = int(ref_or_id)
        found = None if snapshot_id is None else self._snapshots_by_id.get(snapshot_id)
        if found is None:
            refs = ", ".join(sorted(self.refs)) or "none"
            raise NotFound(f"{self} has no snapshot, branch or tag {ref_or_id}; its refs: {refs}")
        return found

    def ancestors(self, ref_or_id: str | int = MAIN) -> Iterator[Snapshot]:
        """From a snapshot back to the oldest that is still known, newest first."""
        snapshot: Snapshot | None = self.snapshot(ref_or_id)
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._snapshots_by_id.get(parent)

    # --- scans ---------------------------------------------------------------------------------

    def plan(
        self,
        filter: Filter | None = None,
        *,
        select: Sequence[str] | None = None,
        snapshot: str | int | None = None,
        from_snapshot: str | int | None = None,
        to_snapshot: str | int | None = None,
        case_sensitive: bool = True,
        stats_fields: Sequence[str] = (),
        use_snapshot_schema: bool | None = None,
        sequence_numbers: bool = False,
        explain: bool = False,
        max_files: int | None = None,
    ) -> Plan:
        """The files that a scan must read, with their deletes and residual filters, found by the
        catalog.

        Of `snapshot`, a ref or an id, without one of main's head when the table was loaded; or of
        what was appended after `from_snapshot` up to `to_snapshot`, without one up to that head.
        `stats_fields` are columns whose statistics are wanted; `explain` adds what the planner has
        seen and skipped; `sequence_numbers` adds each data file's, where the catalog is Frazil;
        `max_files` are enough. The filter names columns as the table's schema does for a branch and
        as the snapshot's own does for a tag or an id, unless `use_snapshot_schema` says which.
        """
        from frazil.client.declare.scan_plans import PlanExtras, plan_request

        if self.planner is None:
            raise BadRequest(f"{self} was not loaded by a client, so nothing can be planned")
        request = plan_request(
            self,
            filter,
            select=select,
            snapshot=snapshot,
            from_snapshot=from_snapshot,
            to_snapshot=to_snapshot,
            case_sensitive=case_sensitive,
            stats_fields=stats_fields,
            use_snapshot_schema=use_snapshot_schema,
        )
        extras = PlanExtras(explain=explain, sequence_numbers=sequence_numbers)
        return self.planner(self, request, extras, max_files)

    # --- as the base of changes ----------------------------------------------------------------

    def _target(self) -> Table:
        return self

    def _change(self, change: Change) -> Commit:
        if self.committer is None:
            raise BadRequest(f"{self} was not loaded by a client, so nothing can be committed")
        return self.committer(self, change)
