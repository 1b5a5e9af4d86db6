"""The aims for maintenance next to the measured values. All of them are about CPU time."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.commit.aims import Aim
from benchmarks.maintenance import systems as named
from benchmarks.spark.aims import speed
from benchmarks.spark.results import Results

_REWRITES = (named.BINPACK, named.DELETES, named.SORT, named.SORT_V2, named.Z_ORDER)
_WANTED = (
    *((operation, named.ON_SPARK, 1.0) for operation in _REWRITES),
    (named.SMALL, named.LOCAL, 2.0),
    (named.EXPIRY, named.LOCAL, 10.0),
    (named.ORPHANS, named.LOCAL, 10.0),
)


def aims_of(results: Results) -> Iterator[Aim]:
    """Yield the aims; the measured value of an operation that did not run is None."""
    for operation, system, wanted in _WANTED:
        measured = speed(results, operation, named.STOCK, system)
        what = f"{operation}, {system} against {named.STOCK}"
        yield Aim(what, wanted, measured, "x", at_least=True)
