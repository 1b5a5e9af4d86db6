"""DELETE, UPDATE and MERGE give the same rows as an implementation in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as fn

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import EqualityDeleteFile
from frazil.spark.core.statement_runs import Result, Target
from frazil.spark.rows.merge_clauses import Merge
from frazil.spark.rows.merge_statement import MergeBuilder
from frazil.spark.table import SparkTable
from frazil.wire.errors import BadRequest, UnsupportedOperation, ValidationError
from frazil.wire.filter_builders import col
from tests.spark.interleaving import once_before_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.spark.session import Session

COW, MOR = "copy-on-write", "merge-on-read"
SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "part", "required": False, "type": "int"},
        {"id": 3, "name": "name", "required": False, "type": "string"},
        {
            "id": 4,
            "name": "p",
            "required": False,
            "type": {
                "type": "struct",
                "fields": [{"id": 5, "name": "x", "required": False, "type": "int"}],
            },
        },
    ],
}
BY_PART = {"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}
BY_BUCKET = {"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}

Row = tuple[int, int | None, str | None, int | None]


def created(
    session: Session,
    namespace: str,
    version: int,
    mode: str,
    *fields: dict[str, Any],
    **properties: str,
) -> SparkTable:
    commands = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
    session.client.create_table(
        f"{namespace}.t",
        SCHEMA,
        partition_spec={"spec-id": 0, "fields": list(fields)},
        properties={"format-version": str(version), **commands, **properties},
    )
    return session.table(f"{namespace}.t")


def frame_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    lines = [(key, part, name, None if x is None else (x,)) for key, part, name, x in rows]
    return spark.createDataFrame(lines, "id long, part int, name string, p struct<x: int>")


def first_rows(count: int = 20) -> list[Row]:
    return [
        (key, key % 3 or None, f"n{key}", key * 10 if key % 4 else None) for key in range(count)
    ]


def rows_of(table: SparkTable, *metadata_columns: str) -> list[tuple[Any, ...]]:
    frame = table.scan(metadata_columns=metadata_columns)
    columns = ["id", "part", "name", "p.x", *metadata_columns]
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def row_ids(table: SparkTable) -> dict[int, tuple[int, int]]:
    """Return (row id, sequence number of the last update) by key."""
    frame = table.scan(metadata_columns=("_row_id", "_last_updated_sequence_number"))
    found = frame.select("id", "_row_id", "_last_updated_sequence_number").collect()
    return {row[0]: (row[1], row[2]) for row in found}


CASES = pytest.mark.parametrize(
    ("version", "mode"),
    [(1, COW), (2, COW), (2, MOR), (3, COW), (3, MOR)],
    ids=["v1-cow", "v2-cow", "v2-mor", "v3-cow", "v3-mor"],
)


@CASES
def test_every_statement_changes_the_right_rows(
    session: Session, spark: SparkSession, namespace: str, version: int, mode: str
) -> None:
    table = created(session, namespace, version, mode, BY_PART)
    rows = {row[0]: row for row in first_rows()}
    table.append(frame_of(spark, list(rows.values())).coalesce(1))
    before = row_ids(table) if version == 3 else {}

    # A null part makes the condition null, which deletes nothing.
    deleted = table.delete("part <> 1 and id >= 10")
    gone = [key for key, row in rows.items() if row[1] not in (None, 1) and key >= 10]
    for key in gone:
        del rows[key]
    assert (deleted.mode, deleted.rows_deleted, deleted.rows_written) == (mode, len(gone), 0)
    assert rows_of(table) == sorted(rows.values())

    updated = table.update({"t.p.x": "id + 1", "part": "9L"}, "name like 'n1%'")
    changed = [key for key in rows if f"n{key}".startswith("n1")]
    for key in changed:
        rows[key] = (key, 9, rows[key][2], key + 1)
    assert updated.rows_written == updated.rows_deleted == len(changed)
    assert rows_of(table) == sorted(rows.values())

    source = frame_of(spark, [(key, 2, "new", key) for key in (0, 1, 2, 3, 100, 101)])
    merged = (
        table.merge(source, "t.id = s.id", target_alias="t", source_alias="s")
        .when_matched_delete("s.id = 0")
        .when_matched_update({"name": "concat(t.name, s.name)"}, "s.id < 3")
        .when_not_matched_insert_all("s.id > 100")
        .when_not_matched_by_source_update({"name": "'left'"}, "t.id = 5")
        .when_not_matched_by_source_delete("t.id = 6")
        .execute()
    )
    del rows[0], rows[6]
    for key in (1, 2):
        rows[key] = (*rows[key][:2], f"n{key}new", rows[key][3])
    rows[101] = (101, 2, "new", 101)
    rows[5] = (5, rows[5][1], "left", rows[5][3])
    assert (merged.rows_deleted, merged.rows_written) == (5, 4)
    assert rows_of(table) == sorted(rows.values())
    if version == 3:
        _check_lineage(before, row_ids(table), table.load().metadata["last-sequence-number"])


def _check_lineage(
    before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]], last: int
) -> None:
    """Check that rows keep their ids, and only changed rows have the last sequence number."""
    for key, (row_id, number) in after.items():
        if key in before:
            assert row_id == before[key][0], key
        else:
            assert row_id >= len(before), key
        if key in (1, 2, 5, 101):
            assert number == last, key
        elif key < 10 and key != 1:
            assert number == before[key][1], key
    assert len({row_id for row_id, _ in after.values()}) == len(after)


def test_whole_files_are_dropped_unread(
    session: Session, spark: SparkSession, namespace: str
) -> None:
    table = created(session, namespace, 3, MOR, BY_PART)
    table.append(frame_of(spark, first_rows()).coalesce(1))
    table.delete("id = 4")
    dropped = table.delete("part = 1 or part is null")
    assert (dropped.mode, dropped.rows_deleted) == ("metadata", None)
    assert {row[1] for row in rows_of(table)} == {2}
    assert table.delete(col("part") == 2).mode == "metadata"
    assert rows_of(table) == []
    assert table.delete("id = 1").commit is None
    # The condition true removes all rows, and each vector with its file.
    table.append(frame_of(spark, first_rows()).coalesce(1))
    table.delete("id = 4")
    emptied = table.delete("true")
    assert (emptied.mode, emptied.rows_deleted, emptied.files_removed) == ("metadata", None, 4)
    assert rows_of(table) == []
    # If no row was deleted before, the numbers are known.
    table.append(frame_of(spark, first_rows()).coalesce(1))
    emptied = table.delete("true")
    assert (emptied.rows_deleted, emptied.files_removed) == (20, 3)


def test_a_delete_needs_a_condition(session: Session, namespace: str) -> None:
    table: Any = created(session, namespace, 2, COW)
    with pytest.raises(TypeError, match="where"):
        table.delete()
    with pytest.raises(BadRequest, match=r'where: give a condition; "true" deletes all rows'):
        table.delete(None)


def test_nothing_to_change_makes_no_snapshot(
    session: Session, spark: SparkSession, namespace: str
) -> None:
    table = created(session, namespace, 2, COW)
    source = frame_of(spark, [(1, 1, "a", None)])
    nothing = frame_of(spark, [])
    # This also holds before the first snapshot.
    assert table.delete("id = 1").commit is None
    assert table.update({"name": "'x'"}, "id = 1").commit is None
    insert = table.merge(source, "target.id = source.id").when_not_matched_insert_all()
    assert insert.execute().rows_written == 1
    head = table.load().head()
    assert insert.execute().commit is None
    assert table.update({"name": "'x'"}, "id = 2").commit is None
    assert table.delete("id = 1 and name = 'b'").commit is None
    assert table.delete("false").commit is None
    empty = table.merge(nothing, "target.id = source.id").when_matched_delete()
    assert empty.execute().commit is None
    assert table.load().head() == head


def test_conditions_that_only_spark_understands(
    own_session: Session, spark: SparkSession, namespace: str
) -> None:
    """Subqueries, Columns and the client's filters work through our own reader."""
    table = created(own_session, namespace, 3, MOR)
    table.append(frame_of(spark, first_rows(8)).coalesce(1))
    spark.range(3).toDF("key").createOrReplaceTempView(f"keys_{namespace}")
    assert table.delete(f"id in (select key from keys_{namespace})").rows_deleted == 3
    exists = f"exists (select 1 from keys_{namespace} k where k.key + 3 = t.id)"
    assert table.update({"name": "'found'"}, exists).rows_written == 3
    assert table.delete(fn.col("id") == 6).rows_deleted == 1
    assert table.delete(col("id") == 7).rows_deleted == 1
    assert [(row[0], row[2]) for row in rows_of(table)] == [
        (3, "found"),
        (4, "found"),
        (5, "found"),
    ]


