"""A test that reaches its time limit within a Spark call does not affect the tests after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.inner_pytest import run_pytest

pytestmark = pytest.mark.process

# The limit covers only the test's body, so that it does not depend on Spark's start time.
TESTS = """
from pathlib import Path
import pytest

JVMS = []

@pytest.fixture(scope="session")
def thread(spark):
    return spark._jvm.java.lang.Thread

@pytest.mark.timeout(2, func_only=True)
def test_hangs_in_a_call(spark, thread):
    JVMS.append(spark.sparkContext._gateway.proc.pid)
    try:
        thread.sleep(3_600_000)
    finally:
        Path("answer").write_text(str(spark.range(1).count()))

def test_gets_its_own_answers(spark, thread):
    assert spark.range(3).count() == 3
    assert thread.currentThread().getName()
    assert spark.sql("SELECT 'a' AS x").collect()[0]["x"] == "a"

def test_has_a_new_gateway(spark):
    JVMS.append(spark.sparkContext._gateway.proc.pid)
    assert len(set(JVMS)) == 2

def test_replaces_a_jvm_that_ended(spark):
    process = spark.sparkContext._gateway.proc
    process.kill()
    process.wait()

def test_has_another_one(spark):
    assert spark.range(5).count() == 5
"""


def test_later_tests_get_a_new_gateway(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, TESTS)
    assert code == 1
    assert "Failed: Timeout (>2.0s)" in output
    assert not (tmp_path / "answer").exists(), (
        "the call after the interrupted one must not get an answer"
    )
    assert "1 failed, 4 passed" in output
