"""Spark rewrites data files: rows and their lineage stay, also beside other writers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from typer.testing import CliRunner

from frazil.cli.app import app
from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.maintenance import RewriteResult, rewrite_data_files
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from frazil.spark.maintenance.group_shares import shares_of
from frazil.spark.maintenance.sorted_rewrite import partition_numbers
from frazil.spark.maintenance.spark_engine import SparkEngine
from frazil.spark.session import Session
from frazil.wire.errors import BadRequest, FrazilError
from frazil.wire.filter_builders import col
from frazil.wire.scan_planning import PlannedDataFile

FILES, ROWS = 6, 20
IDS = range(FILES * ROWS)
BY_SPARK = {"frazil.engine": "spark", "rewrite-all": "true"}
VERSIONS = pytest.mark.parametrize("version", [2, 3])
LATE = range(999, 30_000, 1_000)
LINEAGE = ("_row_id", "_last_updated_sequence_number")


def row(id: int, note: str = "old") -> dict[str, Any]:
    return {"id": id, "kind": "abc"[id * 7 % 3], "amount": id / 7, "note": note}


@pytest.fixture
def table(client: Client, namespace: str, version: int) -> Table:
    """Return a table of six files, some of whose rows are deleted or were updated."""
    created = client.create_table(
        f"{namespace}.t",
        "id long not null, kind string, amount double, note string",
        identifier_fields=["id"],
        format_version=version,
        properties={
            f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")
        },
    )
    for start in range(0, len(IDS), ROWS):
        client.append(created.identifier, [row(id) for id in range(start, start + ROWS)])
    client.delete(created.identifier, "id = 3 or id = 50")
    client.upsert(created.identifier, [row(30, "updated")])
    return client.load_table(created.identifier)


def everything(*without: int) -> dict[int, str]:
    notes = {id: "updated" if id == 30 else "old" for id in IDS}
    return {id: note for id, note in notes.items() if id not in (3, 50, *without)}


class Stock:
    """Reads a table as stock Spark does."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark = spark
        self._catalog = catalog

    def rows(self, table: Table) -> list[tuple[Any, ...]]:
        """Return all columns, and the lineage in version 3, by id."""
        columns = ", ".join(("*", *(LINEAGE if table.format_version >= 3 else ())))
        name = f"{self._catalog}.{table.identifier}"
        found = self._spark.sql(f"SELECT {columns} FROM {name} ORDER BY id").collect()
        return [tuple(row) for row in found]

    def notes(self, table: Table) -> dict[int, str]:
        found = self.rows(table)
        assert len({row[0] for row in found}) == len(found)
        return {row[0]: row[3] for row in found}


@pytest.fixture
def by_stock(spark: SparkSession, stock: str) -> Stock:
    return Stock(spark, stock)


class Beside(SparkEngine):
    """Lets others commit after a group was written."""

    others: list[Callable[[], object]]

    def rewrite(self, work: GroupWork, folder: WriteFolder) -> WrittenRows:
        rows = super().rewrite(work, folder)
        while self.others:
            self.others.pop()()
        return rows


def rewrite_beside(
    session: Session, table: Table, *others: Callable[[], object], **arguments: Any
) -> RewriteResult:
    engine = Beside(session.context)
    object.__setattr__(engine, "others", list(others))
    options = {**BY_SPARK, **arguments.pop("options", {})}
    return rewrite_data_files(table, options=options, spark_engine=engine, **arguments)


def data_files(client: Client, table: Table) -> list[Any]:
    return [task.data_file for task in client.load_table(table.identifier).plan().tasks]


def files_below(table: Table) -> Iterator[Path]:
    folder = Path(urlsplit(table.location).path)
    return (path for path in folder.rglob("*") if path.is_file() and "metadata" not in path.parts)


# --- rows -----------------------------------------------------------------------------------------


