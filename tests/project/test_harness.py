"""The test harness: tests cannot reach the network, and a skip fails a run that must be
complete."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.project.inner_pytest import run_pytest
from tests.support.network import NetworkUsed


def test_network_is_forbidden() -> None:
    with pytest.raises(NetworkUsed, match=r"192\.0\.2\.1"), socket.socket() as outside:
        outside.settimeout(1)
        outside.connect(("192.0.2.1", 80))
    with pytest.raises(NetworkUsed, match=r"example\.org"):
        socket.getaddrinfo("example.org", 80)


def test_loopback_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()


SKIPS = """
import pytest
def test_skips():
    pytest.skip("no such component")
@pytest.mark.skip(reason="switched off")
def test_marked():
    pass
"""
MODULE_SKIPS = """
import pytest
pytest.importorskip("no_such_module")
"""


@pytest.mark.process
def test_a_skip_passes_where_a_part_is_enough(tmp_path: Path) -> None:
    code, said = run_pytest(tmp_path, SKIPS)
    assert code == 0
    assert "2 skipped" in said


@pytest.mark.process
@pytest.mark.parametrize(
    ("test", "reason"),
    [(SKIPS, "1 failed, 1 error"), (MODULE_SKIPS, "1 error")],
    ids=["test", "module"],
)
def test_a_skip_fails_where_all_is_wanted(tmp_path: Path, test: str, reason: str) -> None:
    code, said = run_pytest(tmp_path, test, FRAZIL_REQUIRE_ALL="1")
    assert code != 0
    assert reason in said


@pytest.mark.process
def test_full_tests_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    test = "import pytest\n@pytest.mark.full\ndef test_long(): pass\ndef test_short(): pass\n"
    code, said = run_pytest(tmp_path, test)
    assert code == 0
    assert "1 passed, 1 deselected" in said


FAST = """
import subprocess, sys
import pytest

@pytest.fixture
def child(processes):
    return subprocess.run([sys.executable, "-c", ""])

def test_small(): pass
def test_forgotten(): subprocess.run([sys.executable, "-c", ""])
@pytest.mark.process
def test_marked(): subprocess.run([sys.executable, "-c", ""])
def test_of_a_fixture(child): pass
def test_of_spark(spark): pass
"""


@pytest.mark.process
def test_the_fast_run_starts_no_process(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, FAST, "--fast")
    assert code == 1
    assert "1 failed, 1 passed, 3 deselected" in output
    assert "test_forgotten starts a process (subprocess.Popen" in output
    assert "mark the test with `pytest.mark.process`" in output
