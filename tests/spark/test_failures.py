"""After any failure, no row is duplicated or lost, and no file is left outside the table.

Files of a proven failure are removed; files of an unknown outcome are kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from frazil.client.catalog_client import Client
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.writing.write_properties import file_options
from frazil.spark import connect
from frazil.spark.executor.file_tasks import write_task
from frazil.spark.session import Session
from frazil.wire.errors import CommitStateUnknown, ValidationError
from tests.spark.interleaving import once_before_commit
from tests.spark.leftovers import declared_files, files_of, strays
from tests.spark.stock_tables import COPY_ON_WRITE, MERGE_ON_READ, rows, table_properties
from tests.support.patience import HANG_S, wait_until
from tests.support.proxy import DropAnswer, DropRequest, Fault, Proxy, running_proxy
from tests.support.server import clean_environment

MODES = [COPY_ON_WRITE, MERGE_ON_READ]
FIRST = [(number, 0) for number in range(6)]


@pytest.fixture
def proxy(server_url: str) -> Iterator[Proxy]:
    with running_proxy(server_url) as proxy:
        yield proxy


def table_of(session: Session, namespace: str, mode: str = MERGE_ON_READ) -> str:
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} (id BIGINT, n INT) {table_properties(3, mode)}")
    session.table(name).append(session.spark.createDataFrame(FIRST, "id BIGINT, n INT"))
    return name


def of_session(session: Session, name: str) -> list[tuple[int, int]]:
    return rows(session.table(name).scan())


def one_more(session: Session, name: str) -> None:
    """Run a statement that is not idempotent, so that a second run is visible."""
    session.table(name).update({"n": "n + 1"}, "id < 3")


ONE_MORE = sorted(((key, 1 if key < 3 else 0) for key, _ in FIRST), key=repr)


# --- a task ---------------------------------------------------------------------------------------


def test_an_attempt_that_fails_leaves_the_files_of_the_next_alone(
    session: Session, namespace: str, tmp_path: Path
) -> None:
    """A task, as an executor runs it, fails after its first rows and runs again."""
    name = table_of(session, namespace)
    facts = PortableTable.of(session.client.load_table(name))
    folder = str(tmp_path / "written")
    task = write_task(facts, Storage(), folder, file_options(facts.properties), False)
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "n": pa.array([3, 4], pa.int32())})

    def dying() -> Iterator[pa.RecordBatch]:
        yield batch
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(task(dying()))
    assert Storage().list(folder) == []
    (answer,) = task(iter([batch]))
    assert len(Storage().list(folder)) == answer.num_rows == 1


def test_a_task_cannot_write_into_a_folder_that_was_discarded(tmp_path: Path) -> None:
    folder = str(tmp_path / "written")
    storage = Storage(sealed_by=folder)
    storage.make_folder(folder)
    storage.write(f"{folder}/part/1.parquet", b"early")
    storage.delete_folder(folder)
    with pytest.raises(FileNotFoundError, match="its write was aborted"):
        storage.write(f"{folder}/part/2.parquet", b"late")
    assert list(tmp_path.iterdir()) == []


RETRIED = """
import sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from frazil.spark import connect

url, name, writer, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.warehouse.dir", folder).config("spark.local.dir", folder)
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()

def fails_twice(batches):
    task = TaskContext.get()
    for batch in batches:
        yield batch
    if task.partitionId() == 1 and task.attemptNumber() < 2:
        Path(folder, f"failed-{task.attemptNumber()}").touch()
        raise OSError("this attempt is lost")

frame = spark.range(10, 30, 1, 2).selectExpr("id", "CAST(7 AS INT) AS n")
with connect(spark, url, writer=writer) as session:
    session.table(name).append(frame.mapInArrow(fails_twice, "id BIGINT, n INT"))
