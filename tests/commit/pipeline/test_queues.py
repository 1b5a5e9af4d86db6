"""The queue of a table: order, groups, limits, and locking several tables at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from frazil.commit.pipeline.table_queues import Job, QueueLimits, Queues
from frazil.wire.errors import TooManyRequests
from frazil.wire.identifiers import Identifier
from tests.support.patience import HANG_S, wait_until

ONE = Identifier(("ns",), "one")
TWO = Identifier(("ns",), "two")


@dataclass(frozen=True, slots=True)
class Work:
    number: int
    group_key: str | None = "table"
    size_bytes: int = 1
    can_wait: bool = False


class Runner:
    """Records the groups that it runs; `gate` blocks the first one."""

    def __init__(self) -> None:
        self.groups: list[tuple[Identifier, list[int]]] = []
        self.gate = threading.Event()
        self.started = threading.Event()

    def __call__(self, identifier: Identifier, group: Sequence[Job]) -> None:
        self.started.set()
        assert self.gate.wait(HANG_S)
        self.groups.append((identifier, [job.number for job in group]))  # type: ignore[attr-defined]


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def queues_of(
    executor: ThreadPoolExecutor, runner: Runner, limits: QueueLimits | None = None
) -> Queues[Job]:
    return Queues(executor, runner, limits or QueueLimits())


def test_what_comes_while_a_table_is_held_is_one_group(executor: ThreadPoolExecutor) -> None:
    runner = Runner()
    queues = queues_of(executor, runner)
    queues.submit(ONE, Work(0))
    assert runner.started.wait(HANG_S)
    for number in range(1, 6):
        queues.submit(ONE, Work(number))
    runner.gate.set()
    assert queues.close(HANG_S)
    assert runner.groups == [(ONE, [0]), (ONE, [1, 2, 3, 4, 5])]


def test_a_job_without_a_group_key_goes_alone_and_in_order(executor: ThreadPoolExecutor) -> None:
    runner = Runner()
    queues = queues_of(executor, runner)
    queues.submit(ONE, Work(0))
    assert runner.started.wait(HANG_S)
    for job in (Work(1), Work(2, None), Work(3), Work(4), Work(5, "view"), Work(6, None)):
        queues.submit(ONE, job)
    runner.gate.set()
    assert queues.close(HANG_S)
    assert [numbers for _, numbers in runner.groups] == [[0], [1], [2], [3, 4], [5], [6]]


def test_groups_are_bounded_by_requests_and_bytes(executor: ThreadPoolExecutor) -> None:
    runner = Runner()
    limits = QueueLimits(max_group_requests=3, max_group_bytes=10)
    queues = queues_of(executor, runner, limits)
    queues.submit(ONE, Work(0))
    assert runner.started.wait(HANG_S)
    for number, size in enumerate([1, 1, 1, 1, 9, 1, 50], start=1):
        queues.submit(ONE, Work(number, size_bytes=size))
    runner.gate.set()
    assert queues.close(HANG_S)
    assert [numbers for _, numbers in runner.groups] == [[0], [1, 2, 3], [4, 5], [6], [7]]


def test_a_full_queue_refuses_and_other_tables_go_on(executor: ThreadPoolExecutor) -> None:
    runner = Runner()
    queues = queues_of(executor, runner, QueueLimits(max_queued_requests=2))
    queues.submit(ONE, Work(0))
    assert runner.started.wait(HANG_S)
    queues.submit(ONE, Work(1))
    queues.submit(ONE, Work(2))
    with pytest.raises(TooManyRequests, match="full"):
        queues.submit(ONE, Work(3))
    queues.submit(TWO, Work(4))
    runner.gate.set()
    assert queues.close(HANG_S)
    assert sorted(number for _, group in runner.groups for number in group) == [0, 1, 2, 4]


def test_queued_bytes_are_bounded_but_one_large_request_passes(
    executor: ThreadPoolExecutor,
) -> None:
    runner = Runner()
    queues = queues_of(executor, runner, QueueLimits(max_queued_bytes=10))
    queues.submit(ONE, Work(0))
    assert runner.started.wait(HANG_S)
    queues.submit(ONE, Work(1, size_bytes=100))
    with pytest.raises(TooManyRequests, match="bytes"):
        queues.submit(TWO, Work(2, size_bytes=1))
    runner.gate.set()
    assert queues.close(HANG_S)


def test_a_closed_queue_takes_nothing_new(executor: ThreadPoolExecutor) -> None:
    runner = Runner()
    runner.gate.set()
    queues = queues_of(executor, runner)
    assert queues.close(HANG_S)
    with pytest.raises(TooManyRequests, match="shutting down"):
        queues.submit(ONE, Work(0))


def test_holding_two_tables_in_either_order_never_deadlocks(executor: ThreadPoolExecutor) -> None:
    runner = Runner()
    runner.gate.set()
    queues = queues_of(executor, runner)
    inside, overlaps = 0, 0
    mutex = threading.Lock()

    def hold(names: list[Identifier]) -> None:
        nonlocal inside, overlaps
        for _ in range(50):
            with queues.holding(names):
                with mutex:
                    inside += 1
                    overlaps += inside > 1
                queues.submit(names[0], Work(1))
                with mutex:
                    inside -= 1

    threads = [
        threading.Thread(target=hold, args=(names,)) for names in ([ONE, TWO], [TWO, ONE]) * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
        assert not thread.is_alive()
    assert overlaps == 0
    assert queues.close(HANG_S)
    assert sum(len(group) for _, group in runner.groups) == 200


def test_a_held_table_keeps_its_queue_waiting(executor: ThreadPoolExecutor) -> None:
    runner = Runner()
    runner.gate.set()
    queues = queues_of(executor, runner)
    with queues.holding([ONE]):
        queues.submit(ONE, Work(1))
        queues.submit(ONE, Work(2))
        queues.submit(TWO, Work(3))
        wait_until(lambda: runner.groups, "the queue of the other table did not run")
        assert not queues.close(0.2)
        assert [identifier for identifier, _ in runner.groups] == [TWO]
    assert queues.close(HANG_S)
    assert (ONE, [1, 2]) in runner.groups
