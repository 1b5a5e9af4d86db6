"""Overwrites: based on the cases of Java's TestOverwriteWithValidation.

Days 1 and 2 are identity partitions; the ids of day 1 are 0 to 4, those of day 2 are 5 to 9.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.commit.finegrained.conftest import (
    ALL_VERSIONS,
    WITH_DELETES,
    WITH_POSITION_DELETES,
    TableFactory,
)
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    append,
    at_least,
    at_most,
    both,
    data_exists,
    delete,
    eq,
    expire,
    no_new_data,
    no_new_deletes,
    no_new_deletes_for,
    overwrite,
)
from tests.commit.finegrained.tables import DATES, Table

DAY_1, DAY_2 = "2018-06-08", "2018-06-09"
IS_DAY_2 = eq("date", DAY_2)
IDS_5_TO_9 = both(at_least("id", 5), at_most("id", 9))
FROM_10 = at_least("id", 10)


class Days:
    """A table partitioned by date, and the files of Java's cases."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.one = table.data("day1", DAY_1, rows=5, ids=(0, 4))
        self.two = table.data("day2", DAY_2, rows=5, ids=(5, 9))
        self.modified = table.data("day2-modified", DAY_2, rows=5, ids=(5, 9))
        self.another_range = table.data("day2-other", DAY_2, rows=5, ids=(10, 14))

    def deletes(self, name: str, target: Json) -> Json:
        return self.table.deletes(name, target)

    def overwrite_two(self, base: int | None, *clauses: Json, **more: Any) -> Json:
        """Return an overwrite that replaces the file of day 2 by its modified version."""
        return self.table._update(
            overwrite(
                remove=[self.two],
                add=[self.modified],
                base=base,
                validations=list(clauses) or None,
                **more,
            )
        )

    def overwrite_by_filter(self, base: int | None, *clauses: Json, **more: Any) -> Json:
        return self.table._update(
            overwrite(
                row_filter=IS_DAY_2,
                add=[self.modified],
                base=base,
                validations=list(clauses) or None,
                **more,
            )
        )


@pytest.fixture
def days(new_table: TableFactory, place: tuple[int, str]) -> Days:
    version, branch = place
    return Days(new_table(version=version, branch=branch, spec=DATES))


def head(table: Table) -> int:
    return table.head_id


# --- an empty table -------------------------------------------------------------------------------


@ALL_VERSIONS
@pytest.mark.parametrize("clause", [None, TRUE, IS_DAY_2])
def test_an_empty_table(days: Days, clause: Json | None) -> None:
    """There is nothing to remove and nothing that could conflict."""
    table = days.table
    clauses = () if clause is None else (no_new_data(clause),)
    refused = table.conflict(days.overwrite_two(None, *clauses))
    assert (refused.clause, refused.files) == ("removed-file-not-live", {"day2"})
    table.overwrite(add=[days.modified], validations=list(clauses))
    assert table.live() == {"day2-modified"}
    assert table.operation == "append"


# --- nobody else wrote ----------------------------------------------------------------------------


@ALL_VERSIONS
@pytest.mark.parametrize("clause", [None, TRUE, IS_DAY_2])
def test_an_overwrite_without_neighbours(days: Days, clause: Json | None) -> None:
    table = days.table
    table.append(days.one, days.two)
    clauses = () if clause is None else (no_new_data(clause),)
    table.commit(days.overwrite_two(head(table), *clauses))
    assert table.live() == {"day1", "day2-modified"}
    assert table.operation == "overwrite"
    summary = table.summary()
    assert (summary["added-records"], summary["deleted-records"]) == ("5", "5")


# --- appends beside it ----------------------------------------------------------------------------


@ALL_VERSIONS
@pytest.mark.parametrize("clause", [None, IS_DAY_2])
def test_an_append_outside_the_filter_is_compatible(days: Days, clause: Json | None) -> None:
    table = days.table
    base = table.append(days.two)["snapshot-id"]
    table.append(days.one)
    clauses = () if clause is None else (no_new_data(clause),)
    table.commit(days.overwrite_two(base, *clauses))
    assert table.live() == {"day1", "day2-modified"}


