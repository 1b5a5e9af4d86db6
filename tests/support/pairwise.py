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
    """Return a few of the valid combinations, which together contain every possible pair.

    The choice is greedy: it takes the combination with the most missing pairs, and on a tie the
    first in the order of the axes. So every run gives the same result.
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
