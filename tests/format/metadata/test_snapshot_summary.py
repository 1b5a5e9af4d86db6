"""The summary of a snapshot, checked key by key and against PyIceberg."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile as StockFile
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema as StockSchema
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.typedef import Record as StockRecord

from frazil.format.metadata.content_files import DATA_CONTENT, EQUALITY_DELETES, POSITION_DELETES
from frazil.format.metadata.snapshot_summary import (
    TOTALS,
    Changes,
    FileCounts,
    SummaryBuilder,
    number,
)

MANIFESTS = {"manifests_created": 1, "manifests_kept": 2, "manifests_replaced": 3}
NO_TOTALS = {name: "0" for name, _, _ in TOTALS}


def build(
    builder: SummaryBuilder, previous: dict[str, str] | None, **values: Any
) -> dict[str, str]:
    return builder.build("overwrite", (), previous, **MANIFESTS, **values)


# --- what is counted -------------------------------------------------------------------------


def test_an_append_to_an_empty_table() -> None:
    builder = SummaryBuilder()
    builder.changes.added.count(DATA_CONTENT, False, 10, 1_000)
    builder.partition("").added.count(DATA_CONTENT, False, 10, 1_000)
    found = builder.build("append", [("job", "nightly")], None, **MANIFESTS)
    assert found == {
        "operation": "append",
        "job": "nightly",
        "added-data-files": "1",
        "added-records": "10",
        "added-files-size": "1000",
        "changed-partition-count": "1",
        "manifests-created": "1",
        "manifests-kept": "2",
        "manifests-replaced": "3",
        **NO_TOTALS,
        "total-records": "10",
        "total-files-size": "1000",
        "total-data-files": "1",
    }
    assert next(iter(found)) == "operation"


def test_each_kind_of_file_has_its_own_counts() -> None:
    changes = Changes()
    for counts in (changes.added, changes.removed):
        counts.count(DATA_CONTENT, False, 1, 10)
        counts.count(EQUALITY_DELETES, False, 2, 20)
        counts.count(POSITION_DELETES, False, 4, 40)
        counts.count(POSITION_DELETES, True, 8, 80)
    both = {"data-files", "delete-files", "equality-delete-files", "position-delete-files", "dvs"}
    assert changes.entries() == {
        **{f"added-{key}": "3" if key == "delete-files" else "1" for key in both},
        **{
            f"removed-{key}": "3" if key == "delete-files" else "1" for key in both - {"data-files"}
        },
        "deleted-data-files": "1",
        "added-records": "1",
        "deleted-records": "1",
        "added-files-size": "150",
        "removed-files-size": "150",
        "added-equality-deletes": "2",
        "removed-equality-deletes": "2",
        "added-position-deletes": "12",
        "removed-position-deletes": "12",
    }


def test_a_deletion_vector_is_a_delete_file_and_no_position_delete_file() -> None:
    counts = FileCounts()
    counts.count(POSITION_DELETES, True, 5, 60)
    assert (counts.deletion_vectors, counts.delete_files, counts.position_deletes) == (1, 1, 5)
    assert counts.position_delete_files == 0


def test_what_did_not_happen_is_left_out() -> None:
    assert Changes().entries() == {}
    assert build(SummaryBuilder(), None) == {
        "operation": "overwrite",
        "changed-partition-count": "0",
        "manifests-created": "1",
        "manifests-kept": "2",
        "manifests-replaced": "3",
        **NO_TOTALS,
    }


def test_paths_that_were_removed_twice_are_counted() -> None:
    builder = SummaryBuilder()
    builder.duplicate_deletes = 2
    assert build(builder, None)["deleted-duplicate-files"] == "2"
    assert "deleted-duplicate-files" not in build(SummaryBuilder(), None)


# --- totals ----------------------------------------------------------------------------------


def changed(added: int, removed: int) -> SummaryBuilder:
    builder = SummaryBuilder()
    for _ in range(added):
        builder.changes.added.count(DATA_CONTENT, False, 100, 7)
    for _ in range(removed):
        builder.changes.removed.count(DATA_CONTENT, False, 100, 7)
    return builder


def test_totals_go_on_from_the_parent() -> None:
    previous = {**NO_TOTALS, "total-records": "900", "total-data-files": "9"}
    found = build(changed(3, 1), {**previous, "total-files-size": "63"})
    totals = {name: found[name] for name in NO_TOTALS}
    assert totals == {
        **NO_TOTALS,
        "total-records": "1100",
        "total-data-files": "11",
        "total-files-size": "77",
    }


def test_a_total_that_was_never_counted_is_not_made_up() -> None:
    found = build(changed(1, 0), {"total-records": "5"})
    assert {key for key in found if key.startswith("total-")} == {"total-records"}
    assert found["total-records"] == "105"


@pytest.mark.parametrize(
    "spoiled", ["", "many", "-5", "1.5", "+5", " 5", "\u0665", "9" * 19, "1_000"]
)
def test_a_total_that_is_no_number_is_not_gone_on_from(spoiled: str) -> None:
    found = build(changed(1, 0), {**NO_TOTALS, "total-records": spoiled})
    assert "total-records" not in found
    assert found["total-data-files"] == "1"
    assert number(spoiled) is None


def test_a_total_never_goes_below_zero() -> None:
    found = build(changed(0, 2), {**NO_TOTALS, "total-data-files": "1", "total-records": "200"})
    assert "total-data-files" not in found
    assert found["total-records"] == "0"


# --- partitions ------------------------------------------------------------------------------


def of_partitions(*paths: str) -> SummaryBuilder:
    builder = SummaryBuilder()
    for path in paths:
        builder.partition(path).added.count(DATA_CONTENT, False, 1, 10)
    return builder


def test_partitions_are_told_up_to_the_limit() -> None:
    builder = of_partitions("a=1", "a=2", "a=1")
    found = build(builder, None, partition_limit=2)
    assert found["partition-summaries-included"] == "true"
    assert {key: value for key, value in found.items() if key.startswith("partitions.")} == {
        "partitions.a=1": "added-data-files=2,added-records=2,added-files-size=20",
        "partitions.a=2": "added-data-files=1,added-records=1,added-files-size=10",
    }
    for limit in (0, 1):
        found = build(builder, None, partition_limit=limit)
        assert found["changed-partition-count"] == "2"
        assert not [key for key in found if key.startswith("partition")]


def test_an_unpartitioned_table_is_one_partition_without_a_name() -> None:
    found = build(of_partitions(""), None, partition_limit=5)
    assert found["changed-partition-count"] == "1"
    assert found["partition-summaries-included"] == "true"
    assert "partitions." not in found


# --- beside PyIceberg ------------------------------------------------------------------------

STOCK = {
    DATA_CONTENT: DataFileContent.DATA,
    POSITION_DELETES: DataFileContent.POSITION_DELETES,
    EQUALITY_DELETES: DataFileContent.EQUALITY_DELETES,
}
_files = st.lists(
    st.tuples(
        st.sampled_from(list(STOCK)),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
        st.booleans(),
    ),
    max_size=8,
)


@given(_files, st.dictionaries(st.sampled_from(list(NO_TOTALS)), st.integers(0, 1 << 50)))
def test_the_counts_are_those_of_pyiceberg(
    files: list[tuple[int, int, int, bool]], before: dict[str, int]
) -> None:
    stock, builder = SnapshotSummaryCollector(), SummaryBuilder()
    for content, records, size, added in files:
        file = StockFile.from_args(
            content=STOCK[content],
            partition=StockRecord(),
            record_count=records,
            file_size_in_bytes=size,
        )
        change = stock.add_file if added else stock.remove_file
        change(file, StockSchema())
        counts = builder.changes.added if added else builder.changes.removed
        counts.count(content, False, records, size)
    previous = {**NO_TOTALS, **{name: str(total) for name, total in before.items()}}
    told = stock.build()
    ours = build(builder, previous)
    assert {key: ours[key] for key in told} == told
    summary = update_snapshot_summaries(Summary(Operation.OVERWRITE, **told), previous)
    wanted = {name: summary[name] for name in NO_TOTALS if summary[name] is not None}
    assert {key: value for key, value in ours.items() if key.startswith("total-")} == wanted
