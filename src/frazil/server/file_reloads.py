"""Read files again when they change, and on SIGHUP: the certificate and the tokens."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_log = logging.getLogger("frazil.server")

_POLL_S = 0.25
_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Reload:
    """Files, and what to do when one of them changes."""

    subject: str
    paths: Sequence[str]
    load: Callable[[], None]
    """Reads the files and uses their content; if they cannot be used, it raises and changes
    nothing."""


@contextmanager
def reloading(reloads: Sequence[Reload]) -> Iterator[None]:
    """Watch the files while the block runs. Call this on the main thread."""
    if not reloads:
        yield
        return
    watcher = _Watcher(reloads)
    previous = signal.signal(signal.SIGHUP, watcher.on_signal)
    watcher.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, previous)
        watcher.stop()


class _Watcher:
    """Polls the files, because file systems of containers do not report every change."""

    def __init__(self, reloads: Sequence[Reload]) -> None:
        self._loaded = [(each, _stamp(each)) for each in reloads]
        self._seen = [stamp for _, stamp in self._loaded]
        self._signals = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frazil-reload", daemon=True)

    def start(self) -> None:
        # The files may have changed between their first use and this watcher.
        for reload, _ in self._loaded:
            _load(reload, logging.DEBUG)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        # Set no event here: if a second signal interrupts this handler, its lock would be held.
        self._signals += 1

    def _run(self) -> None:
        handled = 0
        while not self._stop.wait(_POLL_S):
            signals = self._signals
            for index, (reload, loaded) in enumerate(self._loaded):
                stamp = _stamp(reload)
                # Wait until a file is the same in two polls, because it may be half written.
                settled = stamp == self._seen[index]
                self._seen[index] = stamp
                if signals > handled or (stamp != loaded and settled):
                    self._loaded[index] = (reload, stamp)
                    _load(reload)
            handled = signals


def _load(reload: Reload, success_level: int = logging.INFO) -> None:
    try:
        reload.load()
    except Exception as error:
        _log.error("%s not reloaded, the old one stays in use: %s", reload.subject, error)
    else:
        _log.log(success_level, "%s reloaded", reload.subject)


def _stamp(reload: Reload) -> _Stamp:
    """Return what changes with the files: those of a Kubernetes secret are replaced links."""
    return tuple(map(_stamp_of, reload.paths))


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
