"""Random mixtures of writers that have read the same table: the result is a serial order.

Under serializable isolation the final rows are those of the committed writes in some order, each
run alone. A model of rows in plain Python computes them.
"""

from __future__ import annotations

import itertools
import operator
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.table import Table

from frazil.pyiceberg import ValidationError
from tests.pyiceberg.audit import audit
from tests.pyiceberg.conftest import frazil_catalog
from tests.pyiceberg.tables import (
    ARROW,
    PARTITIONINGS,
    Row,
    create,
    ids,
    partition_of,
    read,
    row,
    rows,
)
from tests.support.server import RunningServer

COLUMNS = sorted(ARROW.names)
Rows = Counter[Row]


class NotDefined(Exception):
    """PyIceberg refuses such a write for its own reasons."""


def row_of(number: int, amount: int) -> Row:
    made = row(number, amount=amount)
    return tuple(made[name] for name in COLUMNS)


def column(one: Row, name: str) -> Any:
    return one[COLUMNS.index(name)]


# --- what writers do ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filter:
    """A filter `column op value`; null never matches."""

    column: str
    symbol: str
    value: Any

    def __str__(self) -> str:
        return f"{self.column} {self.symbol} {self.value!r}"

    def matches(self, one: Row) -> bool:
        compare = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}[self.symbol]
        value = column(one, self.column)
        return value is not None and bool(compare(value, self.value))


@dataclass(frozen=True)
class Append:
    numbers: tuple[int, ...]
    amount: int

    def do(self, table: Table) -> None:
        table.append(rows(*self.numbers, amount=self.amount))

    def apply(self, before: Rows, partitioning: str) -> Rows:
        return before + Counter(row_of(number, self.amount) for number in self.numbers)


@dataclass(frozen=True)
class Delete:
    where: Filter

    def do(self, table: Table) -> None:
        table.delete(str(self.where))

    def apply(self, before: Rows, partitioning: str) -> Rows:
        return Counter({one: n for one, n in before.items() if not self.where.matches(one)})


@dataclass(frozen=True)
class Overwrite:
    where: Filter
    numbers: tuple[int, ...]
    amount: int

    def do(self, table: Table) -> None:
        given = rows(*self.numbers, amount=self.amount)
        table.overwrite(given, overwrite_filter=str(self.where))

    def apply(self, before: Rows, partitioning: str) -> Rows:
        left = Delete(self.where).apply(before, partitioning)
        return Append(self.numbers, self.amount).apply(left, partitioning)


@dataclass(frozen=True)
class Upsert:
    numbers: tuple[int, ...]
    amount: int

    def do(self, table: Table) -> None:
        if any(count > 1 for count in Counter(ids(table)).values()):
            # With duplicate keys the result depends on the files that have the rows.
            raise NotDefined
        table.upsert(rows(*self.numbers, amount=self.amount))

    def apply(self, before: Rows, partitioning: str) -> Rows:
        present = Counter(column(one, "id") for one in before.elements())
        if any(present[number] > 1 for number in self.numbers):
            raise NotDefined
        left = [one for one in before.elements() if column(one, "id") not in self.numbers]
        return Append(self.numbers, self.amount).apply(Counter(left), partitioning)


@dataclass(frozen=True)
class ReplacePartitions:
    numbers: tuple[int, ...]
    amount: int

    def do(self, table: Table) -> None:
        table.dynamic_partition_overwrite(rows(*self.numbers, amount=self.amount))

    def apply(self, before: Rows, partitioning: str) -> Rows:
        def place(one: Row) -> Any:
            return partition_of(partitioning, dict(zip(COLUMNS, one, strict=True)))

        new = Counter(row_of(number, self.amount) for number in self.numbers)
        gone = {place(one) for one in new}
        return Counter({one: n for one, n in before.items() if place(one) not in gone}) + new


Change = Append | Delete | Overwrite | Upsert | ReplacePartitions
NUMBERS = st.lists(st.integers(1, 14), min_size=1, max_size=3, unique=True).map(tuple)
AMOUNTS = st.sampled_from([0, 30, 70])
FILTERS = st.one_of(
    st.builds(Filter, st.just("id"), st.sampled_from(["=", "<", ">="]), st.integers(1, 14)),
    st.builds(Filter, st.just("amount"), st.sampled_from(["=", ">="]), AMOUNTS),
    st.builds(Filter, st.just("item"), st.just("="), st.sampled_from("abc")),
)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(Append, NUMBERS, AMOUNTS),
    st.builds(Delete, FILTERS),
    st.builds(Overwrite, FILTERS, NUMBERS, AMOUNTS),
    st.builds(Upsert, NUMBERS, AMOUNTS),
    st.builds(ReplacePartitions, NUMBERS, AMOUNTS),
)


# --- and what comes of it -------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    partitioning: str
    version: int
    changes: tuple[Change, ...]
    fresh: tuple[bool, ...]
    """Whether each writer refreshes the table before it writes."""


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    partitioning = draw(st.sampled_from(sorted(PARTITIONINGS)))
    changes = draw(st.lists(CHANGES, min_size=2, max_size=4))
    if partitioning == "unpartitioned":
        changes = [one for one in changes if not isinstance(one, ReplacePartitions)]
    fresh = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    return Plan(partitioning, draw(st.sampled_from([1, 2, 3])), tuple(changes), tuple(fresh))


def run(catalog: Catalog, plan: Plan) -> tuple[Rows, list[Change], Table]:
    """Return the base rows, the committed changes in order, and the table."""
    name = f"model.t{uuid.uuid4().hex}"
    table = create(catalog, name, plan.partitioning, plan.version)
    table.append(rows(*range(1, 7)))
    table.append(rows(*range(7, 11)))
    base = Counter(read(table))
    handles = [catalog.load_table(name) for _ in plan.changes]
    landed: list[Change] = []
    for change, handle, fresh in zip(plan.changes, handles, plan.fresh, strict=False):
        if fresh:
            handle.refresh()
        try:
            change.do(handle)
        except ValidationException as error:
            check_refusal(error, change, fresh)
        except NotDefined:
            continue
        else:
            landed.append(change)
    return base, landed, table.refresh()


def check_refusal(error: ValidationException, change: Change, fresh: bool) -> None:
    assert isinstance(error, ValidationError)
    assert error.conflicts, "refused for no reason"
    assert not fresh, "nobody came between"
    assert not isinstance(change, Append), "an append meets nothing"


def outcome(base: Rows, order: Sequence[Change], partitioning: str) -> Rows | None:
    state = base
    for change in order:
        try:
            state = change.apply(state, partitioning)
        except NotDefined:
            return None
    return +state


@pytest.fixture(scope="module")
def examples(one_server: RunningServer) -> Callable[[Plan], None]:
    catalog = frazil_catalog(one_server.url)
    catalog.create_namespace("model")

    def check(plan: Plan) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            base, landed, table = run(catalog, plan)
        found = Counter(read(table))
        orders = itertools.permutations(landed)
        assert any(found == outcome(base, order, plan.partitioning) for order in orders), landed
        audit(table)

    return check


@settings(max_examples=15)
@given(plan=plans())
def test_what_landed_is_one_after_another(examples: Callable[[Plan], None], plan: Plan) -> None:
    examples(plan)


@pytest.mark.full
@settings(max_examples=300)
@given(plan=plans())
def test_what_landed_is_one_after_another_at_length(
    examples: Callable[[Plan], None], plan: Plan
) -> None:
    examples(plan)
