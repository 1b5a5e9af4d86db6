"""A table can be read as a stream; tests of the batches alone and through Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from frazil.client.declare.client_table import Snapshot
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.spark.streams.micro_batches import (
    NOTHING,
    Limits,
    MicroBatches,
    Offset,
    Skips,
    offset_of,
)
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.scan_planning import PlannedDataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.client.catalog_client import Client
    from frazil.spark.session import Session

# --- batches, without Spark -----------------------------------------------------------------------


def snapshot(number: int, operation: str = "append", parent: int | None = None) -> Snapshot:
    return Snapshot(
        number, number * 1000, parent_snapshot_id=parent, summary={"operation": operation}
    )


def task(name: str, rows: int) -> ScanTask:
    file = PlannedDataFile(
        file_path=name, file_format="parquet", spec_id=0, file_size_in_bytes=1, record_count=rows
    )
    return ScanTask(data_file=file)


FILES = {
    1: [task("1a", 10), task("1b", 20)],
    2: [task("2a", 5)],
    3: [task("3a", 1), task("3b", 1), task("3c", 1)],
}


def batches(
    *operations: str, oldest_parent: int | None = None, **options: Any
) -> tuple[MicroBatches, list[tuple[int, bool]]]:
    """Build snapshots 1, 2, 3… with these operations; also return the recorded requests."""
    history = [
        snapshot(number, operation, number - 1 or oldest_parent)
        for number, operation in enumerate(operations, 1)
    ]
    asked: list[tuple[int, bool]] = []

    def files_of(of: Snapshot, scan_all: bool) -> Sequence[ScanTask]:
        asked.append((of.snapshot_id, scan_all))
        return FILES[of.snapshot_id]

    return MicroBatches(history, files_of, **options), asked


def names(found: Iterator[ScanTask]) -> list[str]:
    return [one.file_path for one in found]


def all_batches(found: MicroBatches, limits: Limits) -> list[list[str]]:
    """Return all batches in the order in which Spark reads them."""
    read, start = [], found.first()
    while (end := found.end_after(start, limits)) != start:
        read.append(names(found.between(start, end)))
        assert offset_of(end.to_json()) == end
        start = end
    return read


def test_an_empty_table_has_no_batch() -> None:
    found, _ = batches()
    assert found.first() == NOTHING
    assert found.end_after(NOTHING, Limits()) == NOTHING
    assert names(found.between(NOTHING, NOTHING)) == []


def test_without_limits_a_batch_goes_to_the_head_and_nothing_is_planned_for_its_end() -> None:
    found, asked = batches("append", "append", "append")
    end = found.end_after(found.first(), Limits())
    assert end == Offset(3)
    assert asked == []
    assert names(found.between(found.first(), end)) == ["1a", "1b", "2a", "3a", "3b", "3c"]
    assert found.end_after(end, Limits()) == end


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(max_files=2), [["1a", "1b"], ["2a", "3a"], ["3b", "3c"]]),
        (Limits(max_files=1), [["1a"], ["1b"], ["2a"], ["3a"], ["3b"], ["3c"]]),
        (Limits(max_rows=15), [["1a", "1b"], ["2a", "3a", "3b", "3c"]]),
        (Limits(max_rows=5), [["1a"], ["1b"], ["2a"], ["3a", "3b", "3c"]]),
        (Limits(max_files=3, max_rows=11), [["1a", "1b"], ["2a", "3a", "3b"], ["3c"]]),
    ],
    ids=["2-files", "1-file", "15-rows", "5-rows", "both"],
)
def test_limits_cut_the_history_without_loss_or_repetition(
    limits: Limits, expected: list[list[str]]
) -> None:
    found, _ = batches("append", "append", "append")
    assert all_batches(found, limits) == expected


def test_replace_is_passed_over_and_the_offset_moves_on() -> None:
    found, _ = batches("append", "replace", "append")
    assert all_batches(found, Limits()) == [["1a", "1b", "3a", "3b", "3c"]]
    # The offset moves past a compaction at the head, so that the replaced snapshots may expire.
    found, _ = batches("append", "replace")
    assert found.end_after(Offset(1), Limits()) == Offset(2)
    assert names(found.between(Offset(1), Offset(2))) == []


@pytest.mark.parametrize(
    ("operation", "skips"),
    [("delete", Skips(deletes=True)), ("overwrite", Skips(overwrites=True))],
    ids=["delete", "overwrite"],
)
@pytest.mark.parametrize("limits", [Limits(), Limits(max_files=1)], ids=["whole", "limited"])
def test_other_snapshots_are_an_error_unless_skipped(
    operation: str, skips: Skips, limits: Limits
) -> None:
    found, _ = batches("append", operation, "append")
    with pytest.raises(BadRequest, match=f"streaming-skip-{operation}-snapshots=true"):
        found.end_after(Offset(1), limits)
    found, _ = batches("append", operation, "append", skips=skips)
    assert [name for one in all_batches(found, limits) for name in one] == [
        "1a",
        "1b",
        "3a",
        "3b",
        "3c",
    ]


def test_an_unknown_operation_is_an_error() -> None:
    found, _ = batches("append", "merge")
    with pytest.raises(BadRequest, match="'merge'"):
        found.end_after(Offset(1), Limits())


def test_a_stream_may_begin_at_a_moment() -> None:
    assert batches("append", "append", from_timestamp_ms=1500)[0].first() == Offset(2, 0)
    assert batches("append", "append", from_timestamp_ms=2000)[0].first() == Offset(2, 0)
    assert batches("append", "append", from_timestamp_ms=0)[0].first() == Offset(1, 0)
    late, _ = batches("append", from_timestamp_ms=1001)
    assert late.first() == NOTHING
    assert late.end_after(NOTHING, Limits()) == NOTHING


def test_with_expired_history_the_oldest_snapshot_is_read_as_a_whole() -> None:
    found, asked = batches("overwrite", "append", oldest_parent=99)
    assert found.first() == Offset(1, 0, scan_all=True)
    assert all_batches(found, Limits(max_files=1)) == [["1a"], ["1b"], ["2a"]]
    assert set(asked) == {(1, True), (2, False)}


def test_a_snapshot_that_is_gone_is_a_clear_error() -> None:
    found, _ = batches("append", "append")
    with pytest.raises(NotFound, match=r"snapshot 7.*new checkpoint"):
        found.end_after(Offset(7), Limits())
    with pytest.raises(NotFound, match="snapshot 7"):
        names(found.between(Offset(1), Offset(7)))


def test_offsets_of_icebergs_own_reader_are_told_apart() -> None:
    stock = {"version": 1, "snapshot_id": 5, "position": 0, "scan_all_files": False}
    with pytest.raises(BadRequest, match="reader=jar"):
        offset_of(stock)
    with pytest.raises(BadRequest, match="not of this source"):
        offset_of({"other": 1})


# --- through Spark --------------------------------------------------------------------------------

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "item", "type": "string", "required": False},
    ],
}


class Reading:
    """A query over a table's stream that runs until it has read all available rows."""

    def __init__(self, session: Session, table: str, folder: Path) -> None:
        self.session = session
        self.table = table
        self._folder = folder

    def append(self, *rows: tuple[int, str]) -> None:
        frame = self.session.spark.createDataFrame(rows, "id long, item string")
        self.session.table(self.table).append(frame.coalesce(1))

    def run(self, checkpoint: str = "checkpoint", **options: Any) -> list[list[tuple[Any, ...]]]:
        """Run the query; return the rows of each batch that is not empty."""
        read: list[list[tuple[Any, ...]]] = []

        def take(frame: DataFrame, _: int) -> None:
            rows = sorted(map(tuple, frame.collect()))
            if rows:
                read.append(rows)

        frame = self.session.table(self.table).read_stream(**options)
        stream = frame.writeStream.foreachBatch(take)
        stream = stream.option("checkpointLocation", str(self._folder / checkpoint))
        assert stream.trigger(availableNow=True).start().awaitTermination(100)
        return read


