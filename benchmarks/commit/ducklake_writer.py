"""DuckLake with its catalog in PostgreSQL as a writer.

It adds an existing Parquet file to a table, or inserts a row that DuckLake stores in its catalog
(inlined) instead of in a file. DuckLake needs a real file for each added one and reads its
footer, so each file is a link to the same small Parquet file. Trees and histories are inserted
as rows, in DuckLake's own form.
"""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg

from benchmarks.commit.bursts import Task
from benchmarks.commit.files import COLUMN_IDS, PART, ROWS, TYPES
from benchmarks.histories import NAMESPACE

_EXTENSIONS: Final = ("postgres_scanner", "ducklake")
_TYPES: Final = {
    "int": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "timestamptz": "TIMESTAMPTZ",
}
_VALUES: Final = (
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7.5",
    "8.5",
    "'frazil'",
    "'2026-11-16 00:00:00+00'",
)
_ROW: Final = f"({', '.join(_VALUES)})"
_COLUMNS: Final = ", ".join(
    f"{'part' if n == PART else f'c{n}'} {_TYPES[TYPES[n]]}" for n in COLUMN_IDS
)


def open_writer(settings: dict[str, Any], tables: tuple[str, ...], index: int) -> DuckLakeWriter:
    return DuckLakeWriter(settings, tables, index)


class DuckLakeWriter:
    retries = 0

    def __init__(self, settings: dict[str, Any], tables: tuple[str, ...], index: int) -> None:
        database = tables[0].split("/")[0]
        self._names = [table.split("/")[1] for table in tables]
        self._connection = _attached(settings, database)
        self._folder = _data_folder(settings, database) / NAMESPACE
        self._seed = _seed_file(settings)
        self._inlined = settings["inlined"]
        self._index = index

    def prepare(self, task: Task, at: int) -> Callable[[], object]:
        name = self._names[at % len(self._names)]
        if self._inlined:
            statement = f"INSERT INTO lake.{NAMESPACE}.{name} VALUES {_ROW}"
            return lambda: self._connection.execute(statement)
        path = self._folder / name / f"{self._index:03}-{uuid.uuid4()}.parquet"
        os.link(self._seed, path)
        statement = (
            f"CALL ducklake_add_data_files('lake', '{name}', '{path}', schema => '{NAMESPACE}')"
        )
        return lambda: self._connection.execute(statement)

    def recover(self) -> None:
        """Do nothing, because the next statement starts a new transaction."""


def administer(settings: dict[str, Any], question: dict[str, Any]) -> Any:
    if question["do"] == "start":
        _make_seed(settings)
        return None
    if question["do"] == "create":
        return _create(settings, **question["start"])
    return _totals(settings, question["table"])


def _create(
    settings: dict[str, Any], database: str, tables: int, files: int, snapshots: int
) -> list[str]:
    connection = _attached(settings, database)
    connection.execute(f"CREATE SCHEMA lake.{NAMESPACE}")
    names = [f"t{number}" for number in range(tables)]
    for name in names:
        connection.execute(f"CREATE TABLE lake.{NAMESPACE}.{name} ({_COLUMNS})")
        (_data_folder(settings, database) / NAMESPACE / name).mkdir(parents=True)
        # DuckLake creates a name mapping with a table's first file. Do that before the measurement.
        path = _data_folder(settings, database) / NAMESPACE / name / "first.parquet"
        os.link(_seed_file(settings), path)
        connection.execute(
            f"CALL ducklake_add_data_files('lake', '{name}', '{path}', schema => '{NAMESPACE}')"
        )
    connection.close()
    if files > 1 or snapshots > 1:
        with psycopg.connect(f"{settings['server']}/{database}") as rows:
            _synthesise(rows, files, snapshots)
    return [f"{database}/{name}" for name in names]


