"""No plan omits a file with a matching row; the rows alone decide, without an oracle."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from tests.commit.requests import Driver
from tests.oracle.drivers import open_driver
from tests.oracle.plans.columns import leaves
from tests.oracle.plans.own_side import OwnPlans, opened_plans
from tests.oracle.plans.rows import problems
from tests.oracle.plans.tables import TableMaker
from tests.oracle.plans.worlds import draw_scans

TABLES: Final = 16
SCANS: Final = 40
FIRST: Final = 50_000


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, OwnPlans]]:
    with (
        open_driver(tmp_path_factory.mktemp("rows")) as driver,
        opened_plans(driver) as own,
    ):
        yield driver, own


def check(driver: Driver, own: OwnPlans, seed: int) -> None:
    random = Random(seed)
    table = TableMaker(random, driver, f"rows{seed}").make()
    for scan in draw_scans(random, table, SCANS):
        document = scan.json()
        answer = own.plan(table.name, document)
        assert scan.predicate.is_plain <= ("tasks" in answer), (document, answer)
        found = list(problems(table, document, scan.predicate, leaves(scan.schema), answer))
        assert not found, "\n".join([f"seed {seed}: {document}", *found[:3], *table.steps])


@pytest.mark.parametrize("seed", range(FIRST, FIRST + TABLES))
def test_planning_rows(planning: tuple[Driver, OwnPlans], seed: int) -> None:
    check(*planning, seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(30))
def test_planning_rows_of_many_tables(planning: tuple[Driver, OwnPlans], block: int) -> None:
    first = FIRST + TABLES + block * 10
    for seed in range(first, first + 10):
        check(*planning, seed)
