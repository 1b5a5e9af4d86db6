"""Pauses for stock clients are short and rare and end with the client's commit; queues obey
them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.commit.pipeline import table_queues
from frazil.commit.pipeline.table_queues import MAX_PAUSE_S, Job, Pauses, QueueLimits, Queues
from frazil.wire.errors import TooManyRequests
from frazil.wire.identifiers import Identifier
from tests.support.patience import HANG_S

TABLE = Identifier(("ns",), "t")
OTHER = Identifier(("ns",), "other")
AN_HOUR_S = 3_600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


# --- pauses ----------------------------------------------------------------------------------


def test_half_a_second_after_a_refusal() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    assert pauses.remaining_s(TABLE) == 0
    pauses.refused(TABLE)
    assert pauses.remaining_s(TABLE) == MAX_PAUSE_S == 0.5
    assert pauses.remaining_s(OTHER) == 0
    clock.now += 0.2
    assert pauses.remaining_s(TABLE) == pytest.approx(0.3)
    clock.now += 10
    assert pauses.remaining_s(TABLE) == 0


def test_the_next_classic_commit_ends_it() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    pauses.refused(TABLE)
    clock.now += 0.1
    pauses.arrived(OTHER)
    assert pauses.remaining_s(TABLE) > 0
    pauses.arrived(TABLE)
    assert pauses.remaining_s(TABLE) == 0


def test_a_classic_commit_without_a_pause_changes_nothing() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    pauses.arrived(TABLE)
    pauses.refused(TABLE)
    assert pauses.remaining_s(TABLE) == MAX_PAUSE_S
    clock.now += 5
    pauses.arrived(TABLE)
    pauses.refused(TABLE)
    assert pauses.remaining_s(TABLE) == MAX_PAUSE_S


def test_a_refusal_during_a_pause_does_not_make_it_longer() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    pauses.refused(TABLE)
    clock.now += 0.4
    pauses.refused(TABLE)
    assert pauses.remaining_s(TABLE) == pytest.approx(0.1)


def test_after_a_pause_there_is_none_for_twice_its_length() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    pauses.refused(TABLE)
    for after, paused in ((1.49, False), (1.51, True)):
        clock.now = 1_000 + after
        pauses.refused(TABLE)
        assert bool(pauses.remaining_s(TABLE)) is paused
    # After a pause that ended early, the next one may start sooner.
    clock.now = 2_000
    pauses.refused(TABLE)
    clock.now += 0.1
    pauses.arrived(TABLE)
    for after, paused in ((0.29, False), (0.31, True)):
        clock.now = 2_000 + after
        pauses.refused(TABLE)
        assert bool(pauses.remaining_s(TABLE)) is paused


def test_tables_that_are_quiet_again_are_forgotten() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    for number in range(100):
        pauses.refused(Identifier(("ns",), f"t{number}"))
    clock.now += 10
    pauses.refused(TABLE)
    assert list(pauses._tables) == [TABLE]


_steps = st.lists(
    st.tuples(st.sampled_from(["refused", "arrived"]), st.floats(0, 0.7)), min_size=1, max_size=60
)


@given(_steps)
def test_whoever_can_wait_does_so_for_a_third_of_the_time_at_most(
    steps: list[tuple[str, float]],
) -> None:
    clock = Clock()
    pauses, paused, first = Pauses(clock), 0.0, None
    for what, seconds in steps:
        before = pauses.remaining_s(TABLE)
        getattr(pauses, what)(TABLE)
        left = pauses.remaining_s(TABLE)
        assert left <= MAX_PAUSE_S
        if left and not before:
            # The total of all earlier pauses is at most a third of the time since the first one.
            first = clock.now if first is None else first
            assert paused <= (clock.now - first) / 3 + 1e-6
        if what == "arrived":
            assert left == 0
        paused += min(left, seconds)
        clock.now += seconds


# --- queues that pause -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    can_wait: bool = True
    group_key: str | None = "table"
    size_bytes: int = 1


def classic(name: str) -> Work:
    return Work(name, can_wait=False)


def alone(name: str) -> Work:
    return Work(name, can_wait=False, group_key=None)


class Runner:
    """Records the groups that it runs, by table."""

    def __init__(self) -> None:
        self.groups: list[tuple[Identifier, list[str]]] = []
        self.ran = threading.Condition()

    def __call__(self, identifier: Identifier, group: Sequence[Job]) -> None:
        with self.ran:
            self.groups.append((identifier, [job.name for job in group]))  # type: ignore[attr-defined]
            self.ran.notify_all()

    def of(self, identifier: Identifier) -> list[list[str]]:
        return [group for name, group in self.groups if name == identifier]

    def wait_for(self, done: Callable[[], bool]) -> None:
        with self.ran:
            assert self.ran.wait_for(done, HANG_S), self.groups


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def runner() -> Runner:
    return Runner()


@pytest.fixture
def queues(executor: ThreadPoolExecutor, runner: Runner) -> Queues[Job]:
    return Queues(executor, runner, QueueLimits())


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pauses too long for any test, so that only something else can end them."""
    monkeypatch.setattr(table_queues, "MAX_PAUSE_S", AN_HOUR_S)


