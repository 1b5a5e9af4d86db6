"""A stream writes each epoch to its table exactly once, wherever an earlier run failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.client.declare.client_table import Table
from frazil.spark.streams import stream_ids
from frazil.spark.streams.stream_ids import CHECKPOINT_ID, EPOCH_ID, QUERY_ID, StreamId
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.client.catalog_client import Client
    from frazil.spark.session import Session

FIELDS = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 2, "name": "item", "type": "string", "required": False},
]
SCHEMA = {"type": "struct", "fields": FIELDS}
BY_BUCKET = {
    "spec-id": 0,
    "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[2]"}],
}


# --- ids, without Spark ---------------------------------------------------------------------------


def table_with(*summaries: dict[str, str]) -> Table:
    """Build a table whose main branch has these snapshots, oldest first."""
    snapshots = [
        {"snapshot-id": at, "parent-snapshot-id": at - 1, "timestamp-ms": at, "summary": summary}
        for at, summary in enumerate(summaries, 1)
    ]
    refs = {"main": {"snapshot-id": len(snapshots), "type": "branch"}} if snapshots else {}
    return Table(Identifier(("ns",), "t"), {"snapshots": snapshots, "refs": refs}, "")


def epoch_of(id: str, epoch: str, **others: str) -> dict[str, str]:
    return {QUERY_ID: id, EPOCH_ID: epoch, **others}


def test_the_history_shows_the_last_epoch_of_each_stream() -> None:
    table = table_with(epoch_of("a", "4"), epoch_of("b", "9"), {}, epoch_of("a", "5"), {})
    assert stream_ids.is_committed(table, "main", StreamId("a", "a"), 5)
    assert stream_ids.is_committed(table, "main", StreamId("a", "a"), 3)
    assert not stream_ids.is_committed(table, "main", StreamId("a", "a"), 6)
    assert not stream_ids.is_committed(table, "main", StreamId("b", "b"), 10)
    assert not stream_ids.is_committed(table, "main", StreamId("c", "c"), 0)
    # A branch that does not exist yet will start at main's head.
    assert stream_ids.is_committed(table, "new", StreamId("a", "a"), 5)
    assert not stream_ids.is_committed(table_with(), "main", StreamId("a", "a"), 0)
    assert not stream_ids.is_committed(
        table_with(epoch_of("a", "none")), "main", StreamId("a", "a"), 0
    )


def test_a_second_checkpoint_under_one_id_is_found_out() -> None:
    table = table_with(epoch_of("mine", "7", **{CHECKPOINT_ID: "query-1"}))
    assert stream_ids.is_committed(table, "main", StreamId("mine", "query-1"), 7)
    with pytest.raises(BadRequest, match="another checkpoint"):
        stream_ids.is_committed(table, "main", StreamId("mine", "query-2"), 0)
    assert StreamId("mine", "query-1").summary() == {CHECKPOINT_ID: "query-1"}
    assert StreamId("query-1", "query-1").summary() == {}


# --- through Spark --------------------------------------------------------------------------------


class Feed:
    """A folder that a stream reads, one file per epoch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder / "in"
        self._folder.mkdir(exist_ok=True)
        self._count = 0

    def add(self, *rows: tuple[int | None, str | None]) -> None:
        columns = {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "item": pa.array([row[1] for row in rows], pa.string()),
        }
        self._count += 1
        pq.write_table(pa.table(columns), self._folder / f"{self._count}.parquet")

    def frame(self) -> DataFrame:
        reader = self._spark.readStream.schema("id long, item string")
        return reader.option("maxFilesPerTrigger", "1").parquet(str(self._folder))


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path)


@pytest.fixture
def table(client: Client, namespace: str) -> str:
    client.create_table(f"{namespace}.t", SCHEMA)
    return f"{namespace}.t"


@pytest.fixture
def run(session: Session, feed: Feed, table: str, tmp_path: Path) -> Callable[..., None]:
    """Return a function that runs a query until it has read all available rows."""

    def start(name: str = table, checkpoint: str = "checkpoint", **options: Any) -> None:
        query = session.table(name).write_stream(
            options.pop("frame", None) or feed.frame(),
            checkpoint_location=str(tmp_path / checkpoint),
            trigger="availableNow",
            **options,
        )
        assert query.awaitTermination(100)

    return start


def rows_of(session: Session, table: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, session.table(table).scan().collect()))


def epochs(client: Client, table: str) -> list[str]:
    return [snapshot.summary.get(EPOCH_ID, "") for snapshot in client.history(table)][::-1]


def files_on_disk(client: Client, table: str) -> list[str]:
    from frazil.datafiles.reading.file_storage import Storage

    return Storage().list(f"{client.load_table(table).location}/data")


