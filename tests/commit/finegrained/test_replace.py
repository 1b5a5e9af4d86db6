"""Rewrites, `replace`: based on the cases of Java's TestRewriteFiles."""

from __future__ import annotations

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
    Json,
    data_exists,
    deletes_exist,
    no_new_deletes_for,
    replace,
)
from tests.commit.finegrained.tables import Table


def by_position(table: Table, *names: str) -> set[str]:
    return {f"{name}@4" if table.version == 3 else name for name in names}


def javas_clauses(*files: Json) -> list[Json]:
    """Return the clauses that Java's RewriteFiles always checks."""
    return [data_exists(*files), no_new_deletes_for(*files)]


# --- what a rewrite does --------------------------------------------------------------------------


@ALL_VERSIONS
def test_a_file_is_replaced_by_another(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.append(a, b)
    snapshot = table.replace(remove=[a], add=[table.data("c", 0)])
    assert table.operation == "replace"
    assert table.live() == {"b", "c"}
    assert table.removed() == {"a"}
    assert snapshot["summary"]["manifests-created"] == "2"
    assert snapshot["summary"]["manifests-replaced"] == "1"
    assert table.sequence_numbers()["c"] == (0 if table.version == 1 else 2)


@ALL_VERSIONS
def test_many_files_become_one(table: Table) -> None:
    files = [table.data(f"f{number}", 0, rows=10) for number in range(8)]
    for file in files:
        table.append(file)
    table.replace(remove=files, add=[table.data("all", 0, rows=80)])
    assert table.live() == {"all"}
    summary = table.summary()
    assert summary["total-records"] == "80"
    assert (summary["added-records"], summary["deleted-records"]) == ("80", "80")


@ALL_VERSIONS
def test_fewer_rows_than_replaced_are_fine(table: Table) -> None:
    """A compaction that applies deletes writes fewer rows."""
    a = table.data("a", 0, rows=10)
    table.append(a)
    table.replace(remove=[a], add=[table.data("b", 0, rows=7)])
    assert table.live() == {"b"}


@ALL_VERSIONS
def test_more_rows_than_replaced_are_refused(table: Table) -> None:
    a, b = table.data("a", 0, rows=10), table.data("b", 0, rows=5)
    table.append(a, b)
    update = replace(remove=[a], add=[table.data("c", 0, rows=6), table.data("d", 0, rows=5)])
    conflict = table.conflict(update)
    assert conflict.clause == "replace-adds-rows"
    assert conflict.validation is None
    assert "11" in conflict.message
    assert "10" in conflict.message


@ALL_VERSIONS
def test_the_rows_that_count_are_the_tables_own(table: Table) -> None:
    """The record count of a removed file in the request is ignored."""
    a = table.data("a", 0, rows=10)
    table.append(a)
    update = {
        "action": "replace",
        "remove-data-files": [a | {"record-count": 1000}],
        "add-data-files": [table.data("b", 0, rows=11)],
    }
    assert table.conflict(update).clause == "replace-adds-rows"


@ALL_VERSIONS
def test_a_rewrite_may_add_nothing(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.append(a, b)
    table.replace(remove=[a])
    assert table.live() == {"b"}
    assert table.operation == "replace"


@ALL_VERSIONS
def test_a_rewrite_of_an_empty_table_is_refused(table: Table) -> None:
    conflict = table.conflict(replace(remove=[table.data("a", 0)], add=[table.data("b", 0)]))
    assert (conflict.clause, conflict.files) == ("removed-file-not-live", {"a"})
    assert "Missing required files to delete" in conflict.message


@ALL_VERSIONS
def test_a_rewrite_of_a_file_that_is_not_there_is_refused(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 1))
    update = replace(remove=[table.data("c", 0)], add=[table.data("d", 0)])
    assert table.conflict(update).files == {"c"}


@ALL_VERSIONS
def test_a_rewrite_of_a_file_that_was_rewritten_is_refused(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    first = table.replace(remove=[a], add=[table.data("b", 0)])["snapshot-id"]
    update = replace(remove=[a], add=[table.data("d", 0)], base=base)
    assert table.conflict(update).clause == "removed-file-not-live"
    found = table.conflicts(update | {"commit-validations": javas_clauses(a)})
    (required,) = [c for c in found if c.clause == "required-data-files"]
    assert (required.files, required.snapshots) == ({"a"}, [first])


def test_ignoring_missing_removals_does_not_reach_a_rewrite(new_table: TableFactory) -> None:
    """Java ignores missing files for delete and overwrite, but never for a rewrite."""
    table = new_table(properties={"frazil.commit.ignore-missing-removals": "true"})
    table.append(table.data("a", 0))
    update = replace(remove=[table.data("x", 0)], add=[table.data("y", 0)])
    assert table.conflict(update).clause in {"removed-file-not-live", "replace-adds-rows"}


# --- sequence numbers -----------------------------------------------------------------------------


@WITH_DELETES
def test_an_old_sequence_number_is_given_to_the_new_file(table: Table) -> None:
    a, b, c = table.data("a", 0, rows=2), table.data("b", 1), table.data("c", 2)
    table.overwrite(add=[a, b, c], add_deletes=[table.deletes("da", a), table.deletes("db", b)])
    base = table.head_id
    table.replace(remove=[a], add=[table.data("d", 0)], base=base, data_sequence_number=1)
    entry = table.entries()["d"]
    assert (entry.sequence_number, entry.file_sequence_number) == (1, 2)
    (manifest,) = [m for m in table.tree().manifests if m["manifest_path"] == entry.manifest_path]
    assert manifest["sequence_number"] == 2
    assert manifest["min_sequence_number"] == 1
    if table.version == 3:
        assert table.live() == {"b", "c", "d", "db@4"}


@WITH_DELETES
def test_a_compaction_under_equality_deletes(table: Table) -> None:
    """The old sequence number makes the newer equality delete apply to the new file."""
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])
    new = table.data("new", 0)
    table.replace(
        remove=[a],
        add=[new],
        base=base,
        data_sequence_number=1,
        validations=javas_clauses(a),
    )
    assert table.live() == {"new", "eq"}
    assert table.sequence_numbers() == {"new": 1, "eq": 2}


