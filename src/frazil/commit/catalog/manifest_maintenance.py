"""Maintenance that the server does by itself: manifests by partition, and dangling deletes.

Both read the head of a branch outside the table's queue, and then commit what they found. A commit
in the queue checks that it still holds for the head at that time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from msgspec import Struct

from frazil.commit.pipeline.catalog_answers import Answer
from frazil.commit.snapshot.dangling_deletes import (
    DanglingRemoval,
    NothingDangling,
    find_dangling,
)
from frazil.commit.snapshot.file_writer import not_written
from frazil.commit.snapshot.manifest_rewrite import (
    Cluster,
    ManifestSwap,
    RewrittenCluster,
    SourcesChanged,
    clusters,
    missing_sources,
    rewritten_manifests,
)
from frazil.commit.snapshot.manifest_tree import Head
from frazil.format.manifest.manifest_writer import WrittenManifest
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.manifest_cache import ManifestReader
from frazil.store.object_store import Store, StoreError
from frazil.wire.errors import BadRequest, CommitStateUnknown, FrazilError
from frazil.wire.file_actions import Replace

logger = logging.getLogger("frazil.commit")

_ROUNDS: Final = 5
"""How often a cluster is rewritten because other commits have replaced its manifests."""
_WRITERS: Final = 4
_MAX_REMOVED: Final = 10_000
"""The most dangling deletes that one commit removes, because the table's queue waits for it."""

Submit: TypeAlias = Callable[[Replace], Answer]
"""Commits an update through the table's queue."""
Progress: TypeAlias = Callable[[int, int], None]
"""Is called with the finished and with all parts of the work."""


def no_progress(finished: int, total: int) -> None:
    """Report nothing."""


def never() -> bool:
    """Return False: the work is not cancelled."""
    return False


class RewrittenManifests(Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a rewrite has done, or would do. The names are those of Iceberg's procedure."""

    rewritten_manifests_count: int = 0
    added_manifests_count: int = 0
    dry_run: bool = False


class RemovedDanglingDeletes(Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a removal of dangling deletes has done, or would do."""

    removed_delete_files_count: int = 0
    removed_bytes_count: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class BranchHead:
    """The head of a branch, which is read again whenever it may have moved."""

    load: Callable[[], TableMetadata]
    reader: ManifestReader
    branch: str

    def read(self) -> tuple[TableMetadata, Head]:
        metadata = self.load()
        ref = metadata.ref(self.branch)
        if ref is None and metadata.current_snapshot_id is None:
            return metadata, Head(None, None)
        snapshot = None
        if ref is not None and ref.is_branch:
            snapshot = metadata.snapshot(ref.snapshot_id)
        if snapshot is None:
            raise BadRequest(f"branch: the table has no branch {self.branch!r}")
        return metadata, Head.at(snapshot, self.reader.manifest_list(snapshot))


# --- manifests -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ManifestRewrite:
    """A rewrite of the manifests of one branch."""

    head: BranchHead
    sort_by: Sequence[str]
    store: Store

    def run(
        self,
        submit: Submit,
        spec_id: int | None,
        dry_run: bool,
        progress: Progress,
        cancelled: Callable[[], bool],
    ) -> RewrittenManifests:
        """Rewrite one cluster after another. Each is a commit of its own."""
        found = clusters(*self.head.read(), spec_id, self.sort_by)
        if dry_run:
            return RewrittenManifests(
                rewritten_manifests_count=sum(len(cluster.sources) for cluster in found),
                added_manifests_count=sum(cluster.new_count for cluster in found),
                dry_run=True,
            )
        removed = added = 0
        for number, cluster in enumerate(found):
            if cancelled():
                break
            done = self._rewrite(cluster, submit)
            if done is not None:
                removed += len(done.cluster.sources)
                added += len(done.new)
            progress(number + 1, len(found))
        return RewrittenManifests(rewritten_manifests_count=removed, added_manifests_count=added)

    def _rewrite(self, cluster: Cluster, submit: Submit) -> RewrittenCluster | None:
        """Return what was committed, or None if other commits have replaced the manifests."""
        for _ in range(_ROUNDS):
            metadata, head = self.head.read()
            lost = set(missing_sources(head, cluster))
            stay = [listed for listed in cluster.sources if listed.manifest_path not in lost]
            cluster = replace(cluster, sources=tuple(stay))
            if len(stay) < 2:
                return None
            written = rewritten_manifests(metadata, cluster, self.sort_by, self.head.reader)
            rewritten = RewrittenCluster(
                cluster,
                tuple(manifest.listed(0, 0) for manifest in written),
                sum(manifest.existing_files_count for manifest in written),
            )
            self._write(written)
            paths = [manifest.manifest_path for manifest in written]
            try:
                submit(ManifestSwap(branch=self.head.branch, rewritten=rewritten))
            except SourcesChanged as changed:
                logger.info("manifests are rewritten again: %s", changed)
                self._discard(paths)
            except CommitStateUnknown:
                raise
            except FrazilError:
                self._discard(paths)
                raise
            else:
                return rewritten
        return None

    def _write(self, manifests: Sequence[WrittenManifest]) -> None:
        files: Mapping[str, Sequence[bytes]] = {
            manifest.manifest_path: [manifest.file] for manifest in manifests
        }
        with ThreadPoolExecutor(_WRITERS, "frazil-manifests") as pool:
            failed = self.store.put_many(files, pool)
        for cause in failed.values():
            self._discard(list(files))
            raise not_written("a manifest could not be written", cause) from cause

    def _discard(self, paths: Sequence[str]) -> None:
        """Delete manifests that are in no list. If this fails, they are harmless."""
        try:
            self.store.delete(paths)
        except (StoreError, FrazilError, OSError) as error:
            logger.warning("could not delete %d unused manifests: %s", len(paths), error)


# --- dangling deletes ------------------------------------------------------------------------


def remove_dangling(head: BranchHead, submit: Submit, dry_run: bool) -> RemovedDanglingDeletes:
    """Remove the deletes that apply to no file of the branch."""
    dangling = find_dangling(*head.read(), head.reader)
    found = RemovedDanglingDeletes(
        removed_delete_files_count=len(dangling.files),
        removed_bytes_count=dangling.size_in_bytes,
        dry_run=dry_run,
    )
    if dry_run:
        return found
    for some in dangling.split(_MAX_REMOVED):
        with suppress(NothingDangling):
            submit(DanglingRemoval(branch=head.branch, dangling=some))
    return found
