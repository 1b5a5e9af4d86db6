"""`frazil serve` with a profile of every thread: `python -m benchmarks.commit.profiled serve
...`.

SIGUSR1 starts the profile of the main thread, so that it leaves out the imports. When the server
ends, it writes the merged profile to the file in BENCH_PROFILE. The times are CPU time of the
threads. With BENCH_PROFILE_CLOCK=wall they are wall time, which includes waiting for the disk or
the interpreter's lock. Profiling multiplies the CPU time of short functions, so compare shares
instead of milliseconds.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from frazil.cli import main as frazil

_profiles: list[cProfile.Profile] = []


def _profile() -> cProfile.Profile:
    clock = (
        time.perf_counter if os.environ.get("BENCH_PROFILE_CLOCK") == "wall" else time.thread_time
    )
    profile = cProfile.Profile(clock)
    _profiles.append(profile)
    return profile


def _begin_in_thread(frame: FrameType, event: str, argument: Any) -> None:
    """Start the profile of a new thread with its first call."""
    sys.setprofile(None)
    _profile().enable()


def main() -> None:
    threading.setprofile(_begin_in_thread)
    own = _profile()
    signal.signal(signal.SIGUSR1, lambda *_: own.enable())
    try:
        frazil()
    finally:
        own.disable()
        merged = pstats.Stats(own)
        for profile in _profiles[1:]:
            profile.create_stats()
            merged.add(profile)
        merged.dump_stats(os.environ["BENCH_PROFILE"])


if __name__ == "__main__":
    main()
