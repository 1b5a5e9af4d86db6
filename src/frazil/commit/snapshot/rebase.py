"""Builds a stale classic append again on a newer head, if `rebase_proof` accepts it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from frazil.commit.snapshot.rebase_proof import (
    AddedManifest,
    RebaseRefused,
    RebaseTarget,
    RewrittenManifest,
    list_difference,
    listed_on_head,
    prove_append,
    rebase_target,
    rebased_snapshot,
)
from frazil.format.avro.avro_files import MANIFEST_LIMITS, MANIFEST_LIST_LIMITS
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.manifest_entries import Manifest, only_added, read_manifest
from frazil.format.manifest.manifest_list import (
    ManifestFile,
    ManifestList,
    read_manifest_list,
    write_manifest_list,
)
from frazil.format.metadata.metadata_files import metadata_folder
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.manifest_cache import ManifestCache
from frazil.store.object_store import ObjectMissing, ObjectReader, ObjectTooLarge

_READERS: Final = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RebasedAppend:
    snapshot: bytes
    """The JSON of the new snapshot, with the same id and all unknown fields."""
    files: tuple[tuple[str, bytes], ...]
    """Location and content of the new manifest list and of any new manifests."""


@dataclass(frozen=True, slots=True)
class NotRebasable:
    reason: str


def rebase_append(
    head: TableMetadata,
    snapshot: Snapshot,
    branch: str,
    store: ObjectReader,
    allowed: Callable[[str], None],
    cache: ManifestCache,
) -> RebasedAppend | NotRebasable:
    """Build a client's append again on the head of `branch`, if its manifests prove that it is
    an append. Write nothing. `allowed` is called before any location is read and raises if
    the location must not be read. A StoreError that may be temporary is raised as well."""
    reader = _Reader(store, allowed, cache)
    try:
        target = rebase_target(head, snapshot, branch)
        return _rebase(target, reader)
    except RebaseRefused as refused:
        return NotRebasable(str(refused))
    except UnreadableAvro as error:
        return NotRebasable(f"a manifest cannot be read: {error}")
    except (ObjectMissing, ObjectTooLarge) as error:
        return NotRebasable(str(error))


def _rebase(target: RebaseTarget, reader: _Reader) -> RebasedAppend:
    own = reader.manifest_list(target.snapshot)
    parent = None if target.parent is None else reader.manifest_list(target.parent)
    difference = list_difference(target, own, parent)
    manifests = reader.manifests((*difference.added, *difference.replaced))
    added = prove_append(target, difference, manifests)
    head = reader.manifest_list(target.head)

    commit_uuid = uuid.uuid4()
    folder = metadata_folder(target.metadata)
    files: list[tuple[str, bytes]] = []
    rewritten: dict[str, RewrittenManifest] = {}
    for item in added:
        if item.rewrite:
            path = f"{folder}/{commit_uuid}-m{len(files)}.avro"
            content = _only_added(target, item, reader)
            files.append((path, content))
            rewritten[item.listed.manifest_path] = RewrittenManifest(path, len(content))
    written = write_manifest_list(
        listed_on_head(target, own, head, added, rewritten),
        like=head,
        format_version=target.metadata.format_version,
        snapshot_id=target.snapshot.snapshot_id,
        parent_snapshot_id=target.head.snapshot_id,
        sequence_number=target.sequence_number,
        first_row_id=target.metadata.next_row_id if target.metadata.format_version > 2 else None,
        codec=own.codec,
    )
    # This is Java's name for the first attempt of a commit with its own uuid.
    location = f"{folder}/snap-{target.snapshot.snapshot_id}-1-{commit_uuid}.avro"
    files.append((location, written.content))
    reader.remember(location, written.parsed)
    rebased = rebased_snapshot(
        target,
        added,
        manifest_list=location,
        kept_manifests=len(head.manifests),
        assigned_rows=written.assigned_rows,
    )
    return RebasedAppend(rebased, tuple(files))


def _only_added(target: RebaseTarget, item: AddedManifest, reader: _Reader) -> bytes:
    content = reader.content(item.listed.manifest_path, MANIFEST_LIMITS.file_bytes)
    return only_added(content, target.sequence_number)


class _Reader:
    """Reads manifests and lists for one rebase, and checks their locations and sizes."""

    def __init__(
        self, store: ObjectReader, allowed: Callable[[str], None], cache: ManifestCache
    ) -> None:
        self._store = store
        self._allowed = allowed
        self._cache = cache

    def content(self, location: str, max_bytes: int) -> bytes:
        self._allowed(location)
        content = self._cache.get(location, bytes)
        if content is None:
            content = self._store.get(location, max_bytes)
            self._cache.put(location, content)
        return content

    def remember(self, location: str, parsed: ManifestList) -> None:
        """Cache a list that was just built. If it is never written, nobody will read its
        location."""
        self._cache.put(location, parsed)

    def manifest_list(self, snapshot: Snapshot) -> ManifestList:
        location = snapshot.manifest_list
        if location is None:
            raise RebaseRefused(f"snapshot {snapshot.snapshot_id} has no manifest list")
        self._allowed(location)
        parsed = self._cache.get(location, ManifestList)
        if parsed is None:
            content = self._store.get(location, MANIFEST_LIST_LIMITS.file_bytes)
            parsed = _parsed(location, read_manifest_list, content)
            self.remember(location, parsed)
        return parsed

    def manifests(self, listed: Sequence[ManifestFile]) -> dict[str, Manifest]:
        """Read manifests in parallel, because a merge may replace a hundred or more."""
        paths = [manifest.manifest_path for manifest in listed]
        if len(paths) < 3:
            return {path: self._manifest(path) for path in paths}
        with ThreadPoolExecutor(min(_READERS, len(paths)), "frazil-rebase") as pool:
            return dict(zip(paths, pool.map(self._manifest, paths), strict=True))

    def _manifest(self, path: str) -> Manifest:
        return _parsed(path, read_manifest, self.content(path, MANIFEST_LIMITS.file_bytes))


def _parsed(location: str, parse: Callable[[bytes], T], content: bytes) -> T:
    try:
        return parse(content)
    except UnreadableAvro as error:
        raise UnreadableAvro(f"{location}: {error}") from None
