"""SQLite: the known outcome after disk errors or interference by another program."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from frazil.db.base import (
    CommitIdTaken,
    Committed,
    CreateNamespace,
    DatabaseUnavailable,
    Relation,
    SwapRelation,
)
from frazil.db.sqlite import SqliteDatabase, SqliteStatements, Written
from tests.db.helpers import (
    commit,
    key_row,
    make,
    make_namespace,
    must,
    next_version,
    race,
    swap,
    transaction,
)
from tests.support.patience import HANG_S
from tests.support.small_disk import small_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(path, file_wait_s=0.1)
    database.migrate()
    make_namespace(database, "ns")
    yield database
    database.close()


DISK_FULL_IN_COMMIT = """
    import resource, sys
    from pathlib import Path
    from frazil.db.base import *
    from frazil.db.sqlite import SqliteDatabase
    from tests.db.helpers import *

    path = Path(sys.argv[1])
    database = SqliteDatabase(path)
    database.migrate()
    make_namespace(database, "ns")
    table = make(database)

    # From here on no file may grow: SQLite meets it when COMMIT writes the WAL.
    written = path.with_name(path.name + "-wal").stat().st_size
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (written, unlimited[1]))
    doubtful = transaction(swap(table), keys=(key_row("k"),))
    try:
        print(database.commit(doubtful))
    except OutcomeUnknown:
        print("unknown")
    assert database.relation(table.identifier) == table

    # And now nothing can be written at all.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, unlimited[1]))
    try:
        print(database.resolve(doubtful.commit_id, [table.uuid], 5))
    except DatabaseUnavailable:
        print("not now")
    try:
        print(database.finalise(key_row("k2")))
    except DatabaseUnavailable:
        print("not now")

    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    print(database.resolve(doubtful.commit_id, [table.uuid], 5))
    assert database.relation(table.identifier) == table
    assert database.key("anna", "k") is None
    try:
        database.commit(doubtful)
    except CommitIdTaken:
        print("void")
    print(database.finalise(key_row("k2")).key)
    print(commit(database, swap(table)))
    database.close()
"""


@pytest.mark.process
def test_a_disk_error_in_commit_is_unknown_until_resolved(path: Path) -> None:
    """The test runs in its own process because the limit on file sizes applies to the whole
    process."""
    script = textwrap.dedent(DISK_FULL_IN_COMMIT)
    ran = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=python_path(),
    )
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.split("\n")
    expected = ["unknown", "not now", "not now", "False", "void", "k2", "Committed()", ""]
    assert said == expected


FULL_DISK = """
    import os, sys
    from frazil.db.base import *
    from frazil.db.sqlite import SqliteDatabase
    from tests.db.helpers import *

    database = SqliteDatabase(sys.argv[1])
    database.migrate()
    make_namespace(database, "ns")
    table = make(database)
    with open(sys.argv[2], "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
    for _ in range(3):
        try:
            print(database.commit(transaction(swap(table), keys=(key_row(),))))
        except DatabaseUnavailable as error:
            print(error.trouble.reason)
    print(database.relation(table.identifier) == table, flush=True)
    os.kill(os.getpid(), 9)
"""

AFTER_THE_CRASH = """
    import sys
    from frazil.db.sqlite import SqliteDatabase
    from frazil.wire.identifiers import Identifier
    from tests.db.helpers import *

    database = SqliteDatabase(sys.argv[1])
    table = database.relation(Identifier(("ns",), "t"))
    print(table.version, database.fetch("unplaced_event", {}))
    print(commit(database, swap(table)))
    database.close()
"""


@pytest.mark.process
def test_a_full_disk_in_commit_is_a_proof_that_survives_a_crash(tmp_path: Path) -> None:
    """The files of a refused commit are deleted, so no recovery of SQLite may bring it back."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        if disk is None:
            pytest.skip("this system allows no user namespaces")

        def run(script: str) -> tuple[int, list[str]]:
            inside = [f"{disk.mount_point}/catalog.db", f"{disk.mount_point}/filler"]
            arguments = (sys.executable, "-c", textwrap.dedent(script), *inside)
            ran = subprocess.run(
                disk.command(*arguments, directory=tmp_path),
                capture_output=True,
                text=True,
                timeout=HANG_S,
                env=python_path(),
            )
            assert "Traceback" not in ran.stderr, ran.stderr
            return ran.returncode, ran.stdout.splitlines()

        code, said = run(FULL_DISK)
        assert code == -signal.SIGKILL
        assert said == ["its disk is full"] * 3 + ["True"]
        disk.free()
        assert run(AFTER_THE_CRASH) == (0, ["1 []", "Committed()"])


def test_a_full_database_refuses_a_transaction_and_its_neighbors(
    database: SqliteDatabase, path: Path
) -> None:
    """SQLite meets its own limit in a statement and rolls back everything that waits with it."""
    tables = [make(database, f"t{number}") for number in range(4)]
    limit_pages(database, 0)
    for table in tables:
        with pytest.raises(DatabaseUnavailable, match="full; nothing was changed") as refused:
            commit(database, swap(table), keys=(key_row(body=b"x" * 100_000),))
        assert refused.value.trouble.reason == "its disk is full"
    with pytest.raises(DatabaseUnavailable, match="full"):
        database.prove_writable()
    limit_pages(database, 1000)
    database.prove_writable()
    for table in tables:
        assert database.relation(table.identifier) == table
        assert commit(database, swap(table)) == Committed()


def limit_pages(database: SqliteDatabase, more: int) -> None:
    """Let the file grow by no more than this number of pages."""

    def work(sql: SqliteStatements) -> Written[None]:
        pages = sql.connection.execute("PRAGMA page_count").fetchone()[0]
        sql.connection.execute(f"PRAGMA max_page_count = {pages + more}")
        return Written(None, keep=False)

    database.run(work)


def python_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ":".join(entry for entry in sys.path if entry)}


