"""Fixtures for both sides, created once for all histories of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.oracle.drivers import open_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.oracle.commits.histories import World


@pytest.fixture(scope="package")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    from tests.oracle.commits.histories import World
    from tests.oracle.commits.java_side import Java

    java = Java(spark)
    with open_driver(tmp_path_factory.mktemp("differential")) as driver:
        yield World(java, driver)
    java.close()