def _synthesise(rows: psycopg.Connection[Any], files: int, snapshots: int) -> None:
    """Insert snapshots that each changed the last table, and its live files, with the same
    statistics as the file that DuckLake added itself."""
    found = rows.execute(
        "SELECT f.data_file_id, f.table_id, s.snapshot_id, s.schema_version, s.next_catalog_id"
        " FROM ducklake_data_file f, ducklake_snapshot s"
        " ORDER BY f.data_file_id DESC, s.snapshot_id DESC LIMIT 1"
    ).fetchone()
    assert found is not None
    file_id, table_id, last, schema_version, next_catalog_id = found
    rows.execute(
        "INSERT INTO ducklake_snapshot SELECT %s + n, now(), %s, %s, %s"
        " FROM generate_series(1, %s) AS n",
        (last, schema_version, next_catalog_id, file_id + files + 1, snapshots),
    )
    rows.execute(
        "INSERT INTO ducklake_snapshot_changes SELECT %s + n, %s, NULL, NULL, NULL"
        " FROM generate_series(1, %s) AS n",
        (last, f"inserted_into_table:{table_id}", snapshots),
    )
    columns = _columns(rows, "ducklake_data_file")
    own = {
        "data_file_id": "data_file_id + n",
        "begin_snapshot": str(last + snapshots),
        "path": "lpad(n::text, 10, '0') || repeat('a', 50) || '.parquet'",
        "row_id_start": f"n * {ROWS}",
    }
    chosen = ", ".join(own.get(name, name) for name in columns)
    rows.execute(
        f"INSERT INTO ducklake_data_file SELECT {chosen} FROM ducklake_data_file,"
        f" generate_series(1, {files}) AS n WHERE data_file_id = {file_id}".encode()
    )
    stats = ", ".join(
        "data_file_id + n" if name == "data_file_id" else name
        for name in _columns(rows, "ducklake_file_column_stats")
    )
    rows.execute(
        f"INSERT INTO ducklake_file_column_stats SELECT {stats} FROM ducklake_file_column_stats,"
        f" generate_series(1, {files}) AS n WHERE data_file_id = {file_id}".encode()
    )
    rows.execute(
        "UPDATE ducklake_table_stats SET record_count = record_count + %s, next_row_id = %s"
        " WHERE table_id = %s",
        (files * ROWS, (files + 1) * ROWS, table_id),
    )
    rows.commit()
    rows.autocommit = True
    rows.execute("VACUUM ANALYZE")


def _columns(rows: psycopg.Connection[Any], table: str) -> list[str]:
    found = rows.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
        " ORDER BY ordinal_position",
        (table,),
    )
    return [name for (name,) in found]


def _totals(settings: dict[str, Any], table: str) -> tuple[int, int]:
    """Return the snapshots of the whole catalog and the files of the table, or its rows if
    inlined."""
    database, name = table.split("/")
    with psycopg.connect(f"{settings['server']}/{database}") as rows:
        snapshots = _number(rows, "SELECT count(*) FROM ducklake_snapshot")
        inlined = ""
        if settings["inlined"]:
            found = rows.execute(
                "SELECT i.table_name FROM ducklake_inlined_data_tables i JOIN ducklake_table t"
                " ON t.table_id = i.table_id WHERE t.table_name = %s",
                (name,),
            ).fetchone()
            inlined = "" if found is None else f" + (SELECT count(*) FROM {found[0]})"
        files = _number(
            rows,
            "SELECT (SELECT count(*) FROM ducklake_data_file f JOIN ducklake_table t"
            f" ON t.table_id = f.table_id WHERE t.table_name = '{name}'){inlined}",
        )
    return snapshots, files


def _number(rows: psycopg.Connection[Any], statement: str) -> int:
    found = rows.execute(statement.encode()).fetchone()
    assert found is not None
    return int(found[0])


def _attached(settings: dict[str, Any], database: str) -> duckdb.DuckDBPyConnection:
    connection = _connection()
    connection.execute(
        f"ATTACH 'ducklake:postgres:{settings['connection']} dbname={database}' AS lake"
        f" (DATA_PATH '{_data_folder(settings, database)}/')"
    )
    return connection


def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # Each writer is a process of its own.
            "threads": "1",
        }
    )
    for name in _EXTENSIONS:
        package = importlib.import_module(f"duckdb_extension_{name}")
        (path,) = Path(package.__path__[0]).glob(f"extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    return connection


def _make_seed(settings: dict[str, Any]) -> None:
    target = _seed_file(settings)
    target.parent.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE one ({_COLUMNS})")
        connection.execute(f"INSERT INTO one VALUES {_ROW}")
        connection.execute(f"COPY one TO '{target}' (FORMAT parquet)")


def _seed_file(settings: dict[str, Any]) -> Path:
    return Path(settings["folder"]) / "seed.parquet"


def _data_folder(settings: dict[str, Any], database: str) -> Path:
    return Path(settings["folder"]) / database
