"""MERGE WITH SCHEMA EVOLUTION gives the same rows and columns as in stock Spark.

Stock Spark changes the schema in a separate, earlier commit. We change it in the commit that
needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.spark.session import Session

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
NAMED = """WHEN MATCHED THEN UPDATE SET grade = s.grade
           WHEN NOT MATCHED THEN INSERT (id, name, pay) VALUES (s.id, 'new', s.pay)"""
MATCHED = "WHEN MATCHED AND s.id = 1 THEN UPDATE SET * WHEN MATCHED THEN DELETE"
MORE = "SELECT * FROM VALUES (1, 'a', 10, 'x'), (3, 'c', 30, 'y') AS v(id, name, pay, grade)"
WIDER = "SELECT * FROM VALUES (1L, 'a', 3000000000L), (3L, 'c', 30L) AS v(id, name, pay)"
FEWER = "SELECT * FROM VALUES (1, 'a'), (3, 'c') AS v(id, name)"
NESTED = "SELECT * FROM VALUES (1, named_struct('a', 1, 'b', 'x')) AS v(id, deep)"
START = "(1, 'one', 1), (2, 'two', 2)"

CASES = {
    "more": (MORE, UPSERT),
    "more, matched only": (MORE, MATCHED),
    "wider": (WIDER, UPSERT),
    "fewer": (FEWER, UPSERT),
    "named": (MORE, NAMED),
}


@pytest.fixture
def tables(session: Session, stock: str, namespace: str) -> list[str]:
    """Create one table for us and one for stock Spark."""
    names = [f"{namespace}.ours", f"{namespace}.theirs"]
    for name in names:
        session.sql(
            f"CREATE TABLE {name} (id INT, name STRING, pay INT) TBLPROPERTIES ("
            "'format-version' = '3', 'write.merge.mode' = 'merge-on-read')"
        )
        session.sql(f"INSERT INTO {name} VALUES {START}")
    return names


def merged(name: str, source: str, clauses: str) -> str:
    return f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING ({source}) s ON t.id = s.id {clauses}"


def found(session: Session, name: str) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    frame = session.table(name).scan()
    types = [(one.name, one.dataType.simpleString()) for one in frame.schema.fields]
    return types, [tuple(row) for row in frame.orderBy("id").collect()]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("case", CASES)
def test_rows_and_columns_are_those_of_stock_spark(
    session: Session, spark: SparkSession, stock: str, tables: list[str], case: str, mode: str
) -> None:
    ours, theirs = tables
    source, clauses = CASES[case]
    for name in tables:
        session.client.set_properties(name, {"write.merge.mode": mode})
    before = session.client.load_table(ours)
    session.sql(merged(ours, source, clauses))
    spark.sql(merged(f"{stock}.{theirs}", source, clauses))
    assert found(session, ours) == found(session, theirs)
    after = session.client.load_table(ours)
    # The previous metadata file is the one from before the statement, so there was only one commit.
    assert after.metadata["metadata-log"][-1]["metadata-file"] == before.metadata_location
    assert len(after.metadata["schemas"]) - len(before.metadata["schemas"]) == (case != "fewer")


def test_a_merge_that_finds_nothing_still_changes_the_schema(
    session: Session, tables: list[str]
) -> None:
    source = "SELECT 9 AS id, 'x' AS grade WHERE false"
    session.sql(merged(tables[0], source, "WHEN MATCHED THEN UPDATE SET *"))
    types, rows = found(session, tables[0])
    assert [name for name, _ in types] == ["id", "name", "pay", "grade"]
    assert rows == [(1, "one", 1, None), (2, "two", 2, None)]


def test_a_field_of_a_struct_is_added(session: Session, namespace: str) -> None:
    name = f"{namespace}.deep"
    session.sql(f"CREATE TABLE {name} (id INT, deep STRUCT<a: INT>)")
    session.sql(f"INSERT INTO {name} VALUES (1, named_struct('a', 7)), (2, named_struct('a', 8))")
    session.sql(merged(name, NESTED, UPSERT))
    _, rows = found(session, name)
    assert rows == [(1, (1, "x")), (2, (8, None))]


def test_a_table_can_forbid_it(
    session: Session, spark: SparkSession, stock: str, tables: list[str]
) -> None:
    ours, theirs = tables
    for name in tables:
        session.client.set_properties(name, {"write.spark.auto-schema-evolution.enabled": "false"})
    session.sql(merged(ours, MORE, UPSERT))
    spark.sql(merged(f"{stock}.{theirs}", MORE, UPSERT))
    assert [column for column, _ in found(session, ours)[0]] == ["id", "name", "pay"]
    assert found(session, ours) == found(session, theirs)


def test_without_it_columns_are_not_added(session: Session, tables: list[str]) -> None:
    statement = merged(tables[0], FEWER, UPSERT).replace("WITH SCHEMA EVOLUTION ", "")
    with pytest.raises(BadRequest, match="has no column pay"):
        session.sql(statement)


def test_frames_can_ask_for_it(session: Session, tables: list[str]) -> None:
    table = session.table(tables[0])
    source = session.spark.sql(MORE)
    merge = table.merge(source, "target.id = source.id").with_schema_evolution()
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert found(session, tables[0])[1] == [
        (1, "a", 10, "x"),
        (2, "two", 2, None),
        (3, "c", 30, "y"),
    ]


def test_a_new_column_may_stand_behind_the_tables_alias(
    session: Session, tables: list[str]
) -> None:
    session.sql(merged(tables[0], MORE, "WHEN MATCHED THEN UPDATE SET t.grade = s.grade"))
    assert found(session, tables[0])[1] == [(1, "one", 1, "x"), (2, "two", 2, None)]
