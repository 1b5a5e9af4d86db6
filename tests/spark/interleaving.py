"""Lets somebody else commit at a fixed moment: after a statement has scanned and written, before
it commits."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from frazil.client.declare.table_verbs import Commit
from frazil.spark.writing.write_commit import Write


def once_before_commit(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """The next write's commit waits until the action is done; later ones do not."""
    commit = Write.commit
    pending = [action]

    def interrupted(self: Write, paths: Collection[str], submit: Callable[[], Commit]) -> Commit:
        if pending:
            pending.pop()()
        return commit(self, paths, submit)

    monkeypatch.setattr(Write, "commit", interrupted)
