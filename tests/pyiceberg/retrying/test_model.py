"""Random concurrent writers: the result equals that of some serial order.

All transactions are planned on the same base and then committed one after another; all but the
first commit to a stale head. Under serializable isolation the final rows must equal those of the
committed transactions, run alone in some order.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Transaction

from frazil.pyiceberg import retrying
from tests.pyiceberg.retrying.retrying_tables import (
    BY_BUCKET,
    BY_PART,
    QUICK,
    SCHEMA,
    UNPARTITIONED,
    Row,
    read,
    rows,
    sql_catalog,
    stray_data,
    stray_metadata,
)

IDS = range(6)
PARTS = "ab"
State = Counter[Row]


@dataclass(frozen=True)
class Append:
    rows: tuple[Row, ...]

    def plan(self, transaction: Transaction) -> None:
        transaction.append(rows(*self.rows))

    def apply(self, state: State) -> State:
        return state + Counter(self.rows)


@dataclass(frozen=True)
class Filter:
    """A filter on ids, on the part, or on values below a limit."""

    ids: frozenset[int] = frozenset()
    part: str | None = None
    below: int | None = None

    def __str__(self) -> str:
        if self.part is not None:
            return f"part = '{self.part}'"
        if self.below is not None:
            return f"value < {self.below}"
        return f"id in ({', '.join(map(str, sorted(self.ids)))})"

    def matches(self, row: Row) -> bool:
        if self.part is not None:
            return row[1] == self.part
        if self.below is not None:
            return row[2] is not None and row[2] < self.below
        return row[0] in self.ids


@dataclass(frozen=True)
class Delete:
    filter: Filter

    def plan(self, transaction: Transaction) -> None:
        transaction.delete(str(self.filter))

    def apply(self, state: State) -> State:
        return Counter({row: n for row, n in state.items() if not self.filter.matches(row)})


@dataclass(frozen=True)
class Overwrite:
    filter: Filter
    rows: tuple[Row, ...]

    def plan(self, transaction: Transaction) -> None:
        transaction.overwrite(rows(*self.rows), overwrite_filter=str(self.filter))

    def apply(self, state: State) -> State:
        return Delete(self.filter).apply(state) + Counter(self.rows)


@dataclass(frozen=True)
class Upsert:
    rows: tuple[Row, ...]

    def plan(self, transaction: Transaction) -> None:
        transaction.upsert(rows(*self.rows), join_cols=["id"])

    def apply(self, state: State) -> State:
        """Return the state after the upsert. PyIceberg refuses duplicate keys when it plans one."""
        for row in self.rows:
            others = Counter({old: n for old, n in state.items() if old[0] != row[0]})
            state = others + Counter([row])
        return state


@dataclass(frozen=True)
class Replace:
    """A dynamic overwrite of the partitions of its rows, on a table partitioned by the part."""

    rows: tuple[Row, ...]

    def plan(self, transaction: Transaction) -> None:
        transaction.dynamic_partition_overwrite(rows(*self.rows))

    def apply(self, state: State) -> State:
        parts = {row[1] for row in self.rows}
        kept = Counter({row: n for row, n in state.items() if row[1] not in parts})
        return kept + Counter(self.rows)


Operation = Append | Delete | Overwrite | Upsert | Replace

row = st.tuples(
    st.sampled_from(IDS),
    st.sampled_from([*PARTS, None]),
    st.one_of(st.integers(0, 3), st.none()),
)
unique_rows = st.lists(row, min_size=1, max_size=3, unique_by=lambda each: each[0]).map(tuple)
filters = st.one_of(
    st.frozensets(st.sampled_from(IDS), min_size=1, max_size=3).map(lambda ids: Filter(ids=ids)),
    st.sampled_from(PARTS).map(lambda part: Filter(part=part)),
    st.integers(1, 3).map(lambda below: Filter(below=below)),
)


def transactions(spec: PartitionSpec) -> st.SearchStrategy[tuple[Operation, ...]]:
    deletes = filters.map(Delete)
    operations: st.SearchStrategy[Operation] = st.one_of(
        unique_rows.map(Append),
        deletes,
        st.builds(Overwrite, filters, unique_rows),
        unique_rows.map(Upsert),
        *([unique_rows.map(Replace)] if spec is BY_PART else []),
    )
    # PyIceberg's upsert refuses duplicate keys, so only deletes precede another operation.
    return st.one_of(st.tuples(operations), st.tuples(deletes, operations))


cases = st.sampled_from([UNPARTITIONED, BY_PART, BY_BUCKET]).flatmap(
    lambda spec: st.tuples(st.just(spec), st.lists(transactions(spec), min_size=2, max_size=3))
)


@settings(max_examples=20)
@given(case=cases, first=unique_rows, second=unique_rows)
def test_what_lands_is_some_serial_order(
    case: tuple[PartitionSpec, list[tuple[Operation, ...]]],
    first: tuple[Row, ...],
    second: tuple[Row, ...],
) -> None:
    spec, planned = case
    ids = {each[0] for each in first}
    second = tuple(each for each in second if each[0] not in ids)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        landed, found = run(Path(folder), spec, first, second, planned)
    base = Counter(first) + Counter(second)
    orders = [outcome(base, order) for order in itertools.permutations(landed)]
    assert found in orders


def outcome(base: State, order: Iterable[tuple[Operation, ...]]) -> State:
    state = base
    for transaction in order:
        for operation in transaction:
            state = operation.apply(state)
    return state


def run(
    folder: Path,
    spec: PartitionSpec,
    first: Iterable[Row],
    second: Iterable[Row],
    planned: list[tuple[Operation, ...]],
) -> tuple[list[tuple[Operation, ...]], State]:
    """Return the committed transactions and the final rows."""
    catalog = sql_catalog(folder)
    table = catalog.create_table("db.t", SCHEMA, partition_spec=spec, properties=QUICK)
    table.append(rows(*first))
    table.append(rows(*second))
    open_transactions = []
    for operations_of_one in planned:
        transaction = retrying(catalog.load_table("db.t")).transaction()
        for operation in operations_of_one:
            operation.plan(transaction)
        open_transactions.append((operations_of_one, transaction))
    landed = []
    for operations_of_one, transaction in open_transactions:
        try:
            transaction.commit_transaction()
        except ValidationException:
            continue
        landed.append(operations_of_one)
    assert landed
    assert stray_metadata(table) == set()
    assert stray_data(table) == set()
    return landed, Counter(read(table))
