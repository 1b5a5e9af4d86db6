"""A table with files on a local disk, and the functions of housekeeping that act on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.commit.pipeline.pending_requests import Context
from frazil.db.housekeeping_rows import (
    DeletionState,
    IntentState,
    database_now_ms,
    doomed_files,
    doomed_parameters,
    expired_snapshots,
    intents_of,
)
from frazil.db.rows import Database
from frazil.db.sql import Statements
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.deletion.deleted_counts import SweepResult
from frazil.housekeeping.expiration import ExpireResult, expire
from frazil.housekeeping.expiration_plan import ExpireOptions
from frazil.housekeeping.server_operations import ServerTools
from frazil.housekeeping.sweep import sweep_table
from frazil.store.object_store import Store
from frazil.wire.identifiers import Identifier
from tests.commit.finegrained.requests import Json
from tests.commit.finegrained.tables import Table
from tests.commit.finegrained.world import World, opened_world

NAMESPACE = "housekeeping"
HOUR_MS = 3_600_000
EVERYTHING = ExpireOptions(older_than_ms=2**53)
UNPARTITIONED: Json = {"spec-id": 0, "fields": []}


@dataclass
class TableOnDisk:
    """A table whose declared files exist."""

    world: World
    table: Table

    @property
    def tools(self) -> ServerTools:
        return ServerTools(self.world.database, self.world.catalog.store, self.world.catalog)

    @property
    def identifier(self) -> Identifier:
        return Identifier((NAMESPACE,), self.table.name)

    @property
    def uuid(self) -> str:
        return str(self.table.metadata["table-uuid"])

    @property
    def folder(self) -> Path:
        return Path(self.table.location.removeprefix("file://"))

    @property
    def metadata(self) -> TableMetadata:
        return self.world.catalog.load_table(self.identifier).metadata

    # --- writing ----------------------------------------------------------------------------------

    def file(self, name: str, **more: Any) -> Json:
        """Write a file and return its declaration."""
        return self.written(self.table.data(name, **more))

    def written(self, file: Json) -> Json:
        path = Path(file["file-path"].removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        return file

    def append(self, *names: str, **more: Any) -> int:
        """Append files and return the id of the snapshot."""
        made = self.table.append(*(self.file(name) for name in names), **more)
        return int(made["snapshot-id"])

    def delete(self, *names: str, **more: Any) -> int:
        paths = [self.table.data_path(name) for name in names]
        return int(self.table.delete(*paths, **more)["snapshot-id"])

    def update(self, action: str, **fields: Any) -> None:
        self.table.commit(
            {"action": action} | {name.replace("_", "-"): value for name, value in fields.items()}
        )

    def set_properties(self, **properties: str) -> None:
        named = {
            name.replace("__", "-").replace("_", "."): text for name, text in properties.items()
        }
        self.update("set-properties", updates=named)

    # --- housekeeping -----------------------------------------------------------------------------

    def expire(self, options: ExpireOptions = EVERYTHING, **more: Any) -> ExpireResult:
        result = expire(self.tools, self.identifier, options, Context("tester", "r"), **more)
        self.table.load()
        return result

    def sweep(self, **more: Any) -> SweepResult:
        return sweep_table(self.tools, self.uuid, **more)

    def lease(self, snapshot_id: int, ttl_ms: int = HOUR_MS, lease_id: str | None = None) -> None:
        def work(sql: Statements) -> None:
            now_ms = database_now_ms(sql)
            row = {
                "lease_id": lease_id or f"{self.uuid}:{snapshot_id}",
                "uuid": self.uuid,
                "snapshot_id": snapshot_id,
                "principal": "p",
                "holder": "h",
                "now_ms": now_ms,
                "expires_ms": now_ms + ttl_ms,
            }
            sql.execute("drop_lease", {"lease_id": row["lease_id"]})
            sql.execute("store_lease", row)

        self.world.database.run_rows(work)

    def intend(self, folder: str, ttl_ms: int = HOUR_MS) -> None:
        def work(sql: Statements) -> None:
            now_ms = database_now_ms(sql)
            row = {
                "intent_id": f"{self.uuid}:{folder}",
                "uuid": self.uuid,
                "prefix": f"{self.table.location}/data/{folder}",
                "principal": "p",
                "holder": "h",
                "now_ms": now_ms,
                "expires_ms": now_ms + ttl_ms,
            }
            sql.execute("insert_intent", row)

        self.world.database.run_rows(work)

    def quarantine(self, *paths: str, for_ms: int = 0, deleting: bool = False) -> None:
        """Record files as orphans."""

        def work(sql: Statements) -> None:
            now_ms = database_now_ms(sql)
            state = DeletionState.DELETING if deleting else DeletionState.QUARANTINED
            files = [(path, "orphan", None) for path in paths]
            rows = doomed_parameters(self.uuid, files, state, now_ms, now_ms + for_ms)
            sql.execute_many("insert_doomed_file", rows)

        self.world.database.run_rows(work)

    # --- looking ----------------------------------------------------------------------------------

    def names(self) -> set[str]:
        """Return the names of the data files on disk."""
        found = (self.folder / "data").rglob("*")
        return {path.stem for path in found if path.is_file()}

    def avro_files(self) -> set[str]:
        return {path.name for path in (self.folder / "metadata").glob("*.avro")}

    def metadata_files(self) -> set[str]:
        return {path.name for path in (self.folder / "metadata").glob("*.metadata.json")}

    def expired_ids(self) -> list[int]:
        return [row.snapshot_id for row in expired_snapshots(self.world.database, self.uuid)]

    def doomed(self) -> dict[str, DeletionState]:
        rows = doomed_files(self.world.database, self.uuid)
        return {row.path.rpartition("/")[2]: row.state for row in rows}

    def intents(self) -> dict[str, IntentState]:
        rows = intents_of(self.world.database, self.uuid)
        return {row.prefix.rpartition("/")[2]: row.state for row in rows}

    def snapshot_ids(self) -> list[int]:
        return [own.snapshot_id for own in self.metadata.snapshots.bare_items()]

    def check(self) -> None:
        """Check that every file that the table names is there."""
        for snapshot in self.table.load().metadata.get("snapshots", []):
            for path in self.table.live(snapshot):
                full = path if path.startswith("file:") else self.table.data_path(path)
                assert Path(full.removeprefix("file://")).is_file(), full


def new_table(
    world: World, properties: Mapping[str, str] | None = None, **more: Any
) -> TableOnDisk:
    """Create a table whose files are deleted without a quarantine."""
    world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
    own = {"frazil.gc.quarantine-ms": "0", **(properties or {})}
    more.setdefault("spec", UNPARTITIONED)
    return TableOnDisk(world, Table(world, namespace=NAMESPACE, properties=own, **more).create())


@contextmanager
def opened_table(
    database: Database,
    warehouse: Path,
    properties: Mapping[str, str] | None = None,
    store: Store | None = None,
    **more: Any,
) -> Iterator[TableOnDisk]:
    with opened_world(database, warehouse, store) as world:
        yield new_table(world, properties, **more)
