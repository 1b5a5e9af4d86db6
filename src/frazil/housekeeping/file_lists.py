"""Reads a listing that a client has made and stored, so that it may be larger than a request.

The files of a folder have one JSON array for each listed file: its path, its size, and the time at
which it was modified in milliseconds since 1970. The last two may be null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from frazil.store.object_store import ListedObject, Store
from frazil.wire.errors import BadRequest

MAX_BYTES: Final = 64 << 20
"""The most bytes of one file of a list."""


class ListedFile(NamedTuple):
    """A file of a listing that a client has made. A file of unknown age is kept."""

    location: str
    size: int | None
    modified_ms: int | None


Listed: TypeAlias = ListedFile | ListedObject
"""A file of any listing."""


def stored_file_list(store: Store, folder: str) -> Iterator[ListedFile]:
    """Yield the files of a stored list. Raises BadRequest if it is missing or malformed."""
    decode = msgspec.json.Decoder(ListedFile).decode
    parts = sorted(info.location for info in store.list(folder))
    if not parts:
        raise BadRequest(f"options.file_list: there are no files below {folder}")
    for part in parts:
        for number, line in enumerate(store.get(part, MAX_BYTES).splitlines(), start=1):
            try:
                yield decode(line)
            except msgspec.MsgspecError as error:
                raise BadRequest(
                    f"options.file_list: line {number} of {part} is no array of a path, a size "
                    f"and a time in milliseconds: {error}"
                ) from None
