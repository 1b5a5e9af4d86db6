"""A statement or a stream goes on after the server was away in its middle."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from frazil.client.declare.client_table import Table
from frazil.client.send.error_answers import CatalogUnreachable
from frazil.spark import connect
from frazil.spark.core.context import Context, settings_of
from frazil.spark.core.jvm_errors import catalog_error
from frazil.spark.reading import jar_reader
from frazil.spark.session import Session
from frazil.wire.errors import BadRequest
from tests.support.machine import Machine, machine_on_one_port
from tests.support.patience import wait_until

NO_RETRIES = "'commit.retry.num-retries' = '0', 'commit.status-check.num-retries' = '0'"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, processes: None) -> Iterator[Machine]:
    with machine_on_one_port(tmp_path_factory.mktemp("away")) as machine:
        yield machine


@pytest.fixture
def table(spark: SparkSession, machine: Machine, request: pytest.FixtureRequest) -> str:
    """Create a table with the rows (0, 0), (1, 0) and (2, 0)."""
    name = f"ns.{request.node.originalname}"
    with connect(spark, machine.url) as session:
        session.sql("CREATE NAMESPACE IF NOT EXISTS ns")
        session.sql(f"CREATE TABLE {name} (id BIGINT, n INT) TBLPROPERTIES ({NO_RETRIES})")
        session.table(name).append(rows_of(session, range(3)))
    return name


def rows_of(session: Session, ids: range) -> DataFrame:
    ids_of = session.spark.range(ids.start, ids.stop, 1, 1)
    return ids_of.selectExpr("id", "CAST(0 AS INT) AS n")


def rows(session: Session, name: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["n"]) for row in session.table(name).scan().collect())


def waiting(caplog: pytest.LogCaptureFixture) -> bool:
    return any("does not answer (connection refused)" in line for line in caplog.messages)


def test_a_merge_goes_on(
    spark: SparkSession,
    machine: Machine,
    table: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """The server is killed while the statement's job runs, and comes back before its commit."""

    def slow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (tmp_path / "begun").touch()
        wait_until((tmp_path / "go").exists, "the test never went on")
        yield from batches

    with connect(spark, machine.url) as session:
        source = rows_of(session, range(1, 5)).mapInArrow(slow, "id BIGINT, n INT")
        source.createOrReplaceTempView("slow_source")
        with ThreadPoolExecutor(1) as threads:
            merge = threads.submit(
                session.sql,
                f"MERGE INTO {table} t USING slow_source s ON t.id = s.id"
                " WHEN MATCHED THEN UPDATE SET n = 7"
                " WHEN NOT MATCHED THEN INSERT *",
            )
            wait_until(lambda: (tmp_path / "begun").exists() or merge.done(), "no task began")
            machine.kill()
            (tmp_path / "go").touch()
            wait_until(lambda: waiting(caplog) or merge.done(), "nothing waited")
            machine.start()
            merge.result()
        assert rows(session, table) == [(0, 0), (1, 7), (2, 7), (3, 0), (4, 0)]
        assert len(session.client.history(table)) == 2


