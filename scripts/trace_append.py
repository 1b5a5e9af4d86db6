"""Count the code that one warm commit runs: `trace_append.py [--modules]`.

The commit goes through the whole server in this process: from the ASGI application to the swap in
SQLite, files in a local folder, and back to the answer. The same commit has run before, so caches
are warm and nothing is imported. The table shows what a reader has to follow: modules, named
functions, how often a call is in another package than the call before, and the lines of all those
modules.

To trace another checkout, put its `src` on PYTHONPATH. A package is a folder below `frazil`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import frazil
from frazil.settings import Settings

Json = dict[str, Any]

PACKAGE = Path(frazil.__file__).resolve().parent
TABLE = "/v1/namespaces/shop/tables/orders"
SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
    ],
}
BY_DAY: Json = {
    "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}]
}
THE_DAY: Json = {"type": "eq", "term": "day", "value": "2026-05-01"}
ANOTHER_DAY: Json = {"type": "eq", "term": "day", "value": "2026-05-02"}
WARM_UPS = 3


@dataclass(frozen=True)
class Figures:
    """What one commit has run."""

    commit: str
    modules: int
    functions: int
    package_changes: int
    lines: int


@dataclass
class Trace:
    """The named functions of the package that ran while the trace was active."""

    active: bool = False
    functions: set[CodeType] = field(default_factory=set)
    package_changes: int = 0
    package: str | None = None

    def start(self) -> None:
        self.functions.clear()
        self.package_changes = 0
        self.package = None
        self.active = True

    def record(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; this is the profile function of every thread."""
        code = frame.f_code
        if not self.active or event != "call" or not is_named_function(code):
            return
        self.functions.add(code)
        package = package_of(code)
        self.package_changes += self.package is not None and package != self.package
        self.package = package

    def figures(self, commit: str) -> Figures:
        lines = sum(line_count(module) for module in self.modules())
        modules, functions = len(self.modules()), len(self.functions)
        return Figures(commit, modules, functions, self.package_changes, lines)

    def modules(self) -> Mapping[str, int]:
        """Return each module with the number of its functions that ran."""
        names = (str(Path(code.co_filename).relative_to(PACKAGE)) for code in self.functions)
        return dict(sorted(Counter(names).items()))


