"""Rewrites manifests so that each has the files of few partitions (Java's RewriteManifests).

The live entries of many manifests are sorted by partition and copied into manifests of the target
size. This happens outside the table's queue. In the queue a commit lists the new manifests instead
of the old ones, if all of the old ones are still in the head. Manifests never change, so the live
entries are then the same.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from frazil.commit.snapshot.manifest_tree import (
    Head,
    Tree,
    TreeTarget,
    encoder_for,
    swap_manifests,
)
from frazil.commit.snapshot.snapshot_builder import (
    Action,
    FileChanges,
    NewSnapshot,
    build_snapshot,
)
from frazil.format.avro.avro_schema import RecordSchema
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.manifest_list import (
    DATA,
    DELETES,
    ManifestFile,
    is_nan,
    partition_summaries,
)
from frazil.format.manifest.manifest_writer import (
    MergeSettings,
    RollingManifestWriter,
    WrittenManifest,
)
from frazil.format.metadata.metadata_files import metadata_folder
from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_properties import manifest_compression
from frazil.read.filters import partitions_of
from frazil.read.history import REPLACE
from frazil.read.manifest_cache import ManifestReader
from frazil.values.single_value import InvalidValue, from_binary
from frazil.values.types import Type
from frazil.wire.errors import BadRequest, ValidationError
from frazil.wire.file_actions import Replace

MAX_CLUSTER_BYTES: Final = 128 << 20
"""The manifests that are rewritten together: their new manifests are in memory at once."""
MAX_NEW_MANIFESTS: Final = 1_000
"""Of one cluster: they are all written at the same time."""
_LARGE: Final = 0.75
"""The part of the target size from which on a manifest is large."""
_SLACK: Final = 1.2
"""How much larger than the target a new manifest may become, as in Java."""


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Manifests of one spec and content that are rewritten together."""

    content: int
    spec_id: int
    sources: tuple[ManifestFile, ...]
    target_size_bytes: int

    @property
    def size_in_bytes(self) -> int:
        return sum(listed.manifest_length for listed in self.sources)

    @property
    def new_count(self) -> int:
        """The number of new manifests, as Java computes it."""
        count = math.ceil(self.size_in_bytes / self.target_size_bytes)
        return min(max(1, count), MAX_NEW_MANIFESTS)


@dataclass(frozen=True, slots=True)
class RewrittenCluster:
    """A cluster and the records of its new manifests, which are stored already."""

    cluster: Cluster
    new: tuple[Mapping[int, Any], ...]
    entries: int


class SourcesChanged(ValidationError):
    """A commit has replaced one of the manifests that were rewritten."""


class ManifestSwap(Replace, frozen=True, kw_only=True, tag="replace"):
    """A commit that lists new manifests instead of old ones. No request can contain it."""

    rewritten: RewrittenCluster


# --- what is rewritten -----------------------------------------------------------------------


def clusters(
    metadata: TableMetadata, head: Head, spec_id: int | None, sort_by: Sequence[str]
) -> list[Cluster]:
    """Return the manifests whose rewrite improves the head.

    As in Java, these are the manifests of one spec, by default the table's current one.
    """
    chosen = metadata.default_spec_id if spec_id is None else spec_id
    spec = metadata.spec(chosen)
    if spec is None:
        known = ", ".join(str(each.spec_id) for each in metadata.partition_specs)
        raise BadRequest(f"spec_id: the table has no partition spec {chosen}, but {known}")
    positions = sort_positions(spec, sort_by)
    types = encoder_for(metadata, chosen, DATA).partition_type.fields
    field = (positions[0], types[positions[0]].type) if positions else None
    target = max(1, MergeSettings.of(metadata.properties).target_size_bytes)
    found: list[Cluster] = []
    for content in (DATA, DELETES):
        sources = [listed for listed in head.live(content) if listed.partition_spec_id == chosen]
        if head.manifests is None or not sources:
            continue
        ranges = _ranges(sources, head.manifests.schema, field)
        for packed in _packed(_chosen(sources, ranges, target)):
            cluster = Cluster(content, chosen, tuple(packed), target)
            if _improves(cluster, ranges):
                found.append(cluster)
    return found


