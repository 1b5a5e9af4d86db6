"""Decides which locations a table owns, which paths it may name and which files the server may
access."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from frazil.format.metadata.table_metadata import TableMetadata, strip_trailing_slash
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
    """Return the uuid for the table's row. A version 1 table without a uuid gets a random one."""
    if metadata.table_uuid is None:
        return str(uuid.uuid4())
    return check_uuid(metadata.table_uuid, "table-uuid")


def check_uuid(text: str, field: str) -> str:
    """Refuse a text that is not a UUID. It could have any length, and assign-uuid would not
    accept it."""
    try:
        proper = str(uuid.UUID(text)) == text.lower()
    except ValueError:
        proper = False
    if not proper:
        raise BadRequest(f"{field}: {text[:64]!r} is not a UUID")
    return text


# Properties that move a table's files elsewhere. The last two are older names of the first.
PATH_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


_REMEMBERED_S = 1.0
_MAX_REMEMBERED = 10_000


K = TypeVar("K")
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """Caches results about folders briefly, because resolving a local folder is the slowest part of
    checking a file."""

    def __init__(self) -> None:
        self._known: dict[K, tuple[V, float]] = {}

    def get(self, key: K) -> V | None:
        known = self._known.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    def put(self, key: K, value: V) -> None:
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[key] = value, time.monotonic() + _REMEMBERED_S


class OwnFolders(_Recent[tuple[str, ...], str]):
    """The real paths of folders inside a table's own locations, where most commits write. A key is
    the table's locations and the folder."""


class TableLocations:
    def __init__(self, allowed: AllowedLocations) -> None:
        self._allowed = allowed
        self._recent = _Recent[str, Location]()

    def owned(self, metadata: TableMetadata) -> tuple[str, ...]:
        """Return the canonical locations that the table owns. Raises if one of them is not
        allowed."""
        named = [("location", metadata.location), *_path_properties(metadata)]
        locations = (self._allowed.check_table(text, field) for field, text in named)
        return tuple(sorted({reading for owned in locations for reading in owned.readings()}))

    def owned_if_changed(self, base: TableMetadata, new: TableMetadata) -> tuple[str, ...] | None:
        """Return the new locations, or None if they did not change. Unchanged locations are not
        checked, so a table that was registered under older rules still accepts commits."""
        if base.location == new.location and _path_properties(base) == _path_properties(new):
            return None
        return self.owned(new)

    def check_statistics(self, base: TableMetadata | None, new: TableMetadata) -> None:
        """Check the statistics files that a request adds. Files that the table already had are
        accepted."""
        for field, known, files in (
            ("statistics", base.statistics if base else (), new.statistics),
            (
                "partition-statistics",
                base.partition_statistics if base else (),
                new.partition_statistics,
            ),
        ):
            for file in files:
                if file not in known:
                    self._allowed.check_file(file.statistics_path, f"{field}.statistics-path")

    def check_view(self, new: ViewMetadata, base: ViewMetadata | None = None) -> None:
        """Check that the metadata files of a view may be written. A view owns no location."""
        for field, text in _view_locations(new):
            if base is None or (field, text) not in _view_locations(base):
                self._allowed.check(text, field)

    def check_file(self, file: str, field: str, fix: str = "choose one inside") -> Location:
        """Return the parsed location. Raises if it is not allowed."""
        return self._allowed.check_file(file, field, fix)

    def is_allowed(self, location: str) -> bool:
        try:
            self._allowed.check(location, "location")
        except FrazilError:
            return False
        return True

    def check_readable(self, location: str) -> None:
        self._allowed.check_file(location, "a file named in the snapshot")

    def belongs_to(self, metadata: TableMetadata, location: str) -> bool:
        """Return whether a file is inside the table's own locations. Only such files may be
        deleted."""
        try:
            file = self._allowed.check(location, "file")
            return any(is_within(file, self._canonical(text)) for text in _own_texts(metadata))
        except FrazilError:
            return False

    def check_write_folder(self, metadata: TableMetadata, folder: str, field: str) -> str:
        """Return the canonical text of a folder below that of the table's data files.

        Raises BadRequest for any other folder.
        """
        location = canonical_location(folder, field)
        data = self._canonical(data_folder(metadata))
        if location == data or not is_within(location, data):
            raise BadRequest(
                f"{field} {folder[:200]!r} is not below {data}, the folder of the table's data: "
                "choose one there"
            )
        return str(self._allowed.check(folder, field))

    def _canonical(self, text: str) -> Location:
        """Return a canonical location of the table, which every file of every commit needs."""
        location = self._recent.get(text)
        if location is None:
            location = canonical_location(text, "location")
            self._recent.put(text, location)
        return location


def data_folder(metadata: TableMetadata) -> str:
    """Return the folder of the table's data files."""
    path = metadata.properties.get("write.data.path")
    return strip_trailing_slash(path) if path else f"{metadata.location}/data"