def dies(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Make the next epoch fail once, before or after its commit."""
    from frazil.spark.writing.write_commit import Write

    commit = Write.commit

    def broken(self: Write, *arguments: Any) -> Any:
        monkeypatch.setattr(Write, "commit", commit)
        if where == "behind":
            commit(self, *arguments)
        raise RuntimeError(f"the driver dies {where} the commit")

    monkeypatch.setattr(Write, "commit", broken)


@pytest.mark.parametrize("where", ["before", "behind"])
def test_an_epoch_whose_run_died_is_committed_once(
    session: Session,
    client: Client,
    feed: Feed,
    table: str,
    run: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    feed.add((1, "a"))
    run()
    feed.add((2, "b"))
    dies(monkeypatch, where)
    with pytest.raises(Exception, match="dies"):
        run()
    assert epochs(client, table) == (["0"] if where == "before" else ["0", "1"])
    feed.add((3, "c"))
    run()
    assert epochs(client, table) == ["0", "1", "2"]
    assert rows_of(session, table) == [(1, "a"), (2, "b"), (3, "c")]
    assert len(files_on_disk(client, table)) == 3


def test_the_catalog_decides_where_the_history_shows_nothing(
    client: Client,
    feed: Feed,
    table: str,
    run: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second run writes its files in vain and removes them."""
    monkeypatch.setattr(stream_ids, "is_committed", lambda *_: False)
    feed.add((1, "a"))
    dies(monkeypatch, "behind")
    with pytest.raises(Exception, match="dies"):
        run()
    kept = files_on_disk(client, table)
    run()
    assert epochs(client, table) == ["0"]
    assert files_on_disk(client, table) == kept


def test_a_new_checkpoint_is_a_new_stream(
    session: Session, client: Client, feed: Feed, table: str, tmp_path: Path
) -> None:
    """Two streams write to one table at the same time."""
    feed.add((1, "a"))
    queries = [
        session.table(table).write_stream(
            feed.frame(),
            checkpoint_location=str(tmp_path / name),
            trigger={"availableNow": True},
            summary={"by": name},
        )
        for name in ("first", "second")
    ]
    assert all(query.awaitTermination(100) for query in queries)
    assert rows_of(session, table) == [(1, "a"), (1, "a")]
    found = {one.summary["by"]: one.summary[QUERY_ID] for one in client.history(table)}
    assert found == {"first": queries[0].id, "second": queries[1].id}


def test_a_stream_may_have_an_id_of_its_own_but_not_two_checkpoints(
    client: Client, feed: Feed, table: str, run: Callable[..., None]
) -> None:
    feed.add((1, "a"))
    run(stream_id="orders")
    feed.add((2, "b"))
    run(stream_id="orders")
    assert epochs(client, table) == ["0", "1"]
    assert {one.summary[QUERY_ID] for one in client.history(table)} == {"orders"}
    with pytest.raises(Exception, match="another checkpoint"):
        run(stream_id="orders", checkpoint="another")
    assert epochs(client, table) == ["0", "1"]


def test_what_is_wrong_is_said_before_the_query_starts(
    session: Session, feed: Feed, table: str, run: Callable[..., None], spark: SparkSession
) -> None:
    with pytest.raises(BadRequest, match="column other"):
        run(frame=feed.frame().withColumnRenamed("item", "other"))
    with pytest.raises(BadRequest, match="mode: 'replace'"):
        run(mode="replace")
    with pytest.raises(BadRequest, match="needs a list"):
        run(mode="upsert")
    with pytest.raises(BadRequest, match="has no column key"):
        run(mode="upsert", keys=["key"])
    with pytest.raises(BadRequest, match="not a stream"):
        session.table(table).write_stream(spark.range(1), checkpoint_location="x")
    with pytest.raises(BadRequest, match="checkpoint_location"):
        session.table(table).write_stream(feed.frame())
    for wrong in ({"nope": 1}, {}, {"once": True, "availableNow": True}):
        with pytest.raises(BadRequest, match=r"trigger: .* is not one of availableNow, "):
            session.table(table).write_stream(feed.frame(), checkpoint_location="x", trigger=wrong)


def test_new_columns_come_with_the_epoch_that_has_them(
    session: Session, client: Client, feed: Feed, table: str, run: Callable[..., None]
) -> None:
    feed.add((1, "a"))
    run(frame=feed.frame().selectExpr("*", "id * 2 twice"), merge_schema=True)
    assert rows_of(session, table) == [(1, "a", 2)]
    assert epochs(client, table) == ["0"]


def test_complete_results_replace_the_table(
    session: Session, feed: Feed, table: str, run: Callable[..., None]
) -> None:
    def counted() -> DataFrame:
        return feed.frame().groupBy("item").count().selectExpr("count id", "item")

    feed.add((1, "a"), (2, "a"))
    run(frame=counted(), mode="complete")
    feed.add((3, "a"), (4, "b"))
    run(frame=counted(), mode="complete")
    assert rows_of(session, table) == [(1, "b"), (3, "a")]


def test_what_spark_calls_travels_without_the_client(client: Client, server_url: str) -> None:
    """On Spark Connect, the function runs in a process of the server."""
    from pyspark import serializers

    from frazil.spark.core.context import Settings
    from frazil.spark.core.statement_runs import Target
    from frazil.spark.streams.source_options import client_of
    from frazil.spark.streams.stream_statements import EpochWriter

    target = Target(Identifier(("ns",), "t"))
    properties = {"token": "k"}
    sent = EpochWriter(
        server_url, properties, Settings(), target, "append", "/checkpoint", client=client
    )
    pickler: Any = getattr(serializers, "CloudPickleSerializer")()  # noqa: B009
    arrived = pickler.loads(pickler.dumps(sent))
    assert arrived.client is None
    assert (arrived.uri, arrived.properties) == (server_url, properties)
    with client_of(arrived.uri, arrived.properties) as own:
        assert own.list_namespaces() == client.list_namespaces()


# --- upserts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("upsert", ["equality-deletes", "deletion-vectors"])
def test_rows_take_the_place_of_those_with_their_key(
    session: Session,
    client: Client,
    namespace: str,
    feed: Feed,
    run: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    upsert: str,
    version: str,
) -> None:
    name = f"{namespace}.upserted"
    client.create_table(
        name, SCHEMA, partition_spec=BY_BUCKET, properties={"format-version": version}
    )
    options: dict[str, Any] = {
        "mode": "upsert",
        "keys": ["id"],
        "upsert": upsert,
        "delete_when": "item = 'gone'",
    }
    feed.add((1, "a"), (2, "b"), (3, "c"))
    run(name, **options)
    feed.add((2, "B"), (3, "gone"), (4, "d"), (9, "gone"))
    dies(monkeypatch, "behind")
    with pytest.raises(Exception, match="dies"):
        run(name, **options)
    feed.add((4, "D"))
    run(name, **options)
    assert rows_of(session, name) == [(1, "a"), (2, "B"), (4, "D")]
    assert epochs(client, name) == ["0", "1", "2"]


def test_of_rows_with_one_key_the_last_one_counts(
    session: Session, feed: Feed, table: str, run: Callable[..., None]
) -> None:
    def ordered() -> DataFrame:
        return feed.frame().selectExpr("id", "item", "item at")

    options: dict[str, Any] = {"mode": "upsert", "keys": ["id"], "drop_columns": ["at"]}
    feed.add((1, "a"), (1, "c"), (1, "b"))
    with pytest.raises(Exception, match="3 rows of the batch have the key id=1"):
        run(frame=ordered(), **options)
    run(frame=ordered(), order_by="at", **options)
    assert rows_of(session, table) == [(1, "c")]
    feed.add((2, "x"), (2, "x"))
    with pytest.raises(Exception, match="2 rows of the batch have the key id=2"):
        run(frame=ordered(), order_by="at", **options)


def test_keys_that_cannot_tell_rows_apart_are_refused(
    client: Client, namespace: str, feed: Feed, run: Callable[..., None], table: str
) -> None:
    feed.add((None, "a"))
    with pytest.raises(Exception, match="key column id is null"):
        run(mode="upsert", keys=["id"])
    by_item = {
        "spec-id": 0,
        "fields": [{"source-id": 2, "field-id": 1000, "name": "item", "transform": "identity"}],
    }
    client.create_table(f"{namespace}.p", SCHEMA, partition_spec=by_item)
    with pytest.raises(BadRequest, match="column item is not part of the key"):
        run(f"{namespace}.p", mode="upsert", keys=["id"])
    client.create_table(f"{namespace}.v1", SCHEMA, properties={"format-version": "1"})
    with pytest.raises(BadRequest, match="format version 1"):
        run(f"{namespace}.v1", mode="upsert", keys=["id"])
    score = {"id": 3, "name": "score", "type": "double", "required": False}
    client.create_table(f"{namespace}.f", {**SCHEMA, "fields": [*FIELDS, score]})
    scored = feed.frame().selectExpr("*", "double(id) AS score")
    with pytest.raises(BadRequest, match="by which rows cannot be told apart"):
        run(f"{namespace}.f", frame=scored, mode="upsert", keys=["score"])
