"""Many stock writers commit at once through the classic path; others send single stale commits.

No writer may retry here (`commit.retry.num-retries` is 0), so a single 409 fails the test.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import duckdb
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import IntegerType
from pyspark.sql import SparkSession

from scripts.java import ROOT
from tests.stock_clients.java_api import JavaCatalog, java_class
from tests.stock_clients.stock import (
    ID_NAME,
    duck_rows,
    id_name,
    operations,
    pyiceberg_ids,
    sequence_numbers,
    spark_column,
)
from tests.support.patience import HANG_S
from tests.support.server import RunningServer

NO_RETRY = {"commit.retry.num-retries": "0"}
REBASE = {**NO_RETRY, "frazil.commit.rebase-appends": "true"}
# Merge at every third manifest, so that appends also rewrite existing manifests.
MERGING = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "3",
}
COMMITS = 5
"""The number of commits of each writer."""


@pytest.fixture
def java_library(spark: SparkSession, catalog_server: RunningServer) -> Iterator[JavaCatalog]:
    catalog = JavaCatalog(spark, catalog_server.url)
    yield catalog
    catalog.close()


# --- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pyiceberg_writers", "java_writers"),
    [
        pytest.param(4, 4),
        pytest.param(16, 16, marks=pytest.mark.full),
    ],
)
def test_every_append_of_every_writer_lands_once(
    iceberg: Catalog,
    java_library: JavaCatalog,
    duck: duckdb.DuckDBPyConnection,
    sql: SparkSession,
    namespace: str,
    catalog_server: RunningServer,
    pyiceberg_writers: int,
    java_writers: int,
) -> None:
    name = f"{namespace}.t"
    iceberg.create_table(name, ID_NAME, properties=REBASE | MERGING)
    wanted = race(catalog_server.url, name, java_library, pyiceberg_writers, java_writers)
    commits = (pyiceberg_writers + java_writers) * COMMITS
    assert len(wanted) == commits

    table = iceberg.load_table(name)
    assert pyiceberg_ids(table) == wanted
    assert spark_column(sql, "SELECT id FROM t ORDER BY id") == wanted
    found = duck_rows(duck, f"SELECT id FROM ice.{name} ORDER BY id")
    assert [row[0] for row in found] == wanted
    assert_one_line_of_appends(table, commits)


def race(
    url: str, table: str, java_library: JavaCatalog, pyiceberg_writers: int, java_writers: int
) -> list[int]:
    """Run writers that all load the table before the first append; return the appended ids."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_appender(url, table, 1000 * (number + 1)))
            for number in range(pyiceberg_writers)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        pool = stack.enter_context(ThreadPoolExecutor(max(java_writers, 1)))
        start = threading.Barrier(java_writers + 1)
        futures = [
            pool.submit(_append_by_java, java_library, table, 1_000_000 + 1000 * number, start)
            for number in range(java_writers)
        ]
        start.wait(HANG_S)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        appended = [number for future in futures for number in future.result()]
        for process in processes:
            said, errors = process.communicate(timeout=HANG_S)
            assert process.returncode == 0, errors
            appended += json.loads(said)
    return sorted(appended)


