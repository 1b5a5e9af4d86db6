"""The comparison detects what it must: two states that differ in one place are not equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.oracle.commits.compare import Comparison, verdicts
from tests.oracle.commits.java_side import Refusal
from tests.oracle.commits.own_side import Rejection
from tests.oracle.commits.states import Entry, Snapshot, State, entries_of, manifests_of

ENTRY = (
    "GenericManifestEntry{status=ADDED, snapshot_id=77, data_sequence_number=2, "
    "file_sequence_number=3, file=GenericDataFile{content=data, file_path=file:///t/a.parquet, "
    "file_format=PARQUET, spec_id=1, partition=PartitionData{name=null}, record_count=4, "
    "file_size_in_bytes=9, column_sizes=null, value_counts={1=4}, sort_order_id=null, "
    "data_sequence_number=2, file_sequence_number=3, first_row_id=10, referenced_data_file=null, "
    "content_offset=null, content_size_in_bytes=null}}"
)
MANIFEST = (
    "GenericManifestFile{content=DATA, path=file:///t/m0.avro, length=7957, partition_spec_id=1, "
    "added_snapshot_id=77, added_data_files_count=1, added_rows_count=4, "
    "existing_data_files_count=0, existing_rows_count=0, deleted_data_files_count=0, "
    "deleted_rows_count=0, partitions=[GenericPartitionFieldSummary{contains_null=true, "
    "contains_nan=false, lower_bound=null, upper_bound=null}], key_metadata=null, "
    "sequence_number=3, min_sequence_number=2, first_row_id=10}"
)
ENTRIES = tuple(entry._replace(snapshot_id=1) for entry in entries_of(ENTRY))
SNAPSHOT = Snapshot(
    step=1,
    parent=None,
    operation="append",
    summary={"added-records": "4", "manifests-created": "1"},
    sequence_number=3,
    first_row_id=10,
    added_rows=4,
    schema_id=0,
    manifests=tuple(manifests_of(MANIFEST, {77: 1})),
    entries=ENTRIES,
)
STATE = State(3, 3, 14, 1, {"main": ("branch", 1)}, (1,), {1: SNAPSHOT})


def with_snapshot(**changes: Any) -> State:
    return replace(STATE, snapshots={1: replace(SNAPSHOT, **changes)})


def with_entry(**changes: Any) -> State:
    return with_snapshot(entries=(ENTRIES[0]._replace(**changes),))


def with_manifest(**changes: Any) -> State:
    return with_snapshot(manifests=(SNAPSHOT.manifests[0]._replace(**changes),))


def test_compare_parsed_text() -> None:
    assert (
        Entry(
            *("ADDED", 1, 2, 3, 10, "data", "file:///t/a.parquet", None, 1, 4),
            file=ENTRIES[0].file,
        ),
    ) == ENTRIES
    assert "partition=PartitionData{name=null}" in ENTRIES[0].file
    assert "value_counts={1=4}" in ENTRIES[0].file
    manifest = SNAPSHOT.manifests[0]
    assert (manifest.step, manifest.counts, manifest.first_row_id) == (1, (1, 4, 0, 0, 0, 0), 10)
    assert "contains_null=true" in manifest.partitions


def test_compare_same_states() -> None:
    assert Comparison().states(1, STATE, STATE) == []


@pytest.mark.parametrize(
    ("where", "changed"),
    [
        ("refs", lambda: replace(STATE, refs={})),
        ("log", lambda: replace(STATE, log=())),
        ("last_sequence_number", lambda: replace(STATE, last_sequence_number=4)),
        ("next-row-id", lambda: replace(STATE, next_row_id=15)),
        ("row id above the next one", lambda: replace(STATE, next_row_id=13)),
        ("snapshot 1: operation", lambda: with_snapshot(operation="overwrite")),
        ("snapshot 1: parent", lambda: with_snapshot(parent=0)),
        ("snapshot 1: added_rows", lambda: with_snapshot(added_rows=5)),
        ("snapshot 1: summary added-records", lambda: with_snapshot(summary={})),
        ("snapshot 1: live data file a.parquet", lambda: with_entry(sequence_number=3)),
        ("snapshot 1: live data file a.parquet", lambda: with_entry(file_sequence_number=2)),
        ("snapshot 1: live data file a.parquet", lambda: with_entry(first_row_id=9)),
        ("snapshot 1: live data file a.parquet", lambda: with_entry(snapshot_id=2)),
        ("snapshot 1: live data file a.parquet", lambda: with_entry(file="other metrics")),
        ("snapshot 1: deleted data file a.parquet", lambda: with_entry(status="DELETED")),
        ("snapshot 1: added data file a.parquet", lambda: with_entry(status="EXISTING")),
        ("snapshot 1: manifests", lambda: with_manifest(min_sequence_number=3)),
        ("snapshot 1: manifests", lambda: with_manifest(partitions="[]")),
    ],
)
def test_compare_sees_a_difference(where: str, changed: Callable[[], State]) -> None:
    for java, own in ((STATE, changed()), (changed(), STATE)):
        if where.startswith("row id"):
            java, own = STATE, changed()
        found = [difference.where for difference in Comparison().states(1, java, own)]
        assert where in found


def test_compare_verdicts() -> None:
    refusal = Refusal("ValidationException", "Found concurrently added DV for a: b")
    of_vectors = Rejection(frozenset({"dv-conflict", "required-data-files"}), "")
    assert verdicts(None, None) == []
    assert verdicts(refusal, of_vectors) == []
    assert verdicts(refusal, None)
    assert verdicts(None, of_vectors)
    assert verdicts(refusal, Rejection(frozenset({"required-data-files"}), ""))
    assert verdicts(Refusal("NullPointerException", "null"), of_vectors)
