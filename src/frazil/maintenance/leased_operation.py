"""Lets an operation hold the snapshots that it plans, until it has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from frazil.client.declare.client_table import Table

P = ParamSpec("P")
R = TypeVar("R")


def leased(operation: Callable[Concatenate[Table, P], R]) -> Callable[Concatenate[Table, P], R]:
    """Run the operation with a table whose plans are leased until it ends."""

    @wraps(operation)
    def run(table: Table, /, *args: P.args, **options: P.kwargs) -> R:
        with table.leased_plans(is_base=True) as held:
            return operation(held, *args, **options)

    return run
