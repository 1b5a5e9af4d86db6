from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from frazil.rest.rest_app import AppSettings, RestApp
from tests.rest.stand_in import Client, StandInCatalog, StandInPlanner


@pytest.fixture
def catalog() -> StandInCatalog:
    return StandInCatalog()


@pytest.fixture
def planner(catalog: StandInCatalog) -> StandInPlanner:
    return StandInPlanner(catalog)


@pytest.fixture
def make_client(
    catalog: StandInCatalog, planner: StandInPlanner
) -> Iterator[Callable[..., Client]]:
    apps: list[RestApp] = []

    def make(**settings: Any) -> Client:
        app = RestApp(cast(Any, catalog), cast(Any, planner), AppSettings(**settings))
        apps.append(app)
        return Client(catalog, app)

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