def test_classic_jobs_of_a_group_come_first_and_others_keep_their_order(
    queues: Queues[Job], runner: Runner
) -> None:
    with queues.holding([TABLE]):
        for job in (Work("f1"), Work("f2"), classic("c1"), Work("f3"), classic("c2")):
            queues.submit(TABLE, job)
    assert queues.close(HANG_S)
    assert runner.of(TABLE) == [["c1", "c2", "f1", "f2", "f3"]]


def test_a_classic_job_comes_first_also_where_a_group_is_full(
    executor: ThreadPoolExecutor, runner: Runner
) -> None:
    queues = Queues(executor, runner, QueueLimits(max_group_requests=2))
    with queues.holding([TABLE]):
        for job in (Work("f1"), Work("f2"), Work("f3"), classic("c1")):
            queues.submit(TABLE, job)
    assert queues.close(HANG_S)
    assert runner.of(TABLE) == [["c1", "f1"], ["f2", "f3"]]


def test_jobs_that_can_wait_have_half_of_a_group_to_themselves(
    executor: ThreadPoolExecutor, runner: Runner
) -> None:
    """They get half of a group, however often stock clients retry."""
    queues = Queues(executor, runner, QueueLimits(max_group_requests=4))
    with queues.holding([TABLE]):
        for name in ("f1", "f2", "f3"):
            queues.submit(TABLE, Work(name))
        for number in range(7):
            queues.submit(TABLE, classic(f"c{number}"))
    assert queues.close(HANG_S)
    assert runner.of(TABLE) == [["c0", "c1", "f1", "f2"], ["c2", "c3", "f3", "c4"], ["c5", "c6"]]


def test_nobody_overtakes_a_job_that_must_be_alone(queues: Queues[Job], runner: Runner) -> None:
    with queues.holding([TABLE]):
        for job in (Work("f1"), classic("c1"), alone("drop"), Work("f2"), classic("c2")):
            queues.submit(TABLE, job)
    assert queues.close(HANG_S)
    assert runner.of(TABLE) == [["c1", "f1"], ["drop"], ["c2", "f2"]]


@pytest.mark.usefixtures("long_pauses")
def test_jobs_that_can_wait_wait_for_the_next_classic_one(
    queues: Queues[Job], runner: Runner
) -> None:
    queues._pauses.refused(TABLE)
    for name in ("f1", "f2"):
        queues.submit(TABLE, Work(name))
    queues.submit(OTHER, Work("elsewhere"))
    runner.wait_for(lambda: runner.of(OTHER) == [["elsewhere"]])
    assert runner.of(TABLE) == []
    queues.submit(TABLE, classic("c"))
    runner.wait_for(lambda: len(runner.of(TABLE)) == 1)
    assert runner.of(TABLE) == [["c", "f1", "f2"]]
    # The pause is over for all later jobs.
    queues.submit(TABLE, Work("f3"))
    runner.wait_for(lambda: runner.of(TABLE)[1:] == [["f3"]])
    assert queues.close(HANG_S)


@pytest.mark.usefixtures("long_pauses")
def test_a_refusal_inside_a_group_pauses_what_came_meanwhile(
    executor: ThreadPoolExecutor, runner: Runner
) -> None:
    def run(identifier: Identifier, group: Sequence[Job]) -> None:
        if group[0].group_key and not group[0].can_wait and not runner.groups:
            own.submit(identifier, Work("f1"))
            own._pauses.refused(identifier)
        runner(identifier, group)

    own = Queues(executor, run, QueueLimits())
    own.submit(TABLE, classic("stale"))
    runner.wait_for(lambda: runner.of(TABLE) == [["stale"]])
    own.submit(OTHER, Work("elsewhere"))
    runner.wait_for(lambda: runner.of(OTHER) == [["elsewhere"]])
    assert runner.of(TABLE) == [["stale"]]
    own.submit(TABLE, classic("fresh"))
    runner.wait_for(lambda: runner.of(TABLE)[1:] == [["fresh", "f1"]])
    assert own.close(HANG_S)