def sort_positions(spec: PartitionSpec, sort_by: Sequence[str]) -> list[int]:
    """Return the order in which the fields of the spec are compared."""
    names = [part.name for part in spec.fields]
    unknown = [name for name in sort_by if name not in names]
    if unknown:
        raise BadRequest(
            f"sort_by: {unknown[0]} is not a field of partition spec {spec.spec_id}, which has "
            f"{', '.join(names) or 'none'}"
        )
    first = [names.index(name) for name in sort_by]
    return [*first, *(at for at in range(len(names)) if at not in first)]


_Range: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""The least and the greatest value of the first sorted field, in a form that can be compared."""


def _ranges(
    sources: Sequence[ManifestFile], schema: RecordSchema, field: tuple[int, Type] | None
) -> dict[str, _Range]:
    """Return the range of each manifest; `field` is the position and type of the sorted field."""
    ranges: dict[str, _Range] = {}
    for listed in sources:
        summaries = partition_summaries(schema, listed)
        low = high = _comparable(None)
        if summaries and field is not None:
            summary = summaries[field[0]]
            high = _bound(field[1], summary.upper_bound)
            low = (
                _comparable(None)
                if summary.contains_null
                else _bound(field[1], summary.lower_bound)
            )
        ranges[listed.manifest_path] = low, high
    return ranges


def _bound(type_: Type, bound: bytes | None) -> tuple[Any, ...]:
    try:
        return _comparable(None if bound is None else from_binary(type_, bound))
    except InvalidValue:
        return _comparable(None)


def _chosen(
    sources: Sequence[ManifestFile], ranges: Mapping[str, _Range], target_size_bytes: int
) -> Iterator[ManifestFile]:
    """Yield small manifests and those that overlap with others, in the order of their ranges.

    Large manifests with partitions of their own are already as a rewrite would leave them.
    """
    ordered = sorted(sources, key=lambda listed: ranges[listed.manifest_path])
    own = [ranges[listed.manifest_path] for listed in ordered]
    reached = _comparable(None)
    for number, (listed, (low, high)) in enumerate(zip(ordered, own, strict=True)):
        next_low = own[number + 1][0] if number + 1 < len(own) else high
        overlaps = low < reached or next_low < high
        reached = max(reached, high)
        if overlaps or listed.manifest_length < _LARGE * target_size_bytes:
            yield listed


def _packed(sources: Iterable[ManifestFile]) -> Iterator[list[ManifestFile]]:
    packed: list[ManifestFile] = []
    size = 0
    for listed in sources:
        if packed and size + listed.manifest_length > MAX_CLUSTER_BYTES:
            yield packed
            packed, size = [], 0
        packed.append(listed)
        size += listed.manifest_length
    if packed:
        yield packed


def _improves(cluster: Cluster, ranges: Mapping[str, _Range]) -> bool:
    """Return whether there will be fewer manifests, or manifests that overlap less."""
    sources = cluster.sources
    if len(sources) < 2 or cluster.new_count < len(sources):
        return len(sources) > 1
    own = sorted(ranges[listed.manifest_path] for listed in sources)
    return any(high > low for (_, high), (low, _) in pairwise(own))


# --- new manifests ---------------------------------------------------------------------------


def rewritten_manifests(
    metadata: TableMetadata, cluster: Cluster, sort_by: Sequence[str], reader: ManifestReader
) -> list[WrittenManifest]:
    """Return new manifests with the live entries of a cluster, sorted by partition."""
    spec = metadata.spec(cluster.spec_id)
    assert spec is not None
    shares = _shares(cluster, spec, sort_positions(spec, sort_by), reader)
    compression = manifest_compression(metadata.properties)
    encoder = encoder_for(metadata, cluster.spec_id, cluster.content)
    folder, name = metadata_folder(metadata), uuid.uuid4()
    writers = [
        RollingManifestWriter(
            encoder,
            new_path=_paths(f"{folder}/{name}-r{number}"),
            snapshot_id=None,
            target_size_bytes=int(cluster.target_size_bytes * _SLACK),
            codec=compression.codec,
            level=compression.level,
            keeps_copies=False,
        )
        for number in range(cluster.new_count)
    ]
    for listed, (rows, share) in zip(cluster.sources, shares, strict=True):
        content, columns = reader.content(listed), reader.columns(listed)
        for number in np.unique(share).tolist():
            try:
                writers[number].copy_rows(content, columns, listed, rows=rows[share == number])
            except UnreadableAvro as error:
                raise ValidationError(
                    f"the manifest {listed.manifest_path} of this table cannot be rewritten: "
                    f"{error}"
                ) from None
    written = [manifest for writer in writers for manifest in writer.finish()]
    _check_counts(sum(len(rows) for rows, _ in shares), written)
    return written


def _paths(prefix: str) -> Any:
    numbers = iter(range(1 << 30))
    return lambda: f"{prefix}-{next(numbers)}.avro"


_Shares: TypeAlias = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def _shares(
    cluster: Cluster, spec: PartitionSpec, positions: Sequence[int], reader: ManifestReader
) -> _Shares:
    """Return for each source its live rows, and for each row the number of its new manifest."""
    known: dict[tuple[Any, ...], int] = {}
    rows: list[NDArray[np.int64]] = []
    keys: list[NDArray[np.int64]] = []
    sizes: list[NDArray[np.int64]] = []
    for listed in cluster.sources:
        columns = reader.columns(listed)
        live = np.flatnonzero(columns.live()).astype(np.int64)
        own = [
            known.setdefault(_sort_key(partition, positions), len(known))
            for partition in partitions_of(columns, spec)
        ]
        rows.append(live)
        keys.append(np.array(own, np.int64)[columns.partition[live]])
        starts, ends = columns.data_file_at[live], columns.data_file_end[live]
        sizes.append(ends.astype(np.int64) - starts.astype(np.int64))
    ranks = np.empty(len(known), np.int64)
    ranks[[known[key] for key in sorted(known)]] = np.arange(len(known))
    of_all = ranks[np.concatenate(keys)] if keys else np.empty(0, np.int64)
    order = np.argsort(of_all, kind="stable")
    before = np.cumsum(np.concatenate(sizes)[order])
    share = np.empty(len(order), np.int64)
    if len(order):
        share[order] = np.minimum(
            (before - 1) * cluster.new_count // max(1, int(before[-1])), cluster.new_count - 1
        )
    ends_of = np.cumsum([len(each) for each in rows])[:-1]
    return list(zip(rows, np.split(share, ends_of), strict=True))


def _sort_key(partition: Sequence[Any], positions: Sequence[int]) -> tuple[Any, ...]:
    """Return a key by which all partitions can be compared: nulls first, NaN last."""
    return tuple(_comparable(partition[at]) for at in positions)


def _comparable(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (2,) if is_nan(value) else (1, value)


def _check_counts(entries: int, written: Sequence[WrittenManifest]) -> None:
    """Check as Java does that no file was lost or doubled."""
    added = sum(manifest.existing_files_count for manifest in written)
    others = sum(manifest.added_files_count + manifest.deleted_files_count for manifest in written)
    if added != entries or others:
        raise RuntimeError(f"{entries} entries became {added} and {others} others")


# --- the commit ------------------------------------------------------------------------------


def swap(action: Action, update: ManifestSwap) -> NewSnapshot:
    """Build the snapshot of a rewrite. Raises SourcesChanged."""
    head, rewritten = action.read_head(), update.rewritten
    lost = missing_sources(head, rewritten.cluster)
    if lost:
        raise SourcesChanged(f"the manifest {lost[0]} is not in the head of the branch any more")
    sources = {listed.manifest_path for listed in rewritten.cluster.sources}

    def tree_of(target: TreeTarget) -> Tree:
        return swap_manifests(target, sources, rewritten.new, action.environment.reader)

    return build_snapshot(
        action,
        head,
        FileChanges((), {}),
        operation=REPLACE,
        properties=(*update.summary.items(), ("entries-processed", str(rewritten.entries))),
        stage_only=False,
        tree_of=tree_of,
    )


def missing_sources(head: Head, cluster: Cluster) -> list[str]:
    """Return the manifests of a cluster that the head does not have as they were.

    After an upgrade to version 3 a list gives row ids to manifests, so their entries have others.
    """
    live = {
        listed.manifest_path: (listed.first_row_id, listed.sequence_number)
        for listed in head.live(cluster.content)
    }
    return [
        listed.manifest_path
        for listed in cluster.sources
        if live.get(listed.manifest_path) != (listed.first_row_id, listed.sequence_number)
    ]
