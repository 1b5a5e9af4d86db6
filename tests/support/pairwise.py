"""Selects combinations so that every pair of values of two axes occurs at least once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

Combination = tuple[Any, ...]
Pair = tuple[int, Any, int, Any]


def pairwise_cover(
    *axes: Sequence[Any], makes_sense: Callable[[Combination], bool] = lambda _: True
) -> tuple[list[Combination], list[Combination]]:
    """All combinations that make sense, and the few of them that hold every possible pair.

    Greedy: always the combination with the most pairs that are still missing, the first of them in
    the order of the axes. So the choice is the same in every run.
    """
    every = [combination for combination in product(*axes) if makes_sense(combination)]
    missing = {pair for combination in every for pair in pairs(combination)}
    chosen: list[Combination] = []
    while missing:
        best = max(every, key=lambda combination: len(missing & pairs(combination)))
        chosen.append(best)
        missing -= pairs(best)
    return every, chosen


def pairs(combination: Combination) -> set[Pair]:
    return {
        (first, combination[first], second, combination[second])
        for first, second in combinations(range(len(combination)), 2)
    }
