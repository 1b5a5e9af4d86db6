"""Show fine-grained commits in a minute: writers declare files, the server commits them.

`make demo` runs it without questions. It uses a free port and the folder ./.demo, which it empties
at the start, and it ends all its processes. Each line has the seconds since the line before. At the
end the demo compares the numbers with the written rows; a difference ends it with exit code 1.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".demo"
NAMESPACE, NAME = "demo", "orders"
TABLE = f"/v1/namespaces/{NAMESPACE}/tables/{NAME}"
WRITERS = 16
COMPACTED = 4
DELETES = 8
ROWS = 1_000
START_TIMEOUT_S = 60
WRITER_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
SPARK_TIMEOUT_S = 180

COLUMNS = ("id", "long"), ("writer", "string"), ("cents", "long")
NEW_COLUMN = "country", "string"
"""The id of a column is its position, counted from 1."""


class DemoFailed(Exception):
    """A result differs from what the demo says."""


class Story:
    """Print lines, each with the seconds since the line before."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def tell(self, text: str) -> None:
        now = time.perf_counter()
        print(f"{now - self._last:6.2f} s  {text}", flush=True)
        self._last = now

    def note(self, text: str) -> None:
        print(f"             {text}", flush=True)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    story = Story()
    try:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        with running_server() as url:
            story.tell(f"the server answers at {url} (its log: .demo/server.log)")
            play(story, Catalog(url))
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
    """Turn signals that end the demo into exits, so that its child processes end too."""
    raise SystemExit(128 + number)


# --- what a writer needs: Parquet, and one POST ----------------------------------------------