def _path_properties(metadata: TableMetadata) -> list[tuple[str, str]]:
    properties = metadata.properties
    return [(name, properties[name]) for name in PATH_PROPERTIES if name in properties]


def _own_texts(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the table's own locations as its metadata has them."""
    return (metadata.location, *(text for _, text in _path_properties(metadata)))


def _view_locations(metadata: ViewMetadata) -> list[tuple[str, str]]:
    path = metadata.properties.get("write.metadata.path")
    return [("location", metadata.location), *([("write.metadata.path", path)] if path else [])]


# A path segment that the canonicalizer does not change: printable ASCII except `?`, `#` and
# backslashes. A segment that is empty or consists of dots does not match.
_SEGMENT: Final = r"(?!\.\.?(?:/|\Z))[ !\"$-.0->@-\[\]-~]+"
_PLAIN_NAME: Final = re.compile(_SEGMENT)
_MAX_PLAIN_BYTES: Final = 1000
_MAX_PLAIN_NAME_BYTES: Final = 255

_LISTED_AFTER: Final = 1_000
_MAX_LISTED: Final = 200_000
_OBJECT_SCHEMES: Final = ("s3://", "s3a://", "s3n://", "memory://")


OwnerOfLocation = Callable[[str], str | None]
"""Returns the uuid of the table that owns a canonical location or a folder above it."""


def check_paths(
    metadata: TableMetadata,
    paths: Sequence[str],
    json_path: str,
    locations: TableLocations,
    owner_of_location: OwnerOfLocation,
    own_folders: OwnFolders | None = None,
) -> None:
    """Refuse paths where the table must not have files. Raises a BadRequest that names the path.

    `json_path` is that of the list of files, such as `updates[0].add-data-files`.
    """
    own = _own_paths(metadata, locations)
    checker = _Checker(metadata, locations, owner_of_location, own_folders or OwnFolders())
    for index, path in enumerate(paths):
        if own is not None and len(path) <= _MAX_PLAIN_BYTES and own.fullmatch(path):
            continue
        checker.check(path, json_path, index)


def _own_paths(metadata: TableMetadata, locations: TableLocations) -> re.Pattern[str] | None:
    """Return a pattern for object keys in the table's own locations. Local paths never match,
    because they may contain links."""
    prefixes = {
        text.rstrip("/")
        for text in _own_texts(metadata)
        if parse_location(text).scheme != "file" and locations.belongs_to(metadata, text)
    }
    if not prefixes:
        return None
    either = "|".join(map(re.escape, sorted(prefixes)))
    return re.compile(f"(?:{either})(?:/{_SEGMENT})+")


class _Checker:
    """Checks paths, with one full check for each folder."""

    def __init__(
        self,
        metadata: TableMetadata,
        locations: TableLocations,
        owner_of_location: OwnerOfLocation,
        own_folders: OwnFolders,
    ) -> None:
        self._own_folders = own_folders
        self._key = _own_texts(metadata)
        self._metadata = metadata
        self._locations = locations
        self._owner_of_location = owner_of_location
        self._uuid = None if metadata.table_uuid is None else row_uuid(metadata)
        # Folders that passed the check. Local folders have an object that knows their links.
        self._folders: dict[str, _LocalFolder | None] = {}

    def check(self, path: str, json_path: str, index: int) -> None:
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            real = self._own_folders.get((*self._key, folder))
            if real is not None:
                self._folders[folder] = _LocalFolder(real)
        if folder in self._folders and self._is_plain(path, folder, name):
            return
        field = f"{json_path}[{index}].file-path"
        if not name:
            raise BadRequest(f"{field} {path!r} names a folder: give the path of a file")
        fix = f"write the file below {self._metadata.location}"
        location = self._locations.check_file(path, field, fix)
        is_own = self._locations.belongs_to(self._metadata, path)
        if not is_own:
            self._refuse_in_other_tables(location, path, field)
        # If the name is a link or was rewritten, the result is not valid for other files of the
        # folder.
        if location.decoded_path is None and location.path.endswith(f"/{name}"):
            real = location.path[: -len(name)] if location.scheme == "file" else ""
            is_there = os.path.isdir(real)
            self._folders[folder] = _LocalFolder(real) if is_there else None
            if is_own and is_there:
                self._own_folders.put((*self._key, folder), real)

    def _is_plain(self, path: str, folder: str, name: str) -> bool:
        """Return whether the file is certainly in its folder, so that the folder's check applies
        to it."""
        if (
            len(path) > _MAX_PLAIN_BYTES
            or len(name) > _MAX_PLAIN_NAME_BYTES
            or not _PLAIN_NAME.fullmatch(name)
        ):
            return False
        # An escaped local path has a second reading, which may be a link.
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
    """Finds the links in a folder. For few files each is checked alone, for many the folder is
    listed."""

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
        """Return the links, or None if the folder is so large that checking each file is as
        fast."""
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
