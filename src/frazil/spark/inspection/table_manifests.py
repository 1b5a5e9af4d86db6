"""Reads the manifests of a table on the driver, with the reader of the catalog's server.

This is the only module of `spark` that imports the formats of the server: a metadata table has the
entries of manifests, which no answer of the catalog contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from frazil.client.declare.client_table import Snapshot, Table
from frazil.datafiles.reading.file_storage import Storage
from frazil.format.avro.avro_schema import RecordSchema
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.manifest_columns import content_files, decode_columns
from frazil.format.manifest.manifest_fields import DELETED, NO_SNAPSHOT, NONE
from frazil.format.manifest.manifest_list import (
    DATA,
    ManifestFile,
    PartitionSummary,
    partition_summaries,
    read_manifest_list,
)
from frazil.format.metadata.content_files import ContentFile
from frazil.format.metadata.partition_spec import partition_text
from frazil.wire.errors import BadRequest

__all__ = ["FileEntry", "ListedFile", "TableManifests", "partition_text"]

_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A manifest as the list of a snapshot describes it."""

    manifest: ManifestFile
    schema: RecordSchema

    @property
    def is_data(self) -> bool:
        return self.manifest.content == DATA

    @property
    def partitions(self) -> Sequence[PartitionSummary]:
        return partition_summaries(self.schema, self.manifest) or ()


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a manifest, with what it inherits from the list."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    first_row_id: int | None
    spec_id: int
    partition: dict[int, Any]
    """The partition's internal values by field id."""
    file: ContentFile

    @property
    def is_live(self) -> bool:
        return self.status != DELETED


@dataclass(frozen=True)
class TableManifests:
    """Reads lists and manifests of one table."""

    table: Table
    storage: Storage

    def listed(self, snapshot: Snapshot) -> list[ListedFile]:
        """Return the manifests of a snapshot: those of data first, as Iceberg lists them."""
        path = snapshot.manifest_list
        if path is None:
            raise BadRequest(
                f"{self.table}: snapshot {snapshot.snapshot_id} has no manifest list, as of an old "
                "writer: its files cannot be shown without Iceberg's runtime"
            )
        content = self.storage.read(path)
        try:
            parsed = read_manifest_list(content)
        except UnreadableAvro as error:
            raise BadRequest(f"{path}: {error}") from None
        listed = [ListedFile(manifest, parsed.schema) for manifest in parsed.manifests]
        return sorted(listed, key=lambda item: item.manifest.content)

    def all_listed(self, snapshots: Iterable[Snapshot]) -> list[tuple[Snapshot, list[ListedFile]]]:
        """Return the manifests of several snapshots."""
        known = list(snapshots)
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(zip(known, pool.map(self.listed, known), strict=True))

    def entries(self, listed: Iterable[ListedFile]) -> Iterator[FileEntry]:
        """Return all entries of the manifests."""
        with ThreadPoolExecutor(_THREADS) as pool:
            for entries in pool.map(self._entries_of, listed):
                yield from entries

    def _entries_of(self, listed: ListedFile) -> list[FileEntry]:
        manifest = listed.manifest
        content = self.storage.read(manifest.manifest_path)
        try:
            columns = decode_columns(content)
            files = list(content_files(content, columns, range(len(columns))))
        except UnreadableAvro as error:
            raise BadRequest(f"{manifest.manifest_path}: {error}") from None
        inherited = columns.inherited(manifest)
        rows = zip(
            columns.status.tolist(),
            inherited.snapshot_id.tolist(),
            inherited.sequence_number.tolist(),
            inherited.file_sequence_number.tolist(),
            inherited.first_row_id.tolist(),
            files,
            strict=True,
        )
        return [
            FileEntry(
                status=status,
                snapshot_id=_known(added_by, NO_SNAPSHOT),
                sequence_number=_known(data_number, NONE),
                file_sequence_number=_known(file_number, NONE),
                first_row_id=_known(first_row_id, NONE),
                spec_id=manifest.partition_spec_id,
                partition=dict(zip(columns.partition_field_ids, file.partition, strict=True)),
                file=file,
            )
            for status, added_by, data_number, file_number, first_row_id, file in rows
        ]


def _known(value: int, missing: int) -> int | None:
    return None if value == missing else value
