"""Builds manifest lists for snapshots that name their manifests inline, as old version 1 writers
do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from frazil.format.manifest import manifest_list
from frazil.format.manifest.manifest_columns import NO_SNAPSHOT, ManifestColumns
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING
from frazil.format.manifest.manifest_list import (
    ManifestFile,
    ManifestList,
    manifest_list_schema,
    new_listed,
)


def inline_manifest_list(
    snapshot_id: int, manifests: Sequence[tuple[str, int, ManifestColumns]]
) -> ManifestList:
    """Return the list that the snapshot would have, from the path, length and columns of each
    manifest.

    As in Java's BaseSnapshot, such manifests have the first partition spec. Their partitions are
    unknown, so readers assume that any partition is possible.
    """
    listed = tuple(_listed(snapshot_id, *manifest) for manifest in manifests)
    return ManifestList(manifest_list_schema(1), {}, "deflate", listed)


def _listed(snapshot_id: int, path: str, length: int, columns: ManifestColumns) -> ManifestFile:
    files = np.bincount(columns.status, minlength=3)
    rows = [int(columns.record_count[columns.status == status].sum()) for status in range(3)]
    values: dict[int, Any] = {
        manifest_list.PATH: path,
        manifest_list.LENGTH: length,
        manifest_list.SPEC_ID: 0,
        manifest_list.ADDED_SNAPSHOT_ID: _added_by(columns, snapshot_id),
        manifest_list.ADDED_FILES: int(files[ADDED]),
        manifest_list.EXISTING_FILES: int(files[EXISTING]),
        manifest_list.DELETED_FILES: int(files[DELETED]),
        manifest_list.ADDED_ROWS: rows[ADDED],
        manifest_list.EXISTING_ROWS: rows[EXISTING],
        manifest_list.DELETED_ROWS: rows[DELETED],
    }
    return new_listed(values, 1, None).manifest


def _added_by(columns: ManifestColumns, snapshot_id: int) -> int:
    """Return the id of the snapshot that wrote the manifest, which also added or deleted its
    files."""
    changed = columns.snapshot_id[
        (columns.status != EXISTING) & (columns.snapshot_id != NO_SNAPSHOT)
    ]
    return int(changed[0]) if len(changed) else snapshot_id