def killed_before_the_runtime_loads(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    """Kill the server after the client has loaded a table and before Iceberg's runtime does."""
    full_name = jar_reader.full_name
    pending = [machine.kill]

    def killed(context: Context, table: Table) -> str:
        name = full_name(context, table)
        if pending:
            pending.pop()()
        return name

    monkeypatch.setattr(jar_reader, "full_name", killed)


def test_icebergs_runtime_loads_again(
    spark: SparkSession,
    machine: Machine,
    table: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connect(spark, machine.url, reader="jar") as session:
        rows(session, table)
        killed_before_the_runtime_loads(monkeypatch, machine)
        with ThreadPoolExecutor(1) as threads:
            read = threads.submit(rows, session, table)
            wait_until(lambda: waiting(caplog) or read.done(), "nothing waited")
            machine.start()
            assert read.result() == [(0, 0), (1, 0), (2, 0)]


def test_the_first_read_does_not_give_the_runtime_up(
    spark: SparkSession,
    machine: Machine,
    table: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the runtime is there is tried once; an outage must not decide that."""
    caplog.set_level("INFO", "frazil.spark")
    with connect(spark, machine.url) as session:
        jar_reader._tried.pop(spark, None)
        killed_before_the_runtime_loads(monkeypatch, machine)
        with ThreadPoolExecutor(1) as threads:
            read = threads.submit(rows, session, table)
            wait_until(lambda: waiting(caplog) or read.done(), "nothing waited")
            machine.start()
            assert read.result() == [(0, 0), (1, 0), (2, 0)]
    assert "reads go through Iceberg's runtime" in caplog.messages


def test_the_error_is_the_catalogs(
    spark: SparkSession, machine: Machine, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(spark, machine.url, reader="jar", outage_timeout_s=0.1) as session:
        rows(session, table)
        killed_before_the_runtime_loads(monkeypatch, machine)
        for _ in range(2):
            with pytest.raises(CatalogUnreachable, match="refused"):
                session.sql(f"SELECT * FROM {table}")
        with pytest.raises(CatalogUnreachable, match="refused"):
            session.sql(f"DELETE FROM {table} WHERE id = 1")
    machine.start()
    with connect(spark, machine.url, reader="jar") as session:
        assert rows(session, table) == [(0, 0), (1, 0), (2, 0)]


def test_the_error_is_found_in_the_text_of_spark_connect() -> None:
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    name = "org.apache.iceberg.exceptions.RESTException"
    text = (
        f"({name}) Error occurred while processing GET request\n\nJVM stacktrace:\n{name}\n"
        "\tat org.apache.iceberg.rest.HTTPClient.execute(HTTPClient.java:328)\n"
        "Caused by: java.net.ConnectException: Connection refused\n"
    )
    error = catalog_error(SparkConnectGrpcException(text))
    assert isinstance(error, CatalogUnreachable)
    assert error.message == (
        "Iceberg's runtime in Spark: Error occurred while processing GET request; because "
        "Connection refused"
    )
    own = text.replace("RESTException", "ValidationException")
    assert catalog_error(SparkConnectGrpcException(own)) is None


class Closing:
    """A listener that closes each connection, on the port of a server that is away."""

    def __init__(self, port: int) -> None:
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_stream_goes_on(
    spark: SparkSession, machine: Machine, table: str, tmp_path: Path
) -> None:
    """Spark asks the source for new rows while the server is away, in a Python process."""
    with connect(spark, machine.url, reader="own", writer="arrow") as session:
        session.sql(f"CREATE TABLE {table}_copy (id BIGINT, n INT) TBLPROPERTIES ({NO_RETRIES})")
        query = session.table(f"{table}_copy").write_stream(
            session.table(table).read_stream(),
            checkpoint_location=str(tmp_path / "checkpoint"),
        )
        try:
            query.processAllAvailable()
            machine.kill()
            away = Closing(machine.server.port)
            wait_until(
                lambda: away.connections > 6 or not query.isActive, "nobody asked for the server"
            )
            away.stop()
            machine.start()
            session.table(table).append(rows_of(session, range(3, 5)))
            query.processAllAvailable()
        finally:
            query.stop()
        assert rows(session, f"{table}_copy") == [(number, 0) for number in range(5)]


def test_the_time_is_a_setting(spark: SparkSession) -> None:
    spark.conf.set("spark.frazil.outage-timeout-s", "2.5")
    try:
        assert settings_of(spark).outage_timeout_s == 2.5
        assert settings_of(spark, outage_timeout_s=1).outage_timeout_s == 1
        spark.conf.set("spark.frazil.outage-timeout-s", "soon")
        with pytest.raises(BadRequest, match=r"outage-timeout-s: 'soon' is not a number"):
            settings_of(spark)
        with pytest.raises(BadRequest, match=r"outage-timeout-s: -1"):
            settings_of(spark, outage_timeout_s=-1)
    finally:
        spark.conf.unset("spark.frazil.outage-timeout-s")
