"""Decides which locations a table owns, which paths it may name and which files the server may
touch."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.store.locations import (
    AllowedLocations,
    Location,
    canonical_location,
    is_within,
    parse_location,
)
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


# What the canonicaliser takes as it is written: printable ASCII but for `?`, `#` and backslashes,
# and no segment that is empty or made of dots alone.
_SEGMENT: Final = r"(?!\.\.?(?:/|\Z))[ !\"$-.0->@-\[\]-~]+"
_PLAIN_NAME: Final = re.compile(_SEGMENT)
_MAX_PLAIN_BYTES: Final = 1000
_MAX_PLAIN_NAME_BYTES: Final = 255

_LISTED_AFTER: Final = 1_000
_MAX_LISTED: Final = 200_000
_OBJECT_SCHEMES: Final = ("s3://", "s3a://", "s3n://", "memory://")


OwnerOfLocation = Callable[[str], str | None]
"""The uuid of the table that owns a canonical location or one that holds it."""


class OwnFolders:
    """Folders that were found in a table's own places a moment ago: most commits write to the same.
    Where a local folder really is takes longer to find out than all the rest."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[str, float]] = {}

    def get(self, key: tuple[str, ...]) -> str | None:
        known = self._known.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    def put(self, key: tuple[str, ...], real: str) -> None:
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[key] = real, time.monotonic() + _REMEMBERED_S


def check_paths(
    metadata: TableMetadata,
    paths: Sequence[str],
    place: str,
    locations: TableLocations,
    owner_of_location: OwnerOfLocation,
    own_folders: OwnFolders | None = None,
) -> None:
    """Refuses, with a BadRequest that names it, a path where no file of the table may lie.

    `place` says where the list of files stands, such as `updates[0].add-data-files`.
    """
    own = _own_paths(metadata, locations)
    checker = _Checker(metadata, locations, owner_of_location, own_folders or OwnFolders())
    for index, path in enumerate(paths):
        if own is not None and len(path) <= _MAX_PLAIN_BYTES and own.fullmatch(path):
            continue
        checker.check(path, place, index)


def _own_paths(metadata: TableMetadata, locations: TableLocations) -> re.Pattern[str] | None:
    """Matches object keys in the table's own places. A local path is never known by its text."""
    properties = metadata.properties
    named = (metadata.location, *(properties[key] for key in PATH_PROPERTIES if key in properties))
    prefixes = {
        text.rstrip("/")
        for text in named
        if parse_location(text).scheme != "file" and locations.belongs_to(metadata, text)
    }
    if not prefixes:
        return None
    either = "|".join(map(re.escape, sorted(prefixes)))
    return re.compile(f"(?:{either})(?:/{_SEGMENT})+")


class _Checker:
    """Judges paths folder by folder."""

    def __init__(
        self,
        metadata: TableMetadata,
        locations: TableLocations,
        owner_of_location: OwnerOfLocation,
        own_folders: OwnFolders,
    ) -> None:
        self._own_folders = own_folders
        properties = metadata.properties
        places = (properties[key] for key in PATH_PROPERTIES if key in properties)
        self._key = (metadata.location, *places)
        self._metadata = metadata
        self._locations = locations
        self._owner_of_location = owner_of_location
        self._uuid = None if metadata.table_uuid is None else row_uuid(metadata)
        # The good folders; local ones, where there may be links, with what is known of these.
        self._folders: dict[str, _LocalFolder | None] = {}

    def check(self, path: str, place: str, index: int) -> None:
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            real = self._own_folders.get((*self._key, folder))
            if real is not None:
                self._folders[folder] = _LocalFolder(real)
        if folder in self._folders and self._is_plain(path, folder, name):
            return
        field = f"{place}[{index}].file-path"
        if not name:
            raise BadRequest(f"{field} {path!r} names a folder: give the path of a file")
        location = self._locations.check(path, field)
        is_own = self._locations.belongs_to(self._metadata, path)
        if not is_own:
            self._refuse_in_other_tables(location, path, field)
        # What a link or an odd name leads to says nothing of the other files of its folder.
        if location.decoded_path is None and location.path.endswith(f"/{name}"):
            real = location.path[: -len(name)] if location.scheme == "file" else ""
            is_there = os.path.isdir(real)
            self._folders[folder] = _LocalFolder(real) if is_there else None
            if is_own and is_there:
                self._own_folders.put((*self._key, folder), real)

    def _is_plain(self, path: str, folder: str, name: str) -> bool:
        """Whether the file lies where its folder does, whatever that is."""
        if (
            len(path) > _MAX_PLAIN_BYTES
            or len(name) > _MAX_PLAIN_NAME_BYTES
            or not _PLAIN_NAME.fullmatch(name)
        ):
            return False
        # A local path has a second reading where it is escaped, and may be a link.
        if "%" in name and not path.startswith(_OBJECT_SCHEMES):
            return False
        local = self._folders[folder]
        return local is None or not local.is_link(name)

    def _refuse_in_other_tables(self, location: Location, path: str, field: str) -> None:
        for reading in location.readings():
            if self._owner_of_location(reading) not in (None, self._uuid):
                raise BadRequest(
                    f"{field} {path!r} lies inside the location of another table: write the file "
                    f"below {self._metadata.location}"
                )


class _LocalFolder:
    """Tells which files of a folder are links: one by one, or for many files from one listing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._asked = 0
        self._links: frozenset[str] | None = None

    def is_link(self, name: str) -> bool:
        if self._links is not None:
            return name in self._links
        self._asked += 1
        if self._asked == _LISTED_AFTER:
            self._links = self._list()
        return os.path.islink(self._path + name)

    def _list(self) -> frozenset[str] | None:
        """None where the folder holds so much that asking for each file is no slower."""
        links: list[str] = []
        try:
            with os.scandir(self._path) as entries:
                for number, entry in enumerate(entries):
                    if number >= _MAX_LISTED:
                        return None
                    if entry.is_symlink():
                        links.append(entry.name)
        except OSError:
            return None
        return frozenset(links)
