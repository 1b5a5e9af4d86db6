"""The documentation page on clients matches the tests."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from scripts.jars import locked_jars
from scripts.java import ROOT

PAGE = (ROOT / "docs" / "stock-clients.md").read_text()
QUOTED = re.compile(r"`([^`]+)`")
NOT_AN_ERROR = re.compile(r"^(ALTER|CREATE TABLE|CALL|INSERT|[a-z_:/-]+$)")


def test_versions_on_the_page_are_the_ones_that_were_run() -> None:
    assert f"PyIceberg {version('pyiceberg')}" in PAGE
    assert f"DuckDB {version('duckdb')}" in PAGE
    (runtime,) = locked_jars(["spark"])
    assert f"Spark {version('pyspark')} with Iceberg's jar {runtime.version}" in PAGE


def test_every_error_on_the_page_was_seen_by_a_test() -> None:
    folder = Path(__file__).parent
    tests = "".join(path.read_text() for path in folder.glob("test_*.py"))
    _, declined = PAGE.split("## What the clients refuse")
    quoted = [text for text in QUOTED.findall(declined) if not NOT_AN_ERROR.match(text)]
    assert len(quoted) > 15
    assert [text for text in quoted if text not in tests] == []
