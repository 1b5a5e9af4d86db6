"""Write-audit-publish follows Spark's settings as in stock Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from frazil.spark import connect
from frazil.spark.core.write_audit import BRANCH_SETTING, ID_SETTING
from frazil.spark.session import Session
from frazil.wire.errors import BadRequest


@contextmanager
def setting(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {"wap_id": ID_SETTING, "wap_branch": BRANCH_SETTING}
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(names[name])


@pytest.fixture
def audited(session: Session, namespace: str) -> str:
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} (id BIGINT) TBLPROPERTIES ('write.wap.enabled' = 'true')")
    session.table(name).append(session.spark.range(2))
    return name


@pytest.fixture(scope="module")
def plain_spark(spark: SparkSession) -> SparkSession:
    """Return a session that looks to Iceberg's runtime as if it had no extensions."""
    plain = spark.newSession()
    plain._jsparkSession.sessionState().conf().unsetConf("spark.sql.extensions")
    return plain


@pytest.fixture(params=["jar with extensions", "jar alone", "own reader"])
def kind(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    plain_spark: SparkSession,
    server_url: str,
) -> Iterator[Session]:
    """Return a session of each kind."""
    reader = "own" if request.param == "own reader" else None
    used = spark if request.param == "jar with extensions" else plain_spark
    with connect(used, server_url, reader=reader) as session:
        yield session


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.collect())


def test_what_is_staged_is_seen_when_it_is_published(session: Session, audited: str) -> None:
    table = session.table(audited)
    with setting(session.spark, wap_id="load-7"):
        staged = table.append(session.spark.range(10, 13))
        assert table.scan().count() == 2
    assert staged.snapshot_id is not None
    assert table.load().head() != staged.snapshot_id
    session.sql(f"CALL system.publish_changes('{audited}', 'load-7')")
    assert table.scan().count() == 5


def test_a_branch_is_written_and_read_until_it_is_merged(session: Session, audited: str) -> None:
    table = session.table(audited)
    with setting(session.spark, wap_branch="audit"):
        assert table.scan().count() == 2, "nothing was written to it yet"
        table.append(session.spark.range(10, 13))
        table.delete("id = 0")
        assert table.scan().count() == 4
        assert session.sql(f"SELECT * FROM {audited}").count() == 4
        assert table.scan(ref="main").count() == 2
    assert table.scan().count() == 2
    session.sql(f"CALL system.fast_forward('{audited}', 'main', 'audit')")
    assert table.scan().count() == 4


def test_every_statement_works_on_the_branch_in_every_kind_of_session(
    kind: Session, audited: str
) -> None:
    spark, table = kind.spark, kind.table(audited)
    earlier = table.scan()
    first = table.load().head()
    with setting(spark, wap_branch="audit"):
        kind.sql(f"UPDATE {audited} SET id = 5 WHERE id = 1")
        assert ids(earlier) == [0, 1], "a frame reads the snapshot that it was made for"
        kind.sql(f"INSERT INTO {audited} VALUES (10), (11), (12)")
        kind.sql(f"DELETE FROM {audited} WHERE id = 11")
        kind.sql(
            f"MERGE INTO {audited} t USING (SELECT explode(array(10, 20)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )
        kind.write_to(spark.range(30, 31), audited).append()
        assert ids(kind.sql(f"SELECT id FROM {audited}")) == [0, 5, 12, 20, 30]
        assert ids(kind.read.table(audited)) == [0, 5, 12, 20, 30]
        assert ids(table.scan(ref="main")) == [0, 1]
        assert ids(table.scan(snapshot=first)) == [0, 1]
        assert ids(kind.sql(f"SELECT id FROM {audited}.branch_main")) == [0, 1]
        assert table.scan(from_snapshot=first, to_snapshot=first).count() == 0
    assert ids(table.scan()) == [0, 1]


def test_streams_write_and_read_the_branch(
    plain_spark: SparkSession, server_url: str, audited: str, tmp_path: Path
) -> None:
    spark, table = plain_spark, connect(plain_spark, server_url).table(audited)
    spark.range(40, 42).write.parquet(str(tmp_path / "arriving"))
    arriving = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "arriving"))
    now = {"availableNow": True}
    with setting(spark, wap_branch="audit"):
        table.write_stream(
            arriving, checkpoint_location=str(tmp_path / "written"), trigger=now
        ).awaitTermination()
        query = (
            table.read_stream(columns=["id"])
            .writeStream.format("memory")
            .queryName("audited_rows")
            .option("checkpointLocation", str(tmp_path / "read"))
            .trigger(**now)
            .start()
        )
        query.awaitTermination()
    assert ids(spark.table("audited_rows")) == [0, 1, 40, 41]
    assert ids(table.scan()) == [0, 1]


def test_sparks_own_writers_and_readers_obey(session: Session, audited: str) -> None:
    """`format("frazil")` learns of settings that changed after `connect`."""
    spark, table = session.spark, session.table(audited)
    writer = spark.range(10, 12).write.format("frazil")
    with setting(spark, wap_branch="audit"):
        writer.mode("append").save(audited)
        read = spark.read.format("frazil").load(audited)
        assert ids(read) == [0, 1, 10, 11]
        writer.mode("overwrite").save(audited)
        writer.option("branch", "main").mode("append").save(audited)
        assert ids(table.scan()) == [10, 11]
    assert ids(read) == [0, 1], "the setting counts when a frame is evaluated"
    with setting(spark, wap_id="load-8"):
        spark.range(50, 51).write.format("frazil").mode("append").save(audited)
    assert ids(table.scan()) == [0, 1, 10, 11]
    session.sql(f"CALL system.publish_changes('{audited}', 'load-8')")
    assert ids(table.scan()) == [0, 1, 10, 11, 50]


def test_sparks_own_stream_writer_obeys(session: Session, audited: str, tmp_path: Path) -> None:
    spark, table = session.spark, session.table(audited)
    spark.range(40, 42).write.parquet(str(tmp_path / "arriving"))
    stream = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "arriving"))
    writer = stream.writeStream.format("frazil").option("table", audited)
    with setting(spark, wap_branch="audit"):
        writer.option("checkpointLocation", str(tmp_path / "written")).trigger(
            availableNow=True
        ).start().awaitTermination()
        assert ids(table.scan()) == [0, 1, 40, 41]
    assert ids(table.scan()) == [0, 1]


def test_only_one_of_both_and_only_where_the_table_allows_it(
    session: Session, audited: str
) -> None:
    with (
        setting(session.spark, wap_id="a", wap_branch="b"),
        pytest.raises(BadRequest, match="set one of them"),
    ):
        session.table(audited).append(session.spark.range(1))
    session.client.remove_properties(audited, "write.wap.enabled")
    with setting(session.spark, wap_branch="b"):
        session.table(audited).append(session.spark.range(1))
    assert "b" not in session.table(audited).load().refs
