"""A catalog at work, in half a minute: stock PyIceberg writes, stock DuckDB reads.

`make demo` runs it. It asks nothing, uses a free port and the folder ./.demo, which it wipes when
it starts, and leaves no process behind. Each line says how many seconds it took. The numbers at
the end are compared with what was written: a difference ends the demo with 1.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".demo"
TABLE = "demo.events"
WRITERS = 4
APPENDS = 5
ROWS = 1_000
START_TIMEOUT_S = 60
WRITER_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60


class DemoFailed(Exception):
    """What was promised did not happen."""


class Story:
    """Prints lines, each with the seconds since the one before."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def tell(self, text: str) -> None:
        now = time.perf_counter()
        print(f"{now - self._last:6.2f} s  {text}", flush=True)
        self._last = now

    def note(self, text: str) -> None:
        print(f"          {text}", flush=True)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    story = Story()
    try:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        with running_server() as url:
            story.tell(f"the server answers at {url} (its log: .demo/server.log)")
            play(story, url)
        story.tell("the server finished what was in flight and ended")
    except DemoFailed as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    next_steps()
    return 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """A signal that would end the demo at once must still end what it started."""
    raise SystemExit(128 + number)


def play(story: Story, url: str) -> None:
    create_table(url)
    story.tell(f"1  PyIceberg made the namespace demo and the table {TABLE}")
    commits = WRITERS * APPENDS
    with writer_processes(url) as writers:
        story.tell(f"2  {WRITERS} PyIceberg processes loaded the table")
        slowest_ms = append_all_at_once(writers)
    story.tell(
        f"   and appended to it {APPENDS} times each, all at once: {commits} commits, "
        f"{commits_refused()} of them refused"
    )
    story.note(f"the slowest append took {slowest_ms} ms, with the Parquet file it wrote")
    lines = history(url)
    if len(lines) != commits:
        raise DemoFailed(f"the history has {len(lines)} snapshots, not {commits}")
    story.tell(f"3  the history has {len(lines)} snapshots, the last of them:")
    for line in lines[-4:]:
        story.note(line)
    rows, distinct, names = read_with_duckdb(url)
    wanted = commits * ROWS
    if (rows, distinct, names) != (wanted, wanted, WRITERS):
        raise DemoFailed(
            f"DuckDB read {rows} rows, {distinct} of them distinct, of {names} writers; "
            f"written were {wanted} rows by {WRITERS}"
        )
    story.tell(f"4  DuckDB read {rows:,} rows of {names} writers, each row exactly once")


