"""Merges declared deletion vectors with those that other commits have added since.

Two writers may delete different rows of one data file at the same time. Each declares a vector
made from a base: the vector that it read, which it names in `remove-delete-files`, or none. With
`rebase-deletion-vectors` the server compares the base with the live vector. If they are the same,
it commits the declared vector. Otherwise it adds the rows that the writer deleted, `mine - base`,
to the live vector, unless one of these rows is already deleted there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from frazil.commit.snapshot.head_changes import live_by_path
from frazil.commit.snapshot.manifest_tree import AddedFiles, grouped_by_spec
from frazil.commit.snapshot.snapshot_builder import Action, NewSnapshot
from frazil.commit.snapshot.stored_vectors import StoredVectors, UnreadableVector, VectorKey
from frazil.commit.snapshot.table_locations import data_folder
from frazil.commit.validate.branch_changes import BranchChanges, live_vectors
from frazil.commit.validate.conflict_reports import (
    ConflictingFile,
    Scope,
    conflict_with,
    file_names,
    rejected,
    start_again,
)
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.metadata.content_files import ContentFile, DeleteFile
from frazil.read.filters import every_row, partitions_of
from frazil.read.history import DELETE, UnknownHistory
from frazil.read.manifest_row import ManifestRow
from frazil.values.deletion_vectors import (
    REFERENCED_DATA_FILE,
    DeletionVector,
    deletion_vector_blob,
)
from frazil.values.puffin import BlobMetadata, write_puffin
from frazil.version import __version__
from frazil.wire.conflicts import Conflict
from frazil.wire.declared_content import RemovedDeleteFile, data_file_path, delete_file_key
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import Overwrite, Replace

MAX_MERGED_BYTES: Final = 256 << 20
"""The most bytes of vectors that one update may make the server read."""
MIN_FORMAT_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class RebasedVectors:
    """What a snapshot adds and removes instead of what was declared."""

    added: tuple[AddedFiles, ...]
    replaced: tuple[ManifestRow, ...] = ()
    """The live vectors that the added ones replace."""
    files: tuple[tuple[str, bytes], ...] = ()
    superseded: tuple[str, ...] = ()
    """Declared Puffin files none of whose vectors are added."""

    def complete(self, new: NewSnapshot) -> NewSnapshot:
        """Return the snapshot with the Puffin file that it needs."""
        if not (self.files or self.superseded):
            return new
        committed = msgspec.structs.replace(new.committed, superseded_files=self.superseded)
        return replace(new, committed=committed, files=(*self.files, *new.files))


@dataclass(frozen=True, slots=True)
class _Merge:
    """The vectors of one data file whose base is not the live vector."""

    data_file: str
    declared: DeleteFile
    mine: VectorKey
    base: VectorKey | None
    current: VectorKey | None

    @property
    def keys(self) -> list[VectorKey]:
        return [key for key in (self.mine, self.base, self.current) if key is not None]


@dataclass(frozen=True, slots=True)
class VectorRebase:
    """The declared vectors of an update, with the base and the live vector of each data file."""

    action: Action
    scope: Scope
    added: tuple[AddedFiles, ...]
    removed: Sequence[RemovedDeleteFile]
    declared: Mapping[str, DeleteFile] = field(default_factory=dict)
    """The declared vectors by data file, without those of files that the update itself adds."""
    bases: Mapping[str, VectorKey] = field(default_factory=dict)
    current: Mapping[str, ManifestRow] = field(default_factory=dict)

    @property
    def other_removals(self) -> list[RemovedDeleteFile]:
        """The delete files that the update removes, without the bases of its vectors."""
        bases = frozenset(self.bases.values())
        return [file for file in self.removed if delete_file_key(file) not in bases]

    def merged(self) -> RebasedVectors:
        """Read and merge the vectors. Raises ValidationError with all conflicts."""
        if not self.declared:
            return RebasedVectors(self.added)
        rows = self._live_data_files()
        merges = [self._merge_of(path) for path in rows if self._is_stale(path)]
        vectors = self._merge_all(merges)
        written, new_files = self._write(vectors, rows)
        kept = {path: self.declared[path] for path in rows} | written
        used = {vector.file_path for vector in kept.values()}
        return RebasedVectors(
            added=self._added(kept.values(), written, rows),
            replaced=tuple(row for path, row in self.current.items() if path in rows),
            files=new_files,
            superseded=tuple(sorted({file.file_path for file in self.declared.values()} - used)),
        )

    # --- data files --------------------------------------------------------------------------

    def _live_data_files(self) -> dict[str, ManifestRow]:
        """Return the entries of the live data files, in the order of the vectors.

        A vector of a file that is gone is dropped if only deletes have removed the file and the
        update adds no rows: all rows that it deletes are deleted. Otherwise its rows may live on
        in other files.
        """
        action = self.action
        live = live_by_path(
            action.environment.reader, action.metadata, action.read_head(), DATA, [*self.declared]
        )
        gone = [path for path in self.declared if path not in live]
        if gone and (self._adds_data or not self._only_deleted(gone)):
            files = [ConflictingFile(path) for path in gone]
            message = (
                f"Cannot delete rows of data files that are not live: {file_names(files)}. Another "
                f"commit has removed or rewritten them. {start_again(self.scope.head)}"
            )
            raise rejected([conflict_with(self.scope, "required-data-files", message, files)])
        return {path: live[path][0] for path in self.declared if path in live}

    @property
    def _adds_data(self) -> bool:
        return any(group.content == DATA for group in self.added)

    def _only_deleted(self, paths: Sequence[str]) -> bool:
        """Return whether all snapshots since the base that removed these files are deletes."""
        changes = BranchChanges(self.scope, self.action.environment.reader)
        everywhere, base = every_row(self.scope.metadata), self.scope.update.base_snapshot_id
        try:
            removals = changes.removals_of(DATA, paths, everywhere, base)
        except UnknownHistory:
            return False
        by_delete = {item.file.file_path for item in removals if item.file.operation == DELETE}
        others = {item.file.file_path for item in removals if item.file.operation != DELETE}
        return not others and by_delete.issuperset(paths)

    # --- merging -----------------------------------------------------------------------------

    def _is_stale(self, data_file: str) -> bool:
        live = self.current.get(data_file)
        return self.bases.get(data_file) != (None if live is None else live.identity)

    def _merge_of(self, data_file: str) -> _Merge:
        declared, live = self.declared[data_file], self.current.get(data_file)
        return _Merge(
            data_file=data_file,
            declared=declared,
            mine=(declared.file_path, declared.content_offset or 0),
            base=self.bases.get(data_file),
            current=None if live is None else (live.file_path, live.content_offset or 0),
        )

    def _merge_all(self, merges: Sequence[_Merge]) -> dict[str, DeletionVector]:
        if not merges:
            return {}
        environment = self.action.environment
        keys = [key for merge in merges for key in merge.keys]
        stored = _stored_vectors(self.action, keys)
        self._check_declared(stored, merges)
        self._check_size(stored, merges, keys)
        results = list(environment.executor.map(lambda merge: _merged(stored, merge), merges))
        self._refuse_conflicts(merges, results)
        return {
            merge.data_file: result
            for merge, result in zip(merges, results, strict=True)
            if isinstance(result, DeletionVector)
        }

    def _check_declared(self, stored: StoredVectors, merges: Sequence[_Merge]) -> None:
        for merge in merges:
            try:
                blob = stored.blob(merge.mine)
            except UnreadableVector as error:
                raise self._bad(merge, str(error)) from None
            if blob.length != merge.declared.content_size_in_bytes:
                raise self._bad(merge, f"content-size-in-bytes: the blob has {blob.length} bytes")

    def _check_size(
        self, stored: StoredVectors, merges: Sequence[_Merge], keys: Iterable[VectorKey]
    ) -> None:
        size = sum(_length(stored, key) for key in keys)
        if size > MAX_MERGED_BYTES:
            message = (
                f"Cannot merge deletion vectors of {size} bytes, above the limit of "
                f"{MAX_MERGED_BYTES}. {start_again(self.scope.head)}"
            )
            raise rejected([self._conflict([merge.data_file for merge in merges], message)])

    def _refuse_conflicts(
        self, merges: Sequence[_Merge], results: Sequence[DeletionVector | Exception | int]
    ) -> None:
        """Raise the conflicts of these results. BadRequest goes first: a retry cannot help."""
        conflicts: list[Conflict] = []
        overlapping: dict[str, int] = {}
        for merge, result in zip(merges, results, strict=True):
            if isinstance(result, _BadVector):
                raise self._bad(merge, str(result))
            if isinstance(result, int):
                overlapping[merge.data_file] = result
            elif isinstance(result, UnreadableVector):
                message = f"Cannot merge the deletion vectors of {merge.data_file}: {result}. "
                message += start_again(self.scope.head)
                conflicts.append(self._conflict([merge.data_file], message))
        if overlapping:
            conflicts.insert(0, self._overlap(overlapping))
        if conflicts:
            raise rejected(conflicts)

    def _overlap(self, row_counts: Mapping[str, int]) -> Conflict:
        rows = sum(row_counts.values())
        names = file_names([ConflictingFile(path) for path in row_counts])
        message = (
            f"Found concurrently added DV for {names}: {rows} "
            f"{'row was' if rows == 1 else 'rows were'} deleted or changed by another commit too. "
            f"{start_again(self.scope.head)}"
        )
        return msgspec.structs.replace(self._conflict([*row_counts], message), row_count=rows)

    def _conflict(self, data_files: Iterable[str], message: str) -> Conflict:
        """Return a conflict that names the live vectors of these data files."""
        live = [self.current[path] for path in data_files if path in self.current]
        changes = BranchChanges(self.scope, self.action.environment.reader)
        try:
            vectors = changes.conflicting_deletes(live, self.scope.update.base_snapshot_id)
        except UnknownHistory:
            vectors = [ConflictingFile(*row.identity) for row in live]
        return conflict_with(self.scope, "dv-conflict", message, vectors)

    def _bad(self, merge: _Merge, problem: str) -> BadRequest:
        return BadRequest(
            f"{self.action.json_path}.add-delete-files ({merge.declared.file_path}): {problem}"
        )

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self, vectors: Mapping[str, DeletionVector], rows: Mapping[str, ManifestRow]
    ) -> tuple[dict[str, DeleteFile], tuple[tuple[str, bytes], ...]]:
        """Return the entries of the merged vectors, and the Puffin file that contains them."""
        if not vectors:
            return {}, ()
        location = f"{data_folder(self.action.metadata)}/{uuid.uuid4()}-merged-deletes.puffin"
        content, blobs = write_puffin(
            [deletion_vector_blob(vector, path) for path, vector in vectors.items()],
            {"created-by": f"frazil {__version__}"},
        )
        entries = {
            path: msgspec.structs.replace(
                self.declared[path],
                file_path=location,
                file_size_in_bytes=len(content),
                record_count=vector.cardinality,
                content_offset=blob.offset,
                content_size_in_bytes=blob.length,
                partition=self._partition(rows[path]) or self.declared[path].partition,
            )
            for (path, vector), blob in zip(vectors.items(), blobs, strict=True)
        }
        return entries, ((location, content),)

    def _partition(self, row: ManifestRow) -> tuple[object, ...] | None:
        spec = self.action.metadata.spec(row.spec_id)
        if spec is None:
            return None
        return tuple(partitions_of(row.columns, spec)[int(row.columns.partition[row.row])])

    def _added(
        self,
        vectors: Iterable[DeleteFile],
        merged: Mapping[str, DeleteFile],
        rows: Mapping[str, ManifestRow],
    ) -> tuple[AddedFiles, ...]:
        """Return the added files. Merged vectors have the spec of their data file."""
        kept = {file.identity for file in vectors}
        ours = {file.identity for file in self.declared.values()}
        groups = [group for group in self.added if group.content == DATA]
        deletes: list[tuple[int, ContentFile]] = [
            (group.spec_id, file)
            for group in self.added
            if group.content == DELETES
            for file in group.files
            if not isinstance(file, DeleteFile)
            or file.identity in kept
            or file.identity not in ours
        ]
        deletes += [(rows[path].spec_id, file) for path, file in merged.items()]
        spec_ids, files = [spec_id for spec_id, _ in deletes], [file for _, file in deletes]
        return (*groups, *(grouped_by_spec(files, spec_ids, DELETES) if files else ()))


class _BadVector(Exception):
    """The declared vector is not what the request says."""


def vector_rebase(action: Action, scope: Scope, added: tuple[AddedFiles, ...]) -> VectorRebase:
    """Find the base and the live vector of each declared vector of an update."""
    update = scope.update
    assert isinstance(update, Overwrite | Replace)
    if not update.rebase_deletion_vectors:
        return VectorRebase(action, scope, added, update.remove_delete_files)
    version = action.metadata.format_version
    if version < MIN_FORMAT_VERSION:
        raise BadRequest(
            f"{action.json_path}.rebase-deletion-vectors: format version {version} has no deletion "
            "vectors, leave it out"
        )
    own = set(map(data_file_path, update.add_data_files))
    declared = {
        file.referenced_data_file: file
        for group in added
        for file in group.files
        if isinstance(file, DeleteFile)
        and file.content_offset is not None
        and file.referenced_data_file is not None
        and file.referenced_data_file not in own
    }
    reader = action.environment.reader
    current = {
        row.referenced_data_file or "": row
        for row in live_vectors(scope.present_head, frozenset(declared), reader)
    }
    bases = _bases(action, scope, update.remove_delete_files, declared, current)
    scope = replace(
        scope,
        rebased=frozenset(declared),
        rebased_from=frozenset((*bases.values(), *(row.identity for row in current.values()))),
    )
    return VectorRebase(action, scope, added, update.remove_delete_files, declared, bases, current)


def _bases(
    action: Action,
    scope: Scope,
    removed: Sequence[RemovedDeleteFile],
    declared: Mapping[str, DeleteFile],
    current: Mapping[str, ManifestRow],
) -> dict[str, VectorKey]:
    """Return the removed vectors of the data files that have a declared vector.

    A vector that is not live any more says in its own file which data file it is of.
    """
    live = {row.identity: path for path, row in current.items()}
    bases: dict[str, VectorKey] = {}
    unknown: list[VectorKey] = []
    for file in removed:
        path, offset = delete_file_key(file)
        if offset is None:
            continue
        key = path, offset
        if key in live:
            bases[live[key]] = key
        else:
            unknown.append(key)
    unknown = _without_live(action, unknown)
    if not unknown:
        return bases
    paths = [path for path, _ in unknown]
    action.environment.check_paths(
        action.metadata, paths, f"{action.json_path}.remove-delete-files"
    )
    stored = _stored_vectors(action, unknown)
    for key in unknown:
        try:
            data_file = _data_file(stored.blob(key))
        except UnreadableVector as error:
            message = f"Cannot merge deletion vectors: {error}. {start_again(scope.head)}"
            files = [ConflictingFile(*key)]
            raise rejected([conflict_with(scope, "dv-conflict", message, files)]) from None
        if data_file in declared:
            bases.setdefault(data_file, key)
    return bases


def _without_live(action: Action, keys: Sequence[VectorKey]) -> list[VectorKey]:
    """Leave out live vectors. They are of data files that have no declared vector."""
    paths = sorted({path for path, _ in keys})
    reader, head = action.environment.reader, action.read_head()
    rows = live_by_path(reader, action.metadata, head, DELETES, paths)
    live = {row.identity for of_path in rows.values() for row in of_path}
    return [key for key in keys if key not in live]


def _data_file(blob: BlobMetadata) -> str:
    return blob.properties.get(REFERENCED_DATA_FILE, "")


def _stored_vectors(action: Action, keys: Iterable[VectorKey]) -> StoredVectors:
    environment = action.environment
    locations = [location for location, _ in keys]
    for location in locations:
        environment.check_readable(location)
    return StoredVectors.of_files(environment.store, locations, environment.executor)


def _length(stored: StoredVectors, key: VectorKey) -> int:
    try:
        return stored.blob(key).length
    except UnreadableVector:
        return 0


def _merged(stored: StoredVectors, merge: _Merge) -> DeletionVector | Exception | int:
    """Return the merged vector, the number of rows that both writers deleted, or the problem."""
    try:
        mine = _vector_of(stored, merge.mine, merge.data_file)
    except UnreadableVector as error:
        return _BadVector(str(error))
    if mine.cardinality != merge.declared.record_count:
        return _BadVector(f"record-count: the vector deletes {mine.cardinality} rows")
    try:
        base = _vector_of(stored, merge.base, merge.data_file)
        current = _vector_of(stored, merge.current, merge.data_file)
    except UnreadableVector as error:
        return error
    new = mine.bitmap - base.bitmap
    both = len(current.bitmap & new)
    return both or DeletionVector.from_bitmap(current.bitmap | new)


def _vector_of(stored: StoredVectors, key: VectorKey | None, data_file: str) -> DeletionVector:
    """Read a vector of a data file. Without a key no row is deleted."""
    if key is None:
        return DeletionVector.from_positions(())
    referenced, vector = stored.read(key)
    if referenced != data_file:
        raise UnreadableVector(f"the deletion vector in {key[0]} is of {referenced}")
    return vector
