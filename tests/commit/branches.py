"""Tables with a hand-made history: real manifests in memory, one call for each snapshot.

No code that builds snapshots in the server is used, so that the checks can be tested on
histories that the server never creates.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from frazil.commit.validate.clauses import check_deletion_vectors, check_validations
from frazil.commit.validate.conflict_reports import Scope, check_base
from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.manifest.manifest_writer import RollingManifestWriter, WrittenManifest
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DataFile,
    DeleteFile,
)
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.values.single_value import to_binary
from frazil.values.types import LONG
from frazil.wire.errors import ValidationError
from frazil.wire.file_actions import FileUpdate
from frazil.wire.rest_updates import AddSnapshot, RemoveSnapshots, SetSnapshotRef, TableUpdate
from tests.support.memory_store import MemoryStore
from tests.support.tables import apply_updates
from tests.support.trees import list_bytes, listed

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "region", "type": "string", "required": False},
        {"id": 3, "name": "score", "type": "double", "required": False},
        {"id": 4, "name": "amount", "type": "long", "required": False},
    ],
}
UNPARTITIONED: dict[str, Any] = {"fields": []}
BY_REGION = {
    "fields": [{"source-id": 2, "field-id": 1000, "name": "region", "transform": "identity"}]
}
BY_SCORE = {
    "fields": [{"source-id": 3, "field-id": 1000, "name": "score", "transform": "identity"}]
}


# --- files -----------------------------------------------------------------------------------


def _metrics(ids: tuple[int, int] | None) -> dict[str, Any]:
    if ids is None:
        return {"record_count": 1}
    count = 1 + ids[1] - ids[0]
    return {
        "record_count": count,
        "value_counts": {1: count},
        "null_value_counts": {1: 0},
        "lower_bounds": {1: to_binary(LONG, ids[0])},
        "upper_bounds": {1: to_binary(LONG, ids[1])},
    }


def data(path: str, *partition: Any, ids: tuple[int, int] | None = None) -> DataFile:
    return DataFile(
        file_path=path,
        file_format="parquet",
        partition=partition,
        file_size_in_bytes=10,
        **_metrics(ids),
    )


def position_delete(path: str, *partition: Any, of: str | None = None) -> DeleteFile:
    return DeleteFile(
        content=POSITION_DELETES,
        file_path=path,
        file_format="parquet",
        partition=partition,
        record_count=1,
        file_size_in_bytes=10,
        referenced_data_file=of,
    )


def vector(path: str, of: str, *partition: Any, offset: int = 4) -> DeleteFile:
    return DeleteFile(
        content=POSITION_DELETES,
        file_path=path,
        file_format="puffin",
        partition=partition,
        record_count=1,
        file_size_in_bytes=10,
        referenced_data_file=of,
        content_offset=offset,
        content_size_in_bytes=6,
    )


def equality_delete(
    path: str,
    *partition: Any,
    ids: tuple[int, int] | None = None,
    columns: Sequence[int] = (1,),
) -> DeleteFile:
    return DeleteFile(
        content=EQUALITY_DELETES,
        file_path=path,
        file_format="parquet",
        partition=partition,
        equality_ids=list(columns),
        file_size_in_bytes=10,
        **_metrics(ids),
    )


# --- the table -------------------------------------------------------------------------------


@dataclass
class _Entry:
    file: ContentFile
    snapshot_id: int
    sequence_number: int

    @property
    def key(self) -> tuple[str, int | None]:
        return self.file.file_path, getattr(self.file, "content_offset", None)


@dataclass
class _Manifest:
    record: Mapping[str, Any]
    live: list[_Entry]


@dataclass
class _Part:
    """The content of one manifest."""

    spec_id: int
    content: int
    added: list[_Entry] = field(default_factory=list)
    kept: list[_Entry] = field(default_factory=list)
    removed: list[_Entry] = field(default_factory=list)


def _merged(parts: Iterable[_Part]) -> Iterable[_Part]:
    found: dict[tuple[int, int], _Part] = {}
    for part in parts:
        whole = found.setdefault((part.spec_id, part.content), _Part(part.spec_id, part.content))
        whole.added += part.added
        whole.kept += part.kept
        whole.removed += part.removed
    return found.values()


_KINDS = {DATA: DataFile, DELETES: DeleteFile}
_UPDATE: msgspec.json.Decoder[FileUpdate] = msgspec.json.Decoder(FileUpdate)


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        self.read.append(location)
        return super().get(location, max_bytes)


@dataclass
class Branches:
    """A table and its branches; `commit` adds a snapshot with exactly the given files."""

    metadata: TableMetadata
    store: CountingStore = field(default_factory=CountingStore)
    _trees: dict[int, list[_Manifest]] = field(default_factory=dict)
    _ids: Iterable[int] = field(default_factory=lambda: itertools.count(101))
    _paths: Iterable[int] = field(default_factory=itertools.count)

    @classmethod
    def create(cls, format_version: int = 2, spec: Mapping[str, Any] = BY_REGION) -> Branches:
        metadata = new_table(
            schema=json.dumps(SCHEMA).encode(),
            spec=json.dumps(spec).encode(),
            order=None,
            location="memory://bucket/table",
            properties={"format-version": str(format_version)},
            uuid="7b4d7a1e-0000-4000-8000-000000000001",
            now_ms=1,
        )
        return cls(metadata)

    @property
    def reader(self) -> ManifestReader:
        """Return a new reader with an empty cache, so that reads can be counted."""
        return ManifestReader(ManifestCache(), self.store, lambda location: None)

    def head(self, branch: str = "main") -> Snapshot | None:
        ref = self.metadata.ref(branch) or self.metadata.ref("main")
        return None if ref is None else self.metadata.snapshot(ref.snapshot_id)

    def apply(self, *updates: TableUpdate) -> None:
        self.metadata = apply_updates(self.metadata, updates, now_ms=1)

    def expire(self, *snapshot_ids: int) -> None:
        self.apply(RemoveSnapshots(snapshot_ids))

    def commit(
        self,
        operation: str | None,
        *,
        add: Sequence[ContentFile] = (),
        remove: Sequence[str | tuple[str, int]] = (),
        merge: bool = False,
        branch: str = "main",
        spec_id: int | None = None,
    ) -> int:
        """Commit a snapshot that adds and removes files. With `merge`, all manifests of a spec
        and content become one, which includes the added files."""
        snapshot_id = next(iter(self._ids))
        parent = self.head(branch)
        version = self.metadata.format_version
        number = 0 if version == 1 else self.metadata.last_sequence_number + 1
        gone = {item if isinstance(item, tuple) else (item, None) for item in remove}
        own = self.metadata.default_spec_id if spec_id is None else spec_id
        parts = [
            _Part(own, content, added=[_Entry(file, snapshot_id, number) for file in files])
            for content, kind in _KINDS.items()
            if (files := [file for file in add if isinstance(file, kind)])
        ]
        tree: list[_Manifest] = []
        for manifest in self._trees.get(parent.snapshot_id, []) if parent else []:
            removed = [entry for entry in manifest.live if entry.key in gone]
            if removed or merge:
                kept = [entry for entry in manifest.live if entry.key not in gone]
                record = manifest.record
                where = record["partition_spec_id"], record["content"]
                parts.append(_Part(*where, kept=kept, removed=removed))
            else:
                tree.append(manifest)
        for part in _merged(parts) if merge else parts:
            tree.append(self._written(part, snapshot_id, number))
        self._trees[snapshot_id] = tree
        self._add_snapshot(snapshot_id, parent, number, operation, tree, branch)
        return snapshot_id

    def _written(self, part: _Part, snapshot_id: int, number: int) -> _Manifest:
        spec, version = self.metadata.spec(part.spec_id), self.metadata.format_version
        assert spec is not None
        encoder = manifest_encoder(self.metadata.current_schema, spec, version, part.content)
        writer = RollingManifestWriter(
            encoder, new_path=self._new_path, snapshot_id=snapshot_id, codec="null"
        )
        for entry in part.added:
            writer.add(entry.file)
        for entry in part.kept:
            own = entry.sequence_number
            writer.existing(entry.file, entry.snapshot_id, own, own)
        for entry in part.removed:
            writer.delete(entry.file, entry.sequence_number, entry.sequence_number)
        (written,) = writer.finish()
        self.store.put_new(written.manifest_path, [written.file])
        return _Manifest(_list_record(written, snapshot_id, number), [*part.added, *part.kept])

    def _new_path(self) -> str:
        return f"{self.metadata.location}/metadata/m{next(iter(self._paths))}.avro"

    def _add_snapshot(
        self,
        snapshot_id: int,
        parent: Snapshot | None,
        number: int,
        operation: str | None,
        tree: Sequence[_Manifest],
        branch: str,
    ) -> None:
        version = self.metadata.format_version
        location = f"{self.metadata.location}/metadata/snap-{snapshot_id}.avro"
        content = list_bytes([manifest.record for manifest in tree], version, codec="null")
        self.store.put_new(location, [content])
        snapshot = {
            "snapshot-id": snapshot_id,
            "timestamp-ms": snapshot_id,
            "manifest-list": location,
            "schema-id": self.metadata.current_schema_id,
            **({"parent-snapshot-id": parent.snapshot_id} if parent else {}),
            **({"sequence-number": number} if version > 1 else {}),
            **({"summary": {"operation": operation}} if operation else {}),
            **({"first-row-id": self.metadata.next_row_id, "added-rows": 0} if version > 2 else {}),
        }
        self.apply(
            AddSnapshot(Raw(msgspec.json.encode(snapshot))),
            SetSnapshotRef(branch, "branch", snapshot_id),
        )

    # --- checks ---

    def scope(
        self,
        update: Mapping[str, Any],
        *,
        head: Snapshot | None = None,
        added_partitions: Iterable[tuple[int, tuple[Any, ...]]] | None = None,
    ) -> Scope:
        parsed = _UPDATE.decode(json.dumps({"action": "overwrite", **update}))
        return Scope(
            metadata=self.metadata,
            head=head or self.head(parsed.branch),
            update=parsed,
            index=0,
            replaced_partitions=None if added_partitions is None else frozenset(added_partitions),
        )

    def conflicts(
        self,
        *clauses: Mapping[str, Any],
        added_partitions: Iterable[tuple[int, tuple[Any, ...]]] | None = None,
        head: Snapshot | None = None,
        **update: Any,
    ) -> list[dict[str, Any]]:
        """Return the conflicts of an update with these clauses; empty if there are none."""
        scope = self.scope(_update(update, clauses), head=head, added_partitions=added_partitions)
        return conflicts_of(lambda: check_validations(scope, self.reader))

    def raise_conflicts(self, *clauses: Mapping[str, Any], **update: Any) -> None:
        check_validations(self.scope(_update(update, clauses)), self.reader)

    def base_conflicts(self, *clauses: Mapping[str, Any], **update: Any) -> list[dict[str, Any]]:
        scope = self.scope(_update(update, clauses))
        return conflicts_of(lambda: check_base(scope))

    def vector_conflicts(
        self, *added: DeleteFile, head: Snapshot | None = None, **update: Any
    ) -> list[dict[str, Any]]:
        scope = self.scope(_update(update, ()), head=head)
        return conflicts_of(lambda: check_deletion_vectors(scope, added, self.reader))


def _update(fields: Mapping[str, Any], clauses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in fields.items() if value is not None}
    return {**named, "commit-validations": list(clauses)}


def conflicts_of(check: Callable[[], None]) -> list[dict[str, Any]]:
    """Return the conflicts as a client reads them."""
    error: dict[str, Any] | None = None
    try:
        check()
    except ValidationError as failed:
        error = msgspec.json.decode(msgspec.json.encode(failed.body()))["error"]
    if error is None:
        return []
    conflicts: list[dict[str, Any]] = error["conflicts"]
    assert error["message"].startswith(conflicts[0]["message"])
    return conflicts


def _list_record(written: WrittenManifest, snapshot_id: int, number: int) -> dict[str, Any]:
    least = written.min_sequence_number
    return listed(
        written.manifest_path,
        snapshot_id,
        manifest_length=written.manifest_length,
        partition_spec_id=written.partition_spec_id,
        content=written.content,
        sequence_number=number,
        min_sequence_number=number if least is None else least,
        added_files_count=written.added_files_count,
        existing_files_count=written.existing_files_count,
        deleted_files_count=written.deleted_files_count,
        added_rows_count=written.added_rows_count,
        existing_rows_count=written.existing_rows_count,
        deleted_rows_count=written.deleted_rows_count,
        partitions=[
            {
                "contains_null": summary.contains_null,
                "contains_nan": summary.contains_nan,
                "lower_bound": summary.lower_bound,
                "upper_bound": summary.upper_bound,
            }
            for summary in written.partitions
        ],
    )


# --- clauses ---------------------------------------------------------------------------------


def clause(type_: str, **fields: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    return {"type": type_, **named}


def region(value: str) -> dict[str, Any]:
    return {"type": "eq", "term": "region", "value": value}


def ids_from(value: int) -> dict[str, Any]:
    return {"type": "gt-eq", "term": "id", "value": value}


def paths(conflict: Mapping[str, Any]) -> list[str]:
    return sorted(file["file-path"] for file in conflict["files"])


def snapshots(conflict: Mapping[str, Any]) -> list[int]:
    return sorted(snapshot["snapshot-id"] for snapshot in conflict["snapshots"])
