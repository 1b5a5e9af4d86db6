"""The autopilot beside a server: a child process with a limit of memory.

A rewrite of data files must not slow the server down or take its memory, so it has a process of its
own. The child gets the address of the server and a token through a pipe, which stays open. When it
ends, the server has ended, even by a kill, and the child ends too.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from frazil.rest.rest_app import RestApp
from frazil.settings import Settings

_log = logging.getLogger("frazil.server")

PRINCIPAL: Final = "local:maintain"
"""The principal of the child. No token of a user can have this name."""
_POLL_S: Final = 0.5
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
_STABLE_S: Final = 600.0
_END_S: Final = 5.0
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Connection:
    """What the child needs to reach the server."""

    uri: str
    token: str | None
    fingerprint: str | None
    """The SHA-256 of the server's certificate."""
    log_format: str

    def line(self) -> bytes:
        document = {
            "uri": self.uri,
            "token": self.token,
            "fingerprint": self.fingerprint,
            "log-format": self.log_format,
        }
        return json.dumps(document).encode() + b"\n"


@contextmanager
def maintaining(settings: Settings, app: RestApp, uri: str) -> Iterator[None]:
    """Run the autopilot as a child while the block runs, if the settings say so."""
    if not settings.maintain:
        yield
        return
    token = None
    if app.access.required:
        token = secrets.token_urlsafe(32)
        app.add_internal_token(PRINCIPAL, sha256(token.encode()).hexdigest())

    def connect() -> Connection:
        return Connection(uri, token, _fingerprint(settings.tls_cert), settings.log_format)

    child = MaintenanceProcess(connect, settings.maintain_memory, settings.maintain_interval_s)
    child.start()
    try:
        yield
    finally:
        child.close()


class MaintenanceProcess:
    """Starts the child, watches its memory, and starts it again if it ends."""

    def __init__(
        self, connect: Callable[[], Connection], memory_bytes: int, interval_s: int
    ) -> None:
        self._connect = connect
        self._memory_bytes = memory_bytes
        self._command = [
            *(sys.executable, "-m", "frazil", "maintain", "auto", "--attached"),
            *("--every", f"{interval_s}s"),
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frazil-maintain", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the child. Its jobs are taken over when it has been silent for a while."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            started_s = time.monotonic()
            try:
                reason = self._run_child()
            except (OSError, ValueError) as error:
                # Such as a certificate that is half written, or no memory for another process.
                reason = f"could not be started: {error}"
            if self._stop.is_set():
                return
            if time.monotonic() - started_s > _STABLE_S:
                pause_s = _FIRST_PAUSE_S
            _log.warning("the process of maintenance %s; it starts again in %g s", reason, pause_s)
            self._stop.wait(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    def _run_child(self) -> str:
        """Run the child until it ends or must end; return why."""
        connection = self._connect()
        # A session of its own: Ctrl-C in a terminal is for the server, which ends the child.
        child = subprocess.Popen(self._command, stdin=subprocess.PIPE, start_new_session=True)
        assert child.stdin is not None
        try:
            child.stdin.write(connection.line())
            child.stdin.flush()
            return self._watch(child, connection)
        except BrokenPipeError:
            return f"has ended with {child.wait()}"
        finally:
            _end(child)

    def _watch(self, child: subprocess.Popen[bytes], connection: Connection) -> str:
        while not self._stop.wait(_POLL_S):
            if child.poll() is not None:
                return f"has ended with {child.returncode}"
            used_bytes = resident_bytes(child.pid)
            if used_bytes > self._memory_bytes:
                return (
                    f"was ended, because it used {used_bytes >> 20} MiB of memory, more than "
                    "--maintain-memory allows"
                )
            if self._has_changed(connection):
                return "was ended, because there is a new certificate"
        return "is stopped with the server"

    def _has_changed(self, connection: Connection) -> bool:
        try:
            return self._connect() != connection
        except (OSError, ValueError):
            return False  # The file of the certificate is being written.


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    # The child may have ended before it read everything.
    with suppress(BrokenPipeError):
        child.stdin.close()
    try:
        child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def resident_bytes(pid: int) -> int:
    """Return the memory of a process, 0 if it is not known.

    On Linux without the pages of files: the system can drop these. A rewrite maps its large arrays
    to files.
    """
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
        pages = int(resident) - int(shared)
    except FileNotFoundError:
        return _resident_by_ps(pid)
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _resident_by_ps(pid: int) -> int:
    """Ask `ps`, on systems without `/proc`."""
    done = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return int(done.stdout.strip() or 0) * _KIB


def _fingerprint(cert_path: str | None) -> str | None:
    """Return the SHA-256 of the first certificate of a chain."""
    if cert_path is None:
        return None
    end = "-----END CERTIFICATE-----"
    text = Path(cert_path).read_text()
    der = ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)])
    return sha256(der).hexdigest()
