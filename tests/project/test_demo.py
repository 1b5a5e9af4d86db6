"""The demo runs from a copy, so that its folder stays out of the checkout."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import HANG_S
from tests.support.server import clean_environment

pytestmark = pytest.mark.process

# The demo starts eighteen Python processes, some of them in parallel, and then Spark.

DEMO = Path(__file__).resolve().parent.parent.parent / "demo" / "demo.py"


@contextmanager
def running_demo(folder: Path, java: str = "") -> Iterator[subprocess.Popen[str]]:
    (folder / "demo").mkdir()
    copy = shutil.copy(DEMO, folder / "demo")
    # A setting of the user's shell must not reach the demo's server.
    environ = clean_environment({"FRAZIL_PORT": "1", "PYTHONUNBUFFERED": "1", "FRAZIL_JAVA": java})
    process = subprocess.Popen(
        [sys.executable, copy],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def address_in(text: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:[0-9]+", text)
    assert found is not None, text
    return found[0]


@pytest.mark.parametrize("java", ["", pytest.param("wheel", marks=pytest.mark.full)])
def test_the_demo_tells_its_story_over_what_an_earlier_one_left(tmp_path: Path, java: str) -> None:
    (tmp_path / ".demo" / "warehouse" / "demo").mkdir(parents=True)
    (tmp_path / ".demo" / "frazil.db").write_text("left behind")
    with running_demo(tmp_path, java) as demo:
        told, errors = demo.communicate(timeout=HANG_S)
    assert (demo.returncode, errors) == (0, "")
    measured = [line for line in told.splitlines() if re.match(r" *[0-9]+\.[0-9]{2} s  ", line)]
    assert "".join(line.split(" s  ")[1][0] for line in measured) == "t12 3 4  56 7   8   t"
    assert "16 commits, 0 refused" in told
    assert re.search(r"the metadata log says: ([1-9]|1[0-6]) swaps were enough", told)
    assert "Cannot commit, missing data files" in told
    assert "clause     required-data-files (index 0)" in told
    assert "by one word of configuration PyIceberg declares its files too" in told
    assert "built again from the 3 that are left, it was committed" in told
    if java == "wheel":
        assert "started on Java 21" in told
    assert "a MERGE deleted 500, changed 500 and added 1,000 rows by one POST" in told
    assert "no data file was rewritten: 1 deletion vector" in told
    assert "8 deletes of their rows ran at once: 9 commits, 0 refused" in told
    space = re.search(
        r"old snapshots expired with their files: (\d+) KiB .* became (\d+) KiB", told
    )
    assert space is not None
    assert int(space[1]) > int(space[2])
    for reader in ("DuckDB", "PyIceberg"):
        for rows, cents in (
            ("18,000", "89,807,000"),
            ("18,500", "92,727,500"),
            ("18,460", "92,544,540"),
        ):
            assert f"{reader} read {rows} rows, each once, with {cents} cents: as written" in told
    assert "Next: `make serve`" in told
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address_in(told), timeout=5)


def test_a_demo_that_is_ended_takes_its_server_with_it(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        assert demo.stdout is not None
        url = address_in(demo.stdout.readline())
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=HANG_S)
    assert demo.returncode == 128 + signal.SIGTERM
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)
