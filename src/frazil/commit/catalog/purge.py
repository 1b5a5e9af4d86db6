"""Finds the files to delete when a table is dropped with purge."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from frazil.format.avro.avro_files import MANIFEST_LIST_LIMITS, AvroLimits
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.manifest_entries import file_paths
from frazil.format.manifest.manifest_list import read_manifest_list
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.object_store import Store, StoreError
from frazil.wire.errors import FrazilError

logger = logging.getLogger("frazil.commit")

MANIFEST_LIMITS: Final = AvroLimits(
    file_bytes=256 << 20, decoded_bytes=1 << 30, records=10_000_000, record_bytes=4 << 20
)
"""Larger than the limits of a commit, because a purge may take long and reads one entry at a
time."""


def log_problem(message: str) -> None:
    logger.warning("purge: %s", message)


def files_of_table(
    metadata: TableMetadata,
    store: Store,
    within: Callable[[str], bool],
    *,
    metadata_location: str | None = None,
    problem: Callable[[str], None] = log_problem,
) -> Iterator[str]:
    """Yield every file that a snapshot of the table references and that is `within` the table's
    own location. The order is the order of deletion: data and delete files first, then
    manifests, manifest lists, statistics and metadata files, the current one last. So an
    interrupted purge can be started again with the files that are left.

    As in Java's CatalogUtil.dropTableData, data files are kept if `gc.enabled` is false, because
    other tables may refer to them. A file that is missing or broken is reported to `problem`,
    and the files that it references are kept; nothing is raised. A data file that several
    manifests name is yielded several times.
    """
    walk = _Walk(store, within, problem)
    lists, manifests = walk.manifests(metadata)
    if metadata.properties.get("gc.enabled", "true").lower() != "false":
        for manifest in manifests:
            yield from walk.content_files(manifest)
    yield from manifests
    yield from lists
    rest = [
        *(file.statistics_path for file in metadata.statistics),
        *(file.statistics_path for file in metadata.partition_statistics),
        *(entry.metadata_file for entry in metadata.metadata_log.bare_items()),
        *(() if metadata_location is None else (metadata_location,)),
    ]
    yield from walk.inside(rest)


class _Walk:
    def __init__(
        self, store: Store, within: Callable[[str], bool], problem: Callable[[str], None]
    ) -> None:
        self._store = store
        self._within = within
        self._problem = problem

    def manifests(self, metadata: TableMetadata) -> tuple[list[str], list[str]]:
        """Return the manifest lists and the manifests of all snapshots, each once."""
        lists: dict[str, None] = {}
        manifests: dict[str, None] = {}
        for snapshot in metadata.snapshots.bare_items():
            manifests.update(dict.fromkeys(self.inside(self._of_snapshot(snapshot))))
            if snapshot.manifest_list is not None:
                lists.update(dict.fromkeys(self.inside([snapshot.manifest_list])))
        return list(lists), list(manifests)

    def content_files(self, manifest: str) -> Iterator[str]:
        """Yield every file of a manifest, including deleted ones, which an older snapshot may
        reference."""
        content = self._get(manifest, MANIFEST_LIMITS.file_bytes)
        if content is None:
            return
        try:
            yield from self.inside(file_paths(content, MANIFEST_LIMITS))
        except UnreadableAvro as error:
            self._problem(f"{manifest} cannot be read, files it names are left: {error}")

    def inside(self, locations: Iterator[str] | list[str]) -> Iterator[str]:
        outside = 0
        example = ""
        for location in locations:
            if self._is_within(location):
                yield location
            else:
                outside += 1
                example = location
        if outside:
            self._problem(
                f"{outside} files outside the table's location are left, {example} among them"
            )

    def _of_snapshot(self, snapshot: Snapshot) -> list[str]:
        location = snapshot.manifest_list
        if location is None:
            return list(snapshot.manifests or ())
        if not self._is_within(location):
            return []  # The caller checks the list's own location and reports this.
        if snapshot.key_id is not None:
            self._problem(f"{location} is encrypted, files it leads to are left")
            return []
        content = self._get(location, MANIFEST_LIST_LIMITS.file_bytes)
        if content is None:
            return []
        try:
            manifests = read_manifest_list(content).manifests
        except UnreadableAvro as error:
            self._problem(f"{location} cannot be read, files it leads to are left: {error}")
            return []
        return [manifest.manifest_path for manifest in manifests]

    def _is_within(self, location: str) -> bool:
        try:
            return self._within(location)
        except FrazilError:  # A location that cannot be parsed does not belong to the table.
            return False

    def _get(self, location: str, max_bytes: int) -> bytes | None:
        try:
            return self._store.get(location, max_bytes)
        except (StoreError, FrazilError, OSError) as error:
            self._problem(f"{location} cannot be read, files it leads to are left: {error}")
            return None
