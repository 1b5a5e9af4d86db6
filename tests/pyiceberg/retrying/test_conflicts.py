"""Every pair of operations: one is planned on a base and committed on a newer head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, Transaction

from frazil.pyiceberg import retrying
from tests.pyiceberg.retrying.retrying_tables import (
    BY_BUCKET,
    BY_PART,
    QUICK,
    SCHEMA,
    SNAPSHOT_ISOLATION,
    UNPARTITIONED,
    Row,
    commit_deletes,
    data_files,
    position_delete,
    read,
    rows,
    sql_catalog,
    stray_data,
    stray_metadata,
)

Plan = Callable[[Transaction], Any]
BASE: tuple[Row, ...] = ((1, "a", 1), (2, "a", 2), (3, "b", 3), (4, "b", 4))


def append(*given: Row) -> Plan:
    return lambda transaction: transaction.append(rows(*given))


def delete(row_filter: str) -> Plan:
    return lambda transaction: transaction.delete(row_filter)


def overwrite(row_filter: str, *given: Row) -> Plan:
    return lambda transaction: transaction.overwrite(rows(*given), overwrite_filter=row_filter)


def replace(*given: Row) -> Plan:
    return lambda transaction: transaction.dynamic_partition_overwrite(rows(*given))


def upsert(*given: Row, **options: Any) -> Plan:
    return lambda transaction: transaction.upsert(rows(*given), join_cols=["id"], **options)


def run(
    directory: Path, spec: PartitionSpec, beside: Plan, planned: Plan, **properties: str
) -> Table:
    """Plan an operation, commit another writer's change, then commit the planned operation."""
    catalog = sql_catalog(directory)
    table = catalog.create_table(
        "db.t", SCHEMA, partition_spec=spec, properties={**QUICK, **properties}
    )
    table.append(rows(*BASE))
    transaction = retrying(catalog.load_table("db.t")).transaction()
    planned(transaction)
    with retrying(catalog.load_table("db.t")).transaction() as other:
        beside(other)
    before = read(table)
    try:
        transaction.commit_transaction()
    except ValidationException:
        assert read(table) == before
        raise
    finally:
        assert stray_metadata(table) == set()
        assert stray_data(table) == set()
    return table


NEW_A, NEW_B = (5, "a", 5), (6, "b", 6)

CONFLICTS: list[tuple[str, PartitionSpec, Plan, Plan]] = [
    ("delete after append", UNPARTITIONED, append((2, "x", 9)), delete("id = 2")),
    ("delete after append in its partition", BY_PART, append(NEW_A), delete("part = 'a'")),
    ("delete of the same rows", BY_PART, delete("id = 1"), delete("id = 1")),
    ("delete of the same file", BY_PART, delete("part = 'a'"), delete("part = 'a'")),
    ("delete in a rewritten file", UNPARTITIONED, delete("id = 1"), delete("id = 4")),
    ("delete after update", BY_PART, upsert((1, "a", 9)), delete("id = 2")),
    ("delete that found nothing", UNPARTITIONED, append((9, "a", 9)), delete("id = 9")),
    ("overwrite after append", UNPARTITIONED, append(NEW_A), overwrite("True", NEW_B)),
    ("overwrite after delete", BY_PART, delete("id = 1"), overwrite("part = 'a'", NEW_A)),
    (
        "overwrite of one partition twice",
        BY_PART,
        overwrite("part = 'a'", (7, "a", 7)),
        overwrite("part = 'a'", NEW_A),
    ),
    ("replace after append", BY_PART, append(NEW_A), replace((7, "a", 7))),
    ("replace after replace", BY_PART, replace((8, "a", 8)), replace((7, "a", 7))),
    ("replace of an empty partition", BY_PART, append((8, "c", 8)), replace((7, "c", 7))),
    ("upsert after delete", BY_PART, delete("id = 1"), upsert((1, "a", 9))),
    ("upsert after upsert", BY_PART, upsert((1, "a", 8)), upsert((1, "a", 9))),
    ("upsert that inserts what was appended", BY_BUCKET, append(NEW_A), upsert((5, "a", 9))),
    (
        "insert beside an equal row that went away",
        BY_PART,
        delete("id in (3, 7)"),
        upsert((3, "b", 3), (7, "c", 7)),
    ),
    (
        "upsert that only inserts",
        UNPARTITIONED,
        append((9, "a", 9)),
        upsert((9, "a", 8), when_matched_update_all=False),
    ),
]