# --- the server ---------------------------------------------------------------------------------


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """A server of its own on a free port. Settings of the user's shell do not reach it."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FRAZIL_")}
    command = [sys.executable, "-m", "frazil", "serve", "--output", "json", "--port", "0"]
    command += ["--log-format", "json", "--warehouse", str(FOLDER / "warehouse")]
    command += ["--database", f"sqlite:///{FOLDER / 'frazil.db'}"]
    with (FOLDER / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environ,
            text=True,
            # Ctrl-C reaches every process of the terminal; the server is to be ended by us.
            start_new_session=True,
        )
    try:
        yield _address(server)
    except BaseException:
        _stop(server)
        raise
    if _stop(server) != 0:
        raise DemoFailed(f"the server ended with {server.returncode}, see .demo/server.log")


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(START_TIMEOUT_S)
    try:
        line = server.stdout.readline()
    finally:
        signal.alarm(0)
    if not line:
        raise DemoFailed(f"the server did not start:\n{(FOLDER / 'server.log').read_text()}")
    return str(json.loads(line)["url"])


def _too_late(number: int, frame: FrameType | None) -> NoReturn:
    raise DemoFailed(f"the server did not start within {START_TIMEOUT_S} seconds")


def _stop(server: subprocess.Popen[str]) -> int:
    server.terminate()
    try:
        return server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


# --- PyIceberg ----------------------------------------------------------------------------------


def create_table(url: str) -> None:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("demo", type="rest", uri=url)
    catalog.create_namespace("demo")
    catalog.create_table(
        TABLE,
        schema=pa.schema([("id", pa.int64()), ("writer", pa.string()), ("amount", pa.float64())]),
        properties={"frazil.commit.rebase-appends": "true"},
    )


@contextlib.contextmanager
def writer_processes(url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of their own that have loaded the table and wait for a word."""
    command = [sys.executable, str(Path(__file__).resolve()), "writer", url]
    writers: list[subprocess.Popen[str]] = []
    try:
        for number in range(WRITERS):
            writers.append(
                subprocess.Popen(
                    [*command, str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for number, writer in enumerate(writers):
            assert writer.stdout is not None
            if writer.stdout.readline() != "ready\n":
                raise DemoFailed(f"writer {number} did not start, its error is above")
        yield writers
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
            writer.communicate()


def append_all_at_once(writers: list[subprocess.Popen[str]]) -> int:
    """Lets the writers go; the slowest append of all in milliseconds."""
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    try:
        outputs = [writer.communicate(timeout=WRITER_TIMEOUT_S)[0] for writer in writers]
    except subprocess.TimeoutExpired:
        raise DemoFailed(f"a writer took more than {WRITER_TIMEOUT_S} seconds") from None
    failed = [number for number, writer in enumerate(writers) if writer.returncode != 0]
    if failed:
        raise DemoFailed(f"writer {failed[0]} failed, its error is above")
    return max(int(output) for output in outputs)


def append_as(number: int, url: str) -> None:
    """What one writer process does; prints its slowest append in milliseconds."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    table = load_catalog("demo", type="rest", uri=url).load_table(TABLE)
    print("ready", flush=True)
    sys.stdin.readline()
    slowest = 0.0
    for turn in range(APPENDS):
        first = (number * APPENDS + turn) * ROWS
        ids = list(range(first, first + ROWS))
        rows = pa.table(
            {"id": ids, "writer": [f"writer-{number}"] * ROWS, "amount": [i / 100 for i in ids]}
        )
        began = time.perf_counter()
        table.append(rows, snapshot_properties={"writer": f"writer-{number}"})
        slowest = max(slowest, time.perf_counter() - began)
    print(round(slowest * 1000))


def commits_refused() -> int:
    """As the server's log has it: a client may have tried again and said nothing."""
    lines = (FOLDER / "server.log").read_text().splitlines()
    commits = [json.loads(line) for line in lines if '"updateTable"' in line]
    return sum(1 for line in commits if line["status"] != 200)


def history(url: str) -> list[str]:
    from pyiceberg.catalog import load_catalog

    table = load_catalog("demo", type="rest", uri=url).load_table(TABLE)
    lines = []
    for snapshot in sorted(table.snapshots(), key=lambda each: each.sequence_number or 0):
        summary = snapshot.summary
        assert summary is not None
        added, total = summary["added-records"], summary["total-records"]
        lines.append(
            f"{snapshot.sequence_number:>3}  snapshot {snapshot.snapshot_id:<19}  "
            f"{summary.operation.value} by {summary['writer']}: +{added} = {total} rows"
        )
    return lines


# --- DuckDB -------------------------------------------------------------------------------------


def read_with_duckdb(url: str) -> tuple[int, int, int]:
    """Rows, distinct ids and distinct writers. The extensions are files in their wheels, so
    nothing is downloaded."""
    import duckdb

    connection = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    with connection:
        for name in ("avro", "httpfs", "iceberg"):
            package = importlib.import_module(f"duckdb_extension_{name}")
            pattern = f"extensions/*/{name}.duckdb_extension"
            (path,) = Path(package.__path__[0]).glob(pattern)
            connection.execute(f"LOAD '{path}'")
        connection.execute(
            f"ATTACH '' AS frazil (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')"
        )
        row = connection.execute(
            f"SELECT count(*), count(DISTINCT id), count(DISTINCT writer) FROM frazil.{TABLE}"
        ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


def next_steps() -> None:
    print(
        """
Next: `make serve`, then paste into .venv/bin/python:

    from pyiceberg.catalog import load_catalog
    catalog = load_catalog("frazil", type="rest", uri="http://127.0.0.1:8181")
    catalog.create_namespace("mine")
"""
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["writer"]:
        append_as(int(sys.argv[3]), sys.argv[2])
    else:
        sys.exit(main())
