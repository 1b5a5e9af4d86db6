"""`frazil serve` with a profile of every thread: `python -m benchmarks.commit.profiled serve ...`.

SIGUSR1 begins the main thread's part, once the imports are over. When the server ends, the merged
profile is written to the file that BENCH_PROFILE names. Its times are CPU time of the threads,
unless BENCH_PROFILE_CLOCK=wall asks for the time on the wall, in which waiting (for the disk, for
the interpreter's lock) counts. Profiling multiplies the CPU of short functions: read shares, not
milliseconds.
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
    """The first call in a new thread: from here on its own profile looks on."""
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