TOGETHER: list[tuple[str, PartitionSpec, Plan, Plan, list[Row]]] = [
    ("append, append", UNPARTITIONED, append(NEW_A), append(NEW_B), [*BASE, NEW_A, NEW_B]),
    (
        "delete, append",
        BY_PART,
        delete("part = 'a'"),
        append(NEW_A),
        [(3, "b", 3), (4, "b", 4), NEW_A],
    ),
    (
        "append, delete of another range",
        UNPARTITIONED,
        append((50, "a", 5)),
        delete("id < 3"),
        [(3, "b", 3), (4, "b", 4), (50, "a", 5)],
    ),
    (
        "append elsewhere, delete",
        BY_PART,
        append((5, "b", 5)),
        delete("part = 'a'"),
        [(3, "b", 3), (4, "b", 4), (5, "b", 5)],
    ),
    (
        "delete, delete",
        BY_PART,
        delete("id = 1"),
        delete("part = 'b' and id = 4"),
        [(2, "a", 2), (3, "b", 3)],
    ),
    (
        "overwrite, overwrite",
        BY_PART,
        overwrite("part = 'b'", NEW_B),
        overwrite("part = 'a'", NEW_A),
        [NEW_A, NEW_B],
    ),
    (
        "replace, replace",
        BY_PART,
        replace(NEW_B),
        replace(NEW_A),
        [NEW_A, NEW_B],
    ),
    (
        "upsert, upsert",
        BY_PART,
        upsert((1, "a", 9)),
        upsert((40, "c", 40)),
        [(1, "a", 9), (2, "a", 2), (3, "b", 3), (4, "b", 4), (40, "c", 40)],
    ),
    (
        "delete elsewhere, delete that found nothing",
        BY_PART,
        delete("part = 'a'"),
        delete("part = 'z'"),
        [(3, "b", 3), (4, "b", 4)],
    ),
]


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize(
    ("name", "spec", "beside", "planned"), CONFLICTS, ids=[case[0] for case in CONFLICTS]
)
def test_a_conflict_is_refused_and_leaves_nothing(
    name: str, spec: PartitionSpec, beside: Plan, planned: Plan, tmp_path: Path
) -> None:
    with pytest.raises(ValidationException, match=r"snapshot \d+ \(\w+\): file://"):
        run(tmp_path, spec, beside, planned)


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize(
    ("name", "spec", "beside", "planned", "wanted"), TOGETHER, ids=[case[0] for case in TOGETHER]
)
def test_writers_that_do_not_meet_both_land(
    name: str,
    spec: PartitionSpec,
    beside: Plan,
    planned: Plan,
    wanted: list[Row],
    tmp_path: Path,
) -> None:
    assert read(run(tmp_path, spec, beside, planned)) == sorted(wanted, key=str)


ADDED_BESIDE: list[tuple[str, PartitionSpec, Plan, Plan, list[Row]]] = [
    (
        "delete never drops a file that it has not seen",
        UNPARTITIONED,
        append((2, "x", 9)),
        delete("id > 0"),
        [(2, "x", 9)],
    ),
    ("overwrite", UNPARTITIONED, append(NEW_A), overwrite("True", NEW_B), [NEW_A, NEW_B]),
    (
        "upsert",
        UNPARTITIONED,
        append((7, "x", 7)),
        upsert((7, "a", 8)),
        [*BASE, (7, "x", 7), (7, "a", 8)],
    ),
]


