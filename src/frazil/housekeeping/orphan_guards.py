"""Refuses a search for orphan files whose result cannot be right.

Reachability is exact only if the listed paths and the paths in the metadata mean the same places.
These checks find the cases in which they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from frazil.db.housekeeping_rows import PurgedTableRow, purged_tables
from frazil.db.rows import Database, namespace_of
from frazil.db.sqlite import SqliteDatabase
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.expiration_plan import GC_ENABLED, gc_is_enabled
from frazil.housekeeping.server_operations import ServerTools
from frazil.store.locations import Location, canonical_location, is_within, parse_location
from frazil.values.path_keys import PathKey, PathKeys, is_below
from frazil.wire.errors import BadRequest, Conflict, Forbidden, ValidationError
from frazil.wire.identifiers import Identifier

FEW_FILES: Final = 20
"""So many orphans are believed, whatever their share is."""

_SQLITE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal", ".lock")


def check_gc_enabled(metadata: TableMetadata) -> None:
    if not gc_is_enabled(metadata):
        raise ValidationError(
            f"{GC_ENABLED} is false: no file of this table may be deleted, because other tables "
            f"may use them: remove {GC_ENABLED} from the properties of the table if its files are "
            "its own"
        )


def files_of_catalog(tools: ServerTools) -> list[str]:
    """Return the local files and folders of the catalog itself."""
    found: list[str] = []
    if isinstance(tools.database, SqliteDatabase):
        found += [f"{tools.database.path}{suffix}" for suffix in _SQLITE_SUFFIXES]
    if tools.catalog.manifest_cache_folder is not None:
        found.append(str(tools.catalog.manifest_cache_folder.resolve()))
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """Folders of one table, none inside another."""

    roots: tuple[Location, ...]

    def inside(self, location: str, option: str) -> Location:
        """Return the location. Raises BadRequest if it is not in this place."""
        wanted = canonical_location(location, f"options.{option}")
        if not any(is_within(wanted, root) for root in self.roots):
            raise BadRequest(
                f"options.{option}: {location!r} is outside the table's own location "
                f"{self.roots[0]}"
            )
        return wanted

    def keys(self, keys: PathKeys) -> tuple[PathKey, ...]:
        return tuple(keys.of_folder(str(root)) for root in self.roots)


def checked_place(tools: ServerTools, uuid: str, metadata: TableMetadata) -> Place:
    """Return the table's own locations. Raises if they are not this table's alone."""
    own = tools.catalog.locations.owned(metadata)
    roots = _outermost([canonical_location(text) for text in own])
    catalog_files = files_of_catalog(tools)
    for root in roots:
        _refuse_other_tables(root, uuid, tools.database)
        _refuse_files_of_catalog(root, catalog_files)
        _refuse_metadata_of_others(root, metadata.location, uuid, tools.database)
    return Place(roots)


def _outermost(own: Sequence[Location]) -> tuple[Location, ...]:
    """Return the locations that lie in no other, so that no file is listed twice."""
    roots: list[Location] = []
    for location in sorted(own, key=lambda one: len(one.path)):
        if not any(is_within(location, root) for root in roots):
            roots.append(location)
    return tuple(roots)


def _refuse_other_tables(root: Location, uuid: str, database: Database) -> None:
    for reading in root.readings():
        try:
            database.check_location_is_free(reading, uuid)
        except Forbidden as error:
            raise Conflict(f"nothing was searched: {error.message}") from error


def _refuse_files_of_catalog(root: Location, catalog_files: Sequence[str]) -> None:
    for path in catalog_files:
        own = canonical_location(path)
        if is_within(own, root) or is_within(root, own):
            raise Conflict(
                f"nothing was searched: {own}, which belongs to the catalog itself, and the "
                f"table's location {root} lie in one another: move one of them"
            )


def _refuse_metadata_of_others(
    root: Location, as_written: str, uuid: str, database: Database
) -> None:
    """Refuse a location in which another table, or a view, has its metadata. A view owns no
    location, so nothing else keeps its files apart."""
    keys = PathKeys(decode=False)
    own = keys.of_folder(str(root))
    for path in {own.path, parse_location(as_written).path}:
        asked = {"uuid": uuid, "path": path}
        for namespace, name, metadata_location in database.fetch("metadata_within", asked):
            if is_below(keys.of(metadata_location), own):
                other = Identifier(namespace_of(namespace), name)
                raise Conflict(
                    f"nothing was searched: {other} has its metadata at {metadata_location}, "
                    f"inside the table's location {root}"
                )


def purged_tables_in(place: Place, uuid: str, database: Database) -> list[PurgedTableRow]:
    """Return the purged tables whose files may lie where the table's files do."""
    return [
        row
        for row in purged_tables(database)
        if row.uuid != uuid
        and any(
            is_within(one, root) or is_within(root, one)
            for one in map(canonical_location, row.locations)
            for root in place.roots
        )
    ]


@dataclass(slots=True)
class Counts:
    """What a listing has shown."""

    listed: int = 0
    reachable: int = 0
    recorded: int = 0
    recent: int = 0
    skipped: int = 0
    intended: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    mismatched: int = 0
    mismatched_example: str = ""


def check_all_seen(counts: Counts, named: int, *, has_inside: bool, has_outside: bool) -> None:
    """Refuse a listing that does not show the files that the table names: then it shows another
    place, or the paths are written in a way that is not understood."""
    if has_inside and not counts.reachable:
        raise Conflict(
            f"nothing was recorded: the listing shows {counts.listed} files, and none of those "
            "that the table names: does the store list what clients write?"
        )
    if not has_outside and counts.reachable * 2 < named:
        raise Conflict(
            f"nothing was recorded: the table names {named} files, and the listing shows only "
            f"{counts.reachable} of them: restore the missing files first"
        )


def share_refusal(counts: Counts, table_bytes: int, max_share: float) -> str | None:
    """Return why there are too many orphans, or None. `table_bytes` is 0 if nobody knows it."""
    if counts.orphans <= FEW_FILES:
        return None
    if counts.orphans > max_share * counts.listed:
        found = f"{counts.orphans} of {counts.listed} files would be orphans"
    elif table_bytes and counts.orphan_bytes > max_share * (table_bytes + counts.orphan_bytes):
        found = (
            f"{counts.orphans} files with {counts.orphan_bytes} bytes would be orphans, beside "
            f"{table_bytes} bytes of the table"
        )
    else:
        return None
    return (
        f"{found}, more than max_orphan_share={max_share:g}: look at them with a dry run, then "
        "allow a larger share"
    )
