"""The aims next to the measured values. Nothing is asserted: a busy machine must not fail a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.commit.bursts import APPEND, DELETE_PATH
from benchmarks.commit.results import HISTORY, LIVE, MANY, RESTARTED, WRITERS, Cell, Raw, Results
from benchmarks.commit.systems import (
    DUCKLAKE,
    DUCKLAKE_INLINED,
    FRAZIL,
    FRAZIL_GZIP,
    JAVA_HADOOP,
    JAVA_PLAIN,
    SQL_CATALOG,
)

WRITERS_AIMED_AT = 16
LIVE_AIMED_AT = 100_000
MEMORY_AIMED_AT = 1_000_000
_GIB = 1 << 30
_FASTER_THAN = ((SQL_CATALOG, 20), (JAVA_HADOOP, 15), (JAVA_PLAIN, 15), (DUCKLAKE, 5))


@dataclass(frozen=True, slots=True)
class Aim:
    what: str
    wanted: float
    measured: float | None
    unit: str
    at_least: bool = False
    """If false, the aim is an upper limit."""
    ms: float | None = None
    """The measured time if the aim is about a time. It is also reported as a multiple of the raw
    cost."""

    @property
    def is_met(self) -> bool | None:
        if self.measured is None:
            return None
        if self.at_least:
            return self.measured >= self.wanted
        return self.measured <= self.wanted

    @property
    def missed_by(self) -> float | None:
        """The factor by which the aim was missed, or None."""
        if self.measured is None or self.is_met or not self.measured or not self.wanted:
            return None
        ratio = self.measured / self.wanted
        return 1 / ratio if self.at_least else ratio


def aims_of(results: Results) -> list[Aim]:
    return [*_at_once(results), *_alone(results), *_live(results)]


def raw_cost(results: Results) -> Raw | None:
    """Return the raw cost of a commit to a table that is almost empty."""
    return min(results.raw, key=lambda raw: raw.snapshots, default=None)


def _at_once(results: Results) -> Iterator[Aim]:
    def found(system: str) -> Cell | None:
        wanted = {"writers": WRITERS_AIMED_AT, "tables": 1}
        return results.find(WRITERS, system, **wanted)

    ours = found(FRAZIL)
    begin = f"{WRITERS_AIMED_AT} writers on one table"
    yield Aim(f"{begin}: commits that failed", 0, None if ours is None else ours.failed, "")
    for system, wanted in _FASTER_THAN:
        what = f"{begin}: commits/s against {system}"
        yield Aim(what, wanted, _rate_ratio(ours, found(system)), "x", at_least=True)
    inlined = _rate_ratio(ours, found(DUCKLAKE_INLINED))
    yield Aim(f"{begin}: commits/s against {DUCKLAKE_INLINED}", 5, inlined, "x", at_least=True)
    p99 = None if ours is None else ours.p99_ms
    yield Aim(f"{begin}: p99", 100, p99, "ms", ms=p99)


def _rate_ratio(ours: Cell | None, theirs: Cell | None) -> float | None:
    if ours is None or theirs is None or not ours.commits_per_s or not theirs.commits_per_s:
        return None
    return ours.commits_per_s / theirs.commits_per_s


def _alone(results: Results) -> Iterator[Aim]:
    raw = raw_cost(results)
    longest = max(results.raw, key=lambda one: one.snapshots, default=None)
    short, long = (_history(results, FRAZIL, one) for one in (raw, longest))
    gzip_short, gzip_long = (_history(results, FRAZIL_GZIP, one) for one in (raw, longest))
    single = _over(short, None if raw is None else raw.commit_p50_ms)
    yield Aim("one writer, p50 against three durable files and one swap", 3, single, "x", ms=short)
    if raw is None or longest is None or raw is longest or short is None:
        return
    yield Aim(
        f"{longest.snapshots:,} snapshots, p50, against that of {raw.snapshots} and 1.5 times"
        f" writing {longest.metadata_bytes / 1e6:.1f} MB",
        round(short + 1.5 * longest.metadata_p50_ms, 2),
        long,
        "ms",
        ms=long,
    )
    yield Aim(
        f"{longest.snapshots:,} snapshots, gzip metadata, p50 against {raw.snapshots}",
        2,
        _over(gzip_long, gzip_short),
        "x",
        ms=gzip_long,
    )


def _history(results: Results, system: str, at: Raw | None) -> float | None:
    cell = None if at is None else results.find(HISTORY, system, snapshots=at.snapshots)
    return None if cell is None else cell.p50_ms


def _live(results: Results) -> Iterator[Aim]:
    def p50(part: str, system: str, operation: str, files: int) -> float | None:
        cell = results.find(part, system, operation=operation, files=files)
        return None if cell is None else cell.p50_ms

    few = min((tree["files"] for tree in results.trees), default=0)
    base, warm = (p50(LIVE, FRAZIL, APPEND, files) for files in (few, LIVE_AIMED_AT))
    cold = p50(RESTARTED, FRAZIL, APPEND, LIVE_AIMED_AT)
    at = f"{LIVE_AIMED_AT:,} live files"
    beside = "" if cold is None else f" (after a restart {cold:.1f} ms)"
    yield Aim(f"{at}, append, p50 against {few}{beside}", 1.5, _over(warm, base), "x", ms=warm)
    ours = p50(LIVE, FRAZIL, DELETE_PATH, LIVE_AIMED_AT)
    java = [p50(LIVE, name, DELETE_PATH, LIVE_AIMED_AT) for name in (JAVA_HADOOP, JAVA_PLAIN)]
    fastest = min((one for one in java if one is not None), default=None)
    what = f"{at}, delete of one path, times as fast as the Java client"
    yield Aim(what, 20, _over(fastest, ours), "x", at_least=True, ms=ours)
    many = next((cell for cell in results.of(MANY) if cell.system == FRAZIL), None)
    rate = None if many is None or not many.p50_ms else many.added_files / many.p50_ms * 1000
    count = "many" if many is None else f"{many.added_files:,}"
    what = f"{count} files in one request"
    yield Aim(what, 30_000, rate, "files/s", at_least=True, ms=many.p50_ms if many else None)
    held = next((one for one in results.memory if one.files == MEMORY_AIMED_AT), None)
    resident = None if held is None else held.resident_bytes / _GIB
    yield Aim(f"memory at {MEMORY_AIMED_AT:,} live files", 1, resident, "GiB")


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base
