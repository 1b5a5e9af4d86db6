"""Statements on different rows of one file share its deletion vector, if nothing else was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from frazil.spark import connect
from frazil.spark.rows.row_dependence import has_subquery, reads_only_other_data
from frazil.spark.session import Session
from frazil.wire.errors import ValidationError
from frazil.wire.filter_builders import col
from tests.spark.interleaving import once_before_commit
from tests.spark.stock_tables import MERGE_ON_READ, rows, table_properties
from tests.support.spark import add_catalog

WRITERS = 8


@pytest.fixture
def strict(spark: SparkSession, server_url: str) -> Iterator[Session]:
    """Return a session in which no statement runs twice."""
    with connect(spark, server_url, statement_retries=0) as session:
        yield session


@pytest.fixture
def name(session: Session, namespace: str) -> str:
    """Create a table with one file that has the ids 0 to 99."""
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} (id BIGINT, n BIGINT) {table_properties(3, MERGE_ON_READ)}")
    session.table(name).append(session.spark.range(0, 100, 1, 1).selectExpr("id", "0L AS n"))
    return name


def at_once(*jobs: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def values(session: Session, name: str) -> dict[int, int]:
    return dict(rows(session.table(name).scan()))


# --- statements that share a vector ---------------------------------------------------------------


def test_deletes_then_updates_of_one_file_at_once(
    session: Session, strict: Session, name: str
) -> None:
    def delete(writer: int) -> Callable[[], object]:
        return lambda: strict.sql(f"DELETE FROM {name} WHERE id = {writer} OR id = {writer + 50}")

    def update(writer: int) -> Callable[[], object]:
        return lambda: strict.table(name).update({"n": "n + 1"}, f"id = {writer + 20}")

    at_once(*(delete(writer) for writer in range(WRITERS)))
    expected = {id: 0 for id in range(100) if id % 50 >= WRITERS}
    assert values(session, name) == expected
    at_once(*(update(writer) for writer in range(WRITERS)))
    expected |= {writer + 20: 1 for writer in range(WRITERS)}
    assert values(session, name) == expected
    assert len(session.client.history(name)) == 1 + 2 * WRITERS


@pytest.mark.parametrize("kind", ["sql", "frame"])
def test_a_merge_beside_a_delete(
    strict: Session, session: Session, name: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source = strict.spark.createDataFrame([(7, 70), (8, 80)], "id BIGINT, n BIGINT")
    once_before_commit(
        monkeypatch, lambda: session.table(name).delete("id = 9 OR id = 10", mode=MERGE_ON_READ)
    )
    if kind == "sql":
        strict.sql(
            f"MERGE INTO {name} t USING (SELECT * FROM VALUES (7L, 70L), (8L, 80L) AS v(id, n)) s"
            " ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n"
        )
    else:
        merge = strict.table(name).merge(source, "target.id = source.id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = dict.fromkeys(range(100), 0) | {7: 70, 8: 80}
    del expected[9], expected[10]
    assert values(session, name) == expected


def test_one_row_deleted_twice_is_deleted_once(
    session: Session, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second DELETE runs again, and finds nothing more to delete."""
    once_before_commit(monkeypatch, lambda: session.table(name).delete("id < 3"))
    result = session.table(name).delete("id < 5")
    assert result.attempts == 2
    assert sorted(values(session, name)) == list(range(5, 100))


def test_one_row_updated_twice_is_updated_again(
    session: Session, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_before_commit(monkeypatch, lambda: session.table(name).update({"n": "n + 1"}, "id = 3"))
    result = session.table(name).update({"n": "n + 1"}, "id = 3")
    assert result.attempts == 2
    assert values(session, name)[3] == 2


# --- statements that read more --------------------------------------------------------------------


def read_more(name: str) -> dict[str, Callable[[Session], object]]:
    """Return statements whose result depends on rows that they do not change."""

    def merge(condition: str | None, clause: str) -> Callable[[Session], object]:
        def run(session: Session) -> object:
            source = session.spark.createDataFrame([(7, 70), (200, 0)], "id BIGINT, n BIGINT")
            builder = session.table(name).merge(source, "target.id = source.id")
            builder = builder.when_matched_update_all(condition)
            return (builder.when_not_matched_insert_all() if clause else builder).execute()

        return run

    def merge_from_itself(session: Session) -> object:
        source = session.table(name).scan().where("id = 7")
        builder = session.table(name).merge(source, "target.id = source.id")
        return builder.when_matched_update({"n": "source.n + 1"}).execute()

    return {
        "delete with a subquery": lambda session: session.sql(
            f"DELETE FROM {name} WHERE id = (SELECT 7)"
        ),
        "update by a subquery": lambda session: session.table(name).update(
            {"n": "(SELECT 1)"}, "id = 7"
        ),
        "a subquery in a Column": lambda session: session.table(name).delete(
            fn.expr("id = (SELECT 7)")
        ),
        "a merge that leaves matches": merge("source.n > 100 OR target.n = 0", "insert"),
        "a merge from the target": merge_from_itself,
    }


@pytest.mark.parametrize("statement", list(read_more("")))
def test_a_statement_that_read_more_is_refused(
    strict: Session,
    session: Session,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
) -> None:
    once_before_commit(monkeypatch, lambda: session.table(name).delete("id = 50"))
    with pytest.raises(ValidationError) as refused:
        read_more(name)[statement](strict)
    (clause,) = {conflict["clause"] for conflict in refused.value.conflicts}
    assert clause in ("dv-conflict", "not-allowed-added-delete-files")
    assert values(session, name)[7] == 0


# --- what is recognized ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("id = 1 AND n IN (1, 2)", False),
        ("id IN (SELECT 1)", True),
        ("EXISTS (SELECT 1)", True),
        ("n > (SELECT max(id) FROM other)", True),
        ("a condition that cannot be parsed (", True),
        (col("id") == 1, False),
        (None, False),
    ],
)
def test_subqueries_in_texts(expression: object, expected: bool) -> None:
    assert has_subquery([expression]) is expected  # type: ignore[list-item]


