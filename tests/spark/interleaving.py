"""Runs another commit after a statement has scanned and written, just before it commits."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from frazil.client.declare.table_verbs import Commit
from frazil.spark.writing.write_commit import Write


def once_before_commit(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Run the action just before the next write's commit, but not before later ones."""
    commit = Write.commit
    pending = [action]

    def interrupted(self: Write, paths: Collection[str], submit: Callable[[], Commit]) -> Commit:
        if pending:
            pending.pop()()
        return commit(self, paths, submit)

    monkeypatch.setattr(Write, "commit", interrupted)
