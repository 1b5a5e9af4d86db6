"""Statements run again after a conflict, but not after any other error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from frazil.client.declare.client_table import Table
from frazil.spark.core.context import Settings
from frazil.spark.core.read_leases import ReadLeases
from frazil.spark.core.statement_runs import Result, Target, run_statement
from frazil.wire.errors import BadRequest, CommitFailed, CommitStateUnknown, ValidationError
from frazil.wire.identifiers import Identifier

TARGET = Target(Identifier(("ns",), "t"))


def context(retries: int) -> Any:
    settings = Settings(statement_retries=retries)
    # A statement that reads nothing leases nothing, so that no client is asked.
    client = SimpleNamespace(leases=None)
    return SimpleNamespace(settings=settings, client=client, leases=ReadLeases())


def run(retries: int, attempt: Callable[[], Any], target: Target = TARGET) -> Any:
    return run_statement(context(retries), target, attempt)


def failing(times: int, error: Exception) -> Callable[[], list[int]]:
    numbers: list[int] = []

    def attempt() -> list[int]:
        numbers.append(len(numbers) + 1)
        if len(numbers) <= times:
            raise error
        return numbers

    return attempt


def test_a_refused_statement_is_run_again_from_the_start() -> None:
    assert run(3, failing(0, ValidationError("x"))) == [1]
    assert run(3, failing(3, ValidationError("x"))) == [1, 2, 3, 4]
    assert run(3, failing(1, CommitFailed("the schema has changed"))) == [
        1,
        2,
    ]


def test_a_result_knows_its_attempts() -> None:
    refused = iter([ValidationError("x")])

    def attempt() -> Result:
        for error in refused:
            raise error
        return Result(commit=None, operation="append")

    assert run(3, attempt).attempts == 2


def test_the_retries_have_an_end() -> None:
    with pytest.raises(ValidationError, match="in the way"):
        run(3, failing(4, ValidationError("in the way")))
    with pytest.raises(ValidationError):
        run(0, failing(1, ValidationError("in the way")))


@pytest.mark.parametrize("error", [CommitStateUnknown("?"), BadRequest("no"), OSError("disk")])
def test_nothing_else_is_tried_twice(error: Exception) -> None:
    with pytest.raises(type(error)):
        run(3, failing(1, error))


def test_a_statement_on_a_pinned_target_runs_once() -> None:
    """The code that pinned the target is responsible for running the whole statement again."""
    pinned = replace(TARGET, pinned=cast(Table, object()))
    attempt = failing(1, ValidationError("in the way"))
    with pytest.raises(ValidationError, match="in the way"):
        run(3, attempt, pinned)
    assert attempt() == [1, 2]
