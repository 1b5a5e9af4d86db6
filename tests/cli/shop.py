"""A table for one test on a real server, and a runner for CLI commands."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner, Result

from frazil import Client, Table
from frazil.cli.app import app
from tests.support.server import RunningServer

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
        {"id": 3, "name": "item", "required": False, "type": "string"},
    ],
}
BY_DAY = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}],
}
BY_BUCKET = {
    "spec-id": 0,
    "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}],
}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("day", pa.date32(), metadata={"PARQUET:field_id": "2"}),
        pa.field("item", pa.string(), metadata={"PARQUET:field_id": "3"}),
    ]
)
FIRST, SECOND = date(2026, 5, 1), date(2026, 5, 2)
numbers = itertools.count()


@dataclass(frozen=True)
class Shop:
    """A server and a table in it that belongs to one test."""

    server: RunningServer
    client: Client
    name: str

    @property
    def table(self) -> Table:
        return self.client.load_table(self.name)

    def write(self, name: str, ids: list[int], day: date = FIRST) -> str:
        """Write a Parquet file to the table's location and return its path as the table records
        it."""
        location = self.table.location
        folder = Path(location.removeprefix("file://")) / "data"
        folder.mkdir(parents=True, exist_ok=True)
        rows = {"id": ids, "day": [day] * len(ids), "item": [f"item {one}" for one in ids]}
        pq.write_table(pa.table(rows, schema=ARROW), folder / name)
        return f"{location}/data/{name}"

    def append(self, name: str, ids: list[int], day: date = FIRST) -> int:
        done = self.table.append_files([self.write(name, ids, day)])
        assert done.snapshot_id is not None
        return done.snapshot_id

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--uri", self.server.url])

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))

    def files(self, *arguments: str) -> list[str]:
        found = self.json("ls", self.name, *arguments)["files"]
        return sorted(file["file-path"].rsplit("/", 1)[1] for file in found)


def make_shop(
    server: RunningServer,
    spec: dict[str, Any] | None = BY_DAY,
    properties: dict[str, str] | None = None,
) -> Shop:
    client = Client(server.url)
    if not client.namespace_exists("shop"):
        client.create_namespace("shop")
    name = f"shop.orders{next(numbers)}"
    client.create_table(name, SCHEMA, partition_spec=spec, properties=properties)
    return Shop(server, client, name)