def test_a_row_that_is_matched_twice_is_an_error(
    session: Session, spark: SparkSession, namespace: str
) -> None:
    table = created(session, namespace, 3, MOR)
    table.append(frame_of(spark, first_rows(4)).coalesce(1))
    head = table.load().head()
    twice = frame_of(spark, [(1, 1, "a", None), (1, 1, "b", None), (2, 2, "c", None)])
    merge = table.merge(twice, "target.id = source.id")
    with pytest.raises(BadRequest, match="matched by more than one row"):
        merge.when_matched_update({"name": "source.name"}).execute()
    with pytest.raises(BadRequest, match="matched by more than one row"):
        # This is an error even if no clause applies to the row, as in Spark.
        merge.when_matched_delete("source.id = 9").execute()
    assert table.load().head() == head
    assert files_below(table) == live_files(table)
    assert merge.when_matched_delete().execute().rows_deleted == 2
    assert merge.when_not_matched_insert_all().execute().rows_written == 3


# --- beside others --------------------------------------------------------------------------------


def live_files(table: SparkTable) -> set[str]:
    loaded = table.load()
    tasks = loaded.plan().tasks
    return {task.data_file.file_path for task in tasks} | {
        file.file_path for task in tasks for file in task.delete_files
    }


def files_below(table: SparkTable) -> set[str]:
    """Return the data and delete files in the table's folder, live or not."""
    root = Path(table.load().location.removeprefix("file://"), "data")
    return {f"file://{path}" for path in root.rglob("*") if path.suffix in (".parquet", ".puffin")}


