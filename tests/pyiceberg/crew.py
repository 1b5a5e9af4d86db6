"""PyIceberg processes that start their writes at the same moment."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from scripts.java import ROOT
from tests.support.patience import HANG_S

WRITERS = 8


@dataclass(frozen=True)
class Outcome:
    """The outcome of one write: no error, or its class, its base classes and its conflicts."""

    error: str | None = None
    bases: tuple[str, ...] = ()
    message: str = ""
    conflicts: int = 0


class Crew:
    """Worker processes, started once because importing PyIceberg takes longer than most writes."""

    def __init__(self, url: str) -> None:
        pairs = [socket.socketpair() for _ in range(WRITERS)]
        descriptors = [theirs.fileno() for _, theirs in pairs]
        command = [sys.executable, "-m", "tests.pyiceberg.worker", url, *map(str, descriptors)]
        self._foreman = subprocess.Popen(command, cwd=ROOT, pass_fds=descriptors)
        for _, theirs in pairs:
            theirs.close()
        self._ends = [ours for ours, _ in pairs]
        self._wires = [ours.makefile("rw") for ours in self._ends]
        self._is_whole = True

    def write(
        self, table: str, writes: Sequence[Sequence[Mapping[str, Any]]]
    ) -> list[list[Outcome]]:
        """Let each worker do its list of writes, after all workers have loaded the table."""
        assert self._is_whole, "an earlier test has left the workers in the midst of their writes"
        self._is_whole = False
        busy = self._wires[: len(writes)]
        for wire, own in zip(busy, writes, strict=True):
            _tell(wire, json.dumps({"table": table, "writes": own}))
        for wire in busy:
            assert _hear(wire) == "ready"
        for wire in busy:
            _tell(wire, "go")
        heard = [json.loads(_hear(wire)) for wire in busy]
        self._is_whole = True
        return [[_outcome(one) for one in own] for own in heard]

    def dismiss(self) -> None:
        """Close all connections, on which the workers end."""
        for wire, end in zip(self._wires, self._ends, strict=True):
            wire.close()
            end.close()
        code = self._foreman.wait(HANG_S)
        assert code == 0 or not self._is_whole


def _tell(wire: TextIO, text: str) -> None:
    wire.write(f"{text}\n")
    wire.flush()


def _hear(wire: TextIO) -> str:
    return wire.readline().rstrip("\n")


def _outcome(said: Mapping[str, Any]) -> Outcome:
    if not said:
        return Outcome()
    return Outcome(said["error"], tuple(said["bases"]), said["message"], said["conflicts"])


@contextmanager
def started(url: str) -> Iterator[Crew]:
    crew = Crew(url)
    yield crew
    crew.dismiss()
