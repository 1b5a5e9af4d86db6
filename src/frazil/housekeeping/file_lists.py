"""Reads a listing that a client has made and stored, so that it may be larger than a request.

The files of a folder have one JSON array for each listed file: its path, the time at which it was
modified in milliseconds since 1970, and its size. The last two may be null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from frazil.store.object_store import Store
from frazil.wire.errors import BadRequest

MAX_BYTES: Final = 64 << 20
"""The most bytes of one file of a list."""


class ListedFile(NamedTuple):
    """A file of a listing. A file of unknown age is kept."""

    path: str
    modified_ms: int | None
    size_bytes: int | None = None


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
                    f"options.file_list: line {number} of {part} is no array of a path, a time "
                    f"in milliseconds and a size: {error}"
                ) from None
