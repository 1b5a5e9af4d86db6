"""Write-audit-publish follows Spark's settings as in stock Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from frazil.spark.core.statement_runs import BRANCH_SETTING, ID_SETTING
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