@WITH_DELETES
def test_deletes_that_a_rewritten_file_still_needs_stay(table: Table) -> None:
    """Java drops the delete file, because it compares its age with the files before the rewrite."""
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])
    for number in range(3):
        table.append(table.data(f"x{number}", 0), branch="elsewhere")
    table.replace(
        remove=[a],
        add=[table.data("new", 0)],
        base=base,
        data_sequence_number=1,
        validations=javas_clauses(a),
    )
    assert table.live() == {"new", "eq"}


@WITH_DELETES
def test_without_it_the_equality_delete_is_a_conflict(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    new = table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])["snapshot-id"]
    update = replace(
        remove=[a], add=[table.data("new", 0)], base=base, validations=javas_clauses(a)
    )
    conflict = table.conflict(update)
    assert conflict.clause == "not-allowed-new-deletes-for-data-files"
    assert conflict.snapshots == [new]


@WITH_DELETES
def test_new_position_deletes_are_a_conflict_with_and_without(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.overwrite(add_deletes=[table.deletes("da", a)])
    for more in ({}, {"data_sequence_number": 1}):
        update = replace(
            remove=[a], add=[table.data("n", 0)], base=base, validations=javas_clauses(a), **more
        )
        conflict = table.conflict(update)
        assert conflict.clause == "not-allowed-new-deletes-for-data-files"


@WITH_DELETES
def test_merging_keeps_the_old_sequence_number(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="2"))
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])
    table.replace(remove=[a], add=[table.data("b", 0)], base=base, data_sequence_number=1)
    table.append(table.data("c", 0))
    table.append(table.data("d", 0))
    numbers = table.sequence_numbers()
    assert numbers == {"b": 1, "eq": 2, "c": 4, "d": 5}
    assert table.entries()["b"].file_sequence_number == 3


