"""A real catalog for the client's tests: one server for all, one namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pytest

from frazil import Client, Table
from frazil.client.declare.file_operations import CommitOptions, FileVerbs
from frazil.wire.declared_content import DeclaredDataFile
from frazil.wire.file_actions import FileUpdate
from tests.support.server import RunningServer, running_server

_numbers = itertools.count()

SCHEMA: Mapping[str, Any] = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "day", "type": "date", "required": False},
        {"id": 3, "name": "item", "type": "string", "required": False},
    ],
}
BY_DAY: Mapping[str, Any] = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}],
}


class Declaring(FileVerbs[FileUpdate]):
    """Returns the updates that the methods of a table would send."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def _base(self) -> Table:
        return self._table

    def _declare(self, update: FileUpdate, options: CommitOptions) -> FileUpdate:
        return update


class NewTable(Protocol):
    def __call__(
        self,
        schema: Mapping[str, Any] = SCHEMA,
        *,
        spec: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table: ...


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory, processes: None) -> Iterator[RunningServer]:
    """Start one `frazil serve` on SQLite and local files for all tests of the client."""
    with running_server(tmp_path_factory.mktemp("client-catalog")) as server:
        yield server


@pytest.fixture
def client(catalog: RunningServer) -> Iterator[Client]:
    with Client(catalog.url) as client:
        yield client


@pytest.fixture
def namespace(client: Client) -> str:
    name = f"ns{next(_numbers)}"
    client.create_namespace(name)
    return name


@pytest.fixture
def new_table(client: Client, namespace: str) -> NewTable:
    """Return a function that creates tables for the test."""
    numbers = itertools.count()

    def make(
        schema: Mapping[str, Any] = SCHEMA,
        *,
        spec: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        return client.create_table(
            f"{namespace}.t{next(numbers)}", schema, partition_spec=spec, properties=properties
        )

    return make


def declared(
    table: Table, name: str, *partition: Any, rows: int = 1, **fields: Any
) -> DeclaredDataFile:
    """Return a declared data file that does not exist; the catalog never opens it."""
    return DeclaredDataFile(
        spec_id=table.metadata["default-spec-id"],
        partition=tuple(partition),
        file_path=f"{table.location}/data/{name}.parquet",
        file_format="parquet",
        file_size_in_bytes=100,
        record_count=rows,
        **fields,
    )
