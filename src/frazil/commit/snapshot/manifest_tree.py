"""Builds the manifests of a new snapshot and their list.

Manifests are written, rewritten or merged only if necessary. A manifest that loses no entry and
is not merged is listed unchanged. This module writes nothing to the store. The caller must write
the returned files before the swap.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from frazil.format.avro.avro_codecs import Compression
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest import manifest_list
from frazil.format.manifest.manifest_encoder import ManifestEncoder, manifest_encoder
from frazil.format.manifest.manifest_list import (
    DATA,
    DELETES,
    ListedManifest,
    ManifestFile,
    ManifestList,
    WrittenManifestList,
    empty_list,
    may_have_live,
    new_listed,
    write_manifest_list,
)
from frazil.format.manifest.manifest_writer import (
    MAX_ENTRIES,
    MAX_MERGED_ENTRIES,
    Mergeable,
    MergeSettings,
    RollingManifestWriter,
    WrittenManifest,
    bin_to_merge,
    mergeable,
)
from frazil.format.metadata.content_files import ContentFile
from frazil.format.metadata.metadata_files import metadata_folder
from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.format.metadata.schema import Schema
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_properties import manifest_compression
from frazil.read.manifest_cache import ManifestReader
from frazil.read.path_index import MAX_FILES, new_manifest
from frazil.wire.errors import BadRequest, ValidationError


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """New files of one spec and content, which will get manifests of their own."""

    spec_id: int
    content: int
    files: Sequence[ContentFile]
    data_sequence_number: int | None = None
    """Set only if rewritten rows keep their number. Otherwise the files get that of the commit."""

    @property
    def few_files(self) -> Sequence[ContentFile]:
        """The files, if there are few and all inherit their numbers. Otherwise empty."""
        inherit = self.data_sequence_number is None
        return self.files if inherit and len(self.files) <= MAX_FILES else ()

    def write_into(self, writer: RollingManifestWriter) -> None:
        writer.add_all(self.files, self.data_sequence_number)


def grouped_by_spec(
    files: Sequence[ContentFile],
    spec_ids: Sequence[int],
    content: int,
    data_sequence_number: int | None = None,
) -> list[AddedFiles]:
    """Group added files by spec. Within a spec they stay in the order of the request."""
    distinct = set(spec_ids)
    if len(distinct) == 1:
        return [AddedFiles(spec_ids[0], content, files, data_sequence_number)]
    by_spec: dict[int, list[ContentFile]] = {spec_id: [] for spec_id in sorted(distinct)}
    for spec_id, file in zip(spec_ids, files, strict=True):
        by_spec[spec_id].append(file)
    return [
        AddedFiles(spec_id, content, of_spec, data_sequence_number)
        for spec_id, of_spec in by_spec.items()
    ]


@dataclass(frozen=True, slots=True)
class Head:
    """The state that a snapshot is built on: the head of its branch, or an empty table."""

    snapshot: Snapshot | None
    manifests: ManifestList | None
    _by_content: Mapping[int, list[ManifestFile]] = field(default_factory=dict)
    _live: Mapping[int, list[ManifestFile]] = field(default_factory=dict)

    @classmethod
    def at(cls, snapshot: Snapshot, manifests: ManifestList) -> Head:
        """Return the head with its manifests grouped once, because a commit iterates over them
        several times."""
        by_content: dict[int, list[ManifestFile]] = {DATA: [], DELETES: []}
        for manifest in manifests.manifests:
            by_content[manifest.content].append(manifest)
        live = {content: list(filter(may_have_live, of)) for content, of in by_content.items()}
        return cls(snapshot, manifests, by_content, live)

    def of(self, content: int) -> Sequence[ManifestFile]:
        return self._by_content.get(content, ())

    def live(self, content: int) -> Sequence[ManifestFile]:
        """Return the manifests that may have live files."""
        return self._live.get(content, ())


@dataclass(frozen=True, slots=True)
class Tree:
    manifest_list: str
    """The location of the manifest list."""
    files: tuple[tuple[str, bytes], ...]
    written: WrittenManifestList
    manifests_created: int
    manifests_kept: int
    manifests_replaced: int


@dataclass(frozen=True, slots=True)
class TreeTarget:
    """The snapshot that the tree is built for."""

    metadata: TableMetadata
    snapshot_id: int
    sequence_number: int
    head: Head


def build_tree(
    target: TreeTarget,
    added: Iterable[AddedFiles],
    removed: Mapping[str, Sequence[int]],
    reader: ManifestReader,
) -> Tree:
    """Return the tree after adding files and removing rows (by manifest path, then by entry)."""
    properties = target.metadata.properties
    merging, compression = MergeSettings.of(properties), manifest_compression(properties)
    builder = _Builder(target, reader, merging, compression)
    return builder.build(list(added), removed)


def swap_manifests(
    target: TreeTarget,
    replaced: Collection[str],
    new: Sequence[Mapping[int, Any]],
    reader: ManifestReader,
) -> Tree:
    """Return the tree with other manifests in place of some. `new` are the records of manifests
    that are stored already, without the numbers of the commit."""
    properties = target.metadata.properties
    builder = _Builder(
        target, reader, MergeSettings.of(properties), manifest_compression(properties)
    )
    return builder.swap(replaced, new)


@dataclass(frozen=True, slots=True)
class _Old:
    """A manifest of the head, with the entries this commit removes from it."""

    listed: ManifestFile
    reader: ManifestReader
    removed: frozenset[int]

    @property
    def content(self) -> int:
        return self.listed.content

    @property
    def spec_id(self) -> int:
        return self.listed.partition_spec_id

    def write_into(self, writer: RollingManifestWriter) -> None:
        # The files of a small manifest may still be in memory.
        new = None if self.removed else self.reader.new_manifest(self.listed)
        if new is not None:
            new.copy_into(writer, self.listed)
            return
        content, columns = self.reader.content(self.listed), self.reader.columns(self.listed)
        try:
            writer.copy_rows(content, columns, self.listed, self.removed)
        except UnreadableAvro as error:
            path = self.listed.manifest_path
            raise ValidationError(
                f"the manifest {path} of this table cannot be rewritten: {error}"
            ) from None


_Piece: TypeAlias = AddedFiles | _Old
"""A part of the new list before it is merged: new files, or a manifest of the head."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A manifest that was written for the new list."""

    manifest: WrittenManifest
    piece: _Piece
    whole: bool = True
    """Whether the piece became exactly this manifest. New files may need several manifests."""
    new_files: Sequence[ContentFile] = ()
    """The files of a manifest that has only a few new files. Otherwise empty."""

    @property
    def partition_spec_id(self) -> int:
        return self.manifest.partition_spec_id

    def mergeable(self) -> Mergeable:
        manifest = self.manifest
        entries = (
            manifest.added_files_count
            + manifest.existing_files_count
            + manifest.deleted_files_count
        )
        if not self.whole:
            entries = MAX_MERGED_ENTRIES + 1
        return manifest.partition_spec_id, manifest.manifest_length, entries


