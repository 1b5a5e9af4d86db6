"""Frames lease the snapshots that they read."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from pyspark.sql import SparkSession

from frazil.client.catalog_client import Client
from frazil.spark import connect
from frazil.spark.core import read_leases
from frazil.spark.core.read_leases import TTL_S, ReadLeases
from tests.support.patience import HANG_S


def leased(client: Client, name: str) -> list[int]:
    """Return the snapshots that Spark leases."""
    leases = client.leases.list(name)
    return sorted(lease.snapshot_id for lease in leases if lease.holder.startswith("Spark "))


def test_a_frame_leases_its_snapshot_until_the_session_ends(
    client: Client, namespace: str, spark: SparkSession, server_url: str
) -> None:
    name = f"{namespace}.t"
    client.create_table(name, "id long")
    client.append(name, [{"id": 1}])
    heads = [client.load_table(name).head()]
    with connect(spark, server_url, reader="jar") as session:
        frame = session.table(name).scan()
        assert leased(client, name) == heads
        (lease,) = (each for each in client.leases.list(name) if each.holder.startswith("Spark "))
        left_ms = lease.expires_at_ms - time.time() * 1000
        assert left_ms == pytest.approx(TTL_S * 1000, rel=0.1)
        session.table(name).scan("id > 0").count()
        session.sql(f"SELECT * FROM {name}").count()
        assert leased(client, name) == heads
        client.append(name, [{"id": 2}])
        heads.append(client.load_table(name).head())
        assert session.table(name).scan().count() == 2
        assert frame.count() == 1
        assert leased(client, name) == sorted(head for head in heads if head is not None)
    assert leased(client, name) == []


def test_leases_are_renewed_while_jobs_run(
    client: Client,
    namespace: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = f"{namespace}.t"
    client.create_table(name, "id long")
    client.append(name, [{"id": 1}])
    table, calls = client.load_table(name), client.leases
    head = table.head()
    assert head is not None
    monkeypatch.setattr(read_leases, "TTL_S", 600.0)
    leases = ReadLeases()
    leases.hold(calls, spark, table, head)
    (before,) = calls.list(name)
    leases.renew(calls, is_reading=False)
    assert calls.list(name) == (before,)
    # It is always time to renew, since the lease is shorter than the time left at a renewal.
    leases.renew(calls, is_reading=True)
    (after,) = calls.list(name)
    assert after.lease_id == before.lease_id
    assert after.expires_at_ms > before.expires_at_ms
    leases.release(calls)
    assert calls.list(name) == ()
    # A snapshot that is gone fails when it is read, and not because of its lease.
    with caplog.at_level(logging.WARNING, "frazil.spark"):
        leases.hold(calls, spark, table, 17)
    assert "snapshot 17 is read without a lease" in caplog.text


@pytest.mark.parametrize("reader", ["jar", "own"])
def test_a_statement_releases_what_it_has_read(
    client: Client, namespace: str, spark: SparkSession, server_url: str, reader: str
) -> None:
    name = f"{namespace}.s{reader}"
    client.create_table(name, "id long")
    client.append(name, [{"id": id} for id in range(4)])
    with connect(spark, server_url, reader=reader) as session:
        session.sql(f"DELETE FROM {name} WHERE id = 1")
        session.sql(f"UPDATE {name} SET id = 7 WHERE id = 2")
        assert client.leases.list(name) == ()
        # A frame of the same snapshot keeps its lease when a statement has ended.
        frame = session.sql(f"SELECT * FROM {name}")
        session.sql(f"DELETE FROM {name} WHERE id = 7")
        (lease,) = client.leases.list(name)
        assert frame.count() == 3
        session.sql(
            f"CALL system.expire_snapshots(table => '{name}', retain_last => 1, "
            "older_than => current_timestamp())"
        )
        assert client.leases.list(name) == ()
        left = {snapshot.snapshot_id for snapshot in client.load_table(name).snapshots}
        assert lease.snapshot_id not in left


def test_a_statement_leaves_a_snapshot_that_another_statement_reads(
    client: Client, namespace: str, spark: SparkSession
) -> None:
    name = f"{namespace}.two"
    client.create_table(name, "id long")
    client.append(name, [{"id": 1}])
    table, calls, leases = client.load_table(name), client.leases, ReadLeases()
    head = table.head()
    assert head is not None
    entered, ended = threading.Event(), threading.Event()

    def other() -> None:
        with leases.statement(calls):
            leases.hold(calls, spark, table, head)
            entered.set()
            assert ended.wait(HANG_S)

    thread = threading.Thread(target=other)
    with leases.statement(calls):
        leases.hold(calls, spark, table, head)
        thread.start()
        assert entered.wait(HANG_S)
    assert leased(client, name) == [head]
    ended.set()
    thread.join()
    assert leased(client, name) == []
