"""The rule that no table's location is, lies in or holds a location of another table.

Locations are canonical texts; a location holds another if that one goes on after a `/`, so that
`s3://b/table` does not hold `s3://b/table_other`. Locations of one table may nest in each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from frazil.db.base import Relation
from frazil.db.rows import Parameters, Row, Statements, check_indexable, json_list, text
from frazil.db.sql import QueryName
from frazil.wire.errors import Forbidden


def normal(location: str) -> str:
    """Without `/` at the end: a folder and the folder written with a slash are one location."""
    return text(location, "location").rstrip("/")


def prefixes(location: str) -> list[str]:
    """The location itself and every folder above it."""
    return list(_prefixes(normal(location)))


def _prefixes(location: str) -> Iterator[str]:
    while location:
        yield location
        location = location.rpartition("/")[0]


def same(sql: Statements, relation: Relation, locations: Iterable[str]) -> bool:
    """Whether the table owns exactly these already. Its row is held, so the answer stays true."""
    stored = {row[0] for row in sql.fetch("locations_of", {"uuid": relation.uuid})}
    return stored == {normal(location) for location in locations}


def release(sql: Statements, relation: Relation) -> None:
    sql.execute("drop_locations", {"uuid": relation.uuid})


def claim(sql: Statements, relation: Relation, locations: Iterable[str]) -> None:
    """Checks and inserts; the caller holds `hold_locations`. Raises Forbidden."""
    for location in dict.fromkeys(normal(location) for location in locations):
        check_free(sql, location, relation.uuid, str(relation.identifier))
        sql.execute("create_location", {"location": location, "uuid": relation.uuid})


class Fetch(Protocol):
    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]: ...


def check_free(sql: Fetch, location: str, uuid: str, owner: str) -> None:
    """Raises Forbidden where another table than this has a part in the location."""
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