_Part: TypeAlias = ManifestFile | _Written
"""A manifest of the new list: an unchanged one or a new one."""


@dataclass(slots=True)
class _Builder:
    target: TreeTarget
    reader: ManifestReader
    merging: MergeSettings
    compression: Compression
    commit_uuid: uuid.UUID = field(default_factory=uuid.uuid4)
    count: int = 0
    replaced: int = 0

    def build(self, added: list[AddedFiles], removed: Mapping[str, Sequence[int]]) -> Tree:
        parts: list[_Part] = []
        for content in (DATA, DELETES):
            parts += self._merged(self._parts(content, added, removed))
        return self._tree(parts)

    def swap(self, replaced: Collection[str], new: Sequence[Mapping[int, Any]]) -> Tree:
        numbers = {
            manifest_list.ADDED_SNAPSHOT_ID: self.target.snapshot_id,
            manifest_list.SEQUENCE_NUMBER: self.target.sequence_number,
        }
        version, head = self.target.metadata.format_version, self.target.head
        stored = [new_listed({**record, **numbers}, version, head.manifests) for record in new]
        live = (*head.live(DATA), *head.live(DELETES))
        stay = [listed for listed in live if listed.manifest_path not in replaced]
        self.replaced = len(live) - len(stay)
        return self._tree(stay, stored)

    # --- the manifests -----------------------------------------------------------------------

    def _parts(
        self, content: int, added: list[AddedFiles], removed: Mapping[str, Sequence[int]]
    ) -> list[_Part]:
        parts: list[_Part] = []
        for files in added:
            if files.content == content and files.files:
                parts += self._written(files)
        if not removed:
            return [*parts, *self.target.head.live(content)]
        for listed in self.target.head.of(content):
            rows = removed.get(listed.manifest_path)
            if rows:
                self.replaced += 1
                parts += self._written(_Old(listed, self.reader, frozenset(rows)))
            elif may_have_live(listed):
                parts.append(listed)
        return parts

    def _merged(self, parts: list[_Part]) -> list[_Part]:
        if self.merging.enabled:
            # If merging is enabled, Java lists manifests by spec, the newest first.
            parts = sorted(parts, key=lambda part: -part.partition_spec_id)
        sizes = [
            mergeable(part) if isinstance(part, ManifestFile) else part.mergeable()
            for part in parts
        ]
        chosen = bin_to_merge(sizes, self.merging)
        if not chosen:
            return parts
        pieces = [self._piece(parts[position]) for position in chosen]
        writer = self._writer(pieces[0].spec_id, pieces[0].content, self.target.snapshot_id)
        for piece in pieces:
            piece.write_into(writer)
        self.replaced += sum(isinstance(parts[position], ManifestFile) for position in chosen)
        inside = set(chosen)
        result: list[_Part] = []
        for position, part in enumerate(parts):
            if position == chosen[0]:
                result += (_Written(manifest, pieces[0]) for manifest in writer.finish())
            elif position not in inside:
                result.append(part)
        return result

    def _written(self, piece: _Piece) -> list[_Written]:
        # New files inherit the snapshot id. Format version 1 has no inheritance and must write it.
        inherits = isinstance(piece, AddedFiles) and self.target.metadata.format_version > 1
        snapshot_id = None if inherits else self.target.snapshot_id
        # Removing a file rewrites its whole manifest. Smaller results make the next removal
        # cheaper.
        max_entries = MAX_MERGED_ENTRIES if isinstance(piece, _Old) else MAX_ENTRIES
        writer = self._writer(piece.spec_id, piece.content, snapshot_id, max_entries)
        piece.write_into(writer)
        manifests = writer.finish()
        if len(manifests) == 1 and isinstance(piece, AddedFiles):
            return [_Written(manifests[0], piece, True, piece.few_files)]
        return [_Written(manifest, piece, len(manifests) == 1) for manifest in manifests]

    def _remember(self, part: _Written) -> None:
        manifest = part.manifest
        if part.new_files:
            new = new_manifest(part.new_files, manifest.columns)
            self.reader.remember_new(manifest.manifest_path, new, manifest.file)
        else:
            self.reader.remember(manifest.manifest_path, manifest.columns(), manifest.file)

    def _piece(self, part: _Part) -> _Piece:
        if isinstance(part, ManifestFile):
            return _Old(part, self.reader, frozenset())
        return part.piece

    def _writer(
        self,
        spec_id: int,
        content: int,
        snapshot_id: int | None,
        max_entries: int = MAX_ENTRIES,
    ) -> RollingManifestWriter:
        return RollingManifestWriter(
            encoder_for(self.target.metadata, spec_id, content),
            new_path=self._new_path,
            snapshot_id=snapshot_id,
            target_size_bytes=self.merging.target_size_bytes,
            max_entries=max_entries,
            codec=self.compression.codec,
            level=self.compression.level,
        )

    def _new_path(self) -> str:
        path = f"{metadata_folder(self.target.metadata)}/{self.commit_uuid}-m{self.count}.avro"
        self.count += 1
        return path

    # --- the list ----------------------------------------------------------------------------

    def _tree(self, parts: Sequence[_Part], stored: Sequence[ListedManifest] = ()) -> Tree:
        """Return the tree of the parts, behind new manifests that are stored already."""
        target, metadata = self.target, self.target.metadata
        version, head = metadata.format_version, target.head
        entries = list(stored)
        files: list[tuple[str, bytes]] = []
        for part in parts:
            if isinstance(part, ManifestFile):
                assert head.manifests is not None
                entries.append(ListedManifest(part, head.manifests.schema))
                continue
            manifest = part.manifest
            record = manifest.listed(target.snapshot_id, target.sequence_number)
            entries.append(new_listed(record, version, head.manifests))
            files.append((manifest.manifest_path, manifest.file))
            self._remember(part)
        written = write_manifest_list(
            entries,
            like=head.manifests or empty_list(version, self.compression.codec),
            format_version=version,
            snapshot_id=target.snapshot_id,
            parent_snapshot_id=head.snapshot.snapshot_id if head.snapshot else None,
            sequence_number=target.sequence_number,
            first_row_id=metadata.next_row_id if version > 2 else None,
            codec=self.compression.codec,
            level=self.compression.level,
        )
        # This is Java's name for the first attempt of a commit with its own uuid.
        location = (
            f"{metadata_folder(metadata)}/snap-{target.snapshot_id}-1-{self.commit_uuid}.avro"
        )
        self.reader.remember_list(location, written.parsed)
        files.append((location, written.content))
        created = len(files) - 1 + len(stored)
        return Tree(
            manifest_list=location,
            files=tuple(files),
            written=written,
            manifests_created=created,
            manifests_kept=len(entries) - created,
            manifests_replaced=self.replaced,
        )


def encoder_for(metadata: TableMetadata, spec_id: int, content: int) -> ManifestEncoder:
    """Return the encoder of manifests of a spec."""
    spec = metadata.spec(spec_id)
    if spec is None:
        raise BadRequest(f"the table has no partition spec with id {spec_id}")
    schema = schema_for_spec(metadata.schemas, metadata.current_schema_id, spec)
    return manifest_encoder(schema, spec, metadata.format_version, content)


@lru_cache(maxsize=256)
def schema_for_spec(
    schemas: tuple[Schema, ...], current_schema_id: int, spec: PartitionSpec
) -> Schema:
    """Return the current schema if it has every source column of the spec, otherwise the newest
    schema that has them. The types of partition values depend on their source columns."""
    current = next(schema for schema in schemas if schema.schema_id == current_schema_id)
    for schema in (current, *reversed(schemas)):
        if all(schema.find_type(part.source_id) is not None for part in spec.fields):
            return schema
    return current
