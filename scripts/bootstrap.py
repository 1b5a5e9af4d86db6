"""Install exactly the locked packages into `.venv`: `bootstrap.py run` or `bootstrap.py test`.

This runs before anything is installed, so it uses the standard library only. Each step leaves a
stamp with the hash of its lock file, so a second call does nothing until a lock changes. `run` is
for the server and the demo, `test` adds the packages for the tests. When a lock has changed, the
environment is created again: a package that left the lock could hide a missing dependency.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
LEVELS = ("run", "test")


class BootstrapError(Exception):
    """The environment cannot be created; the message has the line to type."""


def lock_file(level: str) -> Path:
    return ROOT / "requirements" / f"{level}.lock"


def fingerprint(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def stamp_file(name: str) -> Path:
    return VENV / f".frazil-{name}.stamp"


def is_stamped(name: str, value: str) -> bool:
    try:
        return stamp_file(name).read_text().strip() == value
    except FileNotFoundError:
        return False


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep two `make` calls from building the environment at the same time."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with open(cache / "bootstrap.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(command: Sequence[str | Path]) -> None:
    arguments = [str(part) for part in command]
    # The new environment must not see the packages of the caller's environment.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    finished = subprocess.run(arguments, cwd=ROOT, env=environment, check=False)
    if finished.returncode:
        raise BootstrapError(f"`{' '.join(arguments)}` ended with {finished.returncode}")


def find_uv() -> str | None:
    """Return the path of a uv that works, unless FRAZIL_UV=0 switches it off."""
    if os.environ.get("FRAZIL_UV") == "0":
        return None
    uv = shutil.which("uv")
    if uv is None:
        return None
    # The PATH may have a version manager's shim for a uv that is not installed.
    works = subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0
    return uv if works else None


def base_python() -> str:
    """Return the interpreter that the current virtual environment was created from."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def require_ensurepip(python: str) -> None:
    probe = [python, "-c", "import ensurepip, venv"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if shutil.which("apt-get"):
        fix = f"sudo apt-get install python{version}-venv"
    else:
        fix = "make setup PYTHON=/path/to/python3.11"
    raise BootstrapError(f"{python} has no ensurepip and there is no uv. Type: {fix}")


def make_venv(uv: str | None) -> None:
    python = base_python()
    if uv is None:
        require_ensurepip(python)
    shutil.rmtree(VENV, ignore_errors=True)
    if uv is not None:
        run([uv, "venv", "--quiet", "--python", python, VENV])
    else:
        run([python, "-m", "venv", VENV])


def install(uv: str | None, arguments: Sequence[str | Path]) -> None:
    if uv is not None:
        run([uv, "pip", "install", "--quiet", "--python", VENV_PYTHON, *arguments])
    else:
        run([VENV_PYTHON, "-m", "pip", "install", "--quiet", "--no-input", *arguments])


def venv_works() -> bool:
    """Return whether the Python of `.venv` starts and has the version that PYTHON= asks for."""
    probe = [str(VENV_PYTHON), "-c", "import sys; print(sys.version_info[:2])"]
    try:
        answer = subprocess.run(probe, capture_output=True, text=True, check=False)
    except OSError:
        return False
    wanted = str(sys.version_info[:2])
    asked = bool(os.environ.get("PYTHON"))
    return answer.returncode == 0 and (not asked or answer.stdout.strip() == wanted)


def is_stale(level: str) -> bool:
    """Return whether `.venv` is broken or has packages of an older lock."""
    if not venv_works():
        return True
    return any(
        stamp_file(name).exists() and not is_stamped(name, fingerprint(lock_file(name)))
        for name in LEVELS[: LEVELS.index(level) + 1]
    )


def bootstrap(level: str, uv: str | None) -> bool:
    """Install the locks of the level; return whether anything changed."""
    worked = False
    if is_stale(level):
        make_venv(uv)
        worked = True
    for name in LEVELS[: LEVELS.index(level) + 1]:
        wanted = fingerprint(lock_file(name))
        if not is_stamped(name, wanted):
            started = time.monotonic()
            install(uv, ["--require-hashes", "-r", lock_file(name)])
            stamp_file(name).write_text(wanted)
            tell(started, f"requirements/{name}.lock installed by {'uv' if uv else 'pip'}")
            worked = True
    project = fingerprint(ROOT / "pyproject.toml")
    if not is_stamped("project", project):
        started = time.monotonic()
        install(uv, ["--no-deps", "--no-build-isolation", "--editable", ROOT])
        stamp_file("project").write_text(project)
        tell(started, "frazil installed from the checkout")
        worked = True
    return worked


def tell(started: float, text: str) -> None:
    print(f"{time.monotonic() - started:6.2f} s  set-up: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("level", choices=LEVELS)
    parser.add_argument(
        "--say", action="store_true", help="print a line even if there is nothing to do"
    )
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        with one_at_a_time():
            worked = bootstrap(arguments.level, find_uv())
    except BootstrapError as error:
        print(f"frazil: {error}", file=sys.stderr)
        return 1
    if arguments.say and not worked:
        tell(started, ".venv is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
