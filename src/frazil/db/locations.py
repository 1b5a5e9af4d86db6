"""Enforces that no table's location equals, lies in or contains a location of another table.

Locations are canonical texts. A location contains another if the other continues after a `/`, so
that `s3://b/table` does not contain `s3://b/table_other`. Locations of one table may nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from frazil.db.base import Relation
from frazil.db.rows import Parameters, Row, Statements, check_indexable, json_list, text
from frazil.db.sql import QueryName
from frazil.wire.errors import Forbidden


def normal(location: str) -> str:
    """Remove a trailing `/`: a folder is one location with and without it."""
    return text(location, "location").rstrip("/")


def prefixes(location: str) -> list[str]:
    """Return the location itself and every folder above it."""
    return list(_prefixes(normal(location)))


def _prefixes(location: str) -> Iterator[str]:
    while location:
        yield location
        location = location.rpartition("/")[0]


def same(sql: Statements, relation: Relation, locations: Iterable[str]) -> bool:
    """Return whether the table owns exactly these locations. Its row is locked, so this stays
    true."""
    stored = {row[0] for row in sql.fetch("locations_of", {"uuid": relation.uuid})}
    return stored == {normal(location) for location in locations}


def release(sql: Statements, relation: Relation) -> None:
    sql.execute("drop_locations", {"uuid": relation.uuid})


def claim(sql: Statements, relation: Relation, locations: Iterable[str]) -> None:
    """Check and insert the locations; the caller holds the lock `hold_locations`. Raises
    Forbidden."""
    for location in dict.fromkeys(normal(location) for location in locations):
        check_free(sql, location, relation.uuid, str(relation.identifier))
        sql.execute("create_location", {"location": location, "uuid": relation.uuid})


class Fetch(Protocol):
    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]: ...


def check_free(sql: Fetch, location: str, uuid: str, owner: str) -> None:
    """Raise Forbidden if another table owns, contains or lies in the location."""
    location = normal(location)
    check_indexable(location, f"location {location[:100]}…")
    above = json_list(prefixes(location))
    found = sql.fetch("location_at_or_above", {"prefixes": above, "uuid": uuid})
    if found:
        owned = found[0][0]
        how = "is" if owned == location else "lies in"
        raise _forbidden(owner, location, how, owned)
    span = {"first": location + "/", "last": location + "0", "uuid": uuid}
    found = sql.fetch("location_below", span)
    if found:
        raise _forbidden(owner, location, "holds", found[0][0])


def _forbidden(owner: str, location: str, how: str, owned: str) -> Forbidden:
    return Forbidden(
        f"Location {location} of {owner} {how} {owned}, a location of another "
        "table: choose one that is apart from every other table's"
    )
