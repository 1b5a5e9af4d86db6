"""Defects that seeds found stay fixed: fixed tables, judged by their rows without an oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from tests.commit.requests import Driver
from tests.oracle.drivers import open_driver
from tests.oracle.plans.columns import leaves
from tests.oracle.plans.files import Doc, Metrics, SpecField
from tests.oracle.plans.own_side import OwnPlans, opened_plans
from tests.oracle.plans.schemas import Shape
from tests.oracle.plans.tables import TableMaker

HIGH: Final = UUID("80000000-0000-0000-0000-000000000000")


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, OwnPlans]]:
    with (
        open_driver(tmp_path_factory.mktemp("found")) as driver,
        opened_plans(driver) as own,
    ):
        yield driver, own


def made(driver: Driver, name: str, kind: str, transform: str, values: Sequence[Any]) -> TableMaker:
    """Make a table with a column x, partitioned by x, with one file for each value."""
    schema: Doc = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "x", "required": False, "type": kind}],
    }
    shape = Shape(Random(0), 2, schema=schema)
    (leaf,) = leaves(schema)
    shape.specs[0] = (SpecField(leaf.field_id, 1000, "part", transform, leaf.type),)
    maker = TableMaker(Random(0), driver, name, None, shape)
    maker.files.metrics = Metrics(None, 0.0)
    files = [maker.files.data_file(0, shape.specs[0], [leaf], [{1: value}]) for value in values]
    maker.commit("append", files, [], [], "main")
    return maker


def planned(own: OwnPlans, maker: TableMaker, operation: str, value: Any) -> int:
    predicate = {"type": operation, "term": "x", "value": value}
    answer = own.plan(maker.table.name, {"filter": predicate})
    return len(answer["tasks"])


@pytest.mark.parametrize("value", [UUID(int=0), HIGH])
def test_planning_found_uuid_partitions(planning: tuple[Driver, OwnPlans], value: UUID) -> None:
    driver, own = planning
    maker = made(driver, f"uuids_{value.hex[0]}", "uuid", "identity", [UUID(int=0), HIGH])
    assert planned(own, maker, "eq", str(value)) == 1


def test_planning_found_zero_partitions(planning: tuple[Driver, OwnPlans]) -> None:
    driver, own = planning
    maker = made(driver, "zeros", "double", "identity", [0.0])
    assert planned(own, maker, "not-eq", -0.0) == 1


def test_planning_found_wider_decimal_partitions(planning: tuple[Driver, OwnPlans]) -> None:
    """A manifest from before a decimal was widened is rewritten afterwards."""
    driver, own = planning
    values = [Decimal("0.01"), Decimal("0.02")]
    maker = made(driver, "wider", "decimal(9,2)", "identity", values)
    shape = maker.table.shape
    (column,) = shape.schema["fields"]
    shape.schema = {
        **shape.schema,
        "schema-id": 1,
        "fields": [{**column, "type": "decimal(18,2)"}],
    }
    maker.change(
        {"action": "add-schema", "schema": shape.schema},
        {"action": "set-current-schema", "schema-id": -1},
    )
    (leaf,) = shape.leaves
    shape.specs[0] = (SpecField(1, 1000, "part", "identity", leaf.type),)
    assert maker.table.current is not None
    gone = min(maker.table.current.data)
    maker.commit("overwrite", [], [], [gone], "main")
    assert planned(own, maker, "lt", "0.03") == 1
