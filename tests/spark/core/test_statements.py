"""Statements are run again after a conflict, and after nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from frazil.spark.core import statement_runs
from frazil.spark.core.results import Result
from frazil.spark.core.settings import Settings
from frazil.wire.errors import BadRequest, CommitFailed, CommitStateUnknown, ValidationError


def context(retries: int) -> Any:
    settings = Settings(statement_retries=retries)
    return SimpleNamespace(settings=settings, log=logging.getLogger("frazil.spark"))


def failing(times: int, error: Exception) -> Callable[[int], list[int]]:
    numbers: list[int] = []

    def attempt(number: int) -> list[int]:
        numbers.append(number)
        if number <= times:
            raise error
        return numbers

    return attempt


def test_a_refused_statement_is_run_again_from_the_start() -> None:
    assert statement_runs.run(context(3), failing(0, ValidationError("x"))) == [1]
    assert statement_runs.run(context(3), failing(3, ValidationError("x"))) == [1, 2, 3, 4]
    assert statement_runs.run(context(3), failing(1, CommitFailed("the schema has changed"))) == [
        1,
        2,
    ]


def test_a_result_knows_its_attempts() -> None:
    refused = iter([ValidationError("x")])

    def attempt(_: int) -> Result:
        for error in refused:
            raise error
        return Result(commit=None, operation="append")

    assert statement_runs.run(context(3), attempt).attempts == 2


def test_the_retries_have_an_end() -> None:
    with pytest.raises(ValidationError, match="in the way"):
        statement_runs.run(context(3), failing(4, ValidationError("in the way")))
    with pytest.raises(ValidationError):
        statement_runs.run(context(0), failing(1, ValidationError("in the way")))


@pytest.mark.parametrize("error", [CommitStateUnknown("?"), BadRequest("no"), OSError("disk")])
def test_nothing_else_is_tried_twice(error: Exception) -> None:
    with pytest.raises(type(error)):
        statement_runs.run(context(3), failing(1, error))
