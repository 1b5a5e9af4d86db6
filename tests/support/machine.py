"""A server that tests kill, stop and start again on the same data."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.support.proxy import Proxy
from tests.support.readme import free_port
from tests.support.server import RunningServer, start_server


class Start(Protocol):
    def __call__(self, *flags: str, directory: Path) -> RunningServer: ...


class Machine:
    """A server that can be killed without warning and restarted on the same data."""

    def __init__(self, start: Start, directory: Path, *flags: str) -> None:
        self._start = start
        self._directory = directory
        self._flags = flags
        self.proxy: Proxy | None = None
        self.server: RunningServer = start(*flags, directory=directory)

    @property
    def url(self) -> str:
        return self.server.url

    def kill(self) -> None:
        self.server.process.kill()
        self.server.process.wait()

    def start(self) -> None:
        self.server = self._start(*self._flags, directory=self._directory)
        if self.proxy is not None:
            self.proxy.target = self.server.url

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the process, so that it accepts connections and answers none."""
        self.server.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.server.process.send_signal(signal.SIGCONT)


@contextmanager
def machine_on_one_port(directory: Path) -> Iterator[Machine]:
    """Run a machine that keeps its port when it starts again."""

    def start(*flags: str, directory: Path) -> RunningServer:
        return start_server(directory, *flags)

    machine = Machine(start, directory, "--port", str(free_port()))
    try:
        yield machine
    finally:
        machine.thaw()
        machine.kill()
