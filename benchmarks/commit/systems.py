"""The compared systems. Each creates tables from the same start and commits to them."""

from __future__ import annotations

import itertools
import json
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.commit.bursts import (
    APPEND,
    DELETE_PATH,
    OPERATIONS,
    Burst,
    Task,
)
from benchmarks.commit.files import PARTITIONS, declared, encode, file_path
from benchmarks.commit.io_counts import counts_of
from benchmarks.commit.java_writers import JavaWriters, running_java_writers
from benchmarks.commit.senders import NextRequest, http_request, send_requests
from benchmarks.commit.trees import (
    GZIP_PROPERTIES,
    METADATA_PROPERTIES,
    Start,
    head_totals,
    new_files_folder,
)
from benchmarks.commit.writers import Host, running_host
from benchmarks.histories import NAMESPACE, Prepared, file_url, prepare
from benchmarks.processes import JAVA_SERVER_JAR, running_java_server
from benchmarks.systems import PLAIN_FILE_IO
from scripts.java import JavaError, find_java
from tests.support.postgres import PostgresServer, start_postgres
from tests.support.server import RunningServer, start_server

FRAZIL = "frazil"
FRAZIL_FULL = "frazil, the whole metadata answered"
FRAZIL_GZIP = "frazil, gzip metadata"
FRAZIL_POSTGRES = "frazil on PostgreSQL"
SQL_CATALOG = "PyIceberg SqlCatalog"
JAVA_HADOOP = "Java client and server, HadoopFileIO"
JAVA_PLAIN = "Java client and server, plain FileIO"
DUCKLAKE = "DuckLake on PostgreSQL, files"
DUCKLAKE_INLINED = "DuckLake on PostgreSQL, inlined rows"

_NUMBER = "0123456789"
"""Placeholder in a request's template for the ten digits of a file's number."""


class System(Protocol):
    name: str
    operations: Sequence[str]

    def new_tables(self, start: Start, count: int) -> list[str]:
        """Create new tables that are all the same."""
        ...

    def run(self, task: Task) -> Burst: ...

    def totals(self, table: str) -> tuple[int, int]:
        """Return the table's number of snapshots and of live files."""
        ...


def counted(pids: Sequence[int], work: Callable[[], Burst]) -> Burst:
    """Run the work and add the CPU and the written bytes of these processes and their children."""
    before = counts_of(pids)
    burst = work()
    spent = counts_of(pids).since(before)
    burst.server_cpu_s, burst.written_bytes = spent.cpu_s, spent.written_bytes
    return burst


@dataclass(slots=True)
class Tables:
    """Prepares the tables of one catalog: metadata files below its warehouse."""

    warehouse: Path
    bare_paths: bool
    numbers: Iterator[int]

    def prepare(self, start: Start, count: int, properties: dict[str, str]) -> list[Prepared]:
        made = []
        for _ in range(count):
            folder = self.warehouse / NAMESPACE / f"t{next(self.numbers)}"
            location = str(folder) if self.bare_paths else file_url(folder)
            made.append(prepare(start.history, folder, location, properties))
            new_files_folder(folder, location)
        return made


def tables_below(warehouse: Path, *, bare_paths: bool) -> Tables:
    return Tables(warehouse, bare_paths, itertools.count())


# --- Frazil -------------------------------------------------------------------------------------


class Frazil:
    def __init__(
        self,
        name: str,
        server: RunningServer,
        tables: Tables,
        *,
        minimal: bool = True,
        gzip: bool = False,
    ) -> None:
        self.name = name
        self.operations: Sequence[str] = OPERATIONS
        self._server = server
        self._tables = tables
        self._minimal = minimal
        self._properties = {**METADATA_PROPERTIES, **(GZIP_PROPERTIES if gzip else {})}
        self._locations: dict[str, str] = {}
        self._tree_folders: dict[str, str] = {}

    @property
    def pid(self) -> int:
        return self._server.process.pid

    def restart(self, start: Callable[[], RunningServer]) -> None:
        self._server.stop()
        self._server = start()

    def stop(self) -> None:
        self._server.stop()

    def create_namespace(self) -> None:
        _post(f"{self._server.url}/v1/namespaces", {"namespace": [NAMESPACE]})

    def new_tables(self, start: Start, count: int) -> list[str]:
        made = self._tables.prepare(start, count, self._properties)
        for one in made:
            body = {"name": one.name, "metadata-location": one.metadata_location}
            _post(f"{self._server.url}/v1/namespaces/{NAMESPACE}/register", body)
            self._locations[one.name] = one.location
            self._tree_folders[one.name] = start.tree.folder
        return [one.name for one in made]

    def run(self, task: Task) -> Burst:
        requests = [
            _in_turns([self._requests(task, table, writer) for table in tables])
            for writer, tables in enumerate(task.tables)
        ]

        def send() -> Burst:
            return send_requests(self._server.url, requests, task.seconds, task.most)[0]

        return counted([self.pid], send)

    def totals(self, table: str) -> tuple[int, int]:
        url = f"{self._server.url}/v1/namespaces/{NAMESPACE}/tables/{table}?snapshots=all"
        with urllib.request.urlopen(url) as answer:
            return head_totals(json.load(answer)["metadata"])

    def _requests(self, task: Task, table: str, writer: int) -> NextRequest:
        numbers = itertools.count(task.first, task.step)
        path = f"/v1/namespaces/{NAMESPACE}/tables/{table}"
        url, minimal = self._server.url, self._minimal
        folder = f"{self._locations[table]}/data"
        if task.operation == APPEND and task.files == 1:
            # Requests differ only in the path, and there only in these digits.
            body = _append_body([declared(folder, int(_NUMBER), 7, writer)])
            start, end = http_request(url, path, body, minimal=minimal).split(_NUMBER.encode())
            return lambda: b"%b%010d%b" % (start, next(numbers), end)

        def one() -> bytes:
            body = _body(task, next(numbers), folder, self._tree_folders[table], writer)
            return http_request(url, path, body, minimal=minimal)

        ready = [one() for _ in range(task.most)]
        return iter(ready).__next__


