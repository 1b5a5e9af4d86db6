"""`frazil serve`, with a record of the updates and requirements that reached its engine.

As a program, this module wraps the engine's own dispatch and then starts the server. Each
recorded function was therefore really called, inside the server, by a request that came over
HTTP.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

COMMAND = (sys.executable, "-m", "tests.hostile.counting")
_FILE = "HOSTILE_REACHED"
_PATIENCE = "HOSTILE_PATIENCE_S"
_ROOT = Path(__file__).parents[2]

APPLIED = "applied"
REFUSED = "refused"


class Reached:
    """Reads what a running server has recorded so far."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def environment(self, patience_s: float | None = None) -> dict[str, str]:
        """Return the environment for the server. `patience_s` is how long it waits for a head or
        a body, which is not a setting of the product."""
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        patience = {} if patience_s is None else {_PATIENCE: str(patience_s)}
        return {_FILE: str(self._path), "PYTHONPATH": os.pathsep.join(paths), **patience}

    def names(self, kind: str, outcome: str | None = None) -> set[str]:
        """Return the actions or types that reached the engine, with one outcome or with any."""
        lines = (line.split() for line in self._path.read_text().splitlines())
        return {name for what, name, how in lines if what == kind and outcome in (None, how)}


class _Recorder:
    """Records each kind, name and outcome the first time it occurs."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._seen: set[str] = set()
        self._inside = threading.local()

    def in_commits(self, function: Callable[..., T]) -> Callable[..., T]:
        """Mark the calls in which a commit's own updates are applied. Creating a table uses the
        same engine with updates that the server generates, and those must not be counted."""

        def marked(*args: Any, **kwargs: Any) -> T:
            self._inside.commit = True
            try:
                return function(*args, **kwargs)
            finally:
                self._inside.commit = False

        return marked

    def updates(self, kind: str, dispatch: Any) -> None:
        """Wrap every function of a dispatch table keyed by update type."""
        for given, function in list(dispatch.items()):
            dispatch[given] = self._counted(kind, function, str(given.__struct_config__.tag))

    def requirement(self, function: Callable[..., T], name: str) -> Callable[..., T]:
        return self._counted("requirement", function, name, always=True)

    def _counted(
        self, kind: str, function: Callable[..., T], name: str, always: bool = False
    ) -> Callable[..., T]:
        def counted(*args: Any, **kwargs: Any) -> T:
            outcome = REFUSED
            try:
                result = function(*args, **kwargs)
                outcome = APPLIED
                return result
            finally:
                if always or getattr(self._inside, "commit", False):
                    self._note(f"{kind} {name} {outcome}\n")

        return counted

    def _note(self, line: str) -> None:
        if line not in self._seen:
            self._seen.add(line)
            os.write(self._file, line.encode())


def _count() -> None:
    from frazil.commit.pipeline.relation_kinds import RelationChange, TableKind
    from frazil.commit.snapshot import apply_request
    from frazil.format.metadata import table_builder, view_builder

    recorder = _Recorder(os.environ[_FILE])
    recorder.updates("table", table_builder._APPLY)
    recorder.updates("view", view_builder._APPLY)
    for name in ("_apply_updates", "apply_view_updates"):
        setattr(apply_request, name, recorder.in_commits(getattr(apply_request, name)))
    for given, check in list(table_builder._CHECKS.items()):
        name = str(given.__struct_config__.tag)
        table_builder._CHECKS[given] = recorder.requirement(check, name)
    view_check = view_builder.check_view_requirements
    counted = recorder.requirement(view_check, "assert-view-uuid")

    def check_view_requirements(metadata: Any, given: Any) -> None:
        (counted if given else view_check)(metadata, given)

    apply = TableKind.apply
    create = recorder.requirement(apply, "assert-create")

    def apply_or_create(
        kind: TableKind, state: Any, change: RelationChange, environment: Any, *, alone: bool
    ) -> Any:
        chosen = create if change.creates else apply
        return chosen(kind, state, change, environment, alone=alone)

    setattr(apply_request, "check_view_requirements", check_view_requirements)  # noqa: B010
    setattr(TableKind, "apply", apply_or_create)  # noqa: B010


def _lose_patience(patience_s: float) -> None:
    from frazil.rest.rest_app import AppSettings
    from frazil.server import assembly, http_protocol

    impatient = partial(AppSettings, body_timeout_s=patience_s)
    setattr(assembly, "AppSettings", impatient)  # noqa: B010
    http_protocol.HEAD_TIMEOUT_S = patience_s


def _main() -> None:
    from frazil.cli import main

    _count()
    if _PATIENCE in os.environ:
        _lose_patience(float(os.environ[_PATIENCE]))
    main()


if __name__ == "__main__":
    _main()