@pytest.mark.usefixtures("long_pauses")
def test_a_job_that_must_be_alone_does_not_wait_and_keeps_its_place(
    queues: Queues[Job], runner: Runner
) -> None:
    queues._pauses.refused(TABLE)
    queues.submit(TABLE, Work("f1"))
    queues.submit(TABLE, alone("drop"))
    runner.wait_for(lambda: len(runner.of(TABLE)) == 2)
    assert runner.of(TABLE) == [["f1"], ["drop"]]
    assert queues.close(HANG_S)


@pytest.mark.usefixtures("long_pauses")
def test_closing_does_not_wait_for_a_pause(queues: Queues[Job], runner: Runner) -> None:
    for table in (TABLE, OTHER):
        queues._pauses.refused(table)
        for name in ("f1", "f2", "f3"):
            queues.submit(table, Work(name))
    assert queues.close(HANG_S)
    assert runner.of(TABLE) == runner.of(OTHER) == [["f1", "f2", "f3"]]
    with pytest.raises(TooManyRequests):
        queues.submit(TABLE, Work("late"))


@pytest.mark.usefixtures("long_pauses")
def test_holding_a_table_that_pauses_forgets_no_job(queues: Queues[Job], runner: Runner) -> None:
    queues._pauses.refused(TABLE)
    queues.submit(TABLE, Work("f1"))
    with queues.holding([TABLE]):
        queues.submit(TABLE, Work("f2"))
    assert runner.of(TABLE) == []
    assert queues.close(HANG_S)
    assert runner.of(TABLE) == [["f1", "f2"]]


@pytest.mark.usefixtures("long_pauses")
def test_jobs_that_wait_out_a_pause_count_for_the_bounds(
    executor: ThreadPoolExecutor, runner: Runner
) -> None:
    queues = Queues(executor, runner, QueueLimits(max_queued_requests=2, max_queued_bytes=100))
    queues._pauses.refused(TABLE)
    queues.submit(TABLE, Work("f1", size_bytes=60))
    with pytest.raises(TooManyRequests, match="bytes"):
        queues.submit(TABLE, Work("large", size_bytes=60))
    queues.submit(TABLE, Work("f2"))
    with pytest.raises(TooManyRequests, match="full"):
        queues.submit(TABLE, Work("f3"))
    assert queues.close(HANG_S)
    assert runner.of(TABLE) == [["f1", "f2"]]


def test_a_pause_ends_by_itself(
    queues: Queues[Job], runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_queues, "MAX_PAUSE_S", 0.05)
    queues._pauses.refused(TABLE)
    queues.submit(TABLE, Work("f1"))
    runner.wait_for(lambda: runner.of(TABLE) == [["f1"]])
    assert queues.close(HANG_S)


@pytest.mark.parametrize("seed", range(4))
def test_no_job_is_lost_where_pauses_timers_and_closing_meet(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(table_queues, "MAX_PAUSE_S", 0.002)
    monkeypatch.setattr(table_queues, "_PAUSE_REST_FACTOR", 0)
    tables = [Identifier(("ns",), f"t{number}") for number in range(3)]
    runner, taken = Runner(), Counter[str]()
    inside: Counter[Identifier] = Counter()
    mutex, closing = threading.Lock(), threading.Event()

    def run(identifier: Identifier, group: Sequence[Job]) -> None:
        with mutex:
            inside[identifier] += 1
            assert inside[identifier] == 1, "two groups of one table at once"
        runner(identifier, group)
        if any(not job.can_wait for job in group):
            own._pauses.refused(identifier)
        with mutex:
            inside[identifier] -= 1

    own = Queues(executor, run, QueueLimits(max_group_requests=5))

    def submit(worker: int) -> None:
        drawn = random.Random(seed * 10 + worker)
        for number in range(150):
            name = f"{worker}-{number}"
            job = drawn.choice([Work, Work, classic, alone])(name)
            try:
                own.submit(drawn.choice(tables), job)
            except TooManyRequests:
                assert closing.is_set()
                return
            with mutex:
                taken[name] += 1
            if drawn.random() < 0.05:
                with own.holding(tables[: drawn.randint(1, 3)]):
                    pass
            if drawn.random() < 0.2:
                threading.Event().wait(drawn.random() * 0.003)

    workers = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    # With some seeds the queue closes while the workers run.
    workers[0].join(0.05 if seed % 2 else HANG_S)
    closing.set()
    assert own.close(HANG_S)
    for worker in workers:
        worker.join(HANG_S)
        assert not worker.is_alive()
    assert Counter(name for _, group in runner.groups for name in group) == taken
    assert own._bytes == 0
    assert own._queues == {}
