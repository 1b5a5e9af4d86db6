"""CPU time and written bytes of processes and all their descendants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.processes import cpu_seconds


@dataclass(frozen=True, slots=True)
class Counts:
    cpu_s: float
    written_bytes: int

    def since(self, before: Counts) -> Counts:
        return Counts(self.cpu_s - before.cpu_s, self.written_bytes - before.written_bytes)


def counts_of(pids: Iterable[int]) -> Counts:
    """Count the processes and their descendants. The kernel adds children that have ended to the
    process that waited for them."""
    cpu_s, written_bytes = 0.0, 0
    for pid in pids:
        for each in (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))):
            try:
                cpu_s += cpu_seconds(each)
                written_bytes += _written_bytes(each)
            except (FileNotFoundError, ProcessLookupError, OSError):
                # It ended after it was listed, so its parent's figures now include it.
                continue
    return Counts(cpu_s, written_bytes)


def resident_bytes(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)


def _written_bytes(pid: int) -> int:
    """Return the bytes of dirtied pages, even if their file was deleted before they were written
    back."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "write_bytes":
            return int(value)
    raise LookupError(f"/proc/{pid}/io has no write_bytes")
