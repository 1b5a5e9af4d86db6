"""Runs pytest inside a test, to check how the test harness behaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.java import ROOT
from tests.support.patience import HANG_S

INI = "[pytest]\nmarkers =\n    full\n    process\ntimeout_method = signal\n"


def run_pytest(directory: Path, tests: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the tests with this project's conftest; return the exit code and the output."""
    (directory / "test_inner.py").write_text(tests)
    (directory / "pytest.ini").write_text(INI)
    variables = {k: v for k, v in os.environ.items() if k != "FRAZIL_REQUIRE_ALL"}
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "tests.conftest"]
    finished = subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env={**variables, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    return finished.returncode, finished.stdout
