"""The uuid under which a table has its row."""

from __future__ import annotations

import uuid

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.errors import BadRequest


def row_uuid(metadata: TableMetadata) -> str:
    """The uuid of the table's row: its own, or one of ours for a version 1 table without."""
    if metadata.table_uuid is None:
        return str(uuid.uuid4())
    return check_uuid(metadata.table_uuid, "table-uuid")


def check_uuid(text: str, field: str) -> str:
    """Other texts may be of any length, and assign-uuid could never have set them."""
    try:
        proper = str(uuid.UUID(text)) == text.lower()
    except ValueError:
        proper = False
    if not proper:
        raise BadRequest(f"{field}: {text[:64]!r} is not a UUID")
    return text
