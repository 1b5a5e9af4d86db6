"""Equality deletes become vectors or position deletes, and no reader sees another row."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, Table
from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.reading import equality_matches
from frazil.maintenance import convert_equality_deletes, rewrite_data_files
from frazil.maintenance.equality_conversion import ConversionResult
from frazil.wire.declared_content import CountMap, EqualityDeleteFile, ValueMap
from tests.maintenance.conftest import during_the_rewrite, equality_delete, everything, row, rows
from tests.support.duck import attach
from tests.support.duck import connect as duck_connect
from tests.support.server import RunningServer

VERSIONS = pytest.mark.parametrize("version", [2, 3])
Rows = Sequence[Mapping[str, Any]]


def written(table: Table, content: pa.Table) -> Path:
    path = Path(urlsplit(table.location).path) / "data" / f"{uuid4().hex}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(content, path)
    return path


def keys_of(
    table: Table, keys: Rows, names: Sequence[str], *, spec_id: int = 0, partition: Any = ()
) -> EqualityDeleteFile:
    """Write a file of equality deletes on the named columns."""
    whole = arrow_schema(table.schema)
    schema = pa.schema([whole.field(name).with_nullable(True) for name in names])
    path = written(table, pa.Table.from_pylist([dict(key) for key in keys], schema=schema))
    ids = {field.name: field.field_id for field in table.schema.fields}
    return EqualityDeleteFile(
        spec_id=spec_id,
        partition=partition,
        file_path=path.as_uri(),
        file_format="parquet",
        file_size_in_bytes=path.stat().st_size,
        record_count=len(keys),
        equality_ids=tuple(ids[name] for name in names),
        **_metrics(keys, names),
    )


def _metrics(keys: Rows, names: Sequence[str]) -> dict[str, Any]:
    """Return counts and bounds of ids, by which plans exclude deletes."""
    if names != ["id"]:
        return {}
    values = [key["id"] for key in keys]
    return {
        "value_counts": CountMap((1,), (len(values),)),
        "null_value_counts": CountMap((1,), (0,)),
        "lower_bounds": ValueMap((1,), (min(values),)),
        "upper_bounds": ValueMap((1,), (max(values),)),
    }


def upsert(client: Client, table: Table, *new: Mapping[str, Any]) -> None:
    """Replace rows by their id in one commit, as Flink does."""
    table = client.load_table(table.identifier)
    content = pa.Table.from_pylist([dict(each) for each in new], arrow_schema(table.schema))
    data = written(table, content)
    keys = keys_of(table, [{"id": each["id"]} for each in new], ["id"])
    client.row_delta(table.identifier, [data], [keys], command="delete", isolation="snapshot")


def live_deletes(client: Client, table: Table) -> dict[str, str]:
    """Return the path and content of the delete files that a plan has."""
    tasks = client.load_table(table.identifier).plan(all_deletes=True).tasks
    return {file.file_path: file.content for task in tasks for file in task.delete_files}


def stock_rows(catalog: RunningServer, table: Table) -> list[dict[int, str]]:
    """Return what PyIceberg and DuckDB read."""
    stock = RestCatalog("stock", uri=catalog.url).load_table(str(table.identifier))
    found = [stock.scan().to_arrow().to_pylist()]
    with duck_connect() as duck:
        attach(duck, catalog.url)
        result = duck.execute(f"SELECT id, item FROM ice.{table.identifier}").fetchall()
        found.append([{"id": id, "item": item} for id, item in result])
    for rows_of in found:
        assert len({each["id"] for each in rows_of}) == len(rows_of)
    return [{each["id"]: each["item"] for each in rows_of} for rows_of in found]


@pytest.mark.parametrize(
    ("version", "granularity", "added"), [(2, "file", 3), (2, "partition", 1), (3, "file", 3)]
)
def test_upserts_become_position_deletes(
    client: Client,
    catalog: RunningServer,
    new_table: Callable[..., Table],
    version: int,
    granularity: str,
    added: int,
) -> None:
    table = new_table(version, **{"write.delete.granularity": granularity})
    client.delete(table.identifier, "id = 8")
    upsert(client, table, row(3, "new"), row(14, "new"), row(8, "again"), row(70, "added"))
    upsert(client, table, row(3, "newer"), row(14, "newer"))
    expected = everything() | {3: "newer", 14: "newer", 8: "again", 70: "added"}
    assert rows(client, table) == expected
    planned = convert_equality_deletes(table, dry_run=True)
    assert (planned.converted_equality_delete_files_count, planned.dry_run) == (2, True)
    assert set(live_deletes(client, table).values()) == {"equality-deletes", "position-deletes"}
    steps: list[tuple[int, int]] = []
    result = convert_equality_deletes(table, progress=lambda *step: steps.append(step))
    assert steps == [(1, 1)]
    assert result == ConversionResult(
        converted_equality_delete_files_count=2,
        added_position_delete_files_count=added,
        deleted_rows_count=4,
        searched_data_files_count=7,
    )
    assert set(live_deletes(client, table).values()) == {"position-deletes"}
    assert rows(client, table) == expected
    assert stock_rows(catalog, table) == [expected, expected]
    assert client.load_table(table.identifier).snapshot("main").summary["operation"] == "delete"
    assert convert_equality_deletes(table) == ConversionResult()


@VERSIONS
def test_deletes_without_matches_are_removed(
    client: Client, new_table: Callable[..., Table], version: int
) -> None:
    """Statistics exclude most files; new keys of upserts match nothing at all."""
    table = new_table(version)
    upsert(client, table, row(1000, "added"))
    tasks = client.load_table(table.identifier).plan().tasks
    assert not any(task.delete_files for task in tasks)
    result = convert_equality_deletes(table)
    assert result.converted_equality_delete_files_count == 1
    assert result.added_position_delete_files_count == 0
    head = client.load_table(table.identifier).snapshot("main")
    assert head.summary["total-delete-files"] == "0"
    assert rows(client, table) == everything() | {1000: "added"}


@VERSIONS
def test_several_key_columns_nulls_and_nan(
    client: Client, namespace: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equality_matches.EqualityMatches, "max_keys", 2)
    table = client.create_table(
        f"{namespace}.t", "id long, kind string, size double, item string", format_version=version
    )
    values: list[dict[str, Any]] = [
        {"id": 1, "kind": "a", "size": 1.0},
        {"id": 1, "kind": "b", "size": math.nan},
        {"id": None, "kind": "a", "size": 2.0},
        {"id": None, "kind": None, "size": None},
        {"id": 2, "kind": None, "size": -0.0},
        {"id": 3, "kind": "c", "size": math.nan},
    ]
    client.append(table.identifier, [{**each, "item": str(at)} for at, each in enumerate(values)])
    table = client.load_table(table.identifier)
    pairs: list[dict[str, Any]] = [
        {"kind": "a", "id": None},
        {"kind": None, "id": None},
        {"kind": "x", "id": 1},
    ]
    deletes: list[tuple[Rows, list[str]]] = [
        (pairs, ["id", "kind"]),
        ([{"size": math.nan}], ["size"]),
        ([{"kind": None, "id": 7}], ["id", "kind"]),
    ]
    for keys, names in deletes:
        client.row_delta(
            table.identifier,
            (),
            [keys_of(table, keys, names)],
            command="delete",
            isolation="snapshot",
        )
    before = {each["item"] for each in client.scan(table.identifier).to_pylist()}
    assert before == {"0", "4"}
    result = convert_equality_deletes(table)
    assert (result.converted_equality_delete_files_count, result.deleted_rows_count) == (3, 4)
    assert {each["item"] for each in client.scan(table.identifier).to_pylist()} == before


@VERSIONS
def test_schemas_and_partitions_that_have_changed(
    client: Client, namespace: str, catalog: RunningServer, version: int
) -> None:
    """Deletes of an unpartitioned spec apply everywhere, others only in their partition."""
    name = f"{namespace}.t"
    client.create_table(name, "id long, old string, item string", format_version=version)
    client.append(name, [{"id": id, "old": f"o{id}", "item": "first"} for id in range(6)])
    client.add_partition_field(name, "item")
    for item in ("a", "b"):
        client.append(name, [{"id": id, "old": f"o{id}", "item": item} for id in range(6)])
    table = client.load_table(name)
    files = [
        keys_of(table, [{"old": "o1"}], ["old"]),
        keys_of(table, [{"id": 2}], ["id"], spec_id=1, partition=("a",)),
        keys_of(table, [{"id": 3}], ["id"], spec_id=1, partition=("b",)),
    ]
    client.row_delta(name, (), files, command="delete", isolation="snapshot")
    client.drop_column(name, "old")
    client.rename_column(name, "id", "number")
    client.append(name, [{"number": 2, "item": "a"}, {"number": 3, "item": "b"}])

    def found() -> list[tuple[str, int]]:
        return sorted((each["item"], each["number"]) for each in client.scan(name).to_pylist())

    before = found()
    assert len(before) == 18 + 2 - 3 - 2
    result = convert_equality_deletes(client.load_table(name))
    assert (result.converted_equality_delete_files_count, result.deleted_rows_count) == (3, 5)
    assert found() == before
    stock = RestCatalog("stock", uri=catalog.url).load_table(name).scan().to_arrow().to_pylist()
    assert sorted((each["item"], each["number"]) for each in stock) == before


def test_partitions_are_converted_by_themselves(client: Client, namespace: str) -> None:
    name = f"{namespace}.t"
    table = client.create_table(
        name, "id long, item string", partition_by=["item"], format_version=3
    )
    for item in ("a", "b"):
        client.append(name, [{"id": id, "item": item} for id in range(6)])
    for item in ("a", "b"):
        keys = keys_of(table, [{"id": 2}], ["id"], partition=(item,))
        client.row_delta(name, (), [keys], command="delete", isolation="snapshot")
    result = convert_equality_deletes(client.load_table(name), where="item = 'a'")
    assert result.converted_equality_delete_files_count == 1
    steps: list[tuple[int, int]] = []
    convert_equality_deletes(client.load_table(name), progress=lambda *step: steps.append(step))
    assert steps == [(1, 1)]
    assert len(client.scan(name).to_pylist()) == 10


# --- beside others --------------------------------------------------------------------------------


@VERSIONS
def test_concurrent_upserts_and_deletes_stay(
    client: Client,
    new_table: Callable[..., Table],
    catalog: RunningServer,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = new_table(version)
    equality_delete(client, table, 3, 14)

    def others() -> None:
        upsert(client, table, row(4, "new"), row(3, "back"))
        client.delete(table.identifier, "id = 15")

    during_the_rewrite(monkeypatch, others)
    assert convert_equality_deletes(table).converted_equality_delete_files_count == 1
    expected = everything(14, 15) | {3: "back", 4: "new"}
    assert rows(client, table) == expected
    convert_equality_deletes(table)
    assert set(live_deletes(client, table).values()) == {"position-deletes"}
    assert stock_rows(catalog, table) == [expected, expected]


@VERSIONS
def test_a_concurrent_compaction_revives_no_rows(
    client: Client,
    new_table: Callable[..., Table],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compaction has read the files before the deletes, so its file has all rows."""
    table = new_table(version)
    before = client.load_table(table.identifier)

    def compact() -> None:
        rewrite_data_files(before, options={"rewrite-all": "true"})

    equality_delete(client, table, 3, 14)
    during_the_rewrite(monkeypatch, compact)
    convert_equality_deletes(client.load_table(table.identifier))
    assert rows(client, table) == everything(3, 14)
    assert "equality-deletes" not in live_deletes(client, table).values()


