"""Statements that read the same snapshot and commit: the result is that of a serial order.

Up to four statements are built from one snapshot of a table with two files, and sent one after
another without retries. Some are refused. The others must have the effect that they have in some
order, one at a time: that is what serializable isolation promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil import Client, Table, ValidationError
from frazil.datafiles.footers.files_from_parquet import EqualityDeleteFile
from frazil.maintenance import convert_equality_deletes, rewrite_data_files

KEYS = range(8)
FLAGS = ("a", "b")
State = Mapping[int, str]


@dataclass(frozen=True)
class Statement:
    text: str
    run: Callable[[Table], object]
    on_model: Callable[[State], State]


def delete_keys(random: Random, base: State) -> Statement:
    keys = random.sample(KEYS, random.randint(1, 3))
    text = " or ".join(f"id = {key}" for key in keys)
    return Statement(
        f"delete {text}",
        lambda table: table.delete(text),
        lambda state: {key: flag for key, flag in state.items() if key not in keys},
    )


def delete_flag(random: Random, base: State) -> Statement:
    flag = random.choice(FLAGS)
    return Statement(
        f"delete flag {flag}",
        lambda table: table.delete(f"flag = '{flag}'"),
        lambda state: {key: own for key, own in state.items() if own != flag},
    )


def upsert(random: Random, base: State) -> Statement:
    rows = {key: random.choice(FLAGS) for key in random.sample(KEYS, random.randint(1, 2))}
    sent = [{"id": key, "flag": flag} for key, flag in rows.items()]
    return Statement(
        f"upsert {rows}", lambda table: table.upsert(sent), lambda state: {**state, **rows}
    )


def update(random: Random, base: State) -> Statement:
    """Return UPDATE ... WHERE id = key. Unlike an upsert, it adds no row that is not there."""
    key, flag = random.choice(KEYS), random.choice(FLAGS)
    row = {"id": key, "flag": flag}
    return Statement(
        f"update {row}",
        lambda table: table.overwrite([row], f"id = {key}") if key in base else None,
        lambda state: {**state, key: flag} if key in state else state,
    )


def replace_flag(random: Random, base: State) -> Statement:
    # An overwrite does not compare keys, so each one adds a key of its own.
    flag, key = random.choice(FLAGS), random.randrange(100, 1_000_000)
    row = {"id": key, "flag": flag}
    return Statement(
        f"replace flag {flag} by {row}",
        lambda table: table.overwrite([row], f"flag = '{flag}'"),
        lambda state: {
            **{key: own for key, own in state.items() if own != flag},
            key: flag,
        },
    )


def compact(random: Random, base: State) -> Statement:
    """Return a compaction, which moves the rows that later statements have read."""
    options = {"rewrite-all": "true"}
    return Statement(
        "compact", lambda table: rewrite_data_files(table, options=options), lambda state: state
    )


def delete_by_equality(random: Random, base: State) -> Statement:
    """Return a delete of keys that reads nothing, as streams write them."""
    keys = random.sample(KEYS, random.randint(1, 2))

    def run(table: Table) -> None:
        path = Path(urlsplit(table.location).path) / "data" / f"{uuid4()}.parquet"
        schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        pq.write_table(pa.table({"id": sorted(keys)}, schema=schema), path)
        file = EqualityDeleteFile.from_parquet(str(path), table, columns=["id"])
        table.row_delta((), [file], command="delete", isolation="snapshot")

    return Statement(
        f"delete {keys} by equality",
        run,
        lambda state: {key: flag for key, flag in state.items() if key not in keys},
    )


def convert(random: Random, base: State) -> Statement:
    """Return a conversion of equality deletes, which later statements have read."""
    return Statement("convert", convert_equality_deletes, lambda state: state)


KINDS = (
    *(delete_keys, delete_keys, delete_flag, update, update, upsert, replace_flag),
    *(compact, delete_by_equality, convert),
)


def rows_of(client: Client, table: Table) -> list[tuple[int, str]]:
    scan = client.scan(table.identifier)
    return sorted((row["id"], row["flag"]) for row in scan.to_pylist())


def serial_results(state: State, statements: list[Statement]) -> list[list[tuple[int, str]]]:
    results = []
    for order in permutations(statements):
        after = state
        for statement in order:
            after = statement.on_model(after)
        results.append(sorted(after.items()))
    return results


@pytest.fixture
def name(client: Client, namespace: str) -> str:
    modes = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}
    table = client.create_table(
        f"{namespace}.t",
        "id long not null, flag string",
        identifier_fields=["id"],
        format_version=3,
        properties={**modes, "commit.retry.num-retries": "0"},
    )
    return str(table.identifier)


def run_case(client: Client, name: str, seed: int) -> tuple[int, int]:
    """Run one random case; return how many statements were committed, and merged by the server."""
    random = Random(seed)
    state = {key: random.choice(FLAGS) for key in KEYS if random.random() < 0.8} or {0: "a"}
    client.overwrite(name, [{"id": key, "flag": flag} for key, flag in state.items() if key < 4])
    client.append(name, [{"id": key, "flag": flag} for key, flag in state.items() if key >= 4])
    if random.random() < 0.5:
        # The files have vectors already, which are the base of the statements.
        gone = random.choice(sorted(state))
        client.delete(name, f"id = {gone}")
        del state[gone]
    base = client.load_table(name)
    statements = [random.choice(KINDS)(random, state) for _ in range(random.randint(2, 4))]
    committed = []
    for statement in statements:
        try:
            statement.run(base)
        except ValidationError:
            continue
        committed.append(statement)
    found = rows_of(client, base)
    shown = (seed, state, [statement.text for statement in statements])
    assert found in serial_results(state, committed), shown
    merged = [
        path
        for snapshot in client.history(name)[: len(committed)]
        for path in [snapshot.summary.get("removed-dvs")]
        if path is not None
    ]
    return len(committed), len(merged)


@pytest.mark.parametrize("part", range(4))
def test_a_result_is_that_of_a_serial_order(client: Client, name: str, part: int) -> None:
    counts = [run_case(client, name, 1000 * part + number) for number in range(15)]
    # The cases must not be trivial: statements commit beside others, and vectors are merged.
    assert sum(committed for committed, _ in counts) > 20
    assert sum(merged for _, merged in counts) > 5


@pytest.mark.full
@pytest.mark.parametrize("part", range(4, 24))
def test_many_results_are_those_of_serial_orders(client: Client, name: str, part: int) -> None:
    for number in range(50):
        run_case(client, name, 1000 * part + number)
