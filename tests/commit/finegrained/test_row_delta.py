"""Row deltas, `overwrite` with delete files: based on the cases of Java's TestRowDelta.

Delete files by position are position deletes in format version 2 and deletion vectors in 3.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import (
    ALL_VERSIONS,
    WITH_DELETES,
    WITH_POSITION_DELETES,
    WITH_VECTORS,
    TableFactory,
)
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    data_exists,
    delete,
    deletes_exist,
    eq,
    expire,
    in_bucket,
    no_new_data,
    no_new_deletes,
    no_new_deletes_for,
    overwrite,
)
from tests.commit.finegrained.tables import DATES, UNPARTITIONED, Table

BUCKET_0 = eq("data", "u")
"""bucket[16] of "u" is 0."""


def vector_end(table: Table) -> str:
    return "@4" if table.version == 3 else ""


def by_position(table: Table, *names: str) -> set[str]:
    return {f"{name}{vector_end(table)}" for name in names}


# --- what a row delta makes -----------------------------------------------------------------------


@WITH_DELETES
def test_only_delete_files_are_a_delete(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    snapshot = table.overwrite(add_deletes=[table.deletes("da", a)])
    assert table.operation == "delete"
    summary = snapshot["summary"]
    assert summary["added-delete-files"] == "1"
    assert summary["added-position-deletes"] == "1"
    kind = "added-dvs" if table.version == 3 else "added-position-delete-files"
    assert summary[kind] == "1"
    assert {"added-dvs", "added-position-delete-files"} - {kind} - summary.keys()


@ALL_VERSIONS
def test_only_data_files_are_an_append(table: Table) -> None:
    table.overwrite(add=[table.data("a", 0)])
    assert table.operation == "append"
    table.overwrite(add=[table.data("b", 0)], summary={"why": "row delta"})
    assert table.live() == {"a", "b"}


@WITH_DELETES
def test_rows_and_deletes_in_one_snapshot(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    snapshot = table.overwrite(
        add=[a], add_deletes=[table.deletes("da", a), table.deletes("db", b)]
    )
    assert table.operation == "overwrite"
    assert snapshot["sequence-number"] == 1
    assert set(table.sequence_numbers().values()) == {1}
    contents = [manifest["content"] for manifest in table.tree().manifests]
    assert sorted(contents) == [0, 1]
    assert snapshot["summary"]["manifests-created"] == "2"


@ALL_VERSIONS
def test_rows_are_added_and_a_data_file_is_removed(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.append(a)
    snapshot = table.overwrite(add=[b], remove=[a])
    assert table.operation == "overwrite"
    assert table.live() == {"b"}
    assert snapshot["summary"]["manifests-replaced"] == "1"


@WITH_DELETES
def test_the_summary_tells_the_kinds_of_delete_files_apart(table: Table) -> None:
    a = table.data("a", 0, rows=9)
    table.append(a)
    by_rows = table.deletes("da", a, rows=2)
    table.overwrite(add_deletes=[by_rows, table.equality_deletes("eq", 0, rows=3)])
    summary = table.summary()
    assert summary["added-delete-files"] == "2"
    assert summary["added-equality-delete-files"] == "1"
    assert summary["added-equality-deletes"] == "3"
    assert summary["added-position-deletes"] == "2"
    assert summary["total-delete-files"] == "2"
    # The size of a deletion vector is that of its blob, not of the Puffin file.
    assert summary["added-files-size"] == ("16" if table.version == 3 else "20")
    table.delete(remove_deletes=[by_rows])
    summary = table.summary()
    assert summary["removed-delete-files"] == "1"
    assert summary["removed-position-deletes"] == "2"
    removed = "removed-dvs" if table.version == 3 else "removed-position-delete-files"
    assert summary[removed] == "1"
    assert summary["total-equality-deletes"] == "3"


@WITH_DELETES
def test_a_file_delete_and_a_row_delete_together(table: Table) -> None:
    a, b, a2 = table.data("a", 0), table.data("b", 1), table.data("a2", 0)
    base = table.append(a, b)["snapshot-id"]
    snapshot = table.overwrite(
        add_deletes=[table.deletes("da", a)],
        add=[a2],
        remove=[b],
        base=base,
        validations=[data_exists(a, allowed=["DELETE"])],
    )
    assert snapshot["sequence-number"] == 2
    assert table.live() == {"a", "a2"} | by_position(table, "da")
    assert table.sequence_numbers()["a"] == 1
    assert table.removed() == {"b"}


@WITH_DELETES
def test_delete_files_of_several_specs(table: Table) -> None:
    table.commit(send.set_properties(write_summary_partition__limit="10"))
    first = table.data("first", 0)
    table.append(first)
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    second = table.data("second", spec_id=1)
    table.append(second)
    deletes = [table.deletes("d1", first), table.deletes("d2", second)]
    snapshot = table.overwrite(add_deletes=deletes)
    assert table.live() == {"first", "second"} | by_position(table, "d1", "d2")
    specs = {m["partition_spec_id"] for m in table.tree().manifests if m["content"] == 1}
    assert specs == {0, 1}
    assert snapshot["summary"]["changed-partition-count"] == "2"
    assert "partitions.data_bucket=0" in snapshot["summary"]


@WITH_DELETES
def test_delete_manifests_of_several_specs_are_merged_apart(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="2"))
    first = table.data("first", 0)
    table.append(first)
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    second, third = table.data("second", spec_id=1), table.data("third", 0)
    table.append(second, third)
    table.overwrite(add_deletes=[table.deletes("d1", first), table.deletes("d2", second)])
    table.overwrite(add_deletes=[table.deletes("d3", third)])
    assert table.live() == {"first", "second", "third"} | by_position(table, "d1", "d2", "d3")
    for manifest in table.tree().manifests:
        assert len({entry.is_data for entry in table.tree().of(manifest)}) == 1


# --- the data files must be there -----------------------------------------------------------------


def gone_by(table: Table, how: str, a: Json, a2: Json) -> None:
    """Remove file a in the given way."""
    if how == "delete":
        table.delete(a)
    elif how == "overwrite":
        table.overwrite(remove=[a], add=[a2])
    elif how == "replace":
        table.replace(remove=[a], add=[a2])
    elif how == "replace-partitions":
        table.replace_partitions(a2)
    else:
        table.delete(row_filter=in_bucket("data", 0))


@WITH_DELETES
@pytest.mark.parametrize(
    ("how", "allowed", "holds"),
    [
        ("delete", ["DELETE"], True),
        ("filter", ["delete"], True),
        ("delete", [], False),
        ("filter", None, False),
        ("overwrite", ["DELETE"], False),
        ("overwrite", ["DELETE", "OVERWRITE"], True),
        ("replace", ["DELETE"], False),
        ("replace", ["REPLACE"], True),
        ("replace-partitions", ["DELETE"], False),
        ("replace-partitions", ["OVERWRITE"], True),
    ],
)
def test_a_required_file_that_was_removed_since_the_base(
    table: Table, how: str, allowed: list[str] | None, holds: bool
) -> None:
    a, b, a2 = table.data("a", 0), table.data("b", 1), table.data("a2", 0)
    base = table.append(a, b)["snapshot-id"]
    gone_by(table, how, a, a2)
    removing = table.head_id
    update = overwrite(
        add_deletes=[table.deletes("da", a)],
        base=base,
        validations=[data_exists(a, allowed=allowed)],
    )
    if holds:
        table.commit(table._update(update))
        assert table.operation == "delete"
        return
    conflict = table.conflict(update)
    assert conflict.clause == "required-data-files"
    assert (conflict.files, conflict.snapshots) == ({"a"}, [removing])
    assert conflict.message.startswith("Cannot commit, missing data files")


@WITH_DELETES
def test_a_required_file_that_was_removed_before_the_base_is_missing(table: Table) -> None:
    """Java's row delta accepts this; refusing it is safer."""
    a, b = table.data("a", 0), table.data("b", 1)
    table.append(a, b)
    base = table.replace_partitions(table.data("a2", 0))["snapshot-id"]
    update = overwrite(
        add_deletes=[table.deletes("da", a)],
        base=base,
        validations=[data_exists(a, allowed=["DELETE"])],
    )
    conflict = table.conflict(update)
    assert (conflict.clause, conflict.files) == ("required-data-files", {"a"})