@VERSIONS
def test_a_conversion_during_a_compaction(
    client: Client,
    new_table: Callable[..., Table],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = new_table(version)

    def others() -> None:
        equality_delete(client, table, 3, 14)
        convert_equality_deletes(client.load_table(table.identifier))

    during_the_rewrite(monkeypatch, others)
    rewrite_data_files(table, options={"rewrite-all": "true"})
    assert rows(client, table) == everything(3, 14)


@VERSIONS
def test_conversions_beside_streams(
    client: Client, new_table: Callable[..., Table], catalog: RunningServer, version: int
) -> None:
    """Upserts by key while conversions and compactions run: every id has its last value."""
    table = new_table(version)
    expected = everything()
    errors: list[BaseException] = []

    def stream(seed: int) -> None:
        chance = random.Random(seed)
        try:
            with Client(catalog.url) as own:
                for number in range(8):
                    ids = chance.sample(range(seed * 20, seed * 20 + 20), 4)
                    new = dict.fromkeys(ids, f"{seed}-{number}")
                    upsert(own, table, *(row(id, item) for id, item in new.items()))
                    expected.update(new)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=stream, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        convert_equality_deletes(client.load_table(table.identifier))
        rewrite_data_files(client.load_table(table.identifier))
    assert not errors
    convert_equality_deletes(client.load_table(table.identifier))
    assert rows(client, table) == expected
    assert stock_rows(catalog, table) == [expected, expected]
