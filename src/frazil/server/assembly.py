"""Build the application from the settings: database, store, catalog, planner, REST layer."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from frazil.commit.catalog.operations import Catalog
from frazil.db.base import DatabaseRefused, DatabaseUnavailable
from frazil.db.connect import connect
from frazil.db.rows import Database
from frazil.db.sqlite import SqliteDatabase
from frazil.housekeeping.services import Housekeeping
from frazil.plan.planner import PlanLimits, Planner
from frazil.rest.rest_app import AppSettings, RestApp
from frazil.server.listen import StartRefused
from frazil.server.warehouse_storage import prepare_warehouse, s3_settings
from frazil.settings import (
    Settings,
    Token,
    all_tokens,
    database_url,
    extra_locations,
    warehouse_location,
)
from frazil.store.locations import AllowedLocations
from frazil.store.object_store import Store, StoreError
from frazil.store.s3_settings import S3Settings
from frazil.store.store_router import open_store
from frazil.wire.errors import FrazilError

PLAN_SECRET = "plans"
"""Name of the secret that signs plan ids and task tokens; all replicas share it."""

_log = logging.getLogger("frazil.server")

_MAX_BYTES_IN_FLIGHT = 1 << 30
_MAX_LISTED = 10_000
_FILE = "file://"


@contextmanager
def open_app(settings: Settings, tokens: Mapping[str, Token]) -> Iterator[RestApp]:
    """Open the catalog and yield its application; on exit close everything in reverse order.

    Raises StartRefused.
    """
    warehouse = warehouse_location(settings)
    with ExitStack() as opened:
        try:
            allowed = AllowedLocations(warehouse, extra_locations(settings))
            s3 = s3_settings(settings, os.environ)
            database = connect(settings.database)
            opened.callback(database.close)
            is_new = database.migrate() == 0
            # A disk that is full may have room for a start, and none for a commit.
            database.prove_writable()
            store = open_store(s3)
            opened.callback(store.close)
            prepare_warehouse(store, warehouse)
            if is_new:
                _report_new_catalog(settings, store)
            plan_secret = database.secret(PLAN_SECRET)
            app_settings = rest_settings(
                settings,
                tokens,
                s3 if _uses_s3(allowed) else None,
                dict(_local_files(settings, database)),
            )
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
        housekeeping = Housekeeping(database, store, catalog)
        app = RestApp(catalog, planner, app_settings, housekeeping=housekeeping)
        opened.callback(app.close)
        # Closed before the catalog: it gives running jobs back, so that another server runs them.
        opened.callback(housekeeping.close)
        housekeeping.start()
        # Closed before the application, whose threads may wait for plans nobody will fetch.
        opened.callback(planner.close)
        yield app


def rest_settings(
    settings: Settings,
    tokens: Mapping[str, Token],
    s3: S3Settings | None,
    local_files: Mapping[str, str],
) -> AppSettings:
    return AppSettings(
        tokens=_digests(tokens),
        read_only=_read_only(tokens),
        # Defaults, not overrides: a client may reach the store under another address.
        config_defaults={} if s3 is None else s3.client_properties(),
        idempotency_key_lifetime=f"PT{settings.idempotency_lifetime_s}S",
        local_files=local_files,
        max_request_bytes=settings.max_request_bytes,
        max_bytes_in_flight=max(_MAX_BYTES_IN_FLIGHT, settings.max_request_bytes),
    )


def use_tokens(app: RestApp, settings: Settings) -> None:
    """Read the tokens again. Without any, every request is refused. Raises SettingsError."""
    tokens = all_tokens(settings)
    app.use_tokens(_digests(tokens), _read_only(tokens))


def _digests(tokens: Mapping[str, Token]) -> dict[str, str]:
    return {name: token.sha256 for name, token in tokens.items()}


def _read_only(tokens: Mapping[str, Token]) -> frozenset[str]:
    return frozenset(name for name, token in tokens.items() if token.read_only)


def plan_limits(settings: Settings) -> PlanLimits:
    return PlanLimits(quick_s=settings.plan_wait_s, page_files=settings.plan_page_files)


def _report_new_catalog(settings: Settings, store: Store) -> None:
    """Log that the catalog is new, because an empty one may also mean a wrong setting."""
    warehouse, database = warehouse_location(settings), database_url(settings)
    _log.info("created a new, empty catalog in the database %s", database)
    listed = islice(store.list(warehouse), _MAX_LISTED)
    if any(each.location.endswith(".metadata.json") for each in listed):
        _log.warning(
            "the warehouse %s has tables that the new catalog does not know: if they should be in "
            "this catalog, correct --database; if they are another catalog's, choose another "
            "--warehouse",
            warehouse,
        )


def _local_files(settings: Settings, database: Database) -> Iterator[tuple[str, str]]:
    warehouse = warehouse_location(settings)
    if warehouse.startswith(_FILE):
        yield "warehouse", warehouse.removeprefix(_FILE)
    if isinstance(database, SqliteDatabase):
        yield "database", str(database.path)


def _cache_folder(settings: Settings) -> Path | None:
    text = settings.manifest_cache_folder
    return None if text is None else Path(text).expanduser()


def _uses_s3(allowed: AllowedLocations) -> bool:
    return any(root.scheme == "s3" for root in allowed.roots)