def _appender(url: str, table: str, first_id: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.stock_clients.appender"]
    return subprocess.Popen(
        [*command, url, table, str(first_id), str(COMMITS)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _append_by_java(
    java_library: JavaCatalog, name: str, first_id: int, start: threading.Barrier
) -> list[int]:
    """Append by Java: half of the commits merge manifests, the others only add one."""
    table = java_library.load(name)
    ids = list(range(first_id, first_id + COMMITS))
    files = [java_library.data_file(table, number) for number in ids]
    start.wait(HANG_S)
    for number, file in zip(ids, files, strict=True):
        append = table.newAppend() if number % 2 else table.newFastAppend()
        append.appendFile(file).commit()
    return ids


def assert_one_line_of_appends(table: Table, commits: int) -> None:
    """Check that each commit made one snapshot on top of the last, and that totals add up."""
    snapshots = sorted(table.snapshots(), key=lambda found: found.sequence_number or 0)
    assert list(sequence_numbers(table)) == list(range(1, commits + 1))
    assert operations(table) == ["append"] * commits
    parents = [found.parent_snapshot_id for found in snapshots]
    assert parents == [None, *(found.snapshot_id for found in snapshots[:-1])]
    times = [found.timestamp_ms for found in snapshots]
    assert times == sorted(times)
    for count, snapshot in enumerate(snapshots, 1):
        assert snapshot.summary is not None
        assert snapshot.summary["total-data-files"] == str(count)
        assert snapshot.summary["total-records"] == str(count)
        assert snapshot.summary["added-data-files"] == "1"
    paths = table.inspect.files()["file_path"].to_pylist()
    assert len(paths) == len(set(paths)) == commits


def test_row_ids_of_version_3_stay_unique(
    iceberg: Catalog, java_library: JavaCatalog, sql: SparkSession, namespace: str
) -> None:
    name = f"{namespace}.t"
    iceberg.create_table(name, ID_NAME, properties=REBASE | {"format-version": "3"})
    writers = 4
    start = threading.Barrier(writers)
    with ThreadPoolExecutor(writers) as pool:
        futures = [
            pool.submit(_append_by_java, java_library, name, 1000 * number, start)
            for number in range(writers)
        ]
        appended = sorted(number for future in futures for number in future.result())
    assert spark_column(sql, "SELECT id FROM t ORDER BY id") == appended
    row_ids = spark_column(sql, "SELECT _row_id FROM t")
    assert sorted(row_ids) == list(range(writers * COMMITS))
    loaded = iceberg.load_table(name)
    assert loaded.metadata.next_row_id == writers * COMMITS  # type: ignore[union-attr]


# --- one stale commit at a time -------------------------------------------------------------------


def stale_pair(iceberg: Catalog, name: str, properties: dict[str, str]) -> Table:
    """Create a table with ids 1 and 2; return a stale handle that knows only id 1."""
    table = iceberg.create_table(name, ID_NAME, properties=properties)
    table.append(id_name(1))
    stale = iceberg.load_table(name)
    table.append(id_name(2))
    return stale


def test_stale_append_is_refused_without_the_property(
    iceberg: Catalog, java_library: JavaCatalog, namespace: str
) -> None:
    name = f"{namespace}.t"
    stale = stale_pair(iceberg, name, NO_RETRY)
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        stale.append(id_name(3))

    table = java_library.load(name)
    append = table.newAppend().appendFile(java_library.data_file(table, 5))
    commit = java_library.built(table, append)
    iceberg.load_table(name).append(id_name(4))
    with pytest.raises(Py4JJavaError) as refused:
        commit()
    assert java_class(refused.value) == "CommitFailedException"
    loaded = iceberg.load_table(name)
    assert pyiceberg_ids(loaded) == [1, 2, 4]
    assert_one_line_of_appends(loaded, 3)


def test_stale_append_lands_with_the_property(
    iceberg: Catalog, java_library: JavaCatalog, namespace: str
) -> None:
    name = f"{namespace}.t"
    stale = stale_pair(iceberg, name, REBASE)
    first, second = java_library.load(name), java_library.load(name)
    file = java_library.data_file(first, 4)
    fast = java_library.built(first, first.newFastAppend().appendFile(file))
    file = java_library.data_file(second, 5)
    merging = java_library.built(second, second.newAppend().appendFile(file))

    stale.append(id_name(3))
    assert pyiceberg_ids(stale) == [1, 2, 3], "the client is told the whole new table"
    fast()
    merging()
    assert second.currentSnapshot().summary()["total-records"] == "5"
    table = iceberg.load_table(name)
    assert pyiceberg_ids(table) == [1, 2, 3, 4, 5]
    assert_one_line_of_appends(table, 5)


def _delete_rows(table: Table) -> None:
    table.delete("id = 1")


def _overwrite_rows(table: Table) -> None:
    table.overwrite(id_name(9), overwrite_filter="id = 1")


def _overwrite_all(table: Table) -> None:
    table.overwrite(id_name(9))


def _append_with_schema(table: Table) -> None:
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.add_column("size", IntegerType())
        transaction.append(id_name(9))


@pytest.mark.parametrize(
    "write", [_delete_rows, _overwrite_rows, _overwrite_all, _append_with_schema]
)
def test_anything_but_an_append_stays_refused(
    iceberg: Catalog, namespace: str, write: Callable[[Table], None]
) -> None:
    name = f"{namespace}.t"
    stale = stale_pair(iceberg, name, REBASE)
    with pytest.raises(CommitFailedException):
        write(stale)
    table = iceberg.load_table(name)
    assert pyiceberg_ids(table) == [1, 2]
    assert_one_line_of_appends(table, 2)
    assert table.schema() == ID_NAME


def test_stale_java_deletes_stay_refused(
    iceberg: Catalog, java_library: JavaCatalog, namespace: str
) -> None:
    name = f"{namespace}.t"
    table = iceberg.create_table(name, ID_NAME, properties=REBASE)
    first = java_library.load(name)
    file = java_library.data_file(first, 1)
    first.newAppend().appendFile(file).commit()
    tables = [java_library.load(name) for _ in range(3)]
    updates = (
        tables[0].newDelete().deleteFile(file),
        tables[1].newOverwrite().deleteFile(file).addFile(java_library.data_file(first, 3)),
        tables[2].newRewrite().deleteFile(file).addFile(java_library.data_file(first, 4)),
    )
    commits = [
        java_library.built(found, update) for found, update in zip(tables, updates, strict=True)
    ]
    table.refresh().append(id_name(2))
    for commit in commits:
        with pytest.raises(Py4JJavaError) as refused:
            commit()
        assert java_class(refused.value) == "CommitFailedException"
    assert pyiceberg_ids(iceberg.load_table(name)) == [1, 2]


@pytest.mark.parametrize("rebase", [False, True], ids=["refused", "rebased"])
def test_stale_insert_of_duckdb(
    iceberg: Catalog, duck: duckdb.DuckDBPyConnection, namespace: str, rebase: bool
) -> None:
    """DuckDB commits through `transactions/commit`; with one table this is a normal commit."""
    name = f"{namespace}.t"
    table = iceberg.create_table(name, ID_NAME, properties=REBASE if rebase else NO_RETRY)
    table.append(id_name(1))
    duck.execute("BEGIN")
    duck.execute(f"INSERT INTO ice.{name} VALUES (3, 'duck')")
    table.append(id_name(2))
    if rebase:
        duck.execute("COMMIT")
    else:
        with pytest.raises(duckdb.Error, match="CommitFailedException"):
            duck.execute("COMMIT")
    wanted = [1, 2, 3] if rebase else [1, 2]
    loaded = iceberg.load_table(name)
    assert pyiceberg_ids(loaded) == wanted
    assert_one_line_of_appends(loaded, len(wanted))