def is_named_function(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{PACKAGE}/") and not code.co_name.startswith("<")


def package_of(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(PACKAGE).parts[0]


def line_count(module: str) -> int:
    return len((PACKAGE / module).read_text().splitlines())


class InProcess:
    """Requests to the server's ASGI application, without a socket."""

    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._loop = loop

    def __call__(self, method: str, path: str, body: Json) -> Json:
        """Return the decoded answer; fail unless it is a success."""
        return self._loop.run_until_complete(self._exchange(method, path, json.dumps(body)))

    async def _exchange(self, method: str, path: str, text: str) -> Json:
        content = text.encode()
        headers = {"content-type": "application/json", "content-length": str(len(content))}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        requests = [{"type": "http.request", "body": content, "more_body": False}]
        answers: list[Mapping[str, Any]] = []

        async def receive() -> Any:
            if not requests:
                await asyncio.Event().wait()
            return requests.pop()

        async def send(message: Mapping[str, Any]) -> None:
            answers.append(message)

        await self._app(scope, receive, send)
        answer: Json = json.loads(b"".join(part.get("body", b"") for part in answers[1:]) or b"{}")
        if answers[0]["status"] != 200:
            raise RuntimeError(f"{method} {path}: {answers[0]['status']} {answer}")
        return answer


@contextmanager
def server(folder: Path) -> Iterator[InProcess]:
    """Open the application as `frazil serve` does, on SQLite and local files."""
    assembly = import_module("frazil.server.assembly")
    # Older checkouts call it `assembled`.
    open_app = getattr(assembly, "open_app", None) or assembly.assembled
    settings = Settings(
        database=f"sqlite:///{folder}/frazil.db", warehouse=str(folder / "warehouse")
    )
    loop = asyncio.new_event_loop()
    with open_app(settings, {}) as app:
        yield InProcess(app, loop)
    loop.close()


class Table:
    """A table that is partitioned by day, and updates for it."""

    def __init__(self, send: InProcess) -> None:
        self._send = send
        self._files = 0
        send("POST", "/v1/namespaces", {"namespace": ["shop"]})
        table = {"name": "orders", "schema": SCHEMA, "partition-spec": BY_DAY}
        created = send("POST", "/v1/namespaces/shop/tables", table)
        self._location = created["metadata"]["location"]

    def send(self, update: Json) -> Json:
        return self._send("POST", TABLE, {"requirements": [], "updates": [update]})

    def append(self) -> Json:
        """Return an update that adds one file."""
        return {"action": "append", "add-data-files": [self._new_file()]}

    def overwrite(self) -> Json:
        """Commit a file, and another one after it; return an update that replaces the first.

        The update has three clauses, and the second commit is what they look at.
        """
        old = self._new_file()
        base = self.send({"action": "append", "add-data-files": [old]})
        self.send(self.append())
        path = old["file-path"]
        return {
            "action": "overwrite",
            "base-snapshot-id": base["metadata"]["current-snapshot-id"],
            "add-data-files": [self._new_file()],
            "remove-data-files": [path],
            "commit-validations": [
                {"type": "not-allowed-added-data-files", "filter": ANOTHER_DAY},
                {"type": "not-allowed-added-delete-files", "filter": THE_DAY},
                {"type": "required-data-files", "file-paths": [path]},
            ],
        }

    def _new_file(self) -> Json:
        self._files += 1
        return {
            "content": "data",
            "file-path": f"{self._location}/data/{self._files}.parquet",
            "file-format": "parquet",
            "file-size-in-bytes": 4096,
            "record-count": 90,
            "spec-id": 0,
            "partition": ["2026-05-01"],
            "value-counts": {"keys": [1], "values": [90]},
            "null-value-counts": {"keys": [1], "values": [0]},
            "lower-bounds": {"keys": [1], "values": [self._files]},
            "upper-bounds": {"keys": [1], "values": [self._files + 90]},
        }


def trace_commit(prepare: Callable[[Table], Json]) -> Trace:
    """Trace the commit of a prepared update, on a table of its own."""
    trace = Trace()
    # Threads take the profile function when they start, so it is set before the server is.
    threading.setprofile(trace.record)
    sys.setprofile(trace.record)
    try:
        with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as send:
            table = Table(send)
            for _ in range(WARM_UPS):
                table.send(prepare(table))
            update = prepare(table)
            trace.start()
            table.send(update)
            trace.active = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace


COMMITS: Mapping[str, Callable[[Table], Json]] = {
    "append": Table.append,
    "overwrite with three clauses": Table.overwrite,
}


def table_of(figures: Sequence[Figures]) -> str:
    """Return the figures as a Markdown table."""
    names = [column.name for column in fields(Figures)]
    heads = [name.replace("_", " ") for name in names]
    rows = [[str(getattr(row, name)) for name in names] for row in figures]
    lines = [heads, ["---"] + ["---:"] * (len(names) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def module_list(trace: Trace) -> str:
    """Return one line for each module: its lines, its functions that ran, and its name."""
    rows = trace.modules().items()
    return "\n".join(f"{line_count(name):5} {functions:4}  {name}" for name, functions in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--modules", action="store_true", help="also list the modules")
    options = parser.parse_args(arguments)
    traces = {name: trace_commit(prepare) for name, prepare in COMMITS.items()}
    figures = [trace.figures(name) for name, trace in traces.items()]
    if options.output == "json":
        print(json.dumps([asdict(row) for row in figures], indent=2))
        return 0
    print(table_of(figures))
    if options.modules:
        for name, trace in traces.items():
            print(f"\nlines, functions and name of each module: {name}\n{module_list(trace)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
