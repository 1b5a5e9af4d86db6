"""Namespaces: each change is one transaction on one row."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from frazil.commit.pipeline.catalog_answers import Answer, JsonAnswer, NoContent
from frazil.commit.pipeline.pending_requests import Context, key_row
from frazil.commit.pipeline.simple import Attempt, SimpleCommit
from frazil.commit.snapshot.table_locations import Territory
from frazil.db.base import (
    Change,
    CreateNamespace,
    Database,
    DropNamespace,
    SetNamespaceProperties,
    Transaction,
)
from frazil.store.locations import default_namespace_location, table_location_in
from frazil.wire.errors import NoSuchNamespace, UnprocessableEntity
from frazil.wire.identifiers import Identifier, Namespace, namespace_text
from frazil.wire.json_bodies import encode
from frazil.wire.rest_messages import NamespaceResponse, UpdateNamespacePropertiesResponse

LOCATION = "location"


class Namespaces:
    def __init__(
        self, database: Database, simple: SimpleCommit, territory: Territory, warehouse: str
    ) -> None:
        self._database = database
        self._simple = simple
        self._territory = territory
        self._warehouse = warehouse

    def properties(self, namespace: Namespace) -> dict[str, str]:
        properties = self._database.namespace_properties(namespace)
        if properties is None:
            raise NoSuchNamespace(f"Namespace does not exist: {namespace_text(namespace)}")
        return properties

    def must_exist(self, namespace: Namespace) -> None:
        self.properties(namespace)

    def described(self, namespace: Namespace, properties: dict[str, str]) -> dict[str, str]:
        """The properties as clients see them. As Java's JdbcCatalog does, a `location` stands
        for one that was not set: Trino makes a table in stages only where there is one."""
        default = default_namespace_location(self._warehouse, namespace)
        return {LOCATION: default} | properties

    def new_location(self, identifier: Identifier) -> str:
        """A folder of its own for every table or view ever made, so that a name used again after
        a rename or a drop never shares files with what had it before. It lies in the namespace's
        own location if that is an allowed place."""
        own = self.properties(identifier.namespace).get(LOCATION)
        if own is None or not self._territory.is_allowed(own):
            own = default_namespace_location(self._warehouse, identifier.namespace)
        return table_location_in(own, identifier.name, uuid.uuid4().hex[:8])

    def create(self, context: Context, namespace: Namespace, properties: dict[str, str]) -> Answer:
        body = encode(
            NamespaceResponse(namespace=namespace, properties=self.described(namespace, properties))
        )
        change = CreateNamespace(namespace, properties)
        return self._simple.run(context, lambda: _attempt(context, change, body))

    def drop(self, context: Context, namespace: Namespace) -> Answer:
        return self._simple.run(context, lambda: _attempt(context, DropNamespace(namespace), None))

    def update(
        self,
        context: Context,
        namespace: Namespace,
        removals: Sequence[str],
        updates: dict[str, str],
    ) -> Answer:
        both = sorted(set(removals) & set(updates))
        if both:
            raise UnprocessableEntity(
                f"{', '.join(both)}: named in both removals and updates; keep it in one of them"
            )

        def prepare() -> Attempt:
            before = self.properties(namespace)
            body = encode(
                UpdateNamespacePropertiesResponse(
                    updated=tuple(sorted(updates)),
                    removed=tuple(sorted(set(removals) & set(before))),
                    missing=tuple(sorted(set(removals) - set(before))),
                )
            )
            after = {key: value for key, value in before.items() if key not in removals} | updates
            return _attempt(context, SetNamespaceProperties(namespace, before, after), body)

        return self._simple.run(context, prepare)


def _attempt(context: Context, change: Change, body: bytes | None) -> Attempt:
    """A change whose whole answer is known before it is sent."""
    answer: Answer = NoContent() if body is None else JsonAnswer(body)
    keys = key_row(context, 204 if body is None else 200, body=body)
    return Attempt(Transaction(str(uuid.uuid4()), (change,), keys), lambda: answer)