@dataclass(frozen=True)
class Catalog:
    """A catalog, called with the standard library only."""

    url: str

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request; return the status and the answer, which `return=minimal` keeps small."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        headers = {"Content-Type": "application/json", "Prefer": "return=minimal"}
        try:
            connection.request(method, path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.call(method, path, body)
        if status >= 400:
            raise DemoFailed(f"{method} {path} was answered {status}: {answer}")
        return answer

    def commit(self, *updates: Mapping[str, Any], requirements: Sequence[Any] = ()) -> Any:
        """Commit changes of one table atomically."""
        return self.ask("POST", TABLE, {"requirements": requirements, "updates": updates})


def write_parquet(path: Path, columns: Sequence[tuple[str, str]], values: Sequence[Any]) -> None:
    """Write a plain Parquet file; Iceberg finds its columns by their field ids."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"long": pa.int64(), "string": pa.string()}
    schema = pa.schema(
        pa.field(name, types[type_], metadata={"PARQUET:field_id": str(field_id)})
        for field_id, (name, type_) in enumerate(columns, 1)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([*values], schema=schema), path)


def declared(path: Path) -> dict[str, Any]:
    """Return the declaration of a file.

    Only the first six fields are required. The counts and bounds come from the footer; with them,
    later filters read less.
    """
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path)
    chunks = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    ids = list(range(1, len(chunks) + 1))
    return {
        "content": "data",
        "file-path": path.as_uri(),
        "file-format": "parquet",
        "file-size-in-bytes": path.stat().st_size,
        "record-count": footer.num_rows,
        "spec-id": 0,
        "partition": [],
        "value-counts": {"keys": ids, "values": [chunk.num_values for chunk in chunks]},
        "null-value-counts": {
            "keys": ids,
            "values": [chunk.statistics.null_count for chunk in chunks],
        },
        "lower-bounds": {"keys": ids, "values": [chunk.statistics.min for chunk in chunks]},
        "upper-bounds": {"keys": ids, "values": [chunk.statistics.max for chunk in chunks]},
    }


def write_and_commit(number: int, url: str, path: str) -> None:
    """Run one writer process: write a file, wait for a line on stdin, send one POST."""
    write_parquet(Path(path), COLUMNS, rows_of(number, f"writer-{number}"))
    append = {"action": "append", "add-data-files": [declared(Path(path))]}
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    status, answer = Catalog(url).call("POST", TABLE, {"requirements": [], "updates": [append]})
    print(json.dumps([status, answer, round((time.perf_counter() - began) * 1000)]))


def rows_of(number: int, writer: str) -> list[list[Any]]:
    """Return the values of ROWS rows by column; different numbers share no id."""
    ids = ids_of(number)
    return [[*ids], [writer] * ROWS, [cents_of(one) for one in ids]]


def ids_of(number: int) -> range:
    return range(number * ROWS, (number + 1) * ROWS)


def cents_of(row_id: int) -> int:
    return row_id * 37 % 10_000


# --- the steps -----------------------------------------------------------------------------------


def play(story: Story, catalog: Catalog) -> None:
    folder = create_table(catalog)
    story.tell(f"1  two POSTs made the namespace {NAMESPACE} and the table {NAMESPACE}.{NAME}")
    files = sixteen_at_once(story, catalog, folder)
    honest_conflict(story, catalog, files[:COMPACTED], folder)
    stock_append(catalog, WRITERS)
    story.tell(f"4  stock PyIceberg appended {ROWS:,} rows to the same table, as it always does")
    by_one_word(catalog, WRITERS + 1)
    story.tell("   by one word of configuration PyIceberg declares its files too: no manifests")
    schema_and_file(catalog, folder / "with-country.parquet", WRITERS + 2)
    story.tell(f"   one POST added the column {NEW_COLUMN[0]} and a file that has it")
    tell_history(story, catalog)
    there = [number for number in range(WRITERS + 3) if number != COMPACTED - 1]
    cents = {one: cents_of(one) for number in there for one in ids_of(number)}
    read_back(story, catalog, cents, "6  ")
    story.note(f"{ROWS:,} of them have a country")
    merge_by_spark(story, catalog)
    for one, changed, is_gone in changes_of_spark():
        if is_gone:
            del cents[one]
        else:
            cents[one] = changed
    read_back(story, catalog, cents, "   ")
    for one in compact_beside_deletes(story, catalog, folder):
        del cents[one]
    read_back(story, catalog, cents, "   ")


def read_back(story: Story, catalog: Catalog, cents: Mapping[int, int], mark: str) -> None:
    """Check that two readers find exactly these rows."""
    wanted = len(cents), len(cents), sum(cents.values()), ROWS
    for reader, read in (("DuckDB", read_with_duckdb), ("PyIceberg", read_stock)):
        found = read(catalog)
        if found != wanted:
            raise DemoFailed(f"{reader} read {found}, written were {wanted}")
        story.tell(
            f"{mark}{reader} read {found[0]:,} rows, each once, with {found[2]:,} cents: as written"
        )
        mark = "   "


def create_table(catalog: Catalog) -> Path:
    """Create the table; return the folder for its data files."""
    catalog.ask("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
    table = {"name": NAME, "schema": {"type": "struct", "fields": fields(COLUMNS)}}
    made = catalog.ask("POST", f"/v1/namespaces/{NAMESPACE}/tables", table)
    return Path(urlsplit(made["metadata"]["location"]).path) / "data"


def fields(columns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"id": field_id, "name": name, "type": type_, "required": False}
        for field_id, (name, type_) in enumerate(columns, 1)
    ]


def sixteen_at_once(story: Story, catalog: Catalog, folder: Path) -> list[Path]:
    """Append one file from each of sixteen processes at once; return the files."""
    files = [folder / f"writer-{number}.parquet" for number in range(WRITERS)]
    with writer_processes(catalog.url, files) as writers:
        story.tell(f"2  {WRITERS} processes wrote a Parquet file each, without an Iceberg library")
        answers = release(writers)
        refused = [answer for status, answer, _ in answers if status != 200]
        if refused:
            raise DemoFailed(f"{len(refused)} of {WRITERS} commits were refused: {refused[0]}")
        story.tell(f"   and committed it with one POST each, at once: {WRITERS} commits, 0 refused")
    snapshots = {answer["committed"][0]["snapshot-id"] for _, answer, _ in answers}
    if len(snapshots) != WRITERS:
        raise DemoFailed(f"{WRITERS} writers were told of {len(snapshots)} snapshots")
    # The log has the files before the current one; the first is that of the empty table.
    swaps = len(catalog.ask("GET", TABLE)["metadata"]["metadata-log"])
    if swaps != len({answer["metadata-location"] for _, answer, _ in answers}):
        raise DemoFailed(f"the metadata log has {swaps} swaps, the answers name others")
    story.note(f"the metadata log says: {swaps} swaps were enough, for commits that meet share one")
    story.note(f"the slowest POST took {max(ms for _, _, ms in answers)} ms")
    return files


def honest_conflict(story: Story, catalog: Catalog, small: Sequence[Path], folder: Path) -> None:
    """Show a compaction that conflicts with a delete of one of its files, and build it again."""
    base = head(catalog)
    compact(small, folder / "compacted-1.parquet")
    gone = small[-1]
    catalog.commit({"action": "delete", "remove-data-files": [gone.as_uri()]})
    updates = [replace(small, folder / "compacted-1.parquet", base)]
    body = {"requirements": [], "updates": updates}
    status, answer = catalog.call("POST", TABLE, body)
    if status != 409 or answer["error"]["type"] != "ValidationException":
        raise DemoFailed(f"a compaction of a file that is gone was answered {status}: {answer}")
    story.tell(
        f"3  a compaction of {len(small)} files met a delete of one of them, and was refused:"
    )
    conflict = answer["error"]["conflicts"][0]
    for line in _wrapped(conflict["message"], 84):
        story.note(line)
    story.note(f"clause     {conflict['clause']} (index {conflict['validation']})")
    for snapshot in conflict["snapshots"]:
        story.note(f"snapshot   {snapshot['snapshot-id']} ({snapshot['operation']})")
    for file in conflict["files"]:
        story.note(f"file       …/{file['file-path'].rsplit('/', 1)[1]}")
    if [file["file-path"] for file in conflict["files"]] != [gone.as_uri()]:
        raise DemoFailed(f"the conflict names {conflict['files']}, deleted was {gone.as_uri()}")
    compact(small[:-1], folder / "compacted-2.parquet")
    catalog.commit(replace(small[:-1], folder / "compacted-2.parquet", head(catalog)))
    story.tell(f"   built again from the {len(small) - 1} that are left, it was committed")


def compact(files: Sequence[Path], target: Path) -> None:
    """Write the rows of several files to one file."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(path) for path in files]
    values = [[one for table in tables for one in table[name].to_pylist()] for name, _ in COLUMNS]
    write_parquet(target, COLUMNS, values)


def replace(files: Sequence[Path], compacted: Path, base: int) -> dict[str, Any]:
    """Return an update that replaces files unless they were changed after `base`."""
    paths = [path.as_uri() for path in files]
    return {
        "action": "replace",
        "base-snapshot-id": base,
        "remove-data-files": paths,
        "add-data-files": [declared(compacted)],
        "commit-validations": [
            {"type": "required-data-files", "file-paths": paths},
            {"type": "not-allowed-new-deletes-for-data-files", "file-paths": paths},
        ],
    }


def head(catalog: Catalog) -> int:
    metadata = catalog.ask("GET", f"{TABLE}?snapshots=refs")["metadata"]
    return int(metadata["refs"]["main"]["snapshot-id"])


def schema_and_file(catalog: Catalog, path: Path, number: int) -> None:
    """Add a column and a file that has it, in one commit."""
    columns = (*COLUMNS, NEW_COLUMN)
    write_parquet(path, columns, [*rows_of(number, "schema-change"), ["is"] * ROWS])
    catalog.commit(
        {"action": "add-schema", "schema": {"type": "struct", "fields": fields(columns)}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "append", "add-data-files": [declared(path)]},
        requirements=[{"type": "assert-current-schema-id", "current-schema-id": 0}],
    )


def tell_history(story: Story, catalog: Catalog) -> None:
    metadata = catalog.ask("GET", TABLE)["metadata"]
    snapshots = sorted(metadata["snapshots"], key=lambda one: one["sequence-number"])
    operations = [one["summary"]["operation"] for one in snapshots]
    if operations != ["append"] * WRITERS + ["delete", "replace", "append", "append", "append"]:
        raise DemoFailed(f"the history is {operations}")
    written = len(metadata["metadata-log"]) + 1
    story.tell(
        f"5  the history: {len(snapshots)} snapshots in {written} metadata files, the last are"
    )
    for snapshot in snapshots[-6:]:
        summary = snapshot["summary"]
        added, removed = summary.get("added-records", "0"), summary.get("deleted-records", "0")
        story.note(
            f"{snapshot['sequence-number']:>3}  {summary['operation']:<8} +{added:<5} -{removed:<5}"
            f"= {int(summary['total-records']):,} rows in {summary['total-data-files']} files"
        )


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Wrap the text; a longer word, such as a path, gets its own line."""
    line = ""
    for word in text.split():
        if line and len(line) + len(word) >= width:
            yield line
            line = word
        else:
            line = f"{line} {word}".lstrip()
    yield line


# --- processes -----------------------------------------------------------------------------------


@contextlib.contextmanager
def deadline(seconds: int, failure: str) -> Iterator[None]:
    """Kill a process that does not answer in time."""

    def too_late(number: int, frame: FrameType | None) -> NoReturn:
        raise DemoFailed(f"{failure} within {seconds} seconds")

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a server on a free port, without the settings of the user's shell."""
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
            # Ctrl-C reaches every process of the terminal, but the demo must end the server.
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
    with deadline(START_TIMEOUT_S, "the server did not start"):
        line = server.stdout.readline()
    if not line:
        raise DemoFailed(f"the server did not start:\n{(FOLDER / 'server.log').read_text()}")
    return str(json.loads(line)["url"])


def _stop(server: subprocess.Popen[str]) -> int:
    server.terminate()
    try:
        return server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


@contextlib.contextmanager
def writer_processes(url: str, files: Sequence[Path]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that write a file and wait for a line before they commit it."""
    command = [sys.executable, str(Path(__file__).resolve()), "writer", url]
    writers: list[subprocess.Popen[str]] = []
    try:
        for number, path in enumerate(files):
            writers.append(
                subprocess.Popen(
                    [*command, str(number), str(path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        if any(line != "ready\n" for line in lines_of(writers)):
            raise DemoFailed("a writer did not start, its error is above")
        yield writers
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
            writer.communicate()


def release(writers: Sequence[subprocess.Popen[str]]) -> list[tuple[int, Any, int]]:
    """Let all writers commit; return the status, the answer and the milliseconds of each."""
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    outputs = lines_of(writers)
    if not all(outputs):
        raise DemoFailed("a writer failed, its error is above")
    return [tuple(json.loads(output)) for output in outputs]


def lines_of(writers: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Return the next line of each writer, empty if it has ended."""
    with deadline(WRITER_TIMEOUT_S, "a writer said nothing"):
        return [writer.stdout.readline() for writer in writers if writer.stdout is not None]


# --- Spark ---------------------------------------------------------------------------------------

MERGE = f"""
MERGE INTO {NAMESPACE}.{NAME} AS t USING changes AS s ON t.id = s.id
WHEN MATCHED AND s.gone THEN DELETE
WHEN MATCHED THEN UPDATE SET t.cents = s.cents
WHEN NOT MATCHED THEN INSERT (id, writer, cents) VALUES (s.id, 'spark', s.cents)
"""


def changes_of_spark() -> list[tuple[int, int, bool]]:
    """Return changes for half of the first writer's rows, and as many new rows as it had."""
    old = [(one, cents_of(one) + 1, one % 2 == 0) for one in ids_of(0)]
    return old + [(one, cents_of(one), False) for one in ids_of(WRITERS + 3)]


def merge_by_spark(story: Story, catalog: Catalog) -> None:
    """Run a MERGE on Spark that rewrites no data file."""
    with spark_process(catalog.url) as spark:
        about = _said(spark, "Spark did not start")
        story.tell(f"7  Spark {about['spark']} started on Java {about['java']}")
        story.note(about["reader"])
        _said(spark, "the MERGE failed")
    summary = catalog.ask("GET", TABLE)["metadata"]["snapshots"][-1]["summary"]
    vectors, rewritten = int(summary.get("added-dvs", "0")), summary.get("deleted-data-files", "0")
    if not vectors or rewritten != "0":
        raise DemoFailed(f"the MERGE made no deletion vector, or rewrote files: {summary}")
    gone = sum(is_gone for _, _, is_gone in changes_of_spark())
    story.tell(
        f"   a MERGE deleted {gone}, changed {ROWS - gone} and added {ROWS:,} rows by one POST"
    )
    story.note(
        f"no data file was rewritten: {vectors} deletion vector{'' if vectors == 1 else 's'}, "
        f"{summary['added-data-files']} new files"
    )


@contextlib.contextmanager
def spark_process(url: str) -> Iterator[subprocess.Popen[str]]:
    """Run Spark in its own process; its output goes to .demo/spark.log."""
    command = [sys.executable, str(Path(__file__).resolve()), "spark", url]
    with (FOLDER / "spark.log").open("wb") as log:
        spark = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=FOLDER, env=_offline()
        )
    try:
        yield spark
    except BaseException:
        # Kill its Java as well.
        spark.terminate()
        spark.wait()
        raise
    if spark.wait(STOP_TIMEOUT_S) != 0:
        raise DemoFailed(f"Spark ended with {spark.returncode}, see .demo/spark.log")


def _offline() -> dict[str, str]:
    """Choose Iceberg's reader if its jar is there, else Frazil's own; download nothing."""
    import pyspark

    from frazil.spark.runtime.local_spark import JARS_VARIABLE, iceberg_runtime

    return os.environ | (
        {JARS_VARIABLE: ""} if iceberg_runtime(pyspark.__version__).downloads else {}
    )


def _said(spark: subprocess.Popen[str], failure: str) -> dict[str, Any]:
    assert spark.stdout is not None
    with deadline(SPARK_TIMEOUT_S, failure):
        line = spark.stdout.readline()
    if not line:
        raise DemoFailed(f"{failure}:\n{(FOLDER / 'spark.log').read_text()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def run_spark(url: str) -> None:
    """Run the Spark process: start Spark, register the changes as a view, run the MERGE."""
    import frazil.spark
    from frazil.spark.runtime.local_java import feature_release

    with frazil.spark.connect(uri=url) as session:
        spark = session.spark
        jar = spark.conf.get("spark.jars", None)
        about = {
            "spark": spark.version,
            "java": feature_release(Path(os.environ["JAVA_HOME"])),
            "reader": f"it reads by {Path(jar).name}" if jar else "it reads by Frazil's own reader",
        }
        print(json.dumps(about), flush=True)
        session.client.set_properties(
            f"{NAMESPACE}.{NAME}", {"format-version": "3", "write.merge.mode": "merge-on-read"}
        )
        columns = "id LONG, cents LONG, gone BOOLEAN"
        spark.createDataFrame(changes_of_spark(), columns).createOrReplaceTempView("changes")
        session.sql(MERGE)
        print(json.dumps({"merged": True}), flush=True)
        spark.stop()


# --- maintenance ---------------------------------------------------------------------------------


def compact_beside_deletes(story: Story, catalog: Catalog, folder: Path) -> list[int]:
    """Compact the table while rows of its files are deleted; return the deleted ids.

    Then expire the old snapshots. Their files would stay for three days, in which they can come
    back, but the demo ends before.
    """
    from frazil import Client
    from frazil.maintenance import expire_snapshots, rewrite_data_files

    name, old = f"{NAMESPACE}.{NAME}", size_of(folder)
    properties = {"write.delete.mode": "merge-on-read", "frazil.gc.quarantine-ms": "0"}
    deleted = [list(ids_of(number))[:5] for number in range(5, 5 + DELETES)]
    with Client(catalog.url) as client, ThreadPoolExecutor(1) as pool:
        client.set_properties(name, properties)
        table = client.load_table(name)
        compaction = pool.submit(rewrite_data_files, table, options={"rewrite-all": "true"})
        while not compaction.done() and not client.intents.list(name):
            time.sleep(0.001)
        for ids in deleted:
            client.delete(name, f"id >= {ids[0]} and id <= {ids[-1]}")
        compacted = compaction.result()
        files = compacted.rewritten_data_files_count
        story.tell(
            f"8  a compaction of {files} files and {DELETES} deletes of their rows ran at once: "
            f"{DELETES + 1} commits, 0 refused"
        )
        now = datetime.now(UTC)
        expired = expire_snapshots(client.load_table(name), older_than=now, retain_last=1)
    new = size_of(folder)
    if expired.leased_snapshots_count or new >= old:
        raise DemoFailed(f"{old:,} bytes became {new:,}, the expiry was {expired.values}")
    story.tell(
        f"   {expired.expired_snapshots_count} old snapshots expired with their files: "
        f"{old >> 10:,} KiB of data became {new >> 10:,} KiB"
    )
    return [one for ids in deleted for one in ids]


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# --- stock clients -------------------------------------------------------------------------------


def stock_append(catalog: Catalog, number: int) -> None:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    table = load_catalog("demo", type="rest", uri=catalog.url).load_table((NAMESPACE, NAME))
    names = [name for name, _ in COLUMNS]
    table.append(pa.table(rows_of(number, "pyiceberg"), names=names))


def by_one_word(catalog: Catalog, number: int) -> None:
    """Commit PyIceberg's append as a declared file."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    word = {"py-catalog-impl": "frazil.pyiceberg.FrazilCatalog"}
    table = load_catalog("demo", uri=catalog.url, **word).load_table((NAMESPACE, NAME))
    names = [name for name, _ in COLUMNS]
    table.append(pa.table(rows_of(number, "declared"), names=names))


def read_stock(catalog: Catalog) -> tuple[int, int, int, int]:
    """Read with PyIceberg: rows, distinct ids, the sum of cents, and rows with a country."""
    import pyarrow.compute as pc
    from pyiceberg.catalog import load_catalog

    table = load_catalog("demo", type="rest", uri=catalog.url).load_table((NAMESPACE, NAME))
    read = table.scan().to_arrow()
    return (
        read.num_rows,
        pc.count_distinct(read["id"]).as_py(),
        pc.sum(read["cents"]).as_py(),
        pc.count(read[NEW_COLUMN[0]]).as_py(),
    )


def read_with_duckdb(catalog: Catalog) -> tuple[int, int, int, int]:
    """Read the same figures with DuckDB; its extensions come from their wheels."""
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
            f"ATTACH '' AS frazil (TYPE iceberg, ENDPOINT '{catalog.url}', "
            "AUTHORIZATION_TYPE 'none')"
        )
        row = connection.execute(
            f"SELECT count(*), count(DISTINCT id), sum(cents), count({NEW_COLUMN[0]}) "
            f"FROM frazil.{NAMESPACE}.{NAME}"
        ).fetchone()
    assert row is not None
    rows, distinct, cents, countries = (int(one) for one in row)
    return rows, distinct, cents, countries


def next_steps() -> None:
    print(
        """
Next: `make serve`, and docs/fine-grained-commits.md for every kind of commit. All that a writer
needs is in demo/demo.py: write_parquet, declared and Catalog.commit; a client that does it for
you is in docs/client.md, and what Spark can do in docs/spark.md.
"""
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["writer"]:
        write_and_commit(int(sys.argv[3]), sys.argv[2], sys.argv[4])
    elif sys.argv[1:2] == ["spark"]:
        run_spark(sys.argv[2])
    else:
        sys.exit(main())
