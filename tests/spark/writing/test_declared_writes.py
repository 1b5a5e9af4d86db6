"""Writes of Spark declare their folders to the catalog."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.client.rows.write_folders import Write
from frazil.spark.session import Session
from tests.support.server import RunningServer


def stored(server: RunningServer, table: Table) -> list[tuple[str, str]]:
    """Return the prefix and the state of all intents of a table, also of those that have ended."""
    path = server.directory / "frazil.db"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return connection.execute(
            "SELECT prefix, state FROM intents WHERE uuid = ?", (table.uuid,)
        ).fetchall()


def test_statements_declare_their_folders_until_they_end(
    client: Client,
    namespace: str,
    session: Session,
    one_server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"{namespace}.t"
    frame = session.spark.range(10)
    session.write_to(frame, name).create()
    table = client.load_table(name)
    seen: list[str] = []
    commit = Write.commit

    def observed(self: Write, *args: object) -> object:
        (intent,) = client.intents.list(name)
        assert self.folder.location == intent.prefix
        seen.append(intent.prefix)
        if len(seen) > 1:
            # The statement has read its base.
            leased = {lease.snapshot_id for lease in client.leases.list(name)}
            assert client.load_table(name).head() in leased
        return commit(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Write, "commit", observed)
    session.table(name).append(frame)
    session.sql(f"DELETE FROM {name} WHERE id = 3")
    session.sql(f"UPDATE {name} SET id = 12 WHERE id = 4")
    assert len(set(seen)) == 3
    # Each write has cleaned up, so nobody has to look for leftovers.
    assert stored(one_server, table) == []
    with pytest.raises(Exception, match="not a number"):
        session.table(name).append(frame.select(fn.raise_error(fn.lit("not a number")).alias("id")))
    assert stored(one_server, table) == []
    assert len(seen) == 3


def test_the_data_source_declares_its_folder(
    client: Client,
    namespace: str,
    session: Session,
    spark: SparkSession,
    one_server: RunningServer,
) -> None:
    name = f"{namespace}.t"
    client.create_table(name, "id long")
    table = client.load_table(name)
    spark.range(5).write.format("frazil").mode("append").option("table", name).save()
    assert session.table(name).scan().count() == 5
    assert stored(one_server, table) == []
    failing = spark.range(5).select(fn.raise_error(fn.lit("no row")).cast("long").alias("id"))
    with pytest.raises(Exception, match="no row"):
        failing.write.format("frazil").mode("append").option("table", name).save()
    # A task may have left a file, so the catalog looks for leftovers.
    ((prefix, state),) = stored(one_server, table)
    assert state == "ended"
    assert Path(prefix.removeprefix("file://")).parent.name == "data"
