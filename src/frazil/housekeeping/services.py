"""What the routes of housekeeping and the server share: jobs and their runner."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from frazil.commit.catalog.operations import Catalog
from frazil.db.rows import Database
from frazil.housekeeping.job_runner import JobRunner
from frazil.housekeeping.jobs import Jobs
from frazil.housekeeping.server_operations import (
    SERVER_OPERATIONS,
    ServerOperation,
    ServerTools,
)
from frazil.housekeeping.sweep import sweep_table
from frazil.housekeeping.sweeper import Sweeper
from frazil.housekeeping.table_health import HealthReports
from frazil.store.object_store import Store
from frazil.wire.errors import BadRequest
from frazil.wire.table_health import QuarantineHealth


class Housekeeping:
    """The services of housekeeping. The owner calls `start`, and `close` before the catalog's."""

    def __init__(
        self,
        database: Database,
        store: Store,
        catalog: Catalog,
        operations: Mapping[str, ServerOperation] = SERVER_OPERATIONS,
    ) -> None:
        self.database = database
        self.store = store
        self.catalog = catalog
        self.operations = operations
        self.jobs = Jobs(database)
        self.health = HealthReports(database, catalog, self.jobs)
        tools = ServerTools(database, store, catalog)
        self.runner = JobRunner(self.jobs, tools, operations)
        self.sweeper = Sweeper(tools)
        catalog.sweep = partial(sweep_table, tools)

    def check_available(self, operation: str) -> None:
        """Raise BadRequest if this server cannot run the operation."""
        if operation not in self.operations:
            raise BadRequest(f"operation: this server does not run {operation}")

    def quarantine(self) -> QuarantineHealth:
        """Return what waits for deletion in the whole catalog."""
        files, size_bytes = self.database.fetch("doomed_totals", {})[0]
        snapshots = self.database.fetch("expired_totals", {})[0][0]
        return QuarantineHealth(snapshot_count=snapshots, file_count=files, size_bytes=size_bytes)

    def start(self) -> None:
        self.runner.start()
        self.sweeper.start()

    def close(self) -> None:
        self.runner.close()
        self.sweeper.close()
