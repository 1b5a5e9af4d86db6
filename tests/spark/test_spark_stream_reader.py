"""Reading a table as a stream: the batches, pure and through Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from frazil.client.plans import PlannedDataFile
from frazil.client.tables import Snapshot
from frazil.spark.micro_batches import NOTHING, Limits, MicroBatches, Offset, Skips, offset_of
from frazil.spark.scan_tasks import ScanTask
from frazil.wire.errors import BadRequest, NotFound

if TYPE_CHECKING:

    pass

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
    """Snapshots 1, 2, 3… of these operations, and what was asked of them."""
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
    """As Spark goes through them, batch by batch."""
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
    # A compaction at the head is behind the stream, so that it may expire what it has replaced.
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
    assert [name for one in all_batches(found, limits) for name in one] == ["1a", "1b", "3a", "3b", "3c"]


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