def _in_turns(requests: list[NextRequest]) -> NextRequest:
    if len(requests) == 1:
        return requests[0]
    turns = itertools.cycle(requests)
    return lambda: next(turns)()


def _body(task: Task, number: int, folder: str, tree_folder: str, writer: int) -> bytes:
    if task.operation == APPEND:
        files = range(number, number + task.files)
        return _append_body([declared(folder, each, each % PARTITIONS, writer) for each in files])
    if task.operation == DELETE_PATH:
        update: dict[str, Any] = {
            "action": "delete",
            "remove-data-files": [{"file-path": file_path(tree_folder, number)}],
        }
    else:
        row_filter = {"type": "eq", "term": "part", "value": number}
        update = {"action": "delete", "delete-row-filter": row_filter}
    return encode({"requirements": [], "updates": [update]})


def _append_body(files: list[dict[str, Any]]) -> bytes:
    return encode({"requirements": [], "updates": [{"action": "append", "add-data-files": files}]})


def _post(url: str, body: object) -> None:
    request = urllib.request.Request(url, encode(body), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        answer.read()


# --- the others ---------------------------------------------------------------------------------


class SqlCatalog:
    name = SQL_CATALOG
    operations: Sequence[str] = OPERATIONS

    def __init__(self, host: Host, tables: Tables) -> None:
        self._host = host
        self._tables = tables

    def new_tables(self, start: Start, count: int) -> list[str]:
        made = self._tables.prepare(start, count, dict(METADATA_PROPERTIES))
        self._host.administer("register", tables={one.name: one.metadata_location for one in made})
        return [one.name for one in made]

    def run(self, task: Task) -> Burst:
        return counted([self._host.pid], lambda: self._host.run(task))

    def totals(self, table: str) -> tuple[int, int]:
        snapshots, files = self._host.administer("totals", table=table)
        return snapshots, files


class JavaSystem:
    operations: Sequence[str] = OPERATIONS

    def __init__(
        self,
        name: str,
        writers: JavaWriters,
        server: tuple[str, int],
        io_impl: str | None,
        tables: Tables,
    ) -> None:
        self.name = name
        self._writers = writers
        self._url, self._server_pid = server
        self._io_impl = io_impl
        self._tables = tables
        _post(f"{self._url}/v1/namespaces", {"namespace": [NAMESPACE]})

    def new_tables(self, start: Start, count: int) -> list[str]:
        made = self._tables.prepare(start, count, dict(METADATA_PROPERTIES))
        for one in made:
            body = {"name": one.name, "metadata-location": one.metadata_location}
            _post(f"{self._url}/v1/namespaces/{NAMESPACE}/register", body)
        return [one.name for one in made]

    def run(self, task: Task) -> Burst:
        before = counts_of([self._writers.pid])
        burst = counted(
            [self._server_pid], lambda: self._writers.run(self._url, self._io_impl, task)
        )
        spent = counts_of([self._writers.pid]).since(before)
        # The client writes manifests and manifest lists, the server the metadata.
        burst.client_cpu_s = spent.cpu_s
        burst.written_bytes += spent.written_bytes
        return burst

    def totals(self, table: str) -> tuple[int, int]:
        with urllib.request.urlopen(
            f"{self._url}/v1/namespaces/{NAMESPACE}/tables/{table}"
        ) as answer:
            return head_totals(json.load(answer)["metadata"])


class DuckLake:
    operations: Sequence[str] = (APPEND,)

    def __init__(self, name: str, host: Host, postgres: PostgresServer) -> None:
        self.name = name
        self._host = host
        self._postgres = postgres

    def new_tables(self, start: Start, count: int) -> list[str]:
        """Use a new database, because DuckLake's snapshots belong to the whole catalog."""
        database = self._postgres.create_database().rpartition("/")[2]
        made: list[str] = self._host.administer(
            "create",
            start={
                "database": database,
                "tables": count,
                "files": start.tree.files,
                "snapshots": start.snapshots,
            },
        )
        return made

    def run(self, task: Task) -> Burst:
        before = counts_of([self._host.pid])
        burst = counted([self._postgres.pid], lambda: self._host.run(task))
        burst.written_bytes += counts_of([self._host.pid]).since(before).written_bytes
        return burst

    def totals(self, table: str) -> tuple[int, int]:
        snapshots, files = self._host.administer("totals", table=table)
        return snapshots, files


# --- all of them --------------------------------------------------------------------------------


def start_frazil(scratch: Path, *flags: str) -> RunningServer:
    # All systems share trees that are outside of each warehouse.
    return start_server(scratch / "frazil", "--allow-location", file_url(scratch), *flags)


@contextmanager
def running_systems(
    scratch: Path, *, with_java: bool, with_postgres: bool
) -> Iterator[list[System]]:
    """Start the systems, Frazil first. If Java or its jar is missing, print a line and leave it
    out."""
    with ExitStack() as stack:
        systems: list[System] = [*_frazil(stack, scratch), _sql_catalog(stack, scratch)]
        if with_java:
            systems += _java_systems(stack, scratch)
        if with_postgres:
            postgres = start_postgres(scratch / "postgres", durable=True)
            stack.callback(postgres.stop)
            systems += [
                _frazil_on_postgres(stack, scratch, postgres),
                _ducklake(stack, scratch, postgres, inlined=False),
                _ducklake(stack, scratch, postgres, inlined=True),
            ]
        yield systems


def named(systems: Sequence[System], name: str) -> System:
    return next(system for system in systems if system.name == name)


def tree_folder(scratch: Path) -> Path:
    return scratch / "trees"


def _frazil(stack: ExitStack, scratch: Path) -> list[Frazil]:
    server = start_frazil(scratch)
    tables = tables_below(server.warehouse, bare_paths=False)
    systems = [
        Frazil(FRAZIL, server, tables),
        Frazil(FRAZIL_GZIP, server, tables, gzip=True),
        Frazil(FRAZIL_FULL, server, tables, minimal=False),
    ]
    systems[0].create_namespace()
    stack.callback(systems[0].stop)
    return systems


def _frazil_on_postgres(stack: ExitStack, scratch: Path, postgres: PostgresServer) -> Frazil:
    folder = scratch / "frazil-postgres"
    flags = ("--allow-location", file_url(scratch), "--database", postgres.create_database())
    server = start_server(folder, *flags)
    stack.callback(server.stop)
    system = Frazil(FRAZIL_POSTGRES, server, tables_below(server.warehouse, bare_paths=False))
    system.create_namespace()
    return system


def _sql_catalog(stack: ExitStack, scratch: Path) -> SqlCatalog:
    folder = scratch / "sql"
    folder.mkdir(parents=True)
    warehouse = folder / "warehouse"
    settings = {
        "properties": {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": file_url(warehouse),
        },
        "tree_folder": str(tree_folder(scratch)),
    }
    host = stack.enter_context(running_host("benchmarks.commit.pyiceberg_writer", settings))
    host.administer("start")
    return SqlCatalog(host, tables_below(warehouse, bare_paths=False))


def _java_systems(stack: ExitStack, scratch: Path) -> list[System]:
    if not JAVA_SERVER_JAR.exists():
        _say(f"{JAVA_SERVER_JAR.name} is not there, left out. Type: make bench-commit")
        return []
    try:
        java = find_java()
    except JavaError as error:
        _say(f"the Java client and server are left out: {error}")
        return []
    writers = stack.enter_context(running_java_writers(java, str(tree_folder(scratch))))
    systems: list[System] = []
    for name, label, io_impl in (
        (JAVA_HADOOP, "java-hadoop", None),
        (JAVA_PLAIN, "java-plain", PLAIN_FILE_IO),
    ):
        server = stack.enter_context(running_java_server(java, scratch / label, io_impl))
        tables = tables_below(scratch / label / "warehouse", bare_paths=True)
        systems.append(JavaSystem(name, writers, (server.url, server.pid), io_impl, tables))
    return systems


def _ducklake(
    stack: ExitStack, scratch: Path, postgres: PostgresServer, *, inlined: bool
) -> DuckLake:
    settings = {
        "folder": str(scratch / ("ducklake-inlined" if inlined else "ducklake")),
        "server": postgres.url("").rstrip("/"),
        "connection": f"host=127.0.0.1 port={postgres.port} user=postgres",
        "inlined": inlined,
    }
    host = stack.enter_context(running_host("benchmarks.commit.ducklake_writer", settings))
    host.administer("start")
    return DuckLake(DUCKLAKE_INLINED if inlined else DUCKLAKE, host, postgres)


def _say(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)
