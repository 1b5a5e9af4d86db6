"""Says why a file is there: what needs it, or when and why it will be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from frazil.db.base import Relation
from frazil.db.housekeeping_rows import (
    DeletionState,
    ExpiredSnapshotRow,
    IntentState,
    LeaseRow,
    PurgedTableRow,
    database_now_ms,
    doomed_file,
    expired_snapshots,
    intents_of,
    live_leases,
    purged_tables,
)
from frazil.format.manifest.named_files import NamedFiles
from frazil.format.metadata.snapshots import Snapshot, parse_snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.expiration_plan import gc_is_enabled
from frazil.housekeeping.reachability import (
    FileKind,
    TreeReader,
    Unreadable,
    kind_of_content,
    tree_reader,
)
from frazil.housekeeping.server_operations import ServerTools
from frazil.housekeeping.undo import purged_name, utc_text
from frazil.store.locations import canonical_location
from frazil.values.path_keys import PathKey, PathKeys, is_below
from frazil.wire.files import FileReason, FileState, ReachingSnapshot

_MAX_SNAPSHOTS: Final = 10
_EVER_MS: Final = 2**62
_NO_LIMIT: Final = 1_000_000


def why(tools: ServerTools, path: str) -> FileReason:
    """Explain one file."""
    return _Inquiry(tools, path).answer()


@dataclass(slots=True)
class _Inquiry:
    tools: ServerTools
    path: str
    _keys: PathKeys = field(default_factory=lambda: PathKeys(decode=True))
    _key: PathKey = field(init=False)
    _size: int | None = None
    _unread: str | None = None
    """Why the search in the metadata is incomplete."""

    def answer(self) -> FileReason:
        self._key = self._keys.of(self.path)
        location = canonical_location(self.path, "path")
        if not self.tools.catalog.locations.is_allowed(self.path):
            return self._reason(
                FileState.OUTSIDE,
                "it is outside the warehouse and every allowed location: the catalog never reads "
                "or deletes it",
            )
        self._size = self.tools.store.size(self.path)
        uuid = self.tools.database.owner_of_location(str(location))
        row = None if uuid is None else self.tools.database.relation_by_uuid(uuid)
        if row is not None:
            return self._of_table(row)
        purged = self._purged()
        if purged is not None:
            return self._of_purged(purged)
        return self._reason(
            FileState.OUTSIDE,
            "no table of the catalog owns its folder: the catalog never deletes it",
        )

    # --- a table ----------------------------------------------------------------------------------

    def _of_table(self, row: Relation) -> FileReason:
        metadata = self.tools.catalog.metadata_at(row.metadata_location)
        search = _Search(tree_reader(self.tools), self._is_it)
        name = str(row.identifier)
        kind = self._kind_in_metadata(metadata, row.metadata_location)
        heads = {ref.snapshot_id for ref in metadata.refs.values()}
        everything = sorted(
            metadata.snapshots.bare_items(),
            key=lambda own: (own.snapshot_id not in heads, -own.sequence_number, -own.timestamp_ms),
        )
        now_ms = database_now_ms(self.tools.database)
        leases = live_leases(self.tools.database, row.uuid, now_ms)
        if kind is not None:
            what = "statistics" if kind is FileKind.STATISTICS else "the metadata log"
            return self._reason(
                FileState.REACHABLE, f"{what} of the table names it", table=name, kind=kind
            )
        found = search.reaching(everything)
        self._unread = search.unread
        if found:
            snapshots = tuple(
                ReachingSnapshot(
                    snapshot_id=own,
                    refs=tuple(n for n, ref in metadata.refs.items() if ref.snapshot_id == own),
                    leased_by=_holders(leases, own),
                )
                for own in found
            )
            return self._reason(
                FileState.REACHABLE,
                _reached_by(snapshots),
                table=name,
                kind=search.kind,
                snapshots=snapshots,
            )
        return self._of_rows(row, metadata, leases, search, now_ms)

    def _of_rows(
        self,
        row: Relation,
        metadata: TableMetadata,
        leases: Sequence[LeaseRow],
        search: _Search,
        now_ms: int,
    ) -> FileReason:
        """Explain a file that the metadata does not need."""
        name = str(row.identifier)
        off = "" if gc_is_enabled(metadata) else "; gc.enabled is false, so it stays until then"
        doomed = doomed_file(self.tools.database, row.uuid, self.path)
        if doomed is not None and doomed.state is DeletionState.DELETING:
            return self._reason(FileState.DELETING, f"it is being deleted{off}", table=name)
        expired = expired_snapshots(self.tools.database, row.uuid)
        found = self._expired(expired, search)
        if found:
            return self._of_expired(name, found, leases, search.kind, off)
        if doomed is not None:
            return self._reason(
                FileState.QUARANTINED,
                f"it was found as an {doomed.reason} file, and is deleted after "
                f"{utc_text(doomed.delete_after_ms)}{off}",
                table=name,
                delete_after_ms=doomed.delete_after_ms,
            )
        return self._of_intents(row, now_ms, off)

    def _expired(
        self, rows: Sequence[ExpiredSnapshotRow], search: _Search
    ) -> list[ExpiredSnapshotRow]:
        by_statistics = [row for row in rows if any(map(self._is_it, row.statistics))]
        if by_statistics:
            search.kind = FileKind.STATISTICS
            return by_statistics
        latest = sorted(rows, key=lambda row: -row.delete_after_ms)
        found = search.reaching([parse_snapshot(row.snapshot) for row in latest])
        return [row for row in latest if row.snapshot_id in found]

    def _of_expired(
        self,
        table: str,
        rows: Sequence[ExpiredSnapshotRow],
        leases: Sequence[LeaseRow],
        kind: FileKind | None,
        off: str,
    ) -> FileReason:
        snapshots = tuple(
            ReachingSnapshot(
                snapshot_id=row.snapshot_id,
                leased_by=_holders(leases, row.snapshot_id),
                delete_after_ms=row.delete_after_ms,
            )
            for row in rows
        )
        leased = [own for own in snapshots if own.leased_by]
        after_ms = max(row.delete_after_ms for row in rows)
        if leased:
            state, message = (
                FileState.LEASED,
                f"{', '.join(leased[0].leased_by)} leases the expired snapshot "
                f"{leased[0].snapshot_id}",
            )
        else:
            state, message = (
                FileState.QUARANTINED,
                f"only expired snapshots such as {rows[0].snapshot_id} reach it, and it is deleted "
                f"after {utc_text(after_ms)}",
            )
        return self._reason(
            state,
            message + off,
            table=table,
            kind=kind,
            snapshots=snapshots,
            delete_after_ms=after_ms,
        )

    def _of_intents(self, row: Relation, now_ms: int, off: str) -> FileReason:
        name = str(row.identifier)
        asked = {"uuid": row.uuid, "before_ms": _EVER_MS, "limit": _NO_LIMIT}
        retired = self.tools.database.fetch("retired_metadata", asked)
        if any(self._is_it(path) for path, _ in retired):
            return self._reason(
                FileState.QUARANTINED,
                f"the metadata has named it before, and it is deleted after its quarantine{off}",
                table=name,
            )
        for intent in intents_of(self.tools.database, row.uuid):
            if not is_below(self._key, self._keys.of_folder(intent.prefix)):
                continue
            if intent.is_live(now_ms):
                return self._reason(
                    FileState.INTENDED,
                    f"{intent.holder or intent.principal} writes below {intent.prefix} until "
                    f"{utc_text(intent.expires_ms)}",
                    table=name,
                )
            if intent.state is not IntentState.SWEPT:
                return self._reason(
                    FileState.QUARANTINED,
                    f"the writer below {intent.prefix} has ended without committing it, and the "
                    f"next sweep deletes it{off}",
                    table=name,
                )
        if self._unread is not None:
            return self._reason(
                FileState.UNKNOWN,
                f"nothing that can be read names it, but {self._unread}: no file of the table is "
                "deleted until that is repaired",
                table=name,
            )
        return self._reason(
            FileState.UNKNOWN,
            "nothing names it: remove_orphan_files finds it when it is old enough"
            if self._size is not None
            else "nothing names it, and there is no file with this path",
            table=name,
        )

    def _kind_in_metadata(self, metadata: TableMetadata, location: str) -> FileKind | None:
        log = (entry.metadata_file for entry in metadata.metadata_log.bare_items())
        if self._is_it(location) or any(map(self._is_it, log)):
            return FileKind.METADATA
        if any(self._is_it(path) for _, path in metadata.statistics_paths()):
            return FileKind.STATISTICS
        return None

    # --- a purged table ---------------------------------------------------------------------------

    def _purged(self) -> PurgedTableRow | None:
        for row in purged_tables(self.tools.database):
            if any(is_below(self._key, self._keys.of_folder(own)) for own in row.locations):
                return row
        return None

    def _of_purged(self, row: PurgedTableRow) -> FileReason:
        deleting = row.state is DeletionState.DELETING
        return self._reason(
            FileState.DELETING if deleting else FileState.QUARANTINED,
            "the table was purged, and its files are being deleted"
            if deleting
            else "the table was purged: its files are deleted after "
            f"{utc_text(row.delete_after_ms)}; until then, `frazil maintain undo` brings it back",
            table=str(purged_name(row)),
            delete_after_ms=row.delete_after_ms,
        )

    # --- words ------------------------------------------------------------------------------------

    def _is_it(self, path: str) -> bool:
        return self._keys.of(path) == self._key

    def _reason(
        self,
        state: FileState,
        message: str,
        *,
        table: str | None = None,
        kind: FileKind | None = None,
        snapshots: tuple[ReachingSnapshot, ...] = (),
        delete_after_ms: int | None = None,
    ) -> FileReason:
        return FileReason(
            path=self.path,
            state=state,
            message=message,
            table=table,
            kind=None if kind is None else kind.value,
            size_bytes=self._size,
            snapshots=snapshots,
            delete_after_ms=delete_after_ms,
        )


@dataclass(slots=True)
class _Search:
    """Looks for a file below snapshots. Each manifest is read once."""

    reader: TreeReader
    is_it: Callable[[str], bool]
    kind: FileKind | None = None
    unread: str | None = None
    """The first manifest or list that cannot be read."""
    _manifests: dict[str, bool] = field(default_factory=dict)

    def reaching(self, snapshots: Sequence[Snapshot]) -> list[int]:
        """Return the first snapshots that reach the file."""
        return list(self._first(snapshots))

    def _first(self, snapshots: Sequence[Snapshot]) -> Iterator[int]:
        count = 0
        for snapshot, manifests in self.reader.lists(snapshots):
            found = snapshot.manifest_list is not None and self.is_it(snapshot.manifest_list)
            if found:
                self.kind = FileKind.MANIFEST_LIST
            elif isinstance(manifests, Unreadable):
                self.unread = self.unread or str(manifests)
            else:
                found = self._in_manifests([own.path for own in manifests])
            if found:
                yield snapshot.snapshot_id
                count += 1
                if count == _MAX_SNAPSHOTS:
                    return

    def _in_manifests(self, paths: Sequence[str]) -> bool:
        known = [self._manifests.get(path) for path in paths]
        if any(known):
            return True
        unknown = [path for path, own in zip(paths, known, strict=True) if own is None]
        for path, entries in self.reader.entries(unknown):
            self._manifests[path] = self.is_it(path) or self._names(entries)
            if self.is_it(path):
                self.kind = FileKind.MANIFEST
        return any(self._manifests[path] for path in unknown)

    def _names(self, entries: Unreadable | Iterable[NamedFiles]) -> bool:
        if isinstance(entries, Unreadable):
            self.unread = self.unread or str(entries)
            return False
        for part in entries:
            for path, live, content in zip(part.paths, part.live, part.content, strict=True):
                if live and self.is_it(path):
                    self.kind = kind_of_content(int(content))
                    return True
        return False


def _reached_by(snapshots: Sequence[ReachingSnapshot]) -> str:
    refs = [ref for own in snapshots for ref in own.refs]
    if refs:
        return f"the head of {', '.join(refs)} reaches it"
    return (
        f"snapshot {snapshots[0].snapshot_id} reaches it, but no head of a branch or tag: it is "
        "deleted when its snapshots have expired"
    )


def _holders(leases: Iterable[LeaseRow], snapshot_id: int) -> tuple[str, ...]:
    own = (lease for lease in leases if lease.snapshot_id == snapshot_id)
    return tuple(dict.fromkeys(lease.holder or lease.principal for lease in own))
