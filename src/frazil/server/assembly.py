"""Puts the rooms together: database, store, catalog, edge; and takes them apart again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from starlette.applications import Starlette

from frazil.commit.catalog.operations import Catalog
from frazil.db.base import DatabaseRefused, DatabaseUnavailable
from frazil.db.connect import connect
from frazil.plan.service import PlanLimits, Planner
from frazil.rest.app import AppSettings, close, create_app
from frazil.server.listen import StartRefused
from frazil.server.warehouse_storage import prepare_warehouse, s3_settings
from frazil.settings import Settings, extra_locations, warehouse_location
from frazil.store.base import StoreError
from frazil.store.locations import AllowedLocations
from frazil.store.router import open_store
from frazil.store.s3_settings import S3Settings
from frazil.wire.errors import FrazilError

PLAN_SECRET = "plans"
"""The name of what plan ids and task tokens are signed with: one for all replicas."""

_BYTES_IN_FLIGHT = 1 << 30


@contextmanager
def assembled(settings: Settings, tokens: Mapping[str, str]) -> Iterator[Starlette]:
    """The application over an open catalog. Leaving drains the catalog, then closes the store and
    the database. Raises StartRefused."""
    warehouse = warehouse_location(settings)
    with ExitStack() as opened:
        try:
            allowed = AllowedLocations(warehouse, extra_locations(settings))
            s3 = s3_settings(settings, os.environ)
            app_settings = edge_settings(settings, tokens, s3 if _uses_s3(allowed) else None)
            database = connect(settings.database)
            opened.callback(database.close)
            database.migrate()
            store = open_store(s3)
            opened.callback(store.close)
            prepare_warehouse(store, warehouse)
            plan_secret = database.secret(PLAN_SECRET)
        except (FrazilError, StoreError, DatabaseRefused, DatabaseUnavailable, ValueError) as error:
            raise StartRefused(str(error)) from error
        catalog = Catalog(
            db=database,
            store=store,
            warehouse=warehouse,
            allowed_locations=allowed,
            idempotency_lifetime_s=settings.idempotency_lifetime_s,
            metadata_cache_bytes=settings.metadata_cache_bytes,
            manifest_cache_bytes=settings.manifest_cache_bytes,
            manifest_cache_folder=_cache_folder(settings),
        )
        opened.callback(catalog.close)
        planner = Planner(catalog, plan_secret, plan_limits(settings))
        app = create_app(catalog, planner, app_settings)
        opened.callback(close, app)
        # Before the edge: its threads wait for plans that nobody will fetch any more.
        opened.callback(planner.close)
        yield app


def edge_settings(
    settings: Settings, tokens: Mapping[str, str], s3: S3Settings | None
) -> AppSettings:
    return AppSettings(
        tokens=tokens,
        # Defaults, not overrides: a client may reach the same store by another address.
        config_defaults={} if s3 is None else s3.client_properties(),
        idempotency_key_lifetime=f"PT{settings.idempotency_lifetime_s}S",
        max_request_bytes=settings.max_request_bytes,
        max_bytes_in_flight=max(_BYTES_IN_FLIGHT, settings.max_request_bytes),
    )


def plan_limits(settings: Settings) -> PlanLimits:
    return PlanLimits(quick_s=settings.plan_wait_s, page_files=settings.plan_page_files)


def _cache_folder(settings: Settings) -> Path | None:
    text = settings.manifest_cache_folder
    return None if text is None else Path(text).expanduser()


def _uses_s3(allowed: AllowedLocations) -> bool:
    return any(root.scheme == "s3" for root in allowed.roots)