@pytest.mark.parametrize(
    ("name", "spec", "beside", "planned", "wanted"),
    ADDED_BESIDE,
    ids=[case[0] for case in ADDED_BESIDE],
)
def test_under_snapshot_isolation_rows_may_be_added_beside(
    name: str,
    spec: PartitionSpec,
    beside: Plan,
    planned: Plan,
    wanted: list[Row],
    tmp_path: Path,
) -> None:
    table = run(tmp_path, spec, beside, planned, **SNAPSHOT_ISOLATION)
    assert read(table) == sorted(wanted, key=str)


@pytest.mark.parametrize(
    ("command", "planned"),
    [
        ("delete", delete("id = 2")),
        ("update", overwrite("id = 2", NEW_B)),
        ("merge", upsert((2, "a", 9))),
    ],
    ids=["delete", "update", "merge"],
)
def test_each_command_has_its_own_isolation_level(
    command: str, planned: Plan, tmp_path: Path
) -> None:
    beside = append((2, "x", 7))
    others = dict(SNAPSHOT_ISOLATION)
    mine = {f"write.{command}.isolation-level": others.pop(f"write.{command}.isolation-level")}
    table = run(tmp_path / "mine", UNPARTITIONED, beside, planned, **mine)
    assert (2, "x", 7) in read(table)
    with pytest.raises(ValidationException):
        run(tmp_path / "others", UNPARTITIONED, beside, planned, **others)


def test_an_isolation_level_that_is_none_is_named(tmp_path: Path) -> None:
    catalog = sql_catalog(tmp_path)
    table = catalog.create_table(
        "db.t", SCHEMA, properties={"write.delete.isolation-level": "strict"}
    )
    table.append(rows(*BASE))
    with pytest.raises(ValueError, match=r"write\.delete\.isolation-level: 'strict' must be"):
        retrying(catalog.load_table("db.t")).delete("id = 1")
    assert stray_metadata(table) == set()
    assert stray_data(table) == set()


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_new_position_deletes_are_refused_only_for_the_files_they_reach(
    isolation: str, tmp_path: Path
) -> None:
    levels = dict.fromkeys(SNAPSHOT_ISOLATION, isolation)

    def other_partition(transaction: Transaction) -> None:
        table = transaction._table
        [file] = [each for each in data_files(table) if each.partition[0] == "b"]
        commit_deletes(table, [position_delete(table, file, 0)])

    def own_partition(transaction: Transaction) -> None:
        table = transaction._table
        [file] = [each for each in data_files(table) if each.partition[0] == "a"]
        commit_deletes(table, [position_delete(table, file, 1)])

    table = run(tmp_path / "1", BY_PART, other_partition, delete("id = 1"), **levels)
    assert read(table) == [(2, "a", 2), (4, "b", 4)]
    with pytest.raises(ValidationException, match="new deletes for replaced data files"):
        run(tmp_path / "2", BY_PART, own_partition, delete("id = 1"), **levels)


def test_a_long_list_of_keys_does_not_meet_every_file(tmp_path: Path) -> None:
    """PyIceberg's metrics evaluator does not evaluate lists of more than 200 values."""
    keys = [(number, "k", number) for number in range(1000, 1300)]
    table = run(tmp_path, UNPARTITIONED, append((50, "a", 50)), upsert(*keys))
    assert len(read(table)) == len(BASE) + 1 + len(keys)


def test_a_base_that_is_no_longer_an_ancestor_is_refused(tmp_path: Path) -> None:
    catalog = sql_catalog(tmp_path)
    table = catalog.create_table("db.t", SCHEMA, properties=QUICK)
    table.append(rows(*BASE))
    first = table.metadata.current_snapshot_id
    assert first is not None
    table.append(rows(NEW_A))
    transaction = retrying(catalog.load_table("db.t")).transaction()
    transaction.delete("id = 1")
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(ValidationException, match="Cannot determine history between starting"):
        transaction.commit_transaction()
    assert read(table) == sorted(BASE)