def test_what_was_committed_is_found_after_reopening(database: SqliteDatabase, path: Path) -> None:
    table = make(database)
    sure = transaction(swap(table))
    assert database.commit(sure) == Committed()
    database.close()
    reopened = SqliteDatabase(path)
    assert reopened.resolve(sure.commit_id, [table.uuid], 5) is True
    reopened.close()


def test_a_void_commit_id_never_commits(database: SqliteDatabase) -> None:
    table = make(database)
    late = transaction(swap(table))
    assert database.resolve(late.commit_id, [table.uuid], 5) is False
    with pytest.raises(CommitIdTaken):
        database.commit(late)
    assert database.relation(table.identifier) == table


def test_resolve_waits_for_the_rows(database: SqliteDatabase) -> None:
    table = make(database)
    with database.locked([table.uuid], 5), pytest.raises(DatabaseUnavailable):
        database.resolve("id", [table.uuid], 0.05)
    assert database.resolve("id", [table.uuid], 5) is False


def test_another_program_that_holds_the_file(database: SqliteDatabase, path: Path) -> None:
    """If a backup or the sqlite3 shell locks the file, writes are refused without harm and reads
    work."""
    table = make(database)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="nothing was changed"):
        commit(database, swap(table))
    assert database.relation(table.identifier) == table
    other.execute("ROLLBACK")
    other.close()
    assert commit(database, swap(table)) == Committed()


def test_transactions_that_wait_share_a_commit_and_fail_alone(
    database: SqliteDatabase, path: Path
) -> None:
    """Transactions that wait together are written together: valid ones, one that lost its swap
    and one with an error."""
    tables = [make(database, f"t{n}") for n in range(6)]
    stale = next_version(make(database, "stale"))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.close()
    waiting = SqliteDatabase(path, file_wait_s=20)
    other.execute("BEGIN IMMEDIATE")

    def release() -> object:
        other.execute("ROLLBACK")
        return None

    def write(table: Relation) -> object:
        return commit(waiting, SwapRelation(table, next_version(table)))

    def mistaken() -> object:
        with pytest.raises(ValueError, match="keeps the uuid"):
            commit(waiting, SwapRelation(stale, next_version(tables[0])))
        return None

    calls: list[Callable[[], object]] = [partial(write, table) for table in (*tables, stale)]
    outcomes = race([*calls, mistaken, release])
    assert outcomes[:6] == [Committed()] * 6
    assert outcomes[6] != Committed()
    for table in tables:
        found = waiting.relation(table.identifier)
        assert found is not None
        assert found.version == 2
    other.close()
    waiting.close()


def test_a_closed_database_says_so(database: SqliteDatabase) -> None:
    database.close()
    database.close()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        database.ping()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        commit(database, CreateNamespace(("late",), {}))


def test_close_finishes_what_is_queued(path: Path) -> None:
    database = SqliteDatabase(path)
    database.migrate()
    make_namespace(database, "ns")
    tables = [make(database, f"t{n}") for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(commit, database, swap(table)) for table in tables]
        database.close()
        told = [one.exception() or one.result() for one in running]
    reopened = SqliteDatabase(path)
    for table, answer in zip(tables, told, strict=True):
        found = reopened.relation(table.identifier)
        assert found is not None
        assert (found.version == 2) == (answer == Committed())
    reopened.close()


def test_a_memory_database_leaves_nothing() -> None:
    database = SqliteDatabase(":memory:")
    database.migrate()
    must(database, CreateNamespace(("ns",), {}))
    assert database.namespace_properties(("ns",)) == {}
    folder = database.path.parent
    assert folder.exists()
    database.close()
    assert not folder.exists()