def upsert(table: SparkTable, spark: SparkSession, *keys: int) -> Callable[[], Result]:
    source = frame_of(spark, [(key, 7, "merged", None) for key in keys])
    merge = table.merge(source, "target.id = source.id")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute


@pytest.mark.parametrize("mode", [COW, MOR])
def test_a_commit_beside_a_merge(
    session: Session,
    spark: SparkSession,
    client: Client,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    table = created(session, namespace, 3, mode, BY_BUCKET)
    table.append(frame_of(spark, first_rows(8)).coalesce(1))

    def add(key: int) -> Callable[[], object]:
        return lambda: table.append(frame_of(spark, [(key, None, "other", None)]))

    # With bucket[4], keys 1 and 100 are in other buckets than key 2.
    once_before_commit(monkeypatch, add(100))
    assert upsert(table, spark, 2)().attempts == 1
    # Another writer adds the merged key in between; the second scan reads it and updates it.
    once_before_commit(monkeypatch, add(200))
    again = upsert(table, spark, 200)()
    assert (again.attempts, again.rows_written, again.rows_deleted) == (2, 1, 1)
    found = {row[0]: row[2] for row in rows_of(table)}
    assert (found[2], found[100], found[200], len(found)) == ("merged", "other", "merged", 10)


def test_a_refused_statement_leaves_no_file(
    session: Session,
    spark: SparkSession,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from frazil.spark import connect

    table = created(session, namespace, 2, MOR)
    table.append(frame_of(spark, first_rows(8)).coalesce(1))
    with connect(spark, session.context.uri, statement_retries=0) as impatient:
        mine = impatient.table(f"{namespace}.t")
        once_before_commit(monkeypatch, lambda: table.update({"name": "'x'"}, "id = 3"))
        with pytest.raises(ValidationError):
            mine.update({"name": "'y'"}, "id = 3")
    assert files_below(table) == live_files(table)
    # Under snapshot isolation, rows that are added during a DELETE stay and are no conflict.
    once_before_commit(monkeypatch, lambda: table.append(frame_of(spark, [(3, 1, "z", None)])))
    assert table.delete("id = 3", isolation="snapshot").attempts == 1
    assert [row[2] for row in rows_of(table) if row[0] == 3] == ["z"]


def test_statements_on_a_branch(session: Session, spark: SparkSession, namespace: str) -> None:
    table = created(session, namespace, 3, COW)
    table.append(frame_of(spark, first_rows(4)).coalesce(1))
    table.load().create_branch("audit")
    audit = table.on_branch("audit")
    audit.delete("id = 1", summary={"why": "test"})
    upsert(audit, spark, 2, 50)()
    assert [row[0] for row in rows_of(table)] == [0, 1, 2, 3]
    assert [row[0] for row in rows_of(audit)] == [0, 2, 3, 50]
    (first, second) = list(table.load().ancestors("audit"))[:2]
    assert (first.operation, second.summary["why"]) == ("overwrite", "test")


def test_a_source_that_reads_the_target_reads_the_snapshot_of_each_run(
    session: Session, spark: SparkSession, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(session, namespace, 3, MOR)
    table.append(frame_of(spark, first_rows(4)).coalesce(1))
    seen: list[int | None] = []

    def doubled(loaded: Table) -> DataFrame:
        seen.append(loaded.head())
        return table.scan(snapshot=loaded.head()).withColumn("id", fn.expr("id + 100"))

    target = Target(table.identifier)
    merge = MergeBuilder(session.context, target, doubled, Merge(on="target.id = source.id"))
    # The first run inserts the same key.
    other = frame_of(spark, [(101, 1, "other", None)])
    once_before_commit(monkeypatch, lambda: table.append(other))
    assert merge.when_not_matched_insert_all().execute().attempts == 2
    assert len(set(seen)) == 2
    assert [row[0] for row in rows_of(table)] == [0, 1, 2, 3, 100, 101, 102, 103, 201]


@pytest.mark.parametrize("name", ["_row_id", "_last_updated_sequence_number"])
def test_a_column_with_a_name_of_lineage_is_refused(
    session: Session, namespace: str, name: str
) -> None:
    fields = [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": name, "required": False, "type": "long"},
    ]
    session.client.create_table(
        f"{namespace}.t",
        {"type": "struct", "fields": fields},
        properties={"format-version": "3"},
    )
    table = session.table(f"{namespace}.t")
    table.append(session.spark.createDataFrame([(1, 2)], f"id long, {name} long"))
    with pytest.raises(BadRequest, match=f"column {name} has a name"):
        table.delete("id = 1")
    with pytest.raises(BadRequest, match=f"column {name} has a name"):
        table.update({"id": "2"})
    assert [tuple(row) for row in table.scan().collect()] == [(1, 2)]


def test_options_that_are_none_are_refused(session: Session, namespace: str) -> None:
    table = created(session, namespace, 2, MOR)
    with pytest.raises(BadRequest, match="must be copy-on-write or merge-on-read"):
        table.delete("id = 1", mode="sideways")
    with pytest.raises(BadRequest, match="no option conflict"):
        table.delete("id = 1", mode=COW, conflict="x")


def test_version_1_is_merged_on_read_as_long_as_that_needs_no_deletes(
    session: Session, spark: SparkSession, namespace: str
) -> None:
    table = created(session, namespace, 1, MOR, BY_PART)
    table.append(frame_of(spark, first_rows()))
    head = table.load().head()
    with pytest.raises(UnsupportedOperation, match=r"write\.delete\.mode"):
        table.delete("id = 3")
    with pytest.raises(UnsupportedOperation, match=r"write\.update\.mode"):
        table.update({"name": "'x'"}, "id = 3")
    with pytest.raises(UnsupportedOperation, match=r"write\.merge\.mode"):
        upserted(table, frame_of(spark, [(3, 1, "x", None)]))
    assert table.load().head() == head
    assert table.delete("id = 77").commit is None
    assert table.update({"name": "'x'"}, "id = 77").commit is None
    upserted(table, frame_of(spark, [(77, 1, "new", None)]))
    table.delete("part = 2")
    assert rows_of(table) == sorted(
        [row for row in first_rows() if row[1] != 2] + [(77, 1, "new", None)]
    )


def upserted(table: SparkTable, source: DataFrame) -> Result:
    merge = table.merge(source, "target.id = source.id").when_matched_update_all()
    return merge.when_not_matched_insert_all().execute()


def test_keys_that_were_deleted_outside_of_the_condition_stay_deleted(
    session: Session, namespace: str
) -> None:
    table = session.client.create_table(
        f"{namespace}.keys", "id long, item string", properties={"write.delete.mode": COW}
    )
    session.client.append(table.identifier, [{"id": id, "item": "a"} for id in range(1, 5)])
    keys = Path(table.location.removeprefix("file://")) / "data" / "keys.parquet"
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": [3]}, schema=schema), keys)
    deletes = EqualityDeleteFile.from_parquet(str(keys), table, columns=["id"])
    session.client.row_delta(table.identifier, (), [deletes], command="delete")
    session.sql(f"DELETE FROM {namespace}.keys WHERE id = 1")
    assert sorted(row["id"] for row in session.table(f"{namespace}.keys").scan().collect()) == [
        2,
        4,
    ]
