"""Which places a table may own and which the server may touch, by one canonicaliser."""

from __future__ import annotations

import time
import uuid

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.store.locations import AllowedLocations, Location, canonical_location, is_within
from frazil.wire.errors import BadRequest, FrazilError


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


# Properties that move a table's files elsewhere; the last two are the older names of the first.
PATH_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


_REMEMBERED_S = 1.0
_MAX_REMEMBERED = 10_000


class TableLocations:
    def __init__(self, allowed: AllowedLocations) -> None:
        self._allowed = allowed
        self._places: dict[str, tuple[Location, float]] = {}

    def owned(self, metadata: TableMetadata) -> tuple[str, ...]:
        """The canonical locations this table owns; each must be in an allowed place."""
        named = [("location", metadata.location), *_path_properties(metadata)]
        places = (self._allowed.check_table(text, field) for field, text in named)
        return tuple(sorted({reading for place in places for reading in place.readings()}))

    def owned_if_changed(self, base: TableMetadata, new: TableMetadata) -> tuple[str, ...] | None:
        """None where the places stay as they are: a table registered under older rules can
        still be committed to."""
        if base.location == new.location and _path_properties(base) == _path_properties(new):
            return None
        return self.owned(new)

    def check_statistics(self, base: TableMetadata | None, new: TableMetadata) -> None:
        """Statistics files that a request adds; what a registered table came with stays."""
        for field, known, given in (
            ("statistics", base.statistics if base else (), new.statistics),
            (
                "partition-statistics",
                base.partition_statistics if base else (),
                new.partition_statistics,
            ),
        ):
            for file in given:
                if file not in known:
                    self._allowed.check(file.statistics_path, f"{field}.statistics-path")

    def check_view(self, new: ViewMetadata, base: ViewMetadata | None = None) -> None:
        """A view owns no place, but its metadata files may only go where they are allowed."""
        for field, text in _view_places(new):
            if base is None or (field, text) not in _view_places(base):
                self._allowed.check(text, field)

    def check(self, location: str, field: str) -> Location:
        """Raises where the location is not in an allowed place."""
        return self._allowed.check(location, field)

    def is_allowed(self, location: str) -> bool:
        try:
            self._allowed.check(location, "location")
        except FrazilError:
            return False
        return True

    def check_readable(self, location: str) -> None:
        self._allowed.check(location, "a file named in the snapshot")

    def belongs_to(self, metadata: TableMetadata, location: str) -> bool:
        """Whether a file lies inside the table's own places: only then may it be deleted."""
        try:
            file = self._allowed.check(location, "file")
            places = (metadata.location, *(text for _, text in _path_properties(metadata)))
            return any(is_within(file, self._place(place)) for place in places)
        except FrazilError:
            return False

    def _place(self, text: str) -> Location:
        """A table's own place. It is asked for with every file of every commit, and finding out
        where a local folder really is takes longer than the rest: so it is remembered for a
        moment."""
        now = time.monotonic()
        known = self._places.get(text)
        if known is not None and now < known[1]:
            return known[0]
        place = canonical_location(text, "location")
        if len(self._places) >= _MAX_REMEMBERED:
            self._places.clear()
        self._places[text] = place, now + _REMEMBERED_S
        return place


def _path_properties(metadata: TableMetadata) -> list[tuple[str, str]]:
    properties = metadata.properties
    return [(name, properties[name]) for name in PATH_PROPERTIES if name in properties]


def _view_places(metadata: ViewMetadata) -> list[tuple[str, str]]:
    path = metadata.properties.get("write.metadata.path")
    return [("location", metadata.location), *([("write.metadata.path", path)] if path else [])]
