"""Implements every read of the catalog as one named statement, the same for both databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from frazil.db import rows
from frazil.db.base import EventRow, KeyRow, Kind, Relation, StreamRow
from frazil.db.locations import check_free, prefixes
from frazil.db.rows import Parameters, Row
from frazil.db.sql import QueryName
from frazil.wire.identifiers import Identifier, Namespace

_ALL: Final = 2**62
"""A LIMIT that neither database ever reaches; the two write "no limit" differently."""


class Reads(ABC):
    """Implements the reads of `Database` over anything that can fetch a named statement."""

    @abstractmethod
    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        """Fetch the rows of a named statement. Raises DatabaseUnavailable."""

    def ping(self) -> None:
        self.fetch("schema_version", {})

    def namespace_properties(self, namespace: Namespace) -> dict[str, str] | None:
        found = self.fetch("namespace_properties", {"namespace": rows.namespace_key(namespace)})
        return rows.properties_of(found[0][0]) if found else None

    def list_namespaces(
        self, parent: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        scope = {"parent": rows.namespace_key(parent)}
        return self._page("list_namespaces", scope, after, limit)

    def relation(self, identifier: Identifier) -> Relation | None:
        found = self.fetch(
            "relation",
            {
                "namespace": rows.namespace_key(identifier.namespace),
                "name": rows.text(identifier.name, "name"),
            },
        )
        return rows.relation_at(identifier, found[0]) if found else None

    def relation_by_uuid(self, uuid: str) -> Relation | None:
        found = self.fetch("relation_by_uuid", {"uuid": rows.text(uuid, "uuid")})
        return rows.relation_with(uuid, found[0]) if found else None

    def last_version(self, uuid: str) -> int:
        return self.fetch("last_version", {"uuid": rows.text(uuid, "uuid")})[0][0] or 0

    def list_relations(
        self, kind: Kind, namespace: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        scope = {"kind": kind.value, "namespace": rows.namespace_key(namespace)}
        return self._page("list_relations", scope, after, limit)

    def owner_of_location(self, location: str) -> str | None:
        above = rows.json_list(prefixes(rows.text(location, "location")))
        found = self.fetch("location_at_or_above", {"prefixes": above, "uuid": ""})
        return found[0][1] if found else None

    def check_location_is_free(self, location: str, uuid: str) -> None:
        check_free(self, location, rows.text(uuid, "uuid"), "a table")

    def key(self, principal: str, key: str) -> KeyRow | None:
        found = self.fetch(
            "key",
            {
                "principal": rows.text(principal, "principal"),
                "idempotency_key": rows.text(key, "Idempotency-Key"),
            },
        )
        return rows.key_of(principal, key, found[0]) if found else None

    def stream(self, uuid: str, branch: str, stream_id: str) -> StreamRow | None:
        found = self.fetch("stream", rows.stream_key(uuid, branch, stream_id))
        return StreamRow(uuid, branch, stream_id, *found[0]) if found else None

    def events(self, after_position: int, limit: int) -> Sequence[tuple[int, EventRow]]:
        found = self.fetch("events", {"after": after_position, "limit": limit})
        return [rows.event_of(row) for row in found]

    def _page(
        self, name: QueryName, scope: Parameters, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """Return one page of names and the value for the next page.

        One row more than requested shows whether there is a next page. Names are never empty, so
        every name sorts after ''.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}: at least 1 row is asked for")
        start = rows.text(after or "", "page token")
        ask = _ALL if limit is None else limit + 1
        found = self.fetch(name, {**scope, "after": start, "limit": ask})
        names = [row[0] for row in found]
        if limit is None or len(names) <= limit:
            return names, None
        return names[:limit], names[limit - 1]