@VERSIONS
def test_files_are_packed(client: Client, session: Session, table: Table, by_stock: Stock) -> None:
    before = by_stock.rows(table)
    options = {"rewrite-all": "true"}
    result = session.rewrite_data_files(str(table.identifier), options=options, engine="spark")
    assert (result.engine, result.engine_reason) == ("spark", "as requested")
    assert result.rewritten_data_files_count == FILES + 1
    assert result.added_data_files_count == 1
    assert result.removed_delete_files_count > 0
    assert by_stock.rows(table) == before
    tasks = client.load_table(table.identifier).plan().tasks
    assert [task.delete_files for task in tasks] == [()]
    assert client.history(table.identifier)[0].operation == "replace"


@VERSIONS
def test_rows_of_another_spec_go_to_their_partitions(
    client: Client, session: Session, table: Table, by_stock: Stock
) -> None:
    client.add_partition_field(table.identifier, "kind")
    before = by_stock.rows(table)
    rewrite_beside(session, table, lambda: client.delete(table.identifier, "id = 7 or id = 100"))
    assert by_stock.rows(table) == [row for row in before if row[0] not in (7, 100)]
    assert {file.partition for file in data_files(client, table)} == {("a",), ("b",), ("c",)}
    # Nothing else is left of the jobs, such as the numbers of rows.
    written = {path.suffix for path in files_below(table)}
    assert written <= {".parquet", ".puffin"}


@VERSIONS
@pytest.mark.parametrize("sort_order", ["kind, id DESC", "zorder(amount, kind)"])
def test_rows_are_sorted(
    client: Client, session: Session, table: Table, by_stock: Stock, sort_order: str
) -> None:
    before = by_stock.rows(table)
    size = max(file.file_size_in_bytes for file in data_files(client, table))
    result = rewrite_beside(
        session,
        table,
        lambda: client.delete(table.identifier, "id = 11 or id = 119"),
        sort_order=sort_order,
        options={"target-file-size-bytes": str(2 * size)},
    )
    assert result.added_data_files_count > 1
    assert by_stock.rows(table) == [row for row in before if row[0] not in (11, 119)]
    ids = [_ids(file.file_path) for file in data_files(client, table)]
    if sort_order.startswith("zorder"):
        assert all(own != sorted(own) for own in ids)
        return
    kinds = [[row(id)["kind"] for id in own] for own in ids]
    assert all(own == sorted(own) for own in kinds)
    ordered = sorted(ids, key=lambda own: (row(own[0])["kind"], -own[0]))
    everywhere = [id for own in ordered for id in own]
    assert everywhere == sorted(everywhere, key=lambda id: (row(id)["kind"], -id))


def _ids(path: str) -> list[int]:
    ids: list[int] = pq.read_table(urlsplit(path).path, columns=["id"])["id"].to_pylist()
    return ids


@pytest.mark.parametrize("version", [3])
def test_a_large_file_is_split_and_loses_nothing(
    client: Client, session: Session, table: Table, by_stock: Stock
) -> None:
    """iceberg#2195: a large file that was split over two groups lost its remainder."""
    client.set_properties(table.identifier, {"write.parquet.row-group-size-bytes": "20000"})
    client.append(table.identifier, [row(id) for id in range(1_000, 30_000)])
    before = by_stock.rows(table)
    large = max(data_files(client, table), key=lambda file: int(file.record_count))
    size = large.file_size_in_bytes // 4
    options = {**BY_SPARK, "target-file-size-bytes": str(size)}
    result = rewrite_beside(
        session,
        table,
        lambda: client.delete(table.identifier, col("id").is_in(LATE)),
        options=options,
    )
    assert result.added_data_files_count > 2
    assert by_stock.rows(table) == [row for row in before if row[0] not in LATE]


def test_parts_of_files_are_shared_out_evenly() -> None:
    """Every byte of every file is in one share, and parts of a file in one share are one part."""

    def task(number: int, size: int, *offsets: int) -> ScanTask:
        file = PlannedDataFile(
            file_path=f"f{number}",
            file_format="parquet",
            spec_id=0,
            partition=(),
            file_size_in_bytes=size,
            record_count=1,
            split_offsets=offsets,
        )
        return ScanTask(data_file=file)

    mib = 1 << 20
    tasks = [
        task(0, 100 * mib, *(4 + number * 10 * mib for number in range(10))),
        task(1, 5 * mib, 4),
        task(2, 60 * mib, *(4 + number * 20 * mib for number in range(3))),
    ]
    for count in (1, 2, 3, 5, 8):
        shares = shares_of(tasks, count)
        assert len(shares) == count
        ends: dict[str, int] = {}
        for share in shares:
            assert len({part.file_path for part in share}) == len(share)
            for part in share:
                assert part.start == ends.get(part.file_path, 0)
                size = part.data_file.file_size_in_bytes
                ends[part.file_path] = size if part.length is None else part.start + part.length
        assert ends == {each.file_path: each.data_file.file_size_in_bytes for each in tasks}


