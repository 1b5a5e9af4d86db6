from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from starlette.applications import Starlette

from frazil.rest.app import AppSettings, close, create_app
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
    apps: list[Starlette] = []

    def make(**settings: Any) -> Client:
        app = create_app(cast(Any, catalog), cast(Any, planner), AppSettings(**settings))
        apps.append(app)
        return Client(catalog, app)

    yield make
    for app in apps:
        close(app)


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
