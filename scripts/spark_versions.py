"""Run the core tests of `frazil.spark` on other versions of Spark: `spark_versions.py [4.0 ...]`.

Each version has its own virtual environment below `.cache`. It is created from
`requirements/spark-<version>.lock`, and again when that file changes. The tests run without
Iceberg's runtime, because the newest Spark has none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file, this module stands beside no package

from scripts.bootstrap import (  # noqa: E402
    BootstrapError,
    base_python,
    find_uv,
    fingerprint,
    require_ensurepip,
    run,
    tell,
)

VERSIONS = ("4.0", "4.2", "4.3")
SUITE = "tests/spark/test_core.py"


def lock_file(version: str) -> Path:
    return ROOT / "requirements" / f"spark-{version}.lock"


def environment(version: str) -> Path:
    """Return the Python of the version's environment; create it if it is missing."""
    folder = ROOT / ".cache" / f"spark-{version}"
    python = folder / "bin" / "python"
    stamp = folder / ".frazil.stamp"
    wanted = fingerprint(lock_file(version))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    uv, base = find_uv(), base_python()
    if uv is None:
        require_ensurepip(base)
        run([base, "-m", "venv", folder])
        installer: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-input"]
    else:
        run([uv, "venv", "--quiet", "--python", base, folder])
        installer = [uv, "pip", "install", "--quiet", "--python", python]
    run([*installer, "--require-hashes", "-r", lock_file(version)])
    stamp.write_text(wanted)
    tell(started, f"requirements/spark-{version}.lock installed")
    return python


def run_suite(version: str, arguments: Sequence[str]) -> int:
    """Run the core tests with the package of the checkout; return the exit code."""
    python = environment(version)
    print(f"--- Spark {version} ---", flush=True)
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": str(python)}
    command = [str(python), "-m", "pytest", "-m", "core", "-p", "no:cacheprovider", SUITE]
    return subprocess.run([*command, *arguments], cwd=ROOT, env=variables, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", help=f"of {', '.join(VERSIONS)}; without: all")
    parser.add_argument("--pytest", default="", help="more arguments for pytest")
    arguments = parser.parse_args()
    unknown = [version for version in arguments.versions if version not in VERSIONS]
    if unknown:
        parser.error(f"no lock for {', '.join(unknown)}: there are {', '.join(VERSIONS)}")
    try:
        codes = {
            version: run_suite(version, arguments.pytest.split())
            for version in arguments.versions or VERSIONS
        }
    except BootstrapError as error:
        print(f"frazil: {error}", file=sys.stderr)
        return 1
    failed = [version for version, code in codes.items() if code]
    print(f"Spark {', '.join(codes)}: {f'failed on {failed}' if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