def test_each_range_goes_to_a_task_of_its_own(spark: SparkSession) -> None:
    for count in (2, 7, 40):
        parts = partition_numbers(count)
        frame = spark.createDataFrame([(part,) for part in parts], "part int")
        found = frame.repartition(count, "part").select("part", fn.spark_partition_id()).collect()
        assert sorted(found, key=lambda row: row[1]) == list(zip(parts, range(count), strict=True))


# --- other writers --------------------------------------------------------------------------------


@VERSIONS
def test_changes_that_land_on_a_group(
    client: Client, session: Session, table: Table, by_stock: Stock
) -> None:
    result = rewrite_beside(
        session,
        table,
        lambda: client.delete(table.identifier, "id = 0 or id = 51"),
        lambda: client.upsert(table.identifier, [row(90, "new")]),
        lambda: client.delete(table.identifier, "id >= 60 and id < 80"),
    )
    assert result.failed_data_files_count == 0
    assert by_stock.notes(table) == everything(0, 51, *range(60, 80)) | {90: "new"}


@pytest.mark.parametrize("version", [3])
@pytest.mark.parametrize("sort_order", [None, "id"])
def test_a_file_that_cannot_be_read_fails_its_group(
    client: Client, session: Session, table: Table, sort_order: str | None
) -> None:
    lost = Path(urlsplit(data_files(client, table)[2].file_path).path)
    lost.unlink()
    before = set(files_below(table))
    with pytest.raises(FrazilError, match=f"a job of Spark failed: .*{lost.name}"):
        rewrite_beside(session, table, sort_order=sort_order)
    assert set(files_below(table)) == before
    assert client.load_table(table.identifier).head() == table.head()


# --- engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3])
def test_the_engine_is_chosen_by_size(
    session: Session, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    name = str(table.identifier)
    caplog.set_level("INFO", "frazil.maintenance")
    small = session.rewrite_data_files(name, dry_run=True)
    assert (small.engine, small.rewritten_data_files_count) == ("local", FILES + 1)
    assert f"{small.rewritten_bytes_count} bytes" in small.engine_reason
    limit = {"frazil.local-engine-max-bytes": str(small.rewritten_bytes_count - 1)}
    large = session.rewrite_data_files(name, options=limit, dry_run=True)
    assert large.engine == "spark"
    assert "frazil.local-engine-max-bytes" in large.engine_reason
    without = rewrite_data_files(table, options=limit, dry_run=True)
    assert (without.engine, without.engine_reason) == ("local", "there is no Spark session")
    with pytest.raises(BadRequest, match=r"frazil\.engine: the engine spark needs a Spark session"):
        rewrite_data_files(table, options=BY_SPARK)
    options = "map('frazil.engine', 'local')"
    session.sql(f"CALL system.rewrite_data_files('{name}', options => {options})")
    assert "rewritten by the engine local: as requested" in caplog.text


@pytest.mark.parametrize("version", [3])
def test_the_command_starts_spark(
    client: Client,
    spark: SparkSession,
    server_url: str,
    table: Table,
    by_stock: Stock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frazil.spark.runtime.local_spark.local_spark", lambda settings: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    words = ["maintain", "rewrite-data-files", str(table.identifier), "--engine", "spark"]
    done = CliRunner().invoke(app, [*words, "--uri", server_url, "--output", "json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["engine"], result["engine_reason"]) == ("spark", "as requested")
    assert len(data_files(client, table)) == result["added_data_files_count"] == 1
    assert by_stock.notes(table) == everything()
