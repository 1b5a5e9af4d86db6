"""The code in the guide to the pipeline runs as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scripts.java import ROOT
from tests.support.server import ServerFactory

GUIDE = ROOT / "docs" / "spark.md"
PYTHON = re.compile(r"^```python\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def test_the_guide_is_run_as_it_stands(
    spark: SparkSession,
    server: ServerFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The guide runs in this process, so its builder returns the one Spark of the process."""
    monkeypatch.setenv("FRAZIL_URI", server().url)
    monkeypatch.chdir(tmp_path)
    blocks = PYTHON.findall(GUIDE.read_text())
    assert len(blocks) > 5
    names: dict[str, Any] = {"__name__": "guide"}
    try:
        for block in blocks:
            exec(compile(block, str(GUIDE), "exec"), names)
    finally:
        # The guide's view would stand in the way of tables of this name in other tests.
        spark.catalog.dropTempView("orders")
    session, orders = names["session"], names["orders"]
    assert names["merged"].mode == "merge-on-read"
    rows = {row["id"]: row for row in orders.scan().collect()}
    assert rows[100]["item"] == "on a branch"
    assert rows[200]["item"] == "new"
    assert rows[9]["item"] == "new name"
    assert names["query"].exception() is None
    assert 2 not in rows
    assert 3 not in rows
    session.close()
