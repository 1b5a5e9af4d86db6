"""Updates of snapshots, refs, statistics files and encryption keys."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.errors import BadRequest, CommitFailed
from tests.support.tables import (
    LOCATION,
    NOW_MS,
    apply,
    apply_updates,
    commit,
    document,
    history,
    log_ids,
    set_ref,
    snapshot,
    table,
    update,
    versioned,
)

VERSIONS = (1, 2, 3)


def add(value: dict[str, Any]) -> Any:
    return update("add-snapshot", snapshot=value)


class TestAddSnapshot:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_commit_moves_main(self, version: int) -> None:
        metadata = history(3, version)
        assert metadata.current_snapshot_id == 3
        assert metadata.ref("main") is not None
        assert log_ids(metadata) == [1, 2, 3]
        assert metadata.last_sequence_number == (0 if version == 1 else 3)
        assert metadata.next_row_id == (30 if version == 3 else 0)
        assert metadata.last_updated_ms == NOW_MS + 3
        assert [found.snapshot_id for found in metadata.ancestors(3)] == [3, 2, 1]
        assert metadata.is_ancestor(1, 3)
        assert not metadata.is_ancestor(3, 1)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_staged_snapshot_moves_nothing(self, version: int) -> None:
        metadata = apply(history(1, version), add(versioned(2, 1, version)))
        assert metadata.current_snapshot_id == 1
        assert log_ids(metadata) == [1]
        assert metadata.snapshot(2) is not None

    def test_unknown_fields_are_kept(self) -> None:
        value = snapshot(1) | {"weather": {"sky": ["blue"]}}
        metadata = commit(table(), value)
        assert document(metadata)["snapshots"][0]["weather"] == {"sky": ["blue"]}

    def test_nulls_are_left_out_because_java_cannot_read_them(self) -> None:
        metadata = commit(table(), snapshot(1) | {"parent-snapshot-id": None, "summary": None})
        written = document(metadata)["snapshots"][0]
        assert "parent-snapshot-id" not in written
        assert "summary" not in written

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("sequence_number", [0, 1, 2])
    def test_a_stale_sequence_number_can_be_retried(
        self, version: int, sequence_number: int
    ) -> None:
        stale = versioned(9, 1, version) | {"sequence-number": sequence_number}
        with pytest.raises(CommitFailed, match="older than last sequence number 2"):
            apply(history(2, version), add(stale))

    def test_a_snapshot_without_parent_may_repeat_the_last_sequence_number(self) -> None:
        """Two clients may replace the table from the same base."""
        base = apply(history(2), update("remove-snapshot-ref", ref_name="main"))
        replaced = commit(base, snapshot(9, sequence_number=2))
        assert replaced.last_sequence_number == 2
        with pytest.raises(CommitFailed):
            commit(base, snapshot(9, sequence_number=1))

    def test_version_1_has_no_sequence_numbers(self) -> None:
        with pytest.raises(BadRequest, match="sequence-number"):
            apply(table(1), add(snapshot(1)))

    def test_inline_manifests_belong_to_version_1(self) -> None:
        inline = {"snapshot-id": 1, "timestamp-ms": NOW_MS, "manifests": ["s3://b/m1.avro"]}
        metadata = commit(table(1), inline)
        assert document(metadata)["snapshots"] == [inline]
        with pytest.raises(BadRequest, match="manifest-list"):
            apply(table(2), add(inline | {"sequence-number": 1}))

    def test_an_id_that_is_there_already_can_be_retried(self) -> None:
        with pytest.raises(CommitFailed, match="Snapshot already exists for id: 1"):
            apply(history(2), add(snapshot(1, 2, sequence_number=3)))

    @pytest.mark.parametrize(
        ("bad", "field"),
        [
            ({"snapshot-id": "1"}, "snapshot.snapshot-id"),
            ({"snapshot-id": 2**63}, "snapshot.snapshot-id"),
            ({"snapshot-id": 1.5}, "snapshot.snapshot-id"),
            ({"snapshot-id": True}, "snapshot.snapshot-id"),
            ({"timestamp-ms": None}, "timestamp-ms"),
            ({"manifest-list": 3}, "snapshot.manifest-list"),
            ({"manifest-list": None}, "snapshot.manifest-list"),
            ({"summary": {"operation": 1}}, "snapshot.summary"),
            ({"summary": "append"}, "snapshot.summary"),
            ({"schema-id": 2**31}, "snapshot.schema-id"),
            ({"first-row-id": -1, "added-rows": 1}, "snapshot.first-row-id"),
            ({"first-row-id": 0}, "snapshot.added-rows"),
        ],
    )
    def test_a_malformed_snapshot_names_its_field(self, bad: dict[str, Any], field: str) -> None:
        with pytest.raises(BadRequest, match=field):
            apply(table(), add(snapshot(1) | bad))

    @pytest.mark.parametrize("bad", [1, [], "x", None])
    def test_a_snapshot_that_is_no_object_is_refused(self, bad: Any) -> None:
        with pytest.raises(BadRequest, match=r"add-snapshot.snapshot"):
            apply(table(), add(bad))


class TestRowLineage:
    def test_a_missing_first_row_id_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="first-row-id is null"):
            apply(table(3), add(snapshot(1)))

    def test_a_first_row_id_behind_the_table_can_be_retried(self) -> None:
        with pytest.raises(CommitFailed, match="first-row-id is behind table next-row-id: 5 < 10"):
            apply(history(1, 3), add(snapshot(2, 1, first_row_id=5, added_rows=1)))

    def test_next_row_id_goes_on_behind_the_snapshot(self) -> None:
        metadata = apply(history(1, 3), add(snapshot(2, 1, first_row_id=100, added_rows=7)))
        assert metadata.next_row_id == 107

    def test_row_ids_stay_within_64_bits(self) -> None:
        with pytest.raises(BadRequest, match="added-rows"):
            apply(table(3), add(snapshot(1, first_row_id=2**63 - 1, added_rows=1)))

    def test_before_version_3_the_fields_are_only_kept(self) -> None:
        metadata = apply(table(2), add(snapshot(1, first_row_id=100, added_rows=7)))
        assert metadata.next_row_id == 0
        assert document(metadata)["snapshots"][0]["first-row-id"] == 100


class TestTimestamps:
    def test_a_snapshot_up_to_a_minute_behind_the_log_is_taken(self) -> None:
        base = history(1)
        late = snapshot(2, 1, timestamp_ms=NOW_MS + 1 - 60_000)
        metadata = apply(base, add(late), set_ref(2))
        assert metadata.snapshot_log[1].timestamp_ms == NOW_MS + 1 - 60_000
        assert metadata.last_updated_ms == base.last_updated_ms

    def test_more_than_a_minute_behind_is_refused(self) -> None:
        late = snapshot(2, 1, timestamp_ms=NOW_MS - 60_000)
        with pytest.raises(BadRequest, match=r"timestamp-ms.*before the last snapshot log entry"):
            apply(history(1), add(late), set_ref(2))

    def test_more_than_a_minute_ahead_is_refused(self) -> None:
        early = snapshot(1, timestamp_ms=NOW_MS + 60_001)
        with pytest.raises(BadRequest, match=r"timestamp-ms.*ahead of the catalog's clock"):
            apply(table(), add(early), set_ref(1), now_ms=NOW_MS)

    def test_last_updated_is_not_before_the_last_log_entry(self) -> None:
        early = snapshot(1, timestamp_ms=NOW_MS + 30_000)
        metadata = apply(table(), add(early), set_ref(1), now_ms=NOW_MS)
        assert metadata.last_updated_ms == NOW_MS + 30_000

    def test_time_never_runs_backwards(self) -> None:
        changed = apply(
            history(1), update("set-properties", updates={"a": "b"}), now_ms=NOW_MS - 10_000_000
        )
        assert changed.last_updated_ms == NOW_MS + 1


class TestSnapshotLog:
    def test_intermediate_snapshots_of_one_request_are_left_out(self) -> None:
        metadata = apply(
            history(1),
            add(snapshot(2, 1)),
            set_ref(2),
            add(snapshot(3, 2)),
            set_ref(3),
            now_ms=NOW_MS + 3,
        )
        assert log_ids(metadata) == [1, 3]
        assert len(metadata.snapshots) == 3

    def test_a_rollback_is_logged_with_the_time_of_the_change(self) -> None:
        metadata = apply(history(3), set_ref(1), now_ms=NOW_MS + 500)
        assert log_ids(metadata) == [1, 2, 3, 1]
        last = metadata.snapshot_log.last
        assert last is not None
        assert last.timestamp_ms == NOW_MS + 500
        assert metadata.current_snapshot_id == 1

    def test_a_snapshot_that_comes_and_is_rolled_back_leaves_no_entry(self) -> None:
        metadata = apply(
            history(2), add(snapshot(3, 2)), set_ref(3), set_ref(1), now_ms=NOW_MS + 10
        )
        assert log_ids(metadata) == [1, 2, 1]

    def test_removing_main_keeps_the_log(self) -> None:
        metadata = apply(history(2), update("remove-snapshot-ref", ref_name="main"))
        assert metadata.current_snapshot_id is None
        assert metadata.current_snapshot is None
        assert len(metadata.snapshots) == 2
        assert log_ids(metadata) == [1, 2]
        assert document(metadata)["current-snapshot-id"] == -1

    def test_a_replaced_table_keeps_its_history(self) -> None:
        metadata = apply(
            history(1),
            update("remove-snapshot-ref", ref_name="main"),
            add(snapshot(2)),
            set_ref(2),
            now_ms=NOW_MS + 2,
        )
        assert log_ids(metadata) == [1, 2]

    def test_a_gap_takes_the_history_before_it_along(self) -> None:
        metadata = apply(history(5), update("remove-snapshots", snapshot_ids=[3]))
        assert [found.snapshot_id for found in metadata.snapshots] == [1, 2, 4, 5]
        assert log_ids(metadata) == [4, 5]

    def test_expiry_from_the_front(self) -> None:
        metadata = apply(history(5), update("remove-snapshots", snapshot_ids=[1, 2]))
        assert log_ids(metadata) == [3, 4, 5]

    def test_a_snapshot_added_and_removed_in_one_request_is_a_gap_too(self) -> None:
        metadata = apply(
            history(2),
            add(snapshot(3, 2)),
            set_ref(3),
            update("remove-snapshots", snapshot_ids=[3]),
            set_ref(2),
            now_ms=NOW_MS + 9,
        )
        assert log_ids(metadata) == [2]
        assert metadata.last_sequence_number == 3


class TestRemoveSnapshots:
    def test_refs_and_statistics_go_with_them(self) -> None:
        base = apply(
            history(3),
            set_ref(1, "audit", "tag"),
            set_ref(2, "dev"),
            update("set-statistics", statistics=statistics(1)),
            update("set-statistics", statistics=statistics(3)),
            update("set-partition-statistics", partition_statistics=partition_statistics(1)),
        )
        left = apply(base, update("remove-snapshots", snapshot_ids=[1, 99]))
        assert set(left.refs) == {"main", "dev"}
        assert [file.snapshot_id for file in left.statistics] == [3]
        assert left.partition_statistics == ()

    def test_without_the_current_snapshot_there_is_no_main(self) -> None:
        left = apply(history(2), update("remove-snapshots", snapshot_ids=[2]))
        assert left.current_snapshot_id is None
        assert left.ref("main") is None
        assert log_ids(left) == []

    def test_all(self) -> None:
        left = apply(history(40), update("remove-snapshots", snapshot_ids=list(range(1, 41))))
        assert len(left.snapshots) == 0
        assert left.last_sequence_number == 40


class TestRefs:
    def test_branches_and_tags(self) -> None:
        metadata = apply(
            history(2),
            set_ref(1, "v1", "TAG", max_ref_age_ms=5),
            set_ref(2, "dev", min_snapshots_to_keep=3, max_snapshot_age_ms=10, max_ref_age_ms=None),
        )
        assert document(metadata)["refs"] == {
            "main": {"snapshot-id": 2, "type": "branch"},
            "v1": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 5},
            "dev": {
                "snapshot-id": 2,
                "type": "branch",
                "min-snapshots-to-keep": 3,
                "max-snapshot-age-ms": 10,
            },
        }
        assert log_ids(metadata) == [1, 2]

    def test_retention_of_main_changes_without_a_new_snapshot(self) -> None:
        metadata = apply(history(1), set_ref(1, min_snapshots_to_keep=4))
        main = metadata.ref("main")
        assert main is not None
        assert main.min_snapshots_to_keep == 4

    def test_unknown_fields_of_a_ref_survive_its_move(self) -> None:
        base = history(2)
        marked = msgspec.structs.replace(
            base.refs["main"], raw=b'{"snapshot-id":2,"type":"branch","owner":"me"}'
        )
        base = msgspec.structs.replace(base, refs={"main": marked})
        moved = commit(base, snapshot(3, 2))
        assert document(moved)["refs"]["main"] == {
            "snapshot-id": 3,
            "type": "branch",
            "owner": "me",
        }

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (set_ref(99), "Cannot set main to unknown snapshot: 99"),
            (set_ref(99, "dev"), "Cannot set dev to unknown snapshot: 99"),
            (set_ref(2, kind="tag"), "Cannot set main to a tag"),
            (set_ref(2, "x", "twig"), "branch or tag"),
            (set_ref(2, ""), "ref-name"),
            (set_ref(2, "x", "tag", min_snapshots_to_keep=1), "min-snapshots-to-keep"),
            (set_ref(2, "x", "tag", max_snapshot_age_ms=1), "max-snapshot-age-ms"),
            (set_ref(2, "x", min_snapshots_to_keep=0), "min-snapshots-to-keep"),
            (set_ref(2, "x", max_snapshot_age_ms=0), "max-snapshot-age-ms"),
            (set_ref(2, "x", max_ref_age_ms=-1), "max-ref-age-ms"),
        ],
    )
    def test_refused(self, bad: Any, message: str) -> None:
        with pytest.raises(BadRequest, match=message):
            apply(history(3), bad)

    def test_remove(self) -> None:
        tagged = apply(history(2), set_ref(1, "v1", "tag"))
        left = apply(tagged, update("remove-snapshot-ref", ref_name="v1"))
        assert set(left.refs) == {"main"}
        assert left.current_snapshot_id == 2


def statistics(snapshot_id: int, path: str = "a.puffin") -> dict[str, Any]:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/metadata/{path}",
        "file-size-in-bytes": 413,
        "file-footer-size-in-bytes": 42,
        "blob-metadata": [
            {"type": "ndv", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1]}
        ],
    }


def partition_statistics(snapshot_id: int, path: str = "a.parquet") -> dict[str, Any]:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{LOCATION}/metadata/{path}",
        "file-size-in-bytes": 43,
    }


class TestStatistics:
    def test_one_file_a_snapshot(self) -> None:
        base = apply(
            history(2),
            update("set-statistics", statistics=statistics(1)),
            update("set-statistics", statistics=statistics(2), snapshot_id=2),
        )
        changed = apply(base, update("set-statistics", statistics=statistics(1, "b.puffin")))
        assert sorted(file.snapshot_id for file in changed.statistics) == [1, 2]
        assert {file.statistics_path[-8:] for file in changed.statistics} == {
            "a.puffin",
            "b.puffin",
        }
        assert apply(changed, update("set-statistics", statistics=statistics(2))) is changed
        left = apply(changed, update("remove-statistics", snapshot_id=1))
        assert [file.snapshot_id for file in left.statistics] == [2]

    def test_partition_statistics(self) -> None:
        base = apply(
            history(2),
            update("set-partition-statistics", partition_statistics=partition_statistics(1)),
        )
        changed = apply(
            base,
            update(
                "set-partition-statistics",
                partition_statistics=partition_statistics(1, "b.parquet"),
            ),
        )
        assert [file.statistics_path[-9:] for file in changed.partition_statistics] == ["b.parquet"]
        left = apply(changed, update("remove-partition-statistics", snapshot_id=1))
        assert left.partition_statistics == ()

    def test_two_different_snapshot_ids_are_refused(self) -> None:
        with pytest.raises(BadRequest, match=r"set-statistics.snapshot-id"):
            apply(history(2), update("set-statistics", statistics=statistics(1), snapshot_id=2))

    def test_malformed_files_name_their_field(self) -> None:
        with pytest.raises(BadRequest, match="blob-metadata"):
            bad = {k: v for k, v in statistics(1).items() if k != "blob-metadata"}
            apply(history(1), update("set-statistics", statistics=bad))
        with pytest.raises(BadRequest, match="file-size-in-bytes"):
            bad = partition_statistics(1) | {"file-size-in-bytes": "big"}
            apply(history(1), update("set-partition-statistics", partition_statistics=bad))


class TestEncryptionKeys:
    def key(self, key_id: str) -> dict[str, Any]:
        return {"key-id": key_id, "encrypted-key-metadata": "c2VjcmV0", "properties": {"a": "b"}}

    def test_add_once_and_remove(self) -> None:
        base = apply(table(3), update("add-encryption-key", encryption_key=self.key("k1")))
        assert document(base)["encryption-keys"] == [self.key("k1")]
        other = self.key("k1") | {"encrypted-key-metadata": "b3RoZXI="}
        assert apply(base, update("add-encryption-key", encryption_key=other)) is base
        left = apply(base, update("remove-encryption-key", key_id="k1"))
        assert "encryption-keys" not in document(left)

    def test_metadata_must_be_base64(self) -> None:
        bad = self.key("k1") | {"encrypted-key-metadata": "not base64!"}
        with pytest.raises(BadRequest, match="encrypted-key-metadata"):
            apply(table(3), update("add-encryption-key", encryption_key=bad))


def test_a_retry_on_another_base_is_applying_the_same_updates_again() -> None:
    request = [
        update("set-properties", updates={"a": "b"}),
        update("set-statistics", statistics=statistics(1)),
    ]
    for base in (history(1), history(2)):
        changed: TableMetadata = apply_updates(base, request, now_ms=NOW_MS + 9)
        assert changed.properties["a"] == "b"
        assert len(changed.statistics) == 1
