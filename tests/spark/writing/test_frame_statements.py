"""Frames are appended, or replace rows, and the result says what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from frazil.spark.writing.write_commit import Removed, removed_by
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from frazil.spark.session import Session
    from frazil.spark.table import SparkTable


@pytest.fixture
def table(each_session: Session, namespace: str) -> SparkTable:
    """Return a table of four rows in two partitions, each with one file."""
    name = f"{namespace}.t"
    each_session.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, v STRING, p INT) PARTITIONED BY (p) "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    each_session.sql(
        f"INSERT INTO {name} VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 1), (4, 'd', 1)"
    )
    return each_session.table(name)


def row(table: SparkTable, key: int, partition: int) -> DataFrame:
    return table.context.spark.sql(f"SELECT {key}L AS id, 'new' AS v, {partition} AS p")


def rows(table: SparkTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.scan().collect())


def test_an_overwrite_counts_what_it_has_removed(table: SparkTable) -> None:
    done = table.overwrite(row(table, 5, 0), where="p = 0")
    assert (done.rows_written, done.rows_deleted, done.files_removed) == (1, 2, 1)
    done = table.overwrite_partitions(row(table, 6, 0))
    assert (done.rows_written, done.rows_deleted, done.files_removed) == (1, 1, 1)
    done = table.overwrite_partitions(row(table, 7, 9))
    assert (done.rows_deleted, done.files_removed) == (0, 0)
    done = table.overwrite(row(table, 8, 0).where("id = 0"))
    assert (done.rows_written, done.rows_deleted, done.files_removed) == (0, 4, 3)
    done = table.append(row(table, 9, 0))
    assert (done.rows_deleted, done.files_removed) == (0, 0)


def test_rows_that_were_deleted_before_are_not_counted_again(table: SparkTable) -> None:
    table.delete("id = 1")
    done = table.overwrite(row(table, 5, 0))
    # The summary has the records of files and deletes, but not how many of them are live.
    assert (done.rows_deleted, done.files_removed) == (None, 3)


def test_numbers_of_a_snapshot_that_has_expired_are_unknown(table: SparkTable) -> None:
    commit = table.overwrite(row(table, 5, 0)).commit
    assert commit is not None
    gone = tuple(msgspec.structs.replace(one, snapshot_id=1) for one in commit.snapshots)
    assert removed_by(table.context, msgspec.structs.replace(commit, snapshots=gone)) == Removed(
        None, None
    )


def test_missing_columns_get_their_default_or_null_as_in_stock_spark(
    table: SparkTable, stock: str
) -> None:
    spark = table.context.spark
    table.append(spark.sql("SELECT 5L AS ID"))
    spark.sql("SELECT 6L AS id, 1 AS p").writeTo(f"{stock}.{table}").append()
    assert rows(table)[4:] == [(5, None, None), (6, None, 1)]
    with pytest.raises(BadRequest, match="column id is required, has no default and is missing"):
        table.append(spark.sql("SELECT 'x' AS v"))
    with pytest.raises(BadRequest, match=r"column w is not in the table.*merge_schema=True"):
        table.append(spark.sql("SELECT 7L AS id, 'x' AS w"))


@pytest.mark.parametrize("on", ["id", "`ID`", ["id"], ("p", "id")])
def test_a_merge_takes_names_of_columns(table: SparkTable, on: Any) -> None:
    merge = table.merge(row(table, 1, 0).union(row(table, 5, 1)), on)
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_written, done.rows_deleted) == (2, 1)
    assert rows(table)[0] == (1, "new", 0)
    assert rows(table)[4] == (5, "new", 1)
    with pytest.raises(BadRequest, match="on: name at least one column"):
        table.merge(row(table, 1, 0), [])
