"""How rows are removed from their files: by copies of the files, or by delete files."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from frazil.client.declare.file_operations import Command
from frazil.wire.errors import BadRequest, UnsupportedOperation

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

DELETES_MIN_FORMAT_VERSION: Final = 2
VECTORS_MIN_FORMAT_VERSION: Final = 3


class Mode(StrEnum):
    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"
    METADATA = "metadata"
    """Removes whole files without reading them."""


def mode_of(table: Table, command: Command, mode: str | None = None) -> Mode:
    """Return the caller's mode, or the table's `write.<command>.mode`."""
    name = f"write.{command}.mode"
    text = table.properties.get(name, Mode.COPY_ON_WRITE) if mode is None else mode
    if text.lower() not in (Mode.COPY_ON_WRITE, Mode.MERGE_ON_READ):
        source = name if mode is None else "mode"
        raise BadRequest(f"{source}: {text!r} must be copy-on-write or merge-on-read")
    return Mode(text.lower())


def check_can_delete_rows(table: Table, command: Command) -> None:
    """Refuse delete files in a table of version 1, which has none."""
    if table.format_version < DELETES_MIN_FORMAT_VERSION:
        raise UnsupportedOperation(
            f"{table}: cannot write delete files in a table of format version "
            f"{table.format_version}: set write.{command}.mode to copy-on-write, or upgrade the "
            "table"
        )
