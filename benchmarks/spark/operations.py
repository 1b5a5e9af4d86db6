"""The measured operations, each on every system that supports it.

All systems run a change on the same table, which is rolled back after each, so that they all
start from the same files.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.results import FRAZIL, OWN, PLAIN, STOCK
from benchmarks.spark.rows import BY_DAY, CHANGED_PERCENT, SCHEMA, changed, merged_rows, source_rows
from frazil.client.catalog_client import Client
from frazil.spark.session import Session

CATALOG: Final = "stock"
NAMESPACE: Final = "bench"
MERGE_VIEW: Final = "merge_source"
ROWS_VIEW: Final = "rows_source"

APPEND_FLAT: Final = "append, flat"
APPEND_BY_DAY: Final = "append, by day"
OVERWRITE: Final = "overwrite of all partitions, by day"
DELETE_COW: Final = "DELETE 1 %, copy-on-write"
DELETE_MOR: Final = "DELETE 1 %, deletion vectors"
UPDATE_COW: Final = "UPDATE 1 %, copy-on-write"
UPDATE_MOR: Final = "UPDATE 1 %, deletion vectors"
MERGE_COW: Final = "MERGE 10 %, copy-on-write"
MERGE_MOR: Final = "MERGE 10 %, deletion vectors"
READ_ALL: Final = "read, all columns"
READ_ONE: Final = "read, one column"
READ_ALL_DELETES: Final = "read with 1 % deleted, all columns"
READ_ONE_DELETES: Final = "read with 1 % deleted, one column"
DELETE_ONE: Final = "DELETE of one row in a small table"

Work: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Operation:
    name: str
    rows: int
    work: Mapping[str, Work]
    undo: Work
    """Restores the tables; not measured."""
    times: int = 1
    """The repetitions in one sample. An operation of a few clock ticks cannot be measured with
    one."""


class Bench:
    """The tables of a run, and the operations on them."""

    def __init__(
        self, spark: SparkSession, session: Session, own: Session, folder: Path, rows: int
    ) -> None:
        self.spark, self.session, self.own = spark, session, own
        self.client: Client = session.client
        self.folder, self.rows = folder, rows
        self.client.create_namespace(NAMESPACE)
        self._source = self._kept("source", source_rows(spark, rows))
        self._merge = self._kept("merge", merged_rows(self._source, rows))
        self._merge.createOrReplaceTempView(MERGE_VIEW)
        self._source.createOrReplaceTempView(ROWS_VIEW)
        for name, mode in (("cow", "copy-on-write"), ("mor", "merge-on-read")):
            self._table(name, by_day=True, mode=mode)
            session.table(f"{NAMESPACE}.{name}").append(self._source)
        self._table("deleted", by_day=True, mode="merge-on-read")
        session.table(f"{NAMESPACE}.deleted").append(self._source)
        session.table(f"{NAMESPACE}.deleted").delete(changed(CHANGED_PERCENT))
        self._table("small", by_day=False, mode="merge-on-read")
        session.table(f"{NAMESPACE}.small").append(self._source.limit(1000))
        self._bases = {
            name: self.client.load_table(f"{NAMESPACE}.{name}").head()
            for name in ("cow", "mor", "small")
        }

    def close(self) -> None:
        for view in (MERGE_VIEW, ROWS_VIEW):
            self.spark.catalog.dropTempView(view)

    def operations(self) -> list[Operation]:
        return [
            self._append(APPEND_FLAT, by_day=False),
            self._append(APPEND_BY_DAY, by_day=True),
            self._overwrite(),
            self._delete(DELETE_COW, "cow"),
            self._delete(DELETE_MOR, "mor"),
            self._update(UPDATE_COW, "cow"),
            self._update(UPDATE_MOR, "mor"),
            self._merged(MERGE_COW, "cow"),
            self._merged(MERGE_MOR, "mor"),
            self._read(READ_ALL, "cow", _all, 5),
            self._read(READ_ONE, "cow", _one, 20),
            self._read(READ_ALL_DELETES, "deleted", _all, 5),
            self._read(READ_ONE_DELETES, "deleted", _one, 5),
            self._delete_one(),
        ]

    # --- the operations ---------------------------------------------------------------------------

    def _append(self, name: str, *, by_day: bool) -> Operation:
        def plain() -> None:
            self._write_plain(self._source, by_day)

        def frazil(session: Session) -> Work:
            return lambda: session.table(self._new(by_day)).append(self._source)

        def stock() -> None:
            self._source.writeTo(f"{CATALOG}.{self._new(by_day)}").append()

        work = {PLAIN: plain, STOCK: stock, FRAZIL: frazil(self.session)}
        return Operation(name, self.rows, work, self._clear)

    def _overwrite(self) -> Operation:
        name = f"{NAMESPACE}.cow"
        work: dict[str, Work] = {
            PLAIN: lambda: self._write_plain(self._source, by_day=True),
            STOCK: lambda: self._source.writeTo(f"{CATALOG}.{name}").overwritePartitions(),
            FRAZIL: lambda: self.session.table(name).overwrite_partitions(self._source),
        }
        return Operation(OVERWRITE, self.rows, work, lambda: self._back("cow"))

    def _delete(self, operation: str, table: str) -> Operation:
        condition, name = changed(CHANGED_PERCENT), f"{NAMESPACE}.{table}"
        work: dict[str, Work] = {
            STOCK: lambda: self.spark.sql(f"DELETE FROM {CATALOG}.{name} WHERE {condition}"),
            FRAZIL: lambda: self.session.table(name).delete(condition),
            OWN: lambda: self.own.table(name).delete(condition),
        }
        if table == "cow":
            kept = self._source.where(f"NOT ({condition})")
            work[PLAIN] = lambda: self._write_plain(kept, by_day=True)
        return Operation(operation, self.rows, work, lambda: self._back(table))

    def _update(self, operation: str, table: str) -> Operation:
        condition, name = changed(CHANGED_PERCENT), f"{NAMESPACE}.{table}"
        work: dict[str, Work] = {
            STOCK: lambda: self.spark.sql(
                f"UPDATE {CATALOG}.{name} SET qty = qty + 1 WHERE {condition}"
            ),
            FRAZIL: lambda: self.session.table(name).update({"qty": "qty + 1"}, condition),
            OWN: lambda: self.own.table(name).update({"qty": "qty + 1"}, condition),
        }
        if table == "cow":
            quantity = f"CAST(IF({condition}, qty + 1, qty) AS INT) AS qty"
            columns = [quantity if each == "qty" else each for each in self._source.columns]
            rewritten = self._source.selectExpr(*columns)
            work[PLAIN] = lambda: self._write_plain(rewritten, by_day=True)
        return Operation(operation, self.rows, work, lambda: self._back(table))

    def _merged(self, operation: str, table: str) -> Operation:
        name = f"{NAMESPACE}.{table}"
        statement = (
            f"MERGE INTO {CATALOG}.{name} t USING {MERGE_VIEW} s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

        def frazil(session: Session) -> Work:
            return lambda: (
                session.table(name)
                .merge(self._merge, "target.id = source.id")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )

        work: dict[str, Work] = {
            STOCK: lambda: self.spark.sql(statement),
            FRAZIL: frazil(self.session),
            OWN: frazil(self.own),
        }
        if table == "cow":
            work[PLAIN] = lambda: self._write_plain(self._joined(), by_day=True)
        return Operation(operation, self.rows, work, lambda: self._back(table))

    def _read(
        self, operation: str, table: str, consume: Callable[[DataFrame], None], times: int
    ) -> Operation:
        name = f"{NAMESPACE}.{table}"
        work: dict[str, Work] = {
            STOCK: lambda: consume(self.spark.read.table(f"{CATALOG}.{name}")),
            FRAZIL: lambda: consume(self.session.table(name).scan()),
            OWN: lambda: consume(self.own.table(name).scan()),
        }
        if table == "cow":
            files = [
                one.file_path.removeprefix("file://")
                for one in self.client.load_table(name).plan().files
            ]
            work[PLAIN] = lambda: consume(self.spark.read.parquet(*files))
        return Operation(operation, self.rows, work, lambda: None, times)

    def _delete_one(self) -> Operation:
        name = f"{NAMESPACE}.small"
        work: dict[str, Work] = {
            STOCK: lambda: self.spark.sql(f"DELETE FROM {CATALOG}.{name} WHERE id = 7"),
            FRAZIL: lambda: self.session.table(name).delete("id = 7"),
            OWN: lambda: self.own.table(name).delete("id = 7"),
        }
        return Operation(DELETE_ONE, 1000, work, lambda: self._back("small"))

    # --- parts ------------------------------------------------------------------------------------

    def _joined(self) -> DataFrame:
        """Return a MERGE as users of plain Parquet write it: a full outer join."""
        columns = ", ".join(
            f"IF(s.id IS NULL, t.{name}, s.{name}) AS {name}" for name in self._source.columns
        )
        return self.spark.sql(
            f"SELECT {columns} FROM {ROWS_VIEW} t FULL OUTER JOIN {MERGE_VIEW} s ON t.id = s.id"
        )

    def _write_plain(self, frame: DataFrame, by_day: bool) -> None:
        writer = frame
        if by_day:
            writer = frame.selectExpr("*", "to_date(ts) AS ts_day").repartition("ts_day")
        out = writer.write.option("compression", "zstd")
        (out.partitionBy("ts_day") if by_day else out).parquet(str(self._scratch("plain")))

    def _kept(self, name: str, frame: DataFrame) -> DataFrame:
        path = str(self.folder / name)
        frame.coalesce(2).write.option("compression", "zstd").parquet(path)
        return self.spark.read.parquet(path)

    def _new(self, by_day: bool) -> str:
        name = f"new_{uuid.uuid4().hex[:8]}"
        self._table(name, by_day=by_day, mode="merge-on-read")
        return f"{NAMESPACE}.{name}"

    def _table(self, name: str, *, by_day: bool, mode: str) -> None:
        commands = ("delete", "update", "merge")
        properties = {f"write.{command}.mode": mode for command in commands}
        self.client.create_table(
            f"{NAMESPACE}.{name}",
            SCHEMA,
            partition_spec=BY_DAY if by_day else None,
            properties={"format-version": "3", **properties},
        )

    def _back(self, table: str) -> None:
        base = self._bases[table]
        assert base is not None
        self.client.rollback(f"{NAMESPACE}.{table}", base)
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.folder / "plain", ignore_errors=True)
        for identifier in self.client.list_tables(NAMESPACE):
            if identifier.name.startswith("new_"):
                self.client.drop_table(identifier, purge=True)

    def _scratch(self, name: str) -> Path:
        return self.folder / name / uuid.uuid4().hex


def _all(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _one(frame: DataFrame) -> None:
    frame.selectExpr("sum(qty)").collect()