@WITH_DELETES
def test_a_sequence_number_above_the_bases_is_refused(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.append(table.data("b", 0))
    update = replace(remove=[a], add=[table.data("c", 0)], base=base, data_sequence_number=2)
    message = table.bad(update)
    assert "data-sequence-number" in message


def test_format_version_1_has_no_sequence_numbers(new_table: TableFactory) -> None:
    table = new_table(version=1)
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    update = replace(remove=[a], add=[table.data("c", 0)], base=base, data_sequence_number=0)
    assert "data-sequence-number" in table.bad(update)


# --- delete files ---------------------------------------------------------------------------------


@WITH_DELETES
def test_data_and_delete_files_are_rewritten_together(table: Table) -> None:
    a, b, c = table.data("a", 0, rows=2), table.data("b", 1), table.data("c", 2)
    da, eb = table.deletes("da", a), table.equality_deletes("eb", 1)
    table.overwrite(add=[a, b, c], add_deletes=[da, eb])
    table.replace(remove=[a], remove_deletes=[da, eb], add=[table.data("d", 0)], base=table.head_id)
    assert table.live() == {"b", "c", "d"}
    assert table.operation == "replace"
    assert table.removed() == {"a", "eb"} | by_position(table, "da")


@WITH_DELETES
def test_equality_deletes_become_position_deletes(table: Table) -> None:
    a = table.data("a", 0)
    eq = table.equality_deletes("eq", 0)
    table.overwrite(add=[a], add_deletes=[eq])
    table.replace(remove_deletes=[eq], add_deletes=[table.deletes("da", a)])
    assert table.live() == {"a"} | by_position(table, "da")
    assert table.operation == "replace"


@WITH_DELETES
def test_a_file_and_all_its_deletes_go(table: Table) -> None:
    a = table.data("a", 0)
    da = table.deletes("da", a)
    table.overwrite(add=[a], add_deletes=[da])
    table.replace(remove=[a], remove_deletes=[da], base=table.head_id)
    assert table.live() == set()
    assert table.operation == "replace"


@WITH_DELETES
def test_a_new_delete_file_since_the_base(table: Table) -> None:
    a = table.data("a", 0, rows=2)
    before = table.append(a)["snapshot-id"]
    after = table.overwrite(add_deletes=[table.deletes("da", a)])["snapshot-id"]
    update = replace(
        remove=[a], add=[table.data("a2", 0)], base=before, validations=javas_clauses(a)
    )
    conflict = table.conflict(update)
    assert conflict.message.startswith("Cannot commit, found new delete for replaced data file")
    table.commit(table._update(update | {"base-snapshot-id": after}))
    assert "a2" in table.live()


@WITH_DELETES
def test_delete_files_that_a_neighbour_removed(table: Table) -> None:
    a = table.data("a", 0)
    eq = table.equality_deletes("eq", 0)
    base = table.overwrite(add=[a], add_deletes=[eq])["snapshot-id"]
    table.delete(remove_deletes=[eq])
    update = replace(
        remove_deletes=[eq],
        add_deletes=[table.deletes("da", a)],
        base=base,
        validations=[deletes_exist(eq)],
    )
    assert "required-delete-files" in {c.clause for c in table.conflicts(update)}


@WITH_VECTORS
def test_a_vector_goes_with_its_rewritten_file(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.overwrite(add=[a, b], add_deletes=[table.vector("va", a), table.vector("vb", b)])
    table.replace(remove=[a], base=table.head_id)
    assert table.live() == {"b", "vb@4"}
    assert table.summary()["removed-dvs"] == "1"


@WITH_VECTORS
def test_vectors_are_rewritten_into_one_puffin_file(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    va, vb = table.vector("va", a), table.vector("vb", b)
    table.overwrite(add=[a, b], add_deletes=[va, vb])
    new = [table.vector("all", a, offset=4), table.vector("all", b, offset=10)]
    table.replace(remove_deletes=[va, vb], add_deletes=new)
    assert table.live() == {"a", "b", "all@4", "all@10"}


@WITH_POSITION_DELETES
def test_position_deletes_of_a_rewritten_file_stay_until_nothing_is_older(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    table.overwrite(add=[a, b], add_deletes=[table.position_deletes("p", a)])
    table.replace(remove=[a], add=[table.data("c", 0)])
    assert table.live() == {"b", "c", "p"}
    table.replace(remove=[b], add=[table.data("d", 0)])
    table.delete(table.data_path("c"))
    assert table.live() == {"d"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_rewrite_on_a_branch_leaves_main(new_table: TableFactory, version: int) -> None:
    table = new_table(version=version)
    a = table.data("a", 0)
    table.append(a)
    table.replace(remove=[a], add=[table.data("b", 0)], branch="side")
    assert table.live(table.head("main")) == {"a"}
    assert table.live(table.head("side")) == {"b"}
