"""Concurrent jobs with disjoint changes do not conflict; the result of others is serializable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.spark import connect
from frazil.spark.session import Session
from frazil.values.transforms import apply, parse_transform
from frazil.values.types import LONG
from frazil.wire.errors import ValidationError
from tests.spark.interleaving import once_before_commit
from tests.spark.stock_tables import rows, table_properties

JOBS, ROUNDS, BUCKETS = 4, 5, 16
MODES = ["copy-on-write", "merge-on-read"]


def _keys_of(job: int, count: int = 8) -> list[int]:
    """Return keys in buckets that no other job uses."""
    bucket = parse_transform(f"bucket[{BUCKETS}]")
    mine = (key for key in range(10_000) if apply(bucket, LONG, key) % JOBS == job)
    return [next(mine) for _ in range(count)]


def _table(session: Session, namespace: str, mode: str) -> str:
    name = f"{namespace}.t"
    session.sql(
        f"CREATE TABLE {name} (id BIGINT, n INT) PARTITIONED BY (bucket({BUCKETS}, id))"
        f" {table_properties(3, mode)}"
    )
    session.client.set_properties(name, {"write.merge.isolation-level": "serializable"})
    keys = [key for job in range(JOBS) for key in _keys_of(job)]
    frame = session.spark.createDataFrame([(key, 0) for key in keys], "id BIGINT, n INT")
    session.table(name).append(frame)
    return name


def _merge(session: Session, name: str, keys: Sequence[int]) -> None:
    source = session.spark.createDataFrame([(key,) for key in keys], "id BIGINT")
    (
        session.table(name)
        .merge(source, "target.id = source.id")
        .when_matched_update({"n": "target.n + 1"})
        .when_not_matched_insert({"id": "source.id", "n": "1"})
        .execute()
    )


def _at_once(*jobs: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


@pytest.mark.parametrize("mode", MODES)
def test_merges_into_disjoint_buckets_do_not_meet(
    spark: SparkSession, server_url: str, session: Session, namespace: str, mode: str
) -> None:
    """Disjoint merges do not conflict, though they match on the key alone and are serializable.

    Stock Spark fails in 15 of 20 cases here. Statement retries are disabled, so no statement
    runs twice either.
    """
    name = _table(session, namespace, mode)
    with connect(spark, server_url, statement_retries=0) as strict:

        def job(number: int) -> Callable[[], None]:
            def run() -> None:
                for _ in range(ROUNDS):
                    _merge(strict, name, _keys_of(number))

            return run

        _at_once(*(job(number) for number in range(JOBS)))
    assert {row[1] for row in rows(session.table(name).scan())} == {ROUNDS}
    assert len(session.client.history(name)) == 1 + JOBS * ROUNDS


def test_merges_beside_a_streaming_append(
    spark: SparkSession, server_url: str, session: Session, namespace: str, tmp_path: Path
) -> None:
    name = _table(session, namespace, "merge-on-read")
    fed = tmp_path / "fed"
    spark.range(100_000, 100_040, 1, 4).selectExpr("id", "CAST(-1 AS INT) AS n").write.parquet(
        str(fed)
    )
    stream = spark.readStream.schema("id BIGINT, n INT").option("maxFilesPerTrigger", "1")
    with connect(spark, server_url, statement_retries=0) as strict:

        def merges(number: int) -> Callable[[], None]:
            def run() -> None:
                for _ in range(2):
                    _merge(strict, name, _keys_of(number))

            return run

        query = session.table(name).write_stream(
            stream.parquet(str(fed)),
            checkpoint_location=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        _at_once(*(merges(number) for number in range(JOBS)), query.awaitTermination)
    found = rows(session.table(name).scan())
    assert sum(1 for row in found if row[1] == 2) == JOBS * 8
    assert sum(1 for row in found if row[1] == -1) == 40


@pytest.mark.parametrize("mode", MODES)
def test_two_jobs_that_merge_one_key_end_in_a_serial_order(
    spark: SparkSession, server_url: str, session: Session, namespace: str, mode: str
) -> None:
    name = _table(session, namespace, mode)
    key = _keys_of(0, 1)
    with connect(spark, server_url, statement_retries=20) as patient:
        _at_once(*(lambda: _merge(patient, name, key) for _ in range(3)))
    counted = {row[0]: row[1] for row in rows(session.table(name).scan())}
    assert counted[key[0]] == 3
    assert sum(counted.values()) == 3


def test_a_statement_that_may_not_be_run_again_is_refused(
    spark: SparkSession,
    server_url: str,
    session: Session,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another writer commits the same key between the scan and the commit."""
    name = _table(session, namespace, "merge-on-read")
    keys = _keys_of(0, 2)
    with connect(spark, server_url, statement_retries=0) as strict:
        source = spark.createDataFrame([(keys[0],)], "id BIGINT")
        merge = strict.table(name).merge(source, "target.id = source.id")
        merge = merge.when_matched_update({"n": "target.n + 10"})
        once_before_commit(monkeypatch, lambda: _merge(session, name, keys))
        with pytest.raises(ValidationError) as refused:
            merge.execute()
    assert refused.value.conflicts
    assert {row[1] for row in rows(session.table(name).scan()) if row[0] in keys} == {1}
