"""Two writers with the same base: which writes of the second one commit, and which are refused.

The interleaving is fixed: both load the table, then the first commits, then the second. A
refused write leaves nothing. A committed one leaves the rows of both writes in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

from frazil.pyiceberg import DuplicateFilesError, ValidationError
from tests.commit.finegrained.trees import local
from tests.pyiceberg.audit import audit, data_files
from tests.pyiceberg.tables import (
    ARROW,
    PARTITIONINGS,
    Row,
    create,
    fill,
    ids,
    importable_files,
    read,
    row,
    rows,
)

Write = Callable[[Table], Any]
SNAPSHOT = {
    f"write.{command}.isolation-level": "snapshot" for command in ("delete", "update", "merge")
}
PARTITIONED = tuple(name for name in PARTITIONINGS if name != "unpartitioned")


@dataclass(frozen=True)
class Meeting:
    first: Write
    second: Write
    lands: bool
    """Whether the second write commits under serializable isolation."""
    lands_under_snapshot: bool | None = None
    """The same under snapshot isolation; None means as under serializable isolation."""
    partitionings: tuple[str, ...] = tuple(PARTITIONINGS)


def append(*numbers: int) -> Write:
    return lambda table: table.append(rows(*numbers))


def delete(text: str) -> Write:
    return lambda table: table.delete(text)


def upsert(*numbers: int, amount: int) -> Write:
    return lambda table: table.upsert(rows(*numbers, amount=amount))


def overwrite(*numbers: int, where: str | None = None) -> Write:
    if where is None:
        return lambda table: table.overwrite(rows(*numbers, amount=8))
    return lambda table: table.overwrite(rows(*numbers, amount=8), overwrite_filter=where)


def replace_partitions(*numbers: int) -> Write:
    return lambda table: table.dynamic_partition_overwrite(rows(*numbers, amount=7))


def in_transaction(*writes: Write) -> Write:
    def write(table: Table) -> None:
        with table.transaction() as transaction:
            for one in writes:
                one(transaction)  # type: ignore[arg-type]

    return write


# Ids 1 to 12 and ids 13 to 20 are in separate files. Ids 5 and 10 share no partition.
MEETINGS: Mapping[str, Meeting] = {
    "append, append": Meeting(append(30), append(30), True),
    "overwrite, append": Meeting(overwrite(30), append(31), True),
    "delete, append of such rows": Meeting(delete("id >= 13"), append(40), True),
    "append, delete elsewhere": Meeting(append(30), delete("id in (2, 14)"), True),
    "append, delete of such rows": Meeting(append(30), delete("id >= 14"), False, True),
    "append, delete of such files": Meeting(append(30), delete("id >= 13"), False, True),
    "append, overwrite of such rows": Meeting(
        append(30), overwrite(31, where="amount > 140"), False, True
    ),
    "append, overwrite of all": Meeting(append(30), overwrite(31), False, True),
    "delete, delete of the same rows": Meeting(delete("id = 2"), delete("id = 2"), False),
    "delete, delete of the same files": Meeting(delete("id >= 13"), delete("id >= 13"), False),
    "delete, delete of the rewritten file": Meeting(delete("id = 14"), delete("id >= 13"), False),
    "delete, delete elsewhere": Meeting(delete("id = 2"), delete("id = 14"), True),
    "delete, overwrite of all": Meeting(delete("id = 2"), overwrite(40), False),
    "overwrite, overwrite of all": Meeting(overwrite(30), overwrite(31), False),
    "overwrite, upsert": Meeting(overwrite(30), upsert(2, amount=5), False),
    "upsert, upsert of the same key": Meeting(upsert(2, amount=1), upsert(2, amount=2), False),
    "upsert, upsert of the same new key": Meeting(
        upsert(50, amount=1), upsert(50, amount=2), False
    ),
    "upsert, upsert elsewhere": Meeting(upsert(2, 200, amount=1), upsert(14, amount=2), True),
    "append, upsert of such a key": Meeting(append(50), upsert(50, amount=2), False, True),
    "replaced partition, appended to before": Meeting(
        append(5), replace_partitions(5), False, True, PARTITIONED
    ),
    "replaced partition, replaced before": Meeting(
        replace_partitions(5), replace_partitions(5), False, None, PARTITIONED
    ),
    "replaced partition, others before": Meeting(
        append(10), replace_partitions(5), True, None, PARTITIONED
    ),
    "transaction of which a part is refused": Meeting(
        append(30), in_transaction(append(31), delete("id = 3"), delete("id > 18")), False, True
    ),
    "transaction of which all lands": Meeting(
        in_transaction(append(30), delete("id = 2")),
        in_transaction(append(31), delete("id = 14"), delete("id = 31")),
        True,
    ),
}


def _cases() -> list[Any]:
    """Return each pair once, with varying partitionings and versions; a full run has all of
    them."""
    cases = []
    for place, (name, meeting) in enumerate(MEETINGS.items()):
        chosen = meeting.partitionings[place % len(meeting.partitionings)], place % 3 + 1
        for partitioning, version in product(meeting.partitionings, (1, 2, 3)):
            marks = () if (partitioning, version) == chosen else (pytest.mark.full,)
            text = f"{name.replace(', ', '-').replace(' ', '_')}-{partitioning}-v{version}"
            cases.append(pytest.param(name, partitioning, version, marks=marks, id=text))
    return cases


@pytest.mark.parametrize(("name", "partitioning", "version"), _cases())
def test_second_writer_is_refused_where_it_must_be(
    frazil: Catalog, namespace: str, name: str, partitioning: str, version: int
) -> None:
    meeting = MEETINGS[name]
    _meet(frazil, f"{namespace}.t", meeting, meeting.lands, partitioning, version, {})


WEAKER = [name for name, meeting in MEETINGS.items() if meeting.lands_under_snapshot]


@pytest.mark.parametrize(
    ("name", "partitioning", "version"), [case for case in _cases() if case.values[0] in WEAKER]
)
def test_snapshot_isolation_lets_added_rows_be(
    frazil: Catalog, namespace: str, name: str, partitioning: str, version: int
) -> None:
    _meet(frazil, f"{namespace}.t", MEETINGS[name], True, partitioning, version, SNAPSHOT)


NEW_KEY = "upsert, upsert of the same new key"
LOST = [
    name
    for name, meeting in MEETINGS.items()
    if not meeting.lands and not meeting.lands_under_snapshot and name != NEW_KEY
]


def test_snapshot_isolation_does_not_lose_changes(frazil: Catalog, namespace: str) -> None:
    for number, name in enumerate(LOST):
        meeting, partitioning = MEETINGS[name], "bucket" if number % 2 else "truncate"
        table, stale = _base(frazil, f"{namespace}.t{number}", partitioning, 2, SNAPSHOT)
        meeting.first(table)
        with pytest.raises(ValidationException):
            meeting.second(stale)
        assert read(stale.refresh()) == read(table), name


def test_snapshot_isolation_does_not_see_a_new_key(frazil: Catalog, namespace: str) -> None:
    """Two inserts of one key do not see each other, so serializable isolation is the default."""
    table, stale = _base(frazil, f"{namespace}.t", "bucket", 2, SNAPSHOT)
    meeting = MEETINGS[NEW_KEY]
    meeting.first(table)
    meeting.second(stale)
    assert ids(stale) == [*range(1, 21), 50, 50]


def _meet(
    frazil: Catalog,
    name: str,
    meeting: Meeting,
    lands: bool,
    partitioning: str,
    version: int,
    properties: Mapping[str, str],
) -> None:
    table, stale = _base(frazil, name, partitioning, version, properties)
    meeting.first(table)
    after_first, files = read(table), data_files(table)
    if lands:
        meeting.second(stale)
    else:
        with pytest.raises(ValidationException) as refused:
            meeting.second(stale)
        assert isinstance(refused.value, ValidationError)
        assert refused.value.conflicts
        assert data_files(table) == files, "an honest failure leaves no file"
        assert read(frazil.load_table(name)) == after_first
        meeting.second(stale.refresh())
    found = read(frazil.load_table(name))
    assert read(stale) == found, "the writer is told of the whole new table"
    writes = (meeting.first, meeting.second)
    wanted = _serially(frazil, f"{name}_one", partitioning, version, writes)
    if lands and found != wanted:
        wanted = _serially(frazil, f"{name}_two", partitioning, version, writes[::-1])
    assert found == wanted
    audit(stale)


def _base(
    frazil: Catalog, name: str, partitioning: str, version: int, properties: Mapping[str, str]
) -> tuple[Table, Table]:
    table = create(frazil, name, partitioning, version, properties)
    fill(table)
    return table, frazil.load_table(name)


def _serially(
    frazil: Catalog, name: str, partitioning: str, version: int, writes: tuple[Write, ...]
) -> list[Row]:
    table = create(frazil, name, partitioning, version)
    fill(table)
    for write in writes:
        write(table)
    return read(table)


# --- beside the rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_overwrite_of_an_empty_table_meets_an_append(
    frazil: Catalog, namespace: str, version: int
) -> None:
    """A writer that read an empty table relies on it having no rows."""
    name = f"{namespace}.t"
    table = create(frazil, name, "truncate", version)
    overwriting, upserting = frazil.load_table(name), frazil.load_table(name)
    table.append(rows(1))
    for write in (lambda: overwriting.overwrite(rows(2)), lambda: upserting.upsert(rows(1))):
        with pytest.raises(ValidationException) as refused:
            write()
        assert isinstance(refused.value, ValidationError)
        assert refused.value.conflicts
    assert ids(frazil.load_table(name)) == [1]
    audit(table)


@pytest.mark.parametrize("partitioning", ["unpartitioned", "identity", "truncate", "day"])
def test_file_is_added_once_and_never_deleted(
    frazil: Catalog, namespace: str, partitioning: str
) -> None:
    """A file from the user is never deleted, whatever the outcome of the commit."""
    table, stale = _base(frazil, f"{namespace}.t", partitioning, 2, {})
    first, second = importable_files(table, 64, 72)
    table.add_files([first])
    with pytest.raises(DuplicateFilesError) as refused:
        stale.add_files([second, first])
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, ValidationException)
    assert local(first).exists()
    assert local(second).exists()
    with pytest.raises(ValueError, match="already referenced by table"):
        table.add_files([first])
    stale.refresh().add_files([second])
    assert ids(stale) == [*range(1, 21), 64, 65, 72, 73]
    audit(stale)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_branches_do_not_meet(frazil: Catalog, namespace: str, version: int) -> None:
    table, stale = _base(frazil, f"{namespace}.t", "bucket", version, {})
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "work").commit()
    stale.refresh()
    table.delete("id = 2")
    stale.delete("id = 2 or id = 3", branch="work")
    assert ids(stale) == [number for number in range(1, 21) if number != 2]
    assert ids(stale, "work") == [number for number in range(1, 21) if number not in (2, 3)]
    audit(stale)


def test_writers_outlive_changes_of_schema_and_spec(frazil: Catalog, namespace: str) -> None:
    table, stale = _base(frazil, f"{namespace}.t", "bucket", 2, {})
    appending = frazil.load_table(f"{namespace}.t")
    with table.update_schema() as schema:
        schema.add_column("note", IntegerType())
        schema.rename_column("amount", "sum")
    with table.update_spec() as spec:
        spec.add_identity("item")
    appending.append(rows(30))
    stale.delete("id = 2")
    assert ids(stale) == [number for number in (*range(1, 21), 30) if number != 2]
    sums = stale.scan(row_filter="id = 30").to_arrow()["sum"].to_pylist()
    assert sums == [300]
    audit(stale)


def test_two_changes_of_the_schema_meet(frazil: Catalog, namespace: str) -> None:
    """Schema changes involve no files; stock PyIceberg refuses the second by its requirement."""
    table, stale = _base(frazil, f"{namespace}.t", "bucket", 2, {})
    files = data_files(table)
    with table.update_schema() as schema:
        schema.add_column("note", IntegerType())
    with pytest.raises(CommitFailedException), stale.transaction() as transaction:
        transaction.append(rows(30))
        with transaction.update_schema() as schema:
            schema.add_column("other", IntegerType())
        wider = ARROW.append(pa.field("other", pa.int32()))
        transaction.append(pa.Table.from_pylist([{**row(31), "other": 1}], schema=wider))
    assert data_files(table) == files, "an honest failure leaves no file"
    assert ids(stale.refresh()) == list(range(1, 21))
    assert stale.schema().column_names[-1] == "note"
    audit(stale)
