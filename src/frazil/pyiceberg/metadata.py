"""A table's metadata with the staged changes of a transaction, in memory only.

As PyIceberg's `update_table_metadata`, but without its deep copy of all snapshots at every look,
and up to format version 3.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.update import (
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)


def with_updates(base: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Shares with the base whatever did not change: metadata is never changed in place."""
    if not updates:
        return base
    context = _TableMetadataUpdateContext()
    metadata = base
    for update in updates:
        if isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == 3:
            metadata = _upgraded_to_3(metadata)
        else:
            metadata = _apply_table_update(update, metadata, context)
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _upgraded_to_3(metadata: TableMetadata) -> TableMetadata:
    if metadata.format_version == 3:
        return metadata
    if metadata.format_version == 1:
        # PyIceberg knows what version 1 leaves out.
        second: dict[str, Any] = {"format_version": 2}
        metadata = TableMetadataUtil._construct_without_validation(
            metadata.model_copy(update=second)
        )
    kept = {name: value for name, value in dict(metadata).items() if name in _V3_FIELDS}
    return TableMetadataV3.model_construct(**{**kept, "format_version": 3, "next_row_id": 0})


_V3_FIELDS = frozenset(TableMetadataV3.model_fields)