spark.stop()
"""


@pytest.mark.full
@pytest.mark.parametrize("writer", ["arrow", "jvm"])
def test_tasks_that_are_run_again_write_each_row_once(
    session: Session, server_url: str, namespace: str, tmp_path: Path, writer: str
) -> None:
    """The Spark of this run allows only one attempt, so this test starts another one."""
    name = table_of(session, namespace)
    arguments = [sys.executable, "-c", RETRIED, server_url, name, writer, str(tmp_path)]
    environment = clean_environment({"PYSPARK_PYTHON": sys.executable})
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert (tmp_path / "failed-0").exists()
    assert (tmp_path / "failed-1").exists()
    added = [(key, 7) for key in range(10, 30)]
    assert of_session(session, name) == sorted([*FIRST, *added], key=repr)
    assert strays(session, name) == set()


# --- a statement ----------------------------------------------------------------------------------


def failing(spark: SparkSession) -> DataFrame:
    """Return a frame whose last rows fail after the first ones have been written."""
    return spark.range(0, 20, 1, 2).selectExpr(
        "id", "CAST(IF(id = 19, raise_error('no such row'), id) AS INT) AS n"
    )


@pytest.mark.parametrize("writer", ["arrow", "jvm"])
def test_a_write_that_dies_in_the_middle_leaves_nothing(
    spark: SparkSession, server_url: str, session: Session, namespace: str, writer: str
) -> None:
    name = table_of(session, namespace)
    before = files_of(session, name)
    with connect(spark, server_url, writer=writer) as forced:
        for write in (forced.table(name).append, forced.table(name).overwrite):
            with pytest.raises(Exception, match="no such row"):
                write(failing(spark))
    assert len(session.client.history(name)) == 1
    assert files_of(session, name) == before


@pytest.mark.parametrize("mode", MODES)
def test_a_statement_that_dies_in_the_middle_leaves_nothing(
    session: Session, namespace: str, mode: str
) -> None:
    name = table_of(session, namespace, mode)
    before = files_of(session, name)
    with pytest.raises(Exception, match="no such row"):
        session.sql(f"UPDATE {name} SET n = CAST(IF(id = 5, raise_error('no such row'), 1) AS INT)")
    assert len(session.client.history(name)) == 1
    assert files_of(session, name) == before


def test_a_statement_without_rows_leaves_no_folder(session: Session, namespace: str) -> None:
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} (id BIGINT, n INT)")
    assert (
        session.table(name).append(session.spark.range(0).selectExpr("id", "1 AS n")).commit is None
    )
    data = Path(session.client.load_table(name).location.removeprefix("file://"), "data")
    assert not data.exists() or list(data.iterdir()) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_rejected_merge_leaves_nothing(
    spark: SparkSession,
    server_url: str,
    session: Session,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    name = table_of(session, namespace, mode)
    with connect(spark, server_url, statement_retries=0) as strict:
        once_before_commit(monkeypatch, lambda: one_more(session, name))
        with pytest.raises(ValidationError):
            strict.sql(
                f"MERGE INTO {name} t USING (SELECT id FROM range(2, 9)) s ON t.id = s.id"
                " WHEN MATCHED THEN UPDATE SET n = 9"
                " WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
            )
    assert of_session(session, name) == ONE_MORE
    assert len(session.client.history(name)) == 2
    assert strays(session, name) == set()


# --- an interrupt ---------------------------------------------------------------------------------


def slow(spark: SparkSession, folder: Path, *, fails: bool = False) -> DataFrame:
    """Return a frame whose task stops in the middle of its file.

    The task creates `begun` in the folder once it has started to write, and then waits for `go`.
    With `fails`, a second task fails in between.
    """

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if fails and batch.column("id")[0].as_py() == 0:
                wait_until((folder / "begun").exists, "the other task did not begin")
                raise OSError("no such row")
            yield batch
            (folder / "begun").touch()
            wait_until((folder / "go").exists, "the test never went on")
            yield batch

    frame = spark.range(0, 20, 1, 2 if fails else 1).selectExpr("id", "CAST(id AS INT) AS n")
    return frame.mapInArrow(rows, "id BIGINT, n INT")


def stays_so(session: Session, name: str, files: set[str], folder: Path) -> None:
    """Let tasks that are still running continue, and check that they change nothing."""
    (folder / "go").touch()
    assert files_of(session, name) == files
    # A barrier job needs both threads of this Spark at once, so it waits for those tasks to end.
    both = session.spark.range(0, 4, 1, 2)
    both.mapInArrow(lambda batches: batches, "id BIGINT", barrier=True).collect()
    assert files_of(session, name) == files
    assert len(session.client.history(name)) == 1


def test_an_interrupted_write_leaves_nothing(
    spark: SparkSession, server_url: str, session: Session, namespace: str, tmp_path: Path
) -> None:
    """The interrupt works like Ctrl-C, while a task is in the middle of a file."""
    name = table_of(session, namespace)
    before = files_of(session, name)

    def interrupt() -> None:
        wait_until((tmp_path / "begun").exists, "the task did not begin")
        os.kill(os.getpid(), signal.SIGINT)

    with connect(spark, server_url, writer="arrow") as forced:
        hand = threading.Thread(target=interrupt)
        hand.start()
        # PySpark first cancels all jobs over the same connection that waits, which raises that
        # error.
        with pytest.raises((KeyboardInterrupt, Py4JError)):
            forced.table(name).append(slow(spark, tmp_path))
        hand.join()
    stays_so(session, name, before, tmp_path)


def test_tasks_that_run_on_behind_a_failure_leave_nothing(
    spark: SparkSession, server_url: str, session: Session, namespace: str, tmp_path: Path
) -> None:
    name = table_of(session, namespace)
    before = files_of(session, name)
    with (
        connect(spark, server_url, writer="arrow") as forced,
        pytest.raises(Exception, match="no such row"),
    ):
        forced.table(name).append(slow(spark, tmp_path, fails=True))
    stays_so(session, name, before, tmp_path)


def test_an_interrupt_before_the_commit_leaves_nothing(
    session: Session, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = table_of(session, namespace)

    def interrupt() -> None:
        raise KeyboardInterrupt

    once_before_commit(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        one_more(session, name)
    assert len(session.client.history(name)) == 1
    assert strays(session, name) == set()


# --- an answer that is lost -----------------------------------------------------------------------


def is_commit(method: str, path: str) -> bool:
    return method == "POST" and not path.endswith(("/plan", "/intents", "/leases"))


def test_a_lost_answer_is_no_second_change(
    spark: SparkSession, session: Session, namespace: str, proxy: Proxy
) -> None:
    name = table_of(session, namespace)
    proxy.script(DropAnswer(), only=is_commit)
    with connect(spark, proxy.url, reader="own") as behind:
        one_more(behind, name)
    assert proxy.unplayed == 0
    assert of_session(session, name) == ONE_MORE
    assert strays(session, name) == set()


@pytest.mark.parametrize(
    ("fault", "is_committed"),
    [(DropAnswer(), True), (DropRequest(), False)],
    ids=["answers-lost", "requests-lost"],
)
def test_files_of_an_unknown_outcome_are_kept(
    spark: SparkSession,
    session: Session,
    client: Client,
    namespace: str,
    proxy: Proxy,
    fault: Fault,
    is_committed: bool,
) -> None:
    """A client cannot tell whether it committed; a retry could commit twice, so there is none."""
    name = table_of(session, namespace)
    patience = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "20"}
    client.set_properties(name, patience)
    before = files_of(session, name)
    proxy.script(*[fault] * 200, only=is_commit)
    with (
        connect(spark, proxy.url, reader="own", outage_timeout_s=0.05) as behind,
        pytest.raises(CommitStateUnknown),
    ):
        one_more(behind, name)
    keys = {
        exchange.key for exchange in proxy.exchanges if is_commit(exchange.method, exchange.path)
    }
    assert len(keys) == 1
    kept = files_of(session, name) - before
    assert len(kept) == 2, "new rows, and a deletion vector"
    assert of_session(session, name) == (ONE_MORE if is_committed else sorted(FIRST, key=repr))
    assert (kept <= declared_files(client.load_table(name))) == is_committed
