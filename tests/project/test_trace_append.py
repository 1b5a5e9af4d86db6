"""The script that counts the functions and modules that a commit runs."""

from __future__ import annotations

import json

import pytest

from scripts.trace_append import COMMITS, main

MOST_MODULES = 63
"""The most modules that a reader may have to open to follow an append."""


def test_every_commit_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", "json"]) == 0
    rows = {row["commit"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(COMMITS)
    for row in rows.values():
        assert 10 < row["modules"] < row["functions"] < row["lines"]
        assert row["package_changes"] > 0
    append, overwrite = rows.values()
    assert append["modules"] <= MOST_MODULES
    assert append["functions"] < overwrite["functions"]


def test_the_modules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--modules"]) == 0
    output = capsys.readouterr().out
    assert "| append |" in output
    assert "rest/rest_app.py" in output
