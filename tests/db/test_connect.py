"""Opening a database: by URL, by one process at a time, and only if it can be used."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.db.base import CreateNamespace, DatabaseRefused
from frazil.db.connect import connect
from frazil.db.sqlite import SqliteDatabase, SqliteStatements, Written
from tests.db.helpers import must
from tests.support.patience import HANG_S
from tests.support.postgres import PostgresServer

HOLD = """
import sys
from frazil.db.base import CreateNamespace, Transaction
from frazil.db.connect import connect
database = connect(sys.argv[1])
database.migrate()
print(database.commit(Transaction("first", (CreateNamespace(("kept",), {}),))), flush=True)
sys.stdin.readline()
"""


def environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}


@pytest.fixture
def holder(sqlite_url: str) -> Iterator[subprocess.Popen[str]]:
    """Start another process that has the SQLite file open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, sqlite_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "Committed()\n"
    yield process
    process.kill()
    process.communicate()


def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for url, path in (
        ("sqlite:///relative.db", tmp_path / "relative.db"),
        ("sqlite:///folder/deep.db", tmp_path / "folder" / "deep.db"),
        (f"sqlite:///{tmp_path}/absolute.db", tmp_path / "absolute.db"),
    ):
        database = connect(url)
        database.migrate()
        database.close()
        assert path.is_file()


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    """An empty catalog would look like lost data if the disk of the folder is not mounted."""
    with pytest.raises(DatabaseRefused, match=f"the folder {tmp_path}/mnt/x does not exist"):
        connect(f"sqlite:///{tmp_path}/mnt/x/frazil.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["", "frazil.db", "mysql://u:secret@h/d", "sqlite:///", "sqlite:x"])
def test_a_url_that_is_not_understood(url: str) -> None:
    with pytest.raises(DatabaseRefused, match="use sqlite:///PATH") as refused:
        connect(url)
    assert "secret" not in str(refused.value)


def test_a_postgres_url_that_is_not_understood() -> None:
    with pytest.raises(DatabaseRefused, match="not understood"):
        connect("postgresql://host/db?no_such_option=1")


def test_a_path_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatabaseRefused, match="cannot be opened"):
        connect(f"sqlite:///{tmp_path}/file/catalog.db")
    (tmp_path / "text.db").write_text("this is no database at all, but a long enough text" * 20)
    with pytest.raises(DatabaseRefused, match="not a database"):
        connect(f"sqlite:///{tmp_path}/text.db")


@pytest.mark.process
def test_a_second_process_is_refused(holder: subprocess.Popen[str], sqlite_url: str) -> None:
    with pytest.raises(DatabaseRefused, match=rf"already in use by process {holder.pid}: stop it"):
        connect(sqlite_url)


@pytest.mark.process
def test_a_link_to_the_file_is_the_same_file(
    holder: subprocess.Popen[str], sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "catalog.db")
    with pytest.raises(DatabaseRefused, match="already in use"):
        connect(f"sqlite:///{tmp_path}/link.db")


def test_twice_in_one_process_is_refused(sqlite_url: str) -> None:
    database = connect(sqlite_url)
    with pytest.raises(DatabaseRefused, match="already in use by this process"):
        connect(sqlite_url)
    database.close()
    connect(sqlite_url).close()


@pytest.mark.process
def test_a_killed_process_leaves_the_file_usable(
    holder: subprocess.Popen[str], sqlite_url: str
) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    database = connect(sqlite_url)
    assert database.namespace_properties(("kept",)) == {}
    must(database, CreateNamespace(("after",), {}))
    database.close()


def test_the_file_is_durable_and_in_wal_mode(sqlite_url: str) -> None:
    database = connect(sqlite_url)
    assert isinstance(database, SqliteDatabase)
    database.migrate()

    def settings(sql: SqliteStatements) -> Written[list[object]]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        found = [sql.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        return Written(found, keep=False)

    full = 2
    assert database.run(settings) == ["wal", full, 1]
    database.close()


def test_an_encoding_that_cannot_hold_every_name_is_refused(
    postgres_server: PostgresServer,
) -> None:
    postgres_server.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII'")
    database = connect(postgres_server.url("ascii"))
    with pytest.raises(DatabaseRefused, match="encoding SQL_ASCII: create it with ENCODING 'UTF8'"):
        database.migrate()
    database.close()


def greet_as_postgres_14(listener: socket.socket) -> None:
    """Send what a PostgreSQL 14 server sends until it is ready for queries."""
    client, _ = listener.accept()
    while struct.unpack("!i", client.recv(65536)[4:8])[0] != 196608:  # not the start-up packet yet
        client.sendall(b"N")  # no encryption
    settings = {"server_version": "14.9", "server_encoding": "UTF8", "client_encoding": "UTF8"}
    answer = b"R" + struct.pack("!ii", 8, 0)
    for name, value in settings.items():
        text = f"{name}\0{value}\0".encode()
        answer += b"S" + struct.pack("!i", len(text) + 4) + text
    client.sendall(answer + b"Z" + struct.pack("!i", 5) + b"I")
    client.recv(1)
    client.close()


def test_an_old_server_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=greet_as_postgres_14, args=(listener,), daemon=True)
        server.start()
        port = listener.getsockname()[1]
        database = connect(f"postgresql://postgres@127.0.0.1:{port}/catalog")
        with pytest.raises(DatabaseRefused, match=r"PostgreSQL 14 is too old: .* 15 or newer"):
            database.migrate()
        server.join(HANG_S)
