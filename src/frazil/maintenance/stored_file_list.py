"""Stores a listing of files where the server reads it, for a search of orphan files.

A listing from Spark or from an inventory of an object store may be larger than a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec

from frazil.client.declare.client_table import Table
from frazil.client.rows.write_folders import new_folder, only_logged

ListedFile: TypeAlias = tuple[str, int | None, int | None]
"""The path of a file, its size, and when it was modified in milliseconds since 1970."""

_PART_BYTES: Final = 8 << 20


@contextmanager
def stored_file_list(
    table: Table, files: Iterable[ListedFile], properties: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Write the files into a folder of the table, and yield its location for the option
    `file_list`. The folder is deleted at the end of the block."""
    folder = new_folder(table, properties or {})
    try:
        for number, part in enumerate(_parts(files)):
            folder.storage.write(f"{folder.location}/{number:08}.jsonl", part)
        yield folder.location
    finally:
        with only_logged(folder):
            folder.discard()


def _parts(files: Iterable[ListedFile]) -> Iterator[bytes]:
    """Yield JSON lines in parts that the server reads at once."""
    encode = msgspec.json.Encoder().encode
    part = bytearray()
    for file in files:
        part += encode(file)
        part += b"\n"
        if len(part) >= _PART_BYTES:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)
