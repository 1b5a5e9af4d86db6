"""Stock clients as writers, each in its own process: `python -m benchmarks.commit.writers`.

The host reads a question per line and answers each with a line. It imports the client once and
forks the writers of each question, so that 64 of them start at once and share the memory of its
code. It never uses the client itself, whose threads would not survive the fork. Time is measured
here, only around the client's own commit.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from benchmarks.commit.bursts import Burst, Task, merged, read_task

ROOT = Path(__file__).resolve().parent.parent.parent
_FORK = multiprocessing.get_context("fork")
_HEAD_START_S = 0.02
"""The delay between the start signal and the first commit, so that all writers receive the
signal."""
_STOP_S = 60


class Writer(Protocol):
    """A client with its tables open."""

    @property
    def retries(self) -> int:
        """The attempts beyond the first of each commit, or 0 if the client does not count them."""
        ...

    def prepare(self, task: Task, at: int) -> Callable[[], object]:
        """Prepare the writer's commit number `at`. The returned function does only the commit."""
        ...

    def recover(self) -> None:
        """Load the table again after a commit that failed for good."""
        ...


class Client(Protocol):
    """A module with these two functions, such as `benchmarks.commit.pyiceberg_writer`."""

    def open_writer(
        self, settings: dict[str, Any], tables: tuple[str, ...], index: int
    ) -> Writer: ...

    def administer(self, settings: dict[str, Any], question: dict[str, Any]) -> Any:
        """Do a task before or after a measurement."""
        ...


# --- the side that asks -------------------------------------------------------------------------


class Host:
    def __init__(self, process: subprocess.Popen[str], settings: dict[str, Any]) -> None:
        self._process = process
        self._settings = settings
        self.pid = process.pid

    def using(self, settings: dict[str, Any]) -> Host:
        """Return the same process for writers with other settings."""
        return Host(self._process, settings)

    def run(self, task: Task) -> Burst:
        found = self._ask({"task": task.as_json()})
        return Burst(**{**found, "samples": [(ended, took) for ended, took in found["samples"]]})

    def administer(self, do: str, **arguments: Any) -> Any:
        return self._ask({"do": do, **arguments})

    def _ask(self, question: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"settings": self._settings, **question}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError("the writers' process ended: see its error")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["found"]


@contextmanager
def running_host(module: str, settings: dict[str, Any]) -> Iterator[Host]:
    """Start a host. `module` is the full name of a `Client` module."""
    command = [sys.executable, "-m", "benchmarks.commit.writers", module]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Host(process, settings)
    finally:
        process.communicate(timeout=_STOP_S)  # the host ends when its input ends


# --- the host -----------------------------------------------------------------------------------


def main() -> None:
    client: Any = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"found": _answer(client, question.pop("settings"), question)}
        except RuntimeError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def _answer(client: Client, settings: dict[str, Any], question: dict[str, Any]) -> Any:
    if "task" not in question:
        (found,) = _forked([lambda line: line.send(client.administer(settings, question))])
        return found
    task = read_task(question["task"])

    def work(index: int) -> Callable[[Connection], None]:
        tables = task.tables[index]
        return lambda line: _work(client.open_writer(settings, tables, index), task, line)

    bursts = _forked([work(index) for index in range(task.writers)], begin=True)
    burst = merged(bursts, task.seconds)
    return {name: getattr(burst, name) for name in Burst.__slots__}


def _forked(works: list[Callable[[Connection], None]], *, begin: bool = False) -> list[Any]:
    """Run each function in its own process and return what each sent. `begin` starts all once
    all are ready."""
    lines, processes = [], []
    for work in works:
        here, there = _FORK.Pipe()
        process = _FORK.Process(target=_child, args=(work, there))
        process.start()
        there.close()
        lines.append(here)
        processes.append(process)
    if begin:
        for line in lines:
            _heard(line)
        for line in lines:
            line.send(time.perf_counter() + _HEAD_START_S)
    found = [_heard(line) for line in lines]
    for process in processes:
        process.join()
    return found


def _heard(line: Connection) -> Any:
    said = line.recv()
    if isinstance(said, Exception):
        raise RuntimeError(f"a writer failed: {said!r}")
    return said


def _child(work: Callable[[Connection], None], line: Connection) -> None:
    # A client's prints must not mix with the answers on stdout.
    os.dup2(2, 1)
    try:
        work(line)
    except Exception as error:
        line.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _work(writer: Writer, task: Task, line: Connection) -> None:
    line.send("ready")
    began = line.recv()
    time.sleep(max(0.0, began - time.perf_counter()))
    burst = Burst()
    cpu_before = time.process_time()
    for at in range(task.most):
        commit = writer.prepare(task, at)
        started = time.perf_counter()
        if at and started - began >= task.seconds:
            break
        try:
            commit()
        except Exception as error:  # clients raise different exceptions when they give up
            burst.failed += 1
            kind = type(error).__name__
            burst.errors[kind] = burst.errors.get(kind, 0) + 1
            burst.first_error = burst.first_error or f"{kind}: {error}"[:500]
            writer.recover()
        else:
            ended = time.perf_counter()
            burst.samples.append((ended - began, ended - started))
    burst.client_cpu_s = time.process_time() - cpu_before
    burst.retries = writer.retries
    line.send(burst)


if __name__ == "__main__":
    main()
