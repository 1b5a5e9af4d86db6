"""Changes namespaces. Each change is one transaction on one row."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from frazil.commit.pipeline.catalog_answers import JsonAnswer, NoContent
from frazil.commit.pipeline.idempotency import key_row
from frazil.commit.pipeline.pending_requests import Attempt, Operation
from frazil.commit.snapshot.table_locations import TableLocations
from frazil.db.base import Change, CreateNamespace, DropNamespace, SetNamespaceProperties
from frazil.db.rows import Database
from frazil.store.locations import default_namespace_location, table_location_in
from frazil.wire.errors import NoSuchNamespace
from frazil.wire.frazil_properties import check_properties_of
from frazil.wire.identifiers import Identifier, Namespace, namespace_text
from frazil.wire.json_bodies import encode
from frazil.wire.rest_messages import NamespaceResponse, UpdateNamespacePropertiesResponse

LOCATION = "location"


class Namespaces:
    def __init__(self, database: Database, locations: TableLocations, warehouse: str) -> None:
        self._database = database
        self._locations = locations
        self._warehouse = warehouse

    def properties(self, namespace: Namespace) -> dict[str, str]:
        properties = self._database.namespace_properties(namespace)
        if properties is None:
            raise NoSuchNamespace(f"Namespace does not exist: {namespace_text(namespace)}")
        return properties

    def must_exist(self, namespace: Namespace) -> None:
        self.properties(namespace)

    def described(self, namespace: Namespace, properties: dict[str, str]) -> dict[str, str]:
        """Return the properties as clients see them. Like Java's JdbcCatalog this adds a
        `location` if none is set, because Trino does not stage the creation of tables without
        one."""
        default = default_namespace_location(self._warehouse, namespace)
        return {LOCATION: default} | properties

    def new_location(self, identifier: Identifier) -> str:
        """Return a folder that no other table or view ever gets, so that a reused name never
        shares files with its former owner. The folder is in the namespace's own location if
        that is allowed."""
        own = self.properties(identifier.namespace).get(LOCATION)
        if own is None or not self._locations.is_allowed(own):
            own = default_namespace_location(self._warehouse, identifier.namespace)
        return table_location_in(own, identifier.name, uuid.uuid4().hex[:8])

    def create(
        self, operation: Operation, namespace: Namespace, properties: dict[str, str]
    ) -> Attempt:
        check_properties_of("namespace", properties, {})
        described = self.described(namespace, properties)
        body = encode(NamespaceResponse(namespace=namespace, properties=described))
        return _attempt(operation, CreateNamespace(namespace, properties), body)

    def drop(self, operation: Operation, namespace: Namespace) -> Attempt:
        return _attempt(operation, DropNamespace(namespace), None)

    def update(
        self,
        operation: Operation,
        namespace: Namespace,
        removals: Sequence[str],
        updates: dict[str, str],
    ) -> Attempt:
        before = self.properties(namespace)
        check_properties_of("namespace", updates, before)
        body = encode(
            UpdateNamespacePropertiesResponse(
                updated=tuple(sorted(updates)),
                removed=tuple(sorted(set(removals) & set(before))),
                missing=tuple(sorted(set(removals) - set(before))),
            )
        )
        after = {key: value for key, value in before.items() if key not in removals} | updates
        return _attempt(operation, SetNamespaceProperties(namespace, before, after), body)


def _attempt(operation: Operation, change: Change, body: bytes | None) -> Attempt:
    """Return the attempt of a change whose answer is known before the transaction is sent."""
    if body is None:
        return operation.carry_out([change], key_row(operation.context, 204), [], NoContent)
    keys = key_row(operation.context, 200, body=body)
    return operation.carry_out([change], keys, [], lambda: JsonAnswer(body))
