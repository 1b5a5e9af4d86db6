"""`frazil doctor` on this machine, and on machines where something is missing."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer

from frazil.cli.server import doctor as doctor_module
from frazil.cli.server.doctor import CHECKS, Problem, examine, fsync, java
from frazil.cli.shared.setting_options import Output
from frazil.db.base import Change, CreateNamespace, CreateRelation, Kind, Relation
from frazil.db.connect import connect
from frazil.db.sql import migrations
from frazil.settings import Settings, resolve
from frazil.wire.identifiers import Identifier
from tests.db.helpers import must
from tests.support.patience import HANG_S
from tests.support.s3 import S3Server
from tests.support.server import COMMAND, clean_environment, running_server
from tests.support.small_disk import small_disk


def doctor(
    cwd: Path, *arguments: str, command: Sequence[str] = COMMAND, **environ: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    done = subprocess.run(
        [*command, "doctor", "--output", "json", *arguments],
        cwd=cwd,
        env=clean_environment(environ),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["healthy"] == (done.returncode == 0)
    return done.returncode, {finding["check"]: finding for finding in answer["checks"]}


@pytest.mark.process
def test_this_machine_is_fit_and_nothing_is_left_behind(tmp_path: Path) -> None:
    code, findings = doctor(tmp_path)
    assert list(findings) == list(CHECKS)
    assert {name: f for name, f in findings.items() if f["status"] == "failed"} == {}
    assert code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_text_names_each_check(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "frazil", "doctor"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert [line.split()[1] for line in done.stdout.splitlines() if "fix:" not in line] == list(
        CHECKS
    )


@pytest.mark.process
def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "frazil.db").write_bytes(b"not a database" * 100)
    code, findings = doctor(tmp_path)
    assert (code, findings["database"]["status"]) == (1, "failed")
    assert "--database" in findings["database"]["fix"]


@pytest.mark.process
def test_a_full_disk_is_no_reason_to_restore(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("this system allows no user namespaces")
        url = f"sqlite:///{disk.mount_point}/frazil.db"
        command = disk.command(sys.executable, "-m", "frazil", directory=tmp_path)
        with running_server(tmp_path, "--database", url, command=command):
            pass
        disk.fill()
        code, findings = doctor(tmp_path, "--database", url, command=command)
        assert code == 1
        assert "cannot be read: its disk is full (disk I/O error)" in findings["database"]["detail"]
        assert findings["database"]["fix"].startswith("free space")
        assert "do not restore" in findings["database"]["fix"]
        assert findings["fsync"]["fix"].startswith("free space")
        # SQLite can still be read, and a small file be written, but no commit.
        disk.free()
        disk.fill(leaving_bytes=64 << 10)
        code, findings = doctor(tmp_path, "--database", url, command=command)
        assert code == 1
        assert f"the disk of {disk.mount_point} is full" in findings["fsync"]["detail"]
        assert "Do not restore" in findings["fsync"]["fix"]
        disk.free()
        assert doctor(tmp_path, "--database", url, command=command)[0] == 0


@pytest.mark.process
def test_a_database_in_a_missing_folder(tmp_path: Path) -> None:
    code, findings = doctor(tmp_path, "--database", f"sqlite:///{tmp_path}/mnt/frazil.db")
    assert (code, findings["database"]["status"]) == (1, "failed")
    assert findings["database"]["detail"].startswith(f"the folder {tmp_path}/mnt of the database")
    assert "mount its disk" in findings["database"]["fix"]


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.process)]
)
def test_metadata_files_that_were_moved(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/frazil.db"
    if database == "postgres":
        url = request.getfixturevalue("postgres_database")
    (tmp_path / "warehouse").mkdir()
    files = [tmp_path / "warehouse" / f"{number}.metadata.json" for number in range(2)]
    with closing(connect(url)) as opened:
        opened.migrate()
        settings = Settings(database=url, warehouse=str(tmp_path / "warehouse"))
        assert CHECKS["tables"](settings) == "there is no table yet"
        changes: list[Change] = [CreateNamespace(("shop", "eu"), {})]
        for number, file in enumerate(files):
            file.write_text("{}")
            uuid, name = f"0000000{number}", Identifier(("shop", "eu"), f"t{number}")
            changes.append(CreateRelation(Relation(Kind.TABLE, name, uuid, f"file://{file}", 1)))
        must(opened, *changes)
    assert CHECKS["tables"](settings).startswith("2 metadata files of tables and views")
    files[0].unlink()
    with pytest.raises(Problem) as caught:
        CHECKS["tables"](settings)
    missing = f"shop.eu.t0: no object at file://{files[0]}"
    assert str(caught.value) == f"1 of 2 metadata files cannot be read; {missing}"
    assert "absolute paths" in caught.value.fix


@pytest.mark.process
def test_a_database_of_a_newer_frazil(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "frazil.db") as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER, name TEXT)")
        connection.execute("INSERT INTO schema_version VALUES (9999, 'later')")
    connection.close()
    code, findings = doctor(tmp_path)
    assert code == 1
    assert "schema version 9999" in findings["database"]["detail"]


@pytest.mark.process
def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    url = "postgresql://etl:hidden@127.0.0.1:1/x"
    code, findings = doctor(tmp_path, "--database", url)
    assert (code, findings["database"]["status"]) == (1, "failed")
    assert "hidden" not in json.dumps(findings)


@pytest.mark.process
def test_a_warehouse_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file")
    code, findings = doctor(tmp_path)
    assert code == 1
    assert findings["put-if-absent"]["status"] == "failed"
    assert findings["fsync"]["status"] == "failed"
    assert findings["database"]["status"] == "ok"


@pytest.mark.process
def test_an_s3_warehouse_that_does_not_answer(tmp_path: Path) -> None:
    code, findings = doctor(
        tmp_path,
        "--warehouse",
        "s3://bucket/prefix",
        FRAZIL_S3_ENDPOINT="ftp://nowhere",
    )
    assert (code, findings["put-if-absent"]["status"]) == (1, "failed")


def test_postgresql_is_looked_at_and_its_clock_compared(
    tmp_path: Path, postgres_database: str
) -> None:
    code, findings = doctor(tmp_path, "--database", postgres_database)
    assert code == 0
    assert "empty; `frazil serve` will create schema version" in findings["database"]["detail"]
    assert "from the database" in findings["clock"]["detail"]
    with closing(connect(postgres_database)) as database:
        database.migrate()
    detail = doctor(tmp_path, "--database", postgres_database)[1]["database"]["detail"]
    assert detail.endswith(f"schema version {len(migrations('postgres'))}")


def test_rows_from_the_future_show_that_the_clock_was_ahead(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/frazil.db"
    with closing(connect(url)) as database:
        database.migrate()
    settings = Settings(database=url, warehouse=str(tmp_path))
    assert "newest row" not in CHECKS["clock"](settings)
    with closing(sqlite3.connect(tmp_path / "frazil.db", isolation_level=None)) as connection:
        later_ms = (time.time() + 365 * 24 * 3600) * 1000
        connection.execute("INSERT INTO commits VALUES ('a', 'committed', ?)", (int(later_ms),))
    with pytest.raises(
        Problem, match="newest row in the database is 365 days ahead of this machine"
    ):
        CHECKS["clock"](settings)


@pytest.mark.process
def test_a_server_that_runs_is_not_disturbed(tmp_path: Path) -> None:
    with closing(connect(f"sqlite:///{tmp_path}/frazil.db")) as database:
        database.migrate()
        code, findings = doctor(tmp_path)
        database.ping()
    assert code == 0
    detail = findings["database"]["detail"]
    assert detail.endswith(f"schema version {len(migrations('sqlite'))}")


def test_an_s3_warehouse(tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> None:
    code, findings = doctor(tmp_path, "--warehouse", s3_bucket, **s3_server.environ())
    assert code == 0
    assert s3_bucket in findings["put-if-absent"]["detail"]


def test_fsync_without_local_files() -> None:
    settings = Settings(warehouse="s3://bucket", database="postgresql://db/x")
    assert fsync(settings) == "nothing is written to local files"


def java_home(folder: Path, release: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    executable = folder / "bin" / "java"
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return folder


@pytest.mark.parametrize(
    ("release", "fit"),
    [
        ("17.0.1", True),
        ("22", True),
        ("21-ea", True),
        ("1.8.0_402", False),
        ("11.0.2", False),
        ("23", False),
    ],
)
def test_java_17_to_22_is_taken_and_any_other_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, fit: bool
) -> None:
    home = java_home(tmp_path / "jdk", release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    try:
        detail = java(Settings())
    except Problem as problem:
        detail = str(problem)
    number = release.removeprefix("1.").split(".")[0].split("-")[0]
    if fit:
        assert detail == f"Java {number} at {home}"
    else:
        assert f"Java {number} at {home} skipped: 17 to 22 is needed" in detail


@pytest.mark.parametrize(("require", "status"), [((), "warning"), (("java",), "failed")])
def test_a_missing_java_matters_only_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    require: tuple[str, ...],
    status: str,
) -> None:
    monkeypatch.setattr(doctor_module, "find_system_java", lambda report: None)
    monkeypatch.setattr(doctor_module, "_wheel_release", lambda: None)
    with pytest.raises(typer.Exit) as ended:
        examine(resolve(), require, Output.JSON)
    answer = json.loads(capsys.readouterr().out)
    findings = {finding["check"]: finding for finding in answer["checks"]}
    assert findings["java"]["status"] == status
    assert ended.value.exit_code == (1 if require else 0)


@pytest.mark.process
def test_an_unknown_requirement_is_a_usage_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "frazil", "doctor", "--require", "coffee"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 2
    assert "known are python" in done.stderr
