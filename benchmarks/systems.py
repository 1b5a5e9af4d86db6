"""The compared systems, each started with an empty namespace."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.catalogs import Catalog, HttpCatalog, PyIcebergCatalog, pyiceberg_catalog
from benchmarks.histories import (
    GZIP,
    NAMESPACE,
    PROPERTIES,
    History,
    Prepared,
    file_url,
    prepare,
)
from benchmarks.processes import JAVA_SERVER_JAR, RunningJava, running_java_server
from scripts.java import JavaError, find_java
from tests.support.server import RunningServer, start_server

FRAZIL = "frazil"
FRAZIL_GZIP = "frazil, gzip metadata"
SQL_CATALOG = "PyIceberg SqlCatalog"
JAVA_HADOOP = "Java server, HadoopFileIO"
JAVA_PLAIN = "Java server, plain FileIO"

PLAIN_FILE_IO = "org.apache.iceberg.TestTables$LocalFileIO"
"""A FileIO that only uses java.io. It is part of the server's jar."""


@dataclass(slots=True)
class System:
    name: str
    catalog: Catalog
    client: PyIcebergCatalog
    """PyIceberg on this catalog, for end-to-end work."""
    warehouse: Path
    bare_paths: bool = False
    """Whether locations are written without `file://`."""
    knows_refs_mode: bool = True
    """Whether the server obeys `snapshots=refs`. Other servers return all snapshots."""
    properties: dict[str, str] = field(default_factory=lambda: dict(PROPERTIES))
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_table(self, history: History) -> Prepared:
        """Register a new table with this history."""
        kind = "gzip" if "write.metadata.compression-codec" in self.properties else "plain"
        name = f"t{history.length}_{kind}_{next(self._numbers)}"
        folder = self.warehouse / NAMESPACE / name
        location = str(folder) if self.bare_paths else file_url(folder)
        prepared = prepare(history, folder, location, self.properties)
        self.catalog.register(name, prepared.metadata_location)
        return prepared


@contextmanager
def running_systems(scratch: Path, *, with_java: bool) -> Iterator[list[System]]:
    """Start all systems, Frazil first. If Java or the jar is missing, print a line and leave its
    systems out."""
    with ExitStack() as stack:
        systems = [*_frazil(stack, scratch), _sql_catalog(stack, scratch / "sql")]
        if with_java:
            systems += _java_servers(stack, scratch)
        yield systems


@contextmanager
def running_frazil(scratch: Path) -> Iterator[RunningServer]:
    # All systems share manifests that are outside of each warehouse.
    server = start_server(scratch / "frazil", "--allow-location", file_url(scratch))
    try:
        yield server
    finally:
        server.stop()


def _frazil(stack: ExitStack, scratch: Path) -> list[System]:
    server = stack.enter_context(running_frazil(scratch))
    catalog = _http(stack, server.url, server.process.pid)
    client = _client(stack, server.url, server.process.pid)
    plain = System(FRAZIL, catalog, client, server.warehouse)
    gzip = System(FRAZIL_GZIP, catalog, client, server.warehouse, properties=PROPERTIES | GZIP)
    return [plain, gzip]


def _sql_catalog(stack: ExitStack, folder: Path) -> System:
    folder.mkdir(parents=True)
    warehouse = folder / "warehouse"
    uri = f"sqlite:///{folder / 'catalog.db'}"
    properties = {"type": "sql", "uri": uri, "warehouse": file_url(warehouse)}
    client = stack.enter_context(pyiceberg_catalog(properties))
    return System(SQL_CATALOG, client, client, warehouse)


def _java_servers(stack: ExitStack, scratch: Path) -> list[System]:
    if not JAVA_SERVER_JAR.exists():
        _say(f"{JAVA_SERVER_JAR.name} is not there, left out. Type: make bench")
        return []
    try:
        java = find_java()
    except JavaError as error:
        _say(f"the Java server is left out: {error}")
        return []
    systems = []
    for name, folder, io_impl in (
        (JAVA_HADOOP, "java-hadoop", None),
        (JAVA_PLAIN, "java-plain", PLAIN_FILE_IO),
    ):
        server: RunningJava = stack.enter_context(
            running_java_server(java, scratch / folder, io_impl)
        )
        catalog = _http(stack, server.url, server.pid)
        client = _client(stack, server.url, server.pid)
        warehouse = scratch / folder / "warehouse"
        system = System(name, catalog, client, warehouse, bare_paths=True, knows_refs_mode=False)
        systems.append(system)
    return systems


def _http(stack: ExitStack, url: str, pid: int) -> HttpCatalog:
    catalog = HttpCatalog(url, pid)
    stack.callback(catalog.close)
    catalog.create_namespace()
    return catalog


def _client(stack: ExitStack, url: str, pid: int) -> PyIcebergCatalog:
    return stack.enter_context(pyiceberg_catalog({"type": "rest", "uri": url}, pid))


def _say(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)
