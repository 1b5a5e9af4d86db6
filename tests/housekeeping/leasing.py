"""A catalog in this process with a table, and the requests of leases and intents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from frazil.db.connect import connect
from frazil.rest.rest_app import AppSettings
from tests.commit.finegrained.requests import Json
from tests.commit.finegrained.tables import DATES, Answer, Table
from tests.commit.finegrained.world import World, opened_world
from tests.plan.plan_calls import _COMPONENTS

NAMESPACE = "leased"
PRINCIPALS = ("ann", "bob", "reader")
SETTINGS = AppSettings(
    tokens={name: hashlib.sha256(name.encode()).hexdigest() for name in PRINCIPALS},
    read_only=frozenset({"reader"}),
)


@dataclass
class Leasing:
    """A table, and the requests of one principal."""

    world: World
    table: Table
    principal: str = "ann"

    def of(self, principal: str) -> Leasing:
        return Leasing(self.world, self.table, principal)

    def __call__(
        self, method: str, what: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request for `leases`, `leases/<id>` and so on."""
        own = {"Authorization": f"Bearer {self.principal}", **(headers or {})}
        return self.world(method, f"/frazil{self.table.path}/{what}", body, own)

    def take(self, **request: Any) -> Json:
        return self._valid("LeaseResponse", self("POST", "leases", named(request)))

    def renew(self, lease: Json, **request: Any) -> Answer:
        return self("POST", f"leases/{lease['lease-id']}", named(request))

    def release(self, lease: Json) -> Answer:
        return self("DELETE", f"leases/{lease['lease-id']}")

    def leases(self) -> list[Json]:
        found: list[Json] = self._valid("ListLeasesResponse", self("GET", "leases"))["leases"]
        return found

    def declare(self, prefix: str, headers: Mapping[str, str] | None = None, **more: Any) -> Json:
        body = {"prefix": prefix, **named(more)}
        return self._valid("IntentResponse", self("POST", "intents", body, headers))

    def intents(self) -> list[Json]:
        found: list[Json] = self._valid("ListIntentsResponse", self("GET", "intents"))["intents"]
        return found

    def folder(self, name: str) -> str:
        return f"{self.table.location}/data/{name}"

    def _valid(self, schema: str, answer: Answer) -> Json:
        assert answer.status == 200, answer.body
        reference = {"$ref": f"#/components/schemas/{schema}", "components": _COMPONENTS}
        Draft202012Validator(reference).validate(answer.body)
        body: Json = answer.body
        return body


def named(fields: Mapping[str, Any]) -> Json:
    return {name.replace("_", "-"): value for name, value in fields.items()}


@contextmanager
def opened_leasing(database_url: str, warehouse: Path) -> Iterator[Leasing]:
    """Open a catalog with a table that has one snapshot."""
    warehouse.mkdir(exist_ok=True)
    database = connect(database_url)
    database.migrate()
    try:
        with opened_world(database, warehouse, settings=SETTINGS) as world:
            yield new_leasing(world)
    finally:
        database.close()


def new_leasing(world: World) -> Leasing:
    def as_ann(method: str, path: str, body: Any = None, headers: Any = None) -> Answer:
        return world(method, path, body, {"Authorization": "Bearer ann", **(headers or {})})

    as_ann("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
    table = Table(as_ann, namespace=NAMESPACE, spec=DATES).create()
    table.append(table.data("first", "1"))
    return Leasing(world, table)


def error(answer: Answer) -> tuple[int, str]:
    """Return the type and the message of an error."""
    return answer.status, answer.body["error"]["message"]