@ALL_VERSIONS
def test_an_append_inside_a_strict_filter_is_a_conflict(days: Days) -> None:
    table = days.table
    base = table.append(days.two)["snapshot-id"]
    new = table.append(days.one)["snapshot-id"]
    conflict = table.conflict(days.overwrite_two(base, no_new_data(TRUE)))
    assert conflict.clause == "not-allowed-added-data-files"
    assert (conflict.files, conflict.snapshots) == ({"day1"}, [new])
    assert conflict.message.startswith("Found conflicting files")


@ALL_VERSIONS
def test_an_append_to_the_partition_is_a_conflict(days: Days) -> None:
    table = days.table
    base = table.append(days.one)["snapshot-id"]
    new = table.append(days.two)["snapshot-id"]
    update = overwrite(add=[days.modified], base=base, validations=[no_new_data(IS_DAY_2)])
    conflict = table.conflict(update)
    assert (conflict.files, conflict.snapshots) == ({"day2"}, [new])


@ALL_VERSIONS
def test_another_range_of_ids_is_compatible(days: Days) -> None:
    table = days.table
    table.append(days.one)
    table.overwrite(add=[days.modified], validations=[no_new_data(IDS_5_TO_9)])
    assert table.live() == {"day1", "day2-modified"}


@ALL_VERSIONS
def test_another_range_of_the_same_partition_is_compatible(days: Days) -> None:
    table = days.table
    table.append(days.another_range)
    clause = no_new_data(both(IS_DAY_2, IDS_5_TO_9))
    table.overwrite(add=[days.modified], validations=[clause])
    assert table.live() == {"day2-other", "day2-modified"}


@ALL_VERSIONS
def test_no_base_means_all_of_history(days: Days) -> None:
    table = days.table
    first = table.append(days.two)["snapshot-id"]
    conflict = table.conflict(overwrite(add=[days.modified], validations=[no_new_data(IS_DAY_2)]))
    assert (conflict.files, conflict.snapshots) == ({"day2"}, [first])


@ALL_VERSIONS
def test_a_base_of_the_clause_wins(days: Days) -> None:
    table = days.table
    first = table.append(days.one)["snapshot-id"]
    second = table.append(days.two)["snapshot-id"]
    update = days.overwrite_two(first, no_new_data(TRUE, base=second))
    table.commit(update)
    assert table.live() == {"day1", "day2-modified"}


@ALL_VERSIONS
def test_one_clause_need_not_be_a_list(days: Days) -> None:
    table = days.table
    base = table.append(days.one)["snapshot-id"]
    table.append(days.two)
    update = overwrite(add=[days.modified], base=base) | {"commit-validations": no_new_data(TRUE)}
    conflict = table.conflict(update)
    assert conflict.validation == 0


@ALL_VERSIONS
def test_the_case_of_names_in_a_clause(days: Days) -> None:
    table = days.table
    table.append(days.one, days.two)
    clause = no_new_data(eq("dAtE", DAY_2))
    assert "dAtE" in table.bad(overwrite(add=[days.modified], validations=[clause]))
    update = overwrite(add=[days.modified], validations=[clause], case_sensitive=False)
    assert table.conflict(update).files == {"day2"}


# --- deletes beside it ----------------------------------------------------------------------------


