"""The loop of `frazil maintain auto`, also as a child process of a server."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, TextIO

from frazil.client.catalog_client import Client
from frazil.client.send.http_transport import HttpTransport
from frazil.maintenance.autopilot import Autopilot
from frazil.wire.errors import FrazilError
from frazil.wire.job_messages import Job

_LOGGER: Final = logging.getLogger("frazil.maintenance")
_NICE: Final = 5
_CLAIM_INTERVAL_S: Final = 10.0


def run_rounds(client: Client, interval_s: float | None) -> Iterator[list[Job]]:
    """Maintain all tables again and again, or once if there is no interval. Yield the jobs of each
    round, and those that somebody has started between two rounds."""
    autopilot = Autopilot(client)
    while interval_s is not None:
        begun_s = time.monotonic()
        try:
            yield autopilot.run_once()
        except FrazilError as error:
            _LOGGER.warning("this round has failed: %s", error)
        yield from _between_rounds(autopilot, max(begun_s + interval_s, time.monotonic() + 1.0))
    yield autopilot.run_once()


def _between_rounds(autopilot: Autopilot, until_s: float) -> Iterator[list[Job]]:
    """Run the jobs that others start, so that nobody waits for the next round."""
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, _CLAIM_INTERVAL_S))
        try:
            jobs = autopilot.run_waiting()
        except FrazilError as error:
            _LOGGER.warning("jobs that wait were not run: %s", error)
            continue
        if jobs:
            yield jobs


def end_by_signal() -> None:
    """Let SIGTERM end this process like an interrupt, which gives its job back."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)


def run_attached(
    interval_s: float, configure_logging: Callable[[str], None], parent: TextIO = sys.stdin
) -> None:
    """Run as the child of a server, until it ends.

    The server writes one line with its address and a token, and keeps the pipe open. When the pipe
    ends, the server has ended, however that was, and so does this process.
    """
    connection = json.loads(parent.readline())
    threading.Thread(target=_end_with, args=(parent,), name="frazil-parent", daemon=True).start()
    configure_logging(connection["log-format"])
    # The server beside this process comes first.
    os.nice(_NICE)
    transport = HttpTransport(
        connection["uri"],
        token=connection.get("token"),
        fingerprint=connection.get("fingerprint"),
    )
    with Client(transport=transport, outage_timeout_s=interval_s) as client:
        for jobs in run_rounds(client, interval_s):
            for job in jobs:
                _LOGGER.info("%s of %s: %s", job.operation, job.identifier, job.state.value)


def _end_with(parent: TextIO) -> None:
    while parent.readline():
        pass
    # The jobs of this process are taken over when it has been silent for a while.
    os._exit(0)
