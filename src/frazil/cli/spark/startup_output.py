"""Keep back what Spark's JVM and Ivy print while Spark starts."""

from __future__ import annotations

import os
import re
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Final

STDOUT: Final = 1
STDERR: Final = 2
THREAD_NAME: Final = "frazil-child-output"
_PROBLEM: Final = re.compile(rb"ERROR|Exception|UNRESOLVED|unresolved")


@contextmanager
def quiet_startup() -> Iterator[None]:
    """Drop the output of child processes in the block, except for errors.

    If the block fails, all of it is shown. A child process that lives longer than the block, such
    as Spark's JVM, writes to stderr after it, even its stdout, which is for the command's results.
    The output of Python itself is not affected.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    stdout, stderr = os.dup(STDOUT), os.dup(STDERR)
    source, sink = os.pipe()
    for stream in (STDOUT, STDERR):
        os.dup2(sink, stream)
    os.close(sink)
    output = _ChildOutput(source, os.dup(stderr))
    threading.Thread(target=output.read, name=THREAD_NAME, daemon=True).start()
    has_failed = True
    try:
        with (
            os.fdopen(stdout, "w", closefd=False) as python_stdout,
            os.fdopen(stderr, "w", closefd=False) as python_stderr,
            redirect_stdout(python_stdout),
            redirect_stderr(python_stderr),
        ):
            yield
        has_failed = False
    finally:
        output.end_startup(show_all=has_failed)
        # If no child process has the pipe, this closes it and ends the thread.
        for saved, stream in ((stdout, STDOUT), (stderr, STDERR)):
            os.dup2(saved, stream)
            os.close(saved)


class _ChildOutput:
    """What child processes write to a pipe: first kept, later passed on."""

    def __init__(self, source: int, terminal: int) -> None:
        self._source = source
        self._terminal = terminal
        self._lock = threading.Lock()
        self._is_starting = True
        self._kept = b""

    def read(self) -> None:
        """Read until all child processes have closed the pipe."""
        is_open = True
        while is_open:
            select.select([self._source], [], [])
            with self._lock:
                is_open = self._take()
        os.close(self._source)
        os.close(self._terminal)

    def end_startup(self, *, show_all: bool) -> None:
        """Show what was kept, or only its errors, and pass on everything from now on."""
        with self._lock:
            self._take()
            lines = self._kept.splitlines(keepends=True)
            self._is_starting, self._kept = False, b""
            shown = [line for line in lines if show_all or _PROBLEM.search(line)]
            os.write(self._terminal, b"".join(shown))

    def _take(self) -> bool:
        """Take all that is in the pipe now; return False at its end."""
        while select.select([self._source], [], [], 0)[0]:
            part = os.read(self._source, 1 << 16)
            if not part:
                return False
            if self._is_starting:
                self._kept += part
            else:
                os.write(self._terminal, part)
        return True
