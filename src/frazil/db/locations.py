"""The rule that no table's location is, lies in or holds a location of another table.

Locations are canonical texts; a location holds another if that one goes on after a `/`, so that
`s3://b/table` does not hold `s3://b/table_other`. Locations of one table may nest in each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from frazil.db.base import Relation
from frazil.db.rows import Statements, check_indexable, json_list, text
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
        check_indexable(location, f"location {location[:100]}…")
        _check_above(sql, relation, location)
        _check_below(sql, relation, location)
        sql.execute("create_location", {"location": location, "uuid": relation.uuid})


def _check_above(sql: Statements, relation: Relation, location: str) -> None:
    above = json_list(prefixes(location))
    found = sql.fetch("location_at_or_above", {"prefixes": above, "uuid": relation.uuid})
    if found:
        owned = found[0][0]
        how = "is" if owned == location else "lies in"
        raise _forbidden(relation, location, how, owned)


def _check_below(sql: Statements, relation: Relation, location: str) -> None:
    span = {"first": location + "/", "last": location + "0", "uuid": relation.uuid}
    found = sql.fetch("location_below", span)
    if found:
        raise _forbidden(relation, location, "holds", found[0][0])


def _forbidden(relation: Relation, location: str, how: str, owned: str) -> Forbidden:
    return Forbidden(
        f"Location {location} of {relation.identifier} {how} {owned}, a location of another "
        "table: choose one that is apart from every other table's"
    )