@pytest.fixture(params=["own", "jar"])
def reading(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    server_url: str,
    client: Client,
    namespace: str,
    tmp_path: Path,
) -> Iterator[Reading]:
    """Return the stream for each of the two readers."""
    from frazil.spark import connect

    client.create_table(f"{namespace}.t", SCHEMA)
    with connect(spark, server_url, reader=request.param, writer="arrow") as session:
        yield Reading(session, f"{namespace}.t", tmp_path)


def test_a_stream_begins_with_what_is_there_and_goes_on_from_its_checkpoint(
    reading: Reading, client: Client
) -> None:
    reading.append((1, "a"))
    reading.append((2, "b"))
    assert reading.run() == [[(1, "a"), (2, "b")]]
    assert reading.run() == []
    # Compact the table; the stream has already read these rows.
    table = client.load_table(reading.table)
    file = table.plan().files[0].file_path
    copy = file.replace(".parquet", "-copy.parquet")
    shutil.copy(file.removeprefix("file://"), copy.removeprefix("file://"))
    table.rewrite_files([file], [copy])
    reading.append((3, "c"))
    assert reading.run() == [[(3, "c")]]


def test_deletes_stop_a_stream_unless_they_are_to_be_skipped(
    reading: Reading, client: Client
) -> None:
    reading.append((1, "a"))
    first = client.load_table(reading.table)
    client.delete_files(reading.table, [first.plan().files[0].file_path])
    reading.append((2, "b"))
    with pytest.raises(Exception, match="streaming-skip-delete-snapshots=true"):
        reading.run()
    assert reading.run(checkpoint="skipping", skip_deletes=True) == [[(1, "a"), (2, "b")]]
    second = client.load_table(reading.table).snapshot("main").timestamp_ms
    assert reading.run(checkpoint="late", from_timestamp=second) == [[(2, "b")]]