def test_subqueries_in_columns(spark: SparkSession) -> None:
    frame = spark.range(3)
    assert not has_subquery([fn.col("id") == 1, fn.expr("id + 1")])
    assert has_subquery([fn.expr("id IN (select 1)")])
    assert has_subquery([fn.col("id") == frame.select(fn.max("id")).scalar()])
    assert has_subquery([frame.where("id = 1").exists()])


def test_frames_that_read_the_target(
    session: Session, own_session: Session, name: str, namespace: str, tmp_path: Path
) -> None:
    spark, target = session.spark, session.client.load_table(name)
    spark.range(3).write.parquet(str(tmp_path / "files"))
    other = f"{namespace}.other"
    session.sql(f"CREATE TABLE {other} (id BIGINT)")
    files = spark.read.parquet(str(tmp_path / "files"))
    apart: list[DataFrame] = [
        spark.createDataFrame([(1,)], "id BIGINT"),
        spark.range(3).where("id > 1"),
        files.join(spark.range(3), "id"),
        session.table(other).scan(),
    ]
    assert [reads_only_other_data(frame, target) for frame in apart] == [True] * len(apart)
    scan = session.table(name).scan()
    scan.createOrReplaceTempView("reads_the_target")
    reading = [
        scan,
        files.join(scan, "id"),
        own_session.table(name).scan(),
        spark.table("reads_the_target"),
        spark.sql("SELECT * FROM range(3) WHERE id IN (SELECT id FROM reads_the_target)"),
        spark.range(3).where(fn.col("id") == scan.select(fn.max("id")).scalar()),
    ]
    assert [reads_only_other_data(frame, target) for frame in reading] == [False] * len(reading)


# --- compactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["delete", "update", "merge"])
def test_a_statement_whose_files_stock_spark_compacts_keeps_its_work(
    spark: SparkSession,
    server_url: str,
    strict: Session,
    session: Session,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    session.table(name).append(session.spark.range(100, 200, 1, 1).selectExpr("id", "0L AS n"))
    session.table(name).delete("id = 0")
    stock = "stock_" + name.partition(".")[0]
    add_catalog(spark, stock, server_url)
    once_before_commit(
        monkeypatch,
        lambda: spark.sql(
            f"CALL {stock}.system.rewrite_data_files(table => '{name}',"
            " options => map('rewrite-all', 'true'))"
        ).collect(),
    )
    expected = dict.fromkeys(range(1, 200), 0)
    if command == "delete":
        result = strict.table(name).delete("id = 7 OR id = 107")
        del expected[7], expected[107]
    elif command == "update":
        result = strict.table(name).update({"n": "n + 1"}, "id = 7 OR id = 107")
        expected |= {7: 1, 107: 1}
    else:
        source = spark.createDataFrame([(7, 70), (107, 1070), (500, 5)], "id BIGINT, n BIGINT")
        merge = strict.table(name).merge(source, "target.id = source.id")
        result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        expected |= {7: 70, 107: 1070, 500: 5}
    assert result.attempts == 1
    assert values(session, name) == expected
    ids = {
        row["id"]: row["_row_id"]
        for row in session.table(name).scan(metadata_columns=["_row_id"]).collect()
    }
    assert [ids[id] for id in expected if id < 200] == [id for id in expected if id < 200]
    operations = [entry.operation for entry in session.client.history(name)]
    assert "replace" in operations
