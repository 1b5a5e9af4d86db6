"""Random changes of rows leave what the same changes leave in a dict, whatever the layout is."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import pytest

from frazil import Client
from frazil.wire.errors import BadRequest

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
TERMS = ["bucket(3, id)", "truncate(10, id)", "item", "day(at)", "id"]
MIDNIGHT = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
STEPS = 18


class Changes:
    """Makes the same random changes to a table and to a dict of its rows by id."""

    def __init__(self, client: Client, name: str, seed: int) -> None:
        self.client = client
        self.name = name
        self.random = random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.next_id = 0

    def new_rows(self, ids: list[int]) -> list[dict[str, Any]]:
        self.next_id = max([self.next_id, *(each + 1 for each in ids)])
        return [
            {
                "id": each,
                "item": self.random.choice(["a", "b", None]),
                "at": MIDNIGHT + dt.timedelta(hours=self.random.randrange(60)),
            }
            for each in ids
        ]

    def added(self, most: int) -> list[dict[str, Any]]:
        count = self.random.randrange(most)
        return self.new_rows(list(range(self.next_id, self.next_id + count)))

    def keep(self, is_kept: Callable[[dict[str, Any]], bool]) -> None:
        self.rows = {each: row for each, row in self.rows.items() if is_kept(row)}

    def put(self, rows: list[dict[str, Any]]) -> None:
        self.rows.update({row["id"]: row for row in rows})

    def window(self) -> tuple[int, int, str]:
        low = self.random.randrange(self.next_id + 1)
        high = low + self.random.randrange(12)
        return low, high, f"id >= {low} and id < {high}"

    # --- changes -------------------------------------------------------------------------------

    def append(self) -> None:
        rows = self.added(15)
        self.client.append(self.name, rows)
        self.put(rows)

    def delete(self) -> None:
        low, high, text = self.window()
        self.client.delete(self.name, text)
        self.keep(lambda row: not low <= row["id"] < high)

    def delete_items(self) -> None:
        item, limit = self.random.choice("ab"), self.random.randrange(self.next_id + 1)
        self.client.delete(self.name, f"item = '{item}' and id < {limit}")
        self.keep(lambda row: not (row["item"] == item and row["id"] < limit))

    def upsert(self) -> None:
        known = range(self.next_id + 5)
        rows = self.new_rows(self.random.sample(known, min(len(known), 8)))
        self.client.upsert(self.name, rows)
        self.put(rows)

    def overwrite(self) -> None:
        low, high, text = self.window()
        rows = self.added(4)
        self.client.overwrite(self.name, rows, text)
        self.keep(lambda row: not low <= row["id"] < high)
        self.put(rows)

    def change_partitions(self) -> None:
        fields = self.client.table(self.name).spec()["fields"]
        live = [field["name"] for field in fields if field["transform"] != "void"]
        if live and self.random.random() < 0.5:
            self.client.drop_partition_field(self.name, live[0])
            return
        try:
            self.client.add_partition_field(self.name, self.random.choice(TERMS))
        except BadRequest as error:
            if "already" not in error.message:
                raise


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.full) for n in range(9))])
@pytest.mark.parametrize(
    ("version", "mode"),
    [
        (1, COPY_ON_WRITE),
        (2, COPY_ON_WRITE),
        (2, MERGE_ON_READ),
        (3, COPY_ON_WRITE),
        (3, MERGE_ON_READ),
    ],
)
def test_rows_are_those_of_the_model(
    client: Client, namespace: str, version: int, mode: str, seed: int
) -> None:
    name = f"{namespace}.t"
    changes = Changes(client, name, seed)
    modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
    client.create_table(
        name,
        "id long not null, item string, at timestamptz",
        partition_by=[changes.random.choice(TERMS)],
        identifier_fields=["id"],
        format_version=version,
        properties={**modes, "write.delete.granularity": "partition" if seed % 2 else "file"},
    )
    calls = [
        changes.append,
        changes.delete,
        changes.delete_items,
        changes.upsert,
        changes.overwrite,
        changes.change_partitions,
    ]
    changes.append()
    for _ in range(STEPS):
        call = changes.random.choice(calls)
        call()
        rows = client.scan(name).to_pylist()
        assert len(rows) == len(changes.rows) == client.scan(name).count(), call.__name__
        assert {row["id"]: row for row in rows} == changes.rows, call.__name__


def test_a_filter_that_no_row_matches(client: Client, namespace: str) -> None:
    """By their bounds files may match; only reading shows that no row does."""
    name = f"{namespace}.t"
    client.create_table(name, "id long, item string")
    client.append(name, [{"id": 1, "item": "a"}, {"id": 3, "item": "c"}])
    client.append(name, [{"id": 2, "item": "b"}])
    nothing = client.delete(name, "id >= 2 and id < 2")
    assert nothing.snapshot_id is None
    client.overwrite(name, [{"id": 4, "item": "d"}], "id >= 2 and id < 2")
    client.delete(name, "id = 2")
    assert sorted(row["id"] for row in client.scan(name).to_pylist()) == [1, 3, 4]