@ALL_VERSIONS
def test_a_delete_of_another_file_is_compatible(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    table.delete(days.one)
    table.commit(days.overwrite_two(base, no_new_data(IS_DAY_2)))
    assert table.live() == {"day2-modified"}


@ALL_VERSIONS
def test_a_delete_of_the_same_file_is_a_conflict(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    gone = table.delete(days.two)["snapshot-id"]
    found = table.conflicts(days.overwrite_two(base, no_new_data(IS_DAY_2), data_exists(days.two)))
    assert {c.clause for c in found} >= {"required-data-files"}
    (required,) = [c for c in found if c.clause == "required-data-files"]
    assert (required.files, required.snapshots, required.validation) == ({"day2"}, [gone], 1)
    assert table.conflict(days.overwrite_two(base)).clause == "removed-file-not-live"


@ALL_VERSIONS
def test_a_rewrite_in_between_leaves_nothing_to_overwrite(days: Days) -> None:
    """Java's case replaces the file by itself, which is 400 here because the path is the
    identity."""
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    again = table.data("day2-again", DAY_2, rows=5, ids=(5, 9))
    table.replace(remove=[days.two], add=[again], base=base)
    # The rewrite adds no rows, so the clause about added data ignores it.
    update = overwrite(
        remove=[again], add=[days.modified], base=base, validations=[no_new_data(IS_DAY_2)]
    )
    table.commit(table._update(update))
    assert table.live() == {"day1", "day2-modified"}


@ALL_VERSIONS
def test_a_data_file_deleted_under_an_overwrite_by_filter(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    gone = table.overwrite(remove=[days.two])["snapshot-id"]
    clauses = (no_new_data(IS_DAY_2), no_new_deletes(IS_DAY_2), data_exists(filter=IS_DAY_2))
    conflict = table.conflict(days.overwrite_by_filter(base, *clauses))
    assert conflict.clause == "required-data-files"
    assert (conflict.files, conflict.snapshots, conflict.validation) == ({"day2"}, [gone], 2)
    assert conflict.message.startswith("Found conflicting deleted files")


@ALL_VERSIONS
def test_a_data_file_deleted_outside_the_filter_is_compatible(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    table.overwrite(remove=[days.one])
    clauses = (no_new_data(IS_DAY_2), no_new_deletes(IS_DAY_2), data_exists(filter=IS_DAY_2))
    table.commit(days.overwrite_by_filter(base, *clauses))
    assert table.live() == {"day2-modified"}


@WITH_DELETES
def test_position_deletes_of_the_replaced_file_are_a_conflict(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    new = table.overwrite(add_deletes=[days.deletes("d2", days.two)])["snapshot-id"]
    clauses = (no_new_data(IS_DAY_2), no_new_deletes_for(days.two, filter=IS_DAY_2))
    conflict = table.conflict(days.overwrite_two(base, *clauses))
    assert conflict.clause == "not-allowed-new-deletes-for-data-files"
    assert (conflict.snapshots, conflict.validation) == ([new], 1)
    assert conflict.message.startswith("Cannot commit, found new delete for replaced data file")


@WITH_DELETES
def test_position_deletes_of_another_file_are_compatible(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    table.overwrite(add_deletes=[days.deletes("d1", days.one)])
    clauses = (no_new_data(IS_DAY_2), no_new_deletes_for(days.two, filter=IS_DAY_2))
    table.commit(days.overwrite_two(base, *clauses))
    end = "@4" if table.version == 3 else ""
    assert table.live() == {"day1", "day2-modified", f"d1{end}"}


@WITH_DELETES
def test_position_deletes_under_an_overwrite_by_filter(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    new = table.overwrite(add_deletes=[days.deletes("d2", days.two)])["snapshot-id"]
    clauses = (no_new_data(IS_DAY_2), no_new_deletes(IS_DAY_2), data_exists(filter=IS_DAY_2))
    conflict = table.conflict(days.overwrite_by_filter(base, *clauses))
    end = "@4" if table.version == 3 else ""
    assert conflict.clause == "not-allowed-added-delete-files"
    assert (conflict.files, conflict.snapshots) == ({f"d2{end}"}, [new])
    assert conflict.message.startswith("Found new conflicting delete files")


@WITH_DELETES
def test_position_deletes_outside_the_filter_are_compatible(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    table.overwrite(add_deletes=[days.deletes("d1", days.one)])
    clauses = (no_new_data(IS_DAY_2), no_new_deletes(IS_DAY_2), data_exists(filter=IS_DAY_2))
    table.commit(days.overwrite_by_filter(base, *clauses))
    end = "@4" if table.version == 3 else ""
    assert table.live() == {"day1", "day2-modified", f"d1{end}"}


@WITH_DELETES
def test_equality_deletes_of_the_partition_are_a_conflict(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    table.overwrite(add_deletes=[table.equality_deletes("eq", DAY_2)])
    clause = no_new_deletes_for(days.two, filter=IS_DAY_2)
    conflict = table.conflict(days.overwrite_two(base, clause))
    assert conflict.clause == "not-allowed-new-deletes-for-data-files"


@WITH_DELETES
def test_equality_deletes_of_another_range_are_compatible(days: Days) -> None:
    table = days.table
    base = table.append(days.two, days.another_range)["snapshot-id"]
    table.overwrite(add_deletes=[table.equality_deletes("eq", DAY_2, ids=(10, 10))])
    clauses = (no_new_data(IDS_5_TO_9), no_new_deletes_for(days.two, filter=IDS_5_TO_9))
    table.commit(days.overwrite_two(base, *clauses))
    assert table.live() == {"day2-modified", "day2-other", "eq"}


@WITH_POSITION_DELETES
def test_a_metadata_only_delete_takes_position_deletes(days: Days) -> None:
    table = days.table
    table.append(days.one, days.two)
    table.overwrite(add_deletes=[days.deletes("d1", days.one)])
    table.overwrite(row_filter=eq("date", DAY_1))
    assert table.live() == {"day2"}
    assert table.operation == "delete"


@WITH_DELETES
def test_without_clauses_concurrent_deletes_do_not_stop_an_overwrite(days: Days) -> None:
    """This is snapshot isolation without checks, which a client may choose."""
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    table.overwrite(add_deletes=[days.deletes("d2", days.two)])
    table.commit(days.overwrite_two(base))
    assert {"day1", "day2-modified"} <= table.live()


# --- expired history ------------------------------------------------------------------------------


@ALL_VERSIONS
def test_history_that_expired_behind_the_base_does_not_matter(days: Days) -> None:
    table = days.table
    old = table.append(days.one)["snapshot-id"]
    base = table.append(days.two)["snapshot-id"]
    table.append(table.data("new", DAY_1, ids=(0, 4)))
    table.commit(expire(old))
    table.commit(days.overwrite_two(base, no_new_data(IS_DAY_2)))
    assert table.live() == {"day1", "new", "day2-modified"}


@ALL_VERSIONS
def test_history_that_expired_after_the_base_cannot_be_judged(days: Days) -> None:
    table = days.table
    base = table.append(days.one)["snapshot-id"]
    middle = table.append(days.two)["snapshot-id"]
    table.delete(days.one)
    table.commit(expire(middle))
    update = overwrite(add=[days.modified], base=base, validations=[no_new_data(IS_DAY_2)])
    found = table.conflicts(update)
    assert any("Cannot determine history" in c.message for c in found) or {
        c.clause for c in found
    } == {"base-not-ancestor"}


@ALL_VERSIONS
def test_without_a_base_expired_history_cannot_be_judged(days: Days) -> None:
    table = days.table
    first = table.append(days.two)["snapshot-id"]
    table.append(days.one)
    table.commit(expire(first))
    update = overwrite(add=[days.modified], validations=[no_new_data(IS_DAY_2)])
    conflict = table.conflict(update)
    assert conflict.clause == "not-allowed-added-data-files"
    assert "Cannot determine history" in conflict.message


@ALL_VERSIONS
def test_a_base_that_never_was_is_refused(days: Days) -> None:
    table = days.table
    table.append(days.two)
    conflict = table.conflict(days.overwrite_two(4711))
    assert conflict.clause == "base-not-ancestor"


@ALL_VERSIONS
def test_a_base_of_another_branch_is_refused(days: Days) -> None:
    """Java commits an overwrite without checks; here it is always refused."""
    table = days.table
    table.append(days.two)
    other = table.append(days.one, branch="other")["snapshot-id"]
    for update in (days.overwrite_two(other), append(days.one, base=other)):
        assert table.conflict(update).clause == "base-not-ancestor"


@ALL_VERSIONS
def test_a_base_on_an_empty_branch_is_refused(days: Days) -> None:
    table = days.table
    update = overwrite(add=[days.modified], base=1, validations=[no_new_data(TRUE)])
    assert {c.clause for c in table.conflicts(update)} == {"base-not-ancestor"}


# --- several updates in one request ---------------------------------------------------------------


@ALL_VERSIONS
def test_a_transaction_that_is_compatible(days: Days) -> None:
    table = days.table
    base = table.append(days.two)["snapshot-id"]
    table.append(days.one)
    extra = table._update(append(table.data("extra", DAY_1)))
    table.commit(extra, days.overwrite_two(base, no_new_data(IS_DAY_2)))
    assert table.live() == {"day1", "extra", "day2-modified"}


@ALL_VERSIONS
def test_clauses_do_not_see_the_requests_own_snapshots(days: Days) -> None:
    table = days.table
    base = table.append(days.one)["snapshot-id"]
    own = table._update(append(days.two))
    table.commit(own, days.overwrite_two(base, no_new_data(TRUE), data_exists(filter=TRUE)))
    assert table.live() == {"day1", "day2-modified"}


@ALL_VERSIONS
def test_a_transaction_that_conflicts_commits_nothing(days: Days) -> None:
    table = days.table
    base = table.append(days.one)["snapshot-id"]
    new = table.append(days.two)["snapshot-id"]
    first = append(table.data("extra", DAY_1))
    second = overwrite(add=[days.modified], base=base, validations=[no_new_data(IS_DAY_2)])
    conflict = table.conflict(first, second)
    assert (conflict.update, conflict.files, conflict.snapshots) == (1, {"day2"}, [new])
    assert table.live() == {"day1", "day2"}


# --- what an overwrite is called ------------------------------------------------------------------


@ALL_VERSIONS
@pytest.mark.parametrize(
    ("what", "operation"),
    [
        ("add", "append"),
        ("remove", "delete"),
        ("add and remove", "overwrite"),
        ("filter", "delete"),
        ("filter and add", "overwrite"),
        ("filter without a match and add", "overwrite"),
        ("filter without a match", "delete"),
    ],
)
def test_the_operation_is_derived_from_what_was_asked(
    days: Days, what: str, operation: str
) -> None:
    table = days.table
    table.append(days.one, days.two)
    fields: dict[str, Any] = {}
    if "add" in what:
        fields["add"] = [days.modified]
    if "remove" in what:
        fields["remove"] = [days.two]
    if "filter" in what:
        fields["row_filter"] = eq("date", "nothing" if "without" in what else DAY_2)
    table.overwrite(**fields)
    assert table.operation == operation


@WITH_DELETES
@pytest.mark.parametrize(
    ("what", "operation"),
    [
        ("deletes", "delete"),
        ("deletes and remove", "delete"),
        ("deletes and add", "overwrite"),
        ("deletes, add and remove", "overwrite"),
    ],
)
def test_the_operation_of_a_row_delta(days: Days, what: str, operation: str) -> None:
    table = days.table
    table.append(days.one, days.two)
    fields: dict[str, Any] = {"add_deletes": [days.deletes("d1", days.one)]}
    if "add" in what:
        fields["add"] = [days.modified]
    if "remove" in what:
        fields["remove"] = [days.two]
    table.overwrite(**fields)
    assert table.operation == operation


@ALL_VERSIONS
def test_a_partial_row_filter_of_an_overwrite(days: Days) -> None:
    table = days.table
    table.append(days.one, days.two)
    update = overwrite(row_filter=at_least("id", 7), add=[days.modified])
    conflict = table.conflict(update)
    assert (conflict.clause, conflict.files) == ("partial-row-filter", {"day2"})


@ALL_VERSIONS
def test_all_conflicts_are_told_at_once(days: Days) -> None:
    table = days.table
    base = table.append(days.one, days.two)["snapshot-id"]
    new = table.append(days.another_range)["snapshot-id"]
    gone = table.delete(days.one)["snapshot-id"]
    clauses = (
        no_new_data(FROM_10),
        no_new_data(eq("date", DAY_1)),
        data_exists(days.one),
        data_exists(filter=eq("date", DAY_1)),
    )
    found = table.conflicts(days.overwrite_two(base, *clauses))
    assert [(c.validation, c.clause, c.files, c.snapshots) for c in found] == [
        (0, "not-allowed-added-data-files", {"day2-other"}, [new]),
        (2, "required-data-files", {"day1"}, [gone]),
        (3, "required-data-files", {"day1"}, [gone]),
    ]


@ALL_VERSIONS
def test_the_lists_of_a_conflict_are_cut_at_a_hundred(days: Days) -> None:
    table = days.table
    base = table.append(days.one)["snapshot-id"]
    table.append(*(table.data(f"f{number:03}", DAY_2) for number in range(150)))
    update = delete(days.one, base=base, validations=[no_new_data(TRUE)])
    conflict = table.conflict(update)
    assert conflict.file_count == 150
    assert len(conflict.files) == 100
