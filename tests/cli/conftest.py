"""Provide one server for all CLI tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.shop import Shop, make_shop
from tests.support.server import RunningServer, running_server


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory, processes: None) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("catalog")) as started:
        yield started


@pytest.fixture
def shop(catalog: RunningServer) -> Iterator[Shop]:
    """Provide an empty table, partitioned by day."""
    made = make_shop(catalog)
    yield made
    made.client.close()