@pytest.mark.parametrize("limit", ["max_files", "max_rows"])
def test_limits_never_end_a_run_before_everything_is_read(reading: Reading, limit: str) -> None:
    """Spark 4.1 runs one batch of a Python source for availableNow, so ours takes no limit."""
    for number in range(3):
        reading.append((number, "x"))
    options: dict[str, Any] = {limit: 1}
    if reading.session.context.settings.reader == "own":
        with pytest.raises(BadRequest, match=r"max_files, max_rows.*reader=jar"):
            reading.run(**options)
    else:
        assert reading.run(**options) == [[(0, "x")], [(1, "x")], [(2, "x")]]


@pytest.mark.parametrize(
    "limit", ["streaming-max-files-per-micro-batch", "streaming-max-rows-per-micro-batch"]
)
def test_the_source_refuses_limits_too(
    own_session: Session, client: Client, namespace: str, tmp_path: Path, limit: str
) -> None:
    client.create_table(f"{namespace}.t", SCHEMA)
    source = own_session.spark.readStream.format("frazil").option(limit, "1")
    stream = source.load(f"{namespace}.t").writeStream.format("noop").trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match=rf"max_files, max_rows.*{limit}"):
        query.awaitTermination(100)


def test_our_reader_says_which_snapshot_is_gone(
    own_session: Session, client: Client, namespace: str, tmp_path: Path
) -> None:
    client.create_table(f"{namespace}.t", SCHEMA)
    reading = Reading(own_session, f"{namespace}.t", tmp_path)
    for number in range(2):
        reading.append((number, "x"))
    assert reading.run(columns=["id"]) == [[(0,), (1,)]]
    head = client.load_table(reading.table).snapshot("main")
    client.rollback(reading.table, head.parent_snapshot_id)
    with pytest.raises(Exception, match=rf"snapshot {head.snapshot_id}.*no longer in the history"):
        reading.run(columns=["id"])


def test_a_stream_goes_through_the_source_from_table_to_table(
    own_session: Session, client: Client, namespace: str, tmp_path: Path
) -> None:
    """`readStream` and `writeStream` of `format("frazil")` copy a table across a restart."""
    from frazil.spark.streams.stream_ids import EPOCH_ID, QUERY_ID

    client.create_table(f"{namespace}.from", SCHEMA)
    client.create_table(f"{namespace}.to", SCHEMA)
    reading = Reading(own_session, f"{namespace}.from", tmp_path)
    spark = own_session.spark
    for number in range(2):
        reading.append((number, "x"))
        stream = spark.readStream.format("frazil").load(f"{namespace}.from").writeStream
        stream = stream.format("frazil").option("checkpointLocation", str(tmp_path / "copy"))
        query = stream.trigger(availableNow=True).start(f"{namespace}.to")
        assert query.awaitTermination(100)
    copied = own_session.table(f"{namespace}.to").scan().collect()
    assert sorted(map(tuple, copied)) == [(0, "x"), (1, "x")]
    summaries = [one.summary for one in client.history(f"{namespace}.to")]
    assert [one[EPOCH_ID] for one in summaries] == ["1", "0"]
    assert {one[QUERY_ID] for one in summaries} == {query.id}