@WITH_DELETES
def test_a_required_file_that_never_was_is_missing(table: Table) -> None:
    base = table.append(table.data("b", 1))["snapshot-id"]
    x = table.data("x", 0)
    update = overwrite(
        add_deletes=[table.deletes("dx", x)], base=base, validations=[data_exists(x)]
    )
    assert table.conflict(update).files == {"x"}


@WITH_DELETES
def test_a_required_file_that_went_and_came_back_is_missing(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    gone = table.delete(a)["snapshot-id"]
    table.append(a)
    update = overwrite(
        add_deletes=[table.deletes("da", a)], base=base, validations=[data_exists(a)]
    )
    conflict = table.conflict(update)
    assert (conflict.files, conflict.snapshots) == ({"a"}, [gone])


@WITH_DELETES
def test_files_that_are_not_asked_for_may_go(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    base = table.append(a, b)["snapshot-id"]
    table.overwrite(remove=[b])
    table.overwrite(add_deletes=[table.deletes("da", a)], base=base, validations=[data_exists(a)])
    assert table.live() == {"a"} | by_position(table, "da")


@WITH_DELETES
def test_removals_outside_the_filter_are_ignored(new_table: TableFactory, place: Any) -> None:
    table = new_table(version=place[0], branch=place[1], spec=DATES)
    a, b = table.data("a", "a"), table.data("b", "b")
    base = table.append(a, b)["snapshot-id"]
    table.overwrite(remove=[b])
    clauses = [data_exists(a, filter=eq("date", "a")), no_new_data(eq("date", "a"))]
    table.overwrite(add_deletes=[table.deletes("da", a)], base=base, validations=clauses)
    assert table.live() == {"a"} | by_position(table, "da")
    # The file was removed, but the filter does not include its partition.
    table2 = new_table(version=place[0], branch=place[1], spec=DATES)
    a2, b2 = table2.data("a", "a"), table2.data("b", "b")
    base2 = table2.append(a2, b2)["snapshot-id"]
    table2.overwrite(remove=[a2])
    conflict = table2.conflict(
        overwrite(
            add_deletes=[table2.equality_deletes("eq", "a")],
            base=base2,
            validations=[data_exists(a2, filter=eq("date", "a"))],
        )
    )
    assert conflict.files == {"a"}


@WITH_DELETES
def test_a_data_file_and_its_deletes_do_not_go_together(table: Table) -> None:
    """Java accepts this by default; here a delete for a removed file is always refused."""
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    deletes = table.deletes("da", a)
    if table.version == 2:
        deletes["referenced-data-file"] = a["file-path"]
    answer = table.post(table._update(overwrite(add_deletes=[deletes], remove=[a], base=base)))
    assert answer.status in (400, 409), answer.body
    assert a["file-path"] in answer.body["error"]["message"]


@ALL_VERSIONS
def test_removing_what_is_not_there_is_refused(table: Table) -> None:
    base = table.append(table.data("b", 1))["snapshot-id"]
    conflict = table.conflict(overwrite(remove=[table.data("a", 0)], base=base))
    assert (conflict.clause, conflict.files) == ("removed-file-not-live", {"a"})
    assert "Missing required files to delete" in conflict.message
    table.commit(send.set_properties(frazil_commit_ignore__missing__removals="true"))
    table.overwrite(remove=[table.data("a", 0)], base=base)
    assert table.live() == {"b"}
    assert table.operation == "delete"


# --- new data and new deletes ---------------------------------------------------------------------


@WITH_DELETES
def test_new_data_in_the_bucket_of_the_filter_is_a_conflict(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    new = table.append(table.data("a2", 0))["snapshot-id"]
    update = overwrite(
        add_deletes=[table.deletes("da", a)], base=base, validations=[no_new_data(BUCKET_0)]
    )
    conflict = table.conflict(update)
    assert (conflict.files, conflict.snapshots) == ({"a2"}, [new])


@WITH_DELETES
def test_new_data_in_another_bucket_is_compatible(table: Table) -> None:
    """The filter is on the column, and the transform proves that the bucket does not match."""
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.append(table.data("b", 1), table.data("c", None))
    table.overwrite(
        add_deletes=[table.deletes("da", a)], base=base, validations=[no_new_data(BUCKET_0)]
    )
    assert table.live() == {"a", "b", "c"} | by_position(table, "da")


@WITH_DELETES
def test_new_data_before_the_base_is_no_news(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    base = table.append(table.data("a2", 0))["snapshot-id"]
    clauses = [data_exists(a), no_new_data(BUCKET_0)]
    snapshot = table.overwrite(add_deletes=[table.deletes("da", a)], base=base, validations=clauses)
    assert snapshot["sequence-number"] == 3


@WITH_DELETES
@pytest.mark.parametrize("adds_rows", [True, False])
def test_two_row_deltas_of_one_file(table: Table, adds_rows: bool) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    first = table.overwrite(
        add_deletes=[table.deletes("d1", a)], base=base, validations=[no_new_data(TRUE)]
    )
    fields: Any = {"add": [table.data("b", 1)]} if adds_rows else {}
    update = overwrite(
        add_deletes=[table.deletes("d2", a)],
        base=base,
        validations=[no_new_data(TRUE), no_new_deletes(TRUE)],
        **fields,
    )
    found = table.conflicts(update)
    (conflict,) = [c for c in found if c.clause == "not-allowed-added-delete-files"]
    assert conflict.files == by_position(table, "d1")
    assert conflict.snapshots == [first["snapshot-id"]]
    # Either result is correct: vectors may or may not be checked after another clause has failed.
    assert {c.clause for c in found} <= {"not-allowed-added-delete-files", "dv-conflict"}


@WITH_DELETES
def test_two_row_deltas_in_different_partitions(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    base = table.append(a, b)["snapshot-id"]
    table.overwrite(add_deletes=[table.deletes("db", b)], base=base)
    table.overwrite(
        add_deletes=[table.deletes("da", a)],
        base=base,
        validations=[no_new_data(BUCKET_0), no_new_deletes(BUCKET_0)],
    )
    assert table.live() == {"a", "b"} | by_position(table, "da", "db")


@WITH_DELETES
def test_the_case_of_names_under_a_transform(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.overwrite(add_deletes=[table.deletes("da", a)])
    update = overwrite(
        add=[table.data("b", 1)],
        add_deletes=[table.equality_deletes("eq", 0)],
        base=base,
        validations=[no_new_deletes(in_bucket("dAtA", 0))],
    )
    assert "dAtA" in table.bad(update)
    conflict = table.conflict(update | {"case-sensitive": False})
    assert conflict.clause == "not-allowed-added-delete-files"


@WITH_DELETES
def test_a_delete_for_a_file_that_is_removed_here_is_a_conflict(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    base = table.append(a, b)["snapshot-id"]
    new = table.overwrite(add_deletes=[table.deletes("db", b)], base=base)["snapshot-id"]
    update = overwrite(
        add_deletes=[table.deletes("da", a)],
        add=[table.data("a2", 0)],
        remove=[b],
        base=base,
        validations=[data_exists(a), no_new_deletes_for(b)],
    )
    conflict = table.conflict(update)
    assert conflict.clause == "not-allowed-new-deletes-for-data-files"
    assert (conflict.snapshots, conflict.validation) == ([new], 1)


@WITH_DELETES
def test_deletes_that_came_and_went_are_still_seen(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    deletes = table.deletes("da", a)
    new = table.overwrite(add_deletes=[deletes])["snapshot-id"]
    table.delete(remove_deletes=[deletes])
    for clause in (no_new_deletes(TRUE), no_new_deletes_for(a)):
        update = delete(a, base=base, validations=[clause])
        assert new in table.conflict(update).snapshots


@WITH_DELETES
def test_deletes_of_a_rewrite_are_not_seen(table: Table) -> None:
    """Snapshots with the operation `replace` are not searched for new deletes."""
    a = table.data("a", 0)
    first, second = table.equality_deletes("e1", 0), table.equality_deletes("e2", 0)
    base = table.overwrite(add=[a], add_deletes=[first])["snapshot-id"]
    table.replace(remove_deletes=[first], add_deletes=[second])
    table.delete(a, base=base, validations=[no_new_deletes(TRUE), no_new_deletes_for(a)])
    assert "a" not in table.live()


def test_format_version_1_has_no_deletes_to_look_for(new_table: TableFactory) -> None:
    table = new_table(version=1)
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.append(table.data("b", 0))
    clauses = [no_new_deletes(TRUE), no_new_deletes_for(a)]
    table.delete(a, base=base, validations=clauses)
    assert table.live() == {"b"}


@WITH_POSITION_DELETES
def test_position_deletes_count_for_every_file_of_their_partition(table: Table) -> None:
    a, a2, b = table.data("a", 0), table.data("a2", 0), table.data("b", 1)
    base = table.append(a, a2, b)["snapshot-id"]
    table.overwrite(add_deletes=[table.position_deletes("d", a)])
    assert table.conflicts(delete(a2, base=base, validations=[no_new_deletes_for(a2)]))
    table.delete(b, base=base, validations=[no_new_deletes_for(b)])


@WITH_POSITION_DELETES
def test_position_deletes_that_name_their_file_count_for_it_alone(table: Table) -> None:
    a, a2 = table.data("a", 0), table.data("a2", 0)
    base = table.append(a, a2)["snapshot-id"]
    table.overwrite(add_deletes=[table.position_deletes("d", a, refer=True)])
    assert table.conflicts(delete(a, base=base, validations=[no_new_deletes_for(a)]))
    table.delete(a2, base=base, validations=[no_new_deletes_for(a2)])


@WITH_DELETES
def test_equality_deletes_count_for_older_files_of_their_partition(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    base = table.append(a, b)["snapshot-id"]
    table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])
    assert table.conflicts(delete(a, base=base, validations=[no_new_deletes_for(a)]))
    table.delete(b, base=base, validations=[no_new_deletes_for(b)])


@WITH_DELETES
def test_equality_deletes_of_an_unpartitioned_spec_are_global(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    table.overwrite(add_deletes=[table.equality_deletes("eq", spec_id=1)])
    conflict = table.conflict(delete(a, base=base, validations=[no_new_deletes_for(a)]))
    assert conflict.clause == "not-allowed-new-deletes-for-data-files"


@WITH_DELETES
def test_the_sequence_number_that_counts_is_the_bases(table: Table) -> None:
    """A client that uses the head's sequence number loses a delete: delete, append, then
    overwrite."""
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    deleted = table.overwrite(add_deletes=[table.deletes("da", a)])["snapshot-id"]
    table.append(table.data("b", 1))
    update = overwrite(
        remove=[a],
        add=[table.data("a-rewritten", 0)],
        base=base,
        validations=[no_new_deletes_for(a), data_exists(a)],
    )
    conflict = table.conflict(update)
    assert conflict.clause == "not-allowed-new-deletes-for-data-files"
    assert conflict.snapshots == [deleted]


# --- removing delete files ------------------------------------------------------------------------


@WITH_DELETES
def test_delete_files_are_rewritten(table: Table) -> None:
    a = table.data("a", 0)
    old, new = table.deletes("old", a), table.deletes("new", a)
    table.overwrite(add=[a], add_deletes=[old])
    snapshot = table.overwrite(remove_deletes=[old], add_deletes=[new], base=table.head_id)
    assert table.operation == "delete"
    assert table.live() == {"a"} | by_position(table, "new")
    assert table.sequence_numbers()["new" + vector_end(table)] == 2
    summary = snapshot["summary"]
    assert (summary["manifests-created"], summary["manifests-replaced"]) == ("2", "1")
    assert summary["manifests-kept"] == "1"


@WITH_DELETES
def test_two_writers_rewrite_the_same_delete_file(table: Table) -> None:
    """Java accepts in version 2 that the file was removed; here it must be live."""
    a = table.data("a", 0)
    old = table.deletes("old", a)
    base = table.overwrite(add=[a], add_deletes=[old])["snapshot-id"]
    table.overwrite(remove_deletes=[old], add_deletes=[table.deletes("n1", a)], base=base)
    update = overwrite(remove_deletes=[old], add_deletes=[table.deletes("n2", a)], base=base)
    clauses = {c.clause for c in table.conflicts(update)}
    assert "removed-file-not-live" in clauses or "dv-conflict" in clauses
    wanted = overwrite(
        remove_deletes=[old],
        add_deletes=[table.deletes("n2", a)],
        base=base,
        validations=[deletes_exist(old)],
    )
    assert "required-delete-files" in {c.clause for c in table.conflicts(wanted)}


@WITH_VECTORS
def test_required_vectors_by_offset_and_by_bare_path(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    va, vb = table.vector("v", a, offset=4), table.vector("v", b, offset=10)
    base = table.overwrite(add=[a, b], add_deletes=[va, vb])["snapshot-id"]
    table.append(table.data("c", 0), validations=[deletes_exist(va, vb)], base=base)
    table.append(table.data("d", 0), validations=[deletes_exist(va["file-path"])], base=base)
    table.delete(remove_deletes=[va])
    update = send.append(table.data("e", 0), base=base, validations=[deletes_exist(va, vb)])
    conflict = table.conflict(update)
    assert (conflict.clause, conflict.files) == ("required-delete-files", {"v@4"})


# --- deletion vectors -----------------------------------------------------------------------------


@WITH_VECTORS
def test_two_vectors_for_one_file_at_once_are_refused(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    message = table.bad(overwrite(add_deletes=[table.vector("v1", a), table.vector("v2", a)]))
    assert a["file-path"] in message


@WITH_VECTORS
def test_concurrent_vectors_for_one_file_need_no_clause(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    first = table.overwrite(add_deletes=[table.vector("v1", a)], base=base)
    conflict = table.conflict(overwrite(add_deletes=[table.vector("v2", a)], base=base))
    assert conflict.clause == "dv-conflict"
    assert conflict.validation is None
    assert conflict.snapshots == [first["snapshot-id"]]
    assert "Found concurrently added DV" in conflict.message


@WITH_VECTORS
def test_a_filter_elsewhere_does_not_hide_a_concurrent_vector(table: Table) -> None:
    """Java searches for vectors only inside the conflict filter."""
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.overwrite(add_deletes=[table.vector("v1", a)], base=base)
    update = overwrite(
        add_deletes=[table.vector("v2", a)],
        base=base,
        validations=[no_new_deletes(in_bucket("data", 7))],
    )
    assert table.conflict(update).clause == "dv-conflict"


@WITH_VECTORS
def test_concurrent_vectors_for_two_files(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    base = table.append(a, b)["snapshot-id"]
    table.overwrite(add_deletes=[table.vector("va", a)], base=base)
    table.overwrite(add_deletes=[table.vector("vb", b)], base=base)
    assert table.live() == {"a", "b", "va@4", "vb@4"}


@WITH_VECTORS
def test_a_second_vector_must_take_the_place_of_the_first(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    first = table.vector("v1", a)
    table.overwrite(add_deletes=[first])
    for base in (None, table.head_id):
        conflict = table.conflict(overwrite(add_deletes=[table.vector("v2", a)], base=base))
        assert conflict.clause == "dv-conflict"
        assert conflict.files in ({"v1@4"}, {"a"}, {"v2@4"})
    table.overwrite(add_deletes=[table.vector("v2", a)], remove_deletes=[first], base=table.head_id)
    assert table.live() == {"a", "v2@4"}


@WITH_VECTORS
def test_without_a_base_every_vector_of_the_history_counts(table: Table) -> None:
    """As in Java, a client that names no base is treated as having read nothing."""
    a = table.data("a", 0)
    table.append(a)
    first = table.vector("v1", a)
    table.overwrite(add_deletes=[first])
    table.delete(remove_deletes=[first])
    assert table.conflict(overwrite(add_deletes=[table.vector("v2", a)])).clause == "dv-conflict"
    table.overwrite(add_deletes=[table.vector("v2", a)], base=table.head_id)
    assert table.live() == {"a", "v2@4"}


@WITH_VECTORS
def test_where_the_history_is_not_known_the_live_vectors_decide(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    first = table.append(a, b)["snapshot-id"]
    old = table.vector("va", a)
    table.overwrite(add_deletes=[old])
    table.commit(expire(first))
    assert table.conflict(overwrite(add_deletes=[table.vector("new", a)])).clause == "dv-conflict"
    table.overwrite(add_deletes=[table.vector("vb", b)])
    table.overwrite(add_deletes=[table.vector("new", a)], remove_deletes=[old])
    assert table.live() == {"a", "b", "new@4", "vb@4"}


def test_a_vector_that_a_new_branch_inherits_counts(new_table: TableFactory) -> None:
    """The branch starts at main's head after the first update, which has a vector."""
    table = new_table(version=3)
    a = table.data("a", 0)
    table.append(a)
    first = overwrite(add_deletes=[table.vector("v1", a)])
    second = overwrite(add_deletes=[table.vector("v2", a)], branch="new")
    conflict = table.conflict(first, second)
    assert (conflict.clause, conflict.update) == ("dv-conflict", 1)


@WITH_VECTORS
def test_two_vectors_for_one_file_by_two_updates_are_refused(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    updates = [overwrite(add_deletes=[table.vector(name, a)]) for name in ("v1", "v2")]
    conflict = table.conflict(*updates)
    assert (conflict.clause, conflict.update) == ("dv-conflict", 1)
    assert conflict.files == {"v1@4"}


@WITH_VECTORS
def test_vectors_beside_equality_deletes(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    table.overwrite(add_deletes=[table.vector("v", a), table.equality_deletes("eq", 0)])
    assert table.live() == {"a", "v@4", "eq"}


@WITH_VECTORS
def test_position_deletes_of_an_older_version_stay_after_an_upgrade(
    new_table: TableFactory, place: Any
) -> None:
    table = new_table(version=2, branch=place[1])
    a = table.data("a", 0)
    table.append(a)
    table.overwrite(add_deletes=[table.position_deletes("p", a)])
    table.commit({"action": "upgrade-format-version", "format-version": 3})
    table.version = 3
    assert table.bad(overwrite(add_deletes=[table.position_deletes("q", a)]))
    table.overwrite(add_deletes=[table.vector("v", a)])
    assert table.live() == {"a", "p", "v@4"}
    vector = table.entries()["v@4"]
    assert vector.referenced_data_file == a["file-path"]
    assert (vector.content_offset, vector.content_size_in_bytes) == (4, 6)


@WITH_DELETES
def test_a_delete_for_a_file_that_is_not_live_is_accepted(table: Table) -> None:
    """As in Java, this is accepted unless a clause forbids it."""
    table.append(table.data("b", 0))
    gone = table.data("gone", 0)
    table.overwrite(add_deletes=[table.deletes("dg", gone)])
    assert table.live() == {"b"} | by_position(table, "dg")


@WITH_DELETES
def test_the_same_delete_file_twice_is_refused(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    table.append(a, b)
    table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])
    conflict = table.conflict(overwrite(add_deletes=[table.equality_deletes("eq", 0)]))
    assert (conflict.clause, conflict.files) == ("duplicate-file", {"eq"})


@WITH_VECTORS
def test_another_vector_of_the_same_puffin_file_is_another_file(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    table.append(a, b)
    table.overwrite(add_deletes=[table.vector("v", a, offset=4)])
    table.overwrite(add_deletes=[table.vector("v", b, offset=10)])
    assert table.live() == {"a", "b", "v@4", "v@10"}


# --- stale delete files ---------------------------------------------------------------------------


@WITH_DELETES
def test_removing_a_data_file_leaves_other_delete_files(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.overwrite(add=[a, b], add_deletes=[table.deletes("da", a), table.deletes("db", b)])
    table.delete(a)
    if table.version == 3:
        assert table.live() == {"b", "db@4"}
    else:
        assert table.live() == {"b", "da", "db"}


@WITH_POSITION_DELETES
def test_delete_files_go_when_no_data_is_old_enough(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.overwrite(add=[a], add_deletes=[table.deletes("da", a), table.deletes("db", b)])
    table.delete(a)
    table.delete(remove_deletes=[table.deletes("db", b)])
    assert table.live() == set()


def test_an_unpartitioned_row_delta(new_table: TableFactory) -> None:
    table = new_table(spec=UNPARTITIONED)
    a, b = table.data("a"), table.data("b")
    base = table.append(a, b)["snapshot-id"]
    table.overwrite(add_deletes=[table.position_deletes("d", a)])
    assert table.conflicts(delete(b, base=base, validations=[no_new_deletes_for(b)]))
