"""Fixtures for our catalog with its planner, and for the oracles, created once for this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.oracle.drivers import open_driver
from tests.oracle.plans.own_side import opened_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.oracle.plans.worlds import World


@contextmanager
def opened_world(spark: SparkSession, folder: Path) -> Iterator[World]:
    from tests.oracle.plans.java_side import JavaPlans
    from tests.oracle.plans.worlds import World

    with open_driver(folder) as driver, opened_plans(driver) as own:
        yield World(driver, own, JavaPlans(spark))


@pytest.fixture(scope="package")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened_world(spark, tmp_path_factory.mktemp("planning")) as opened:
        yield opened
