"""Decides whether a statement shows its progress: only in a classic session on a terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from frazil.spark.core.context import Context

# A terminal has room for one display: statements inside or beside the shown one have none.
_TERMINAL: Final = threading.Lock()


@contextmanager
def progress(context: Context, title: str) -> Iterator[None]:
    """Show the stages of the block's Spark jobs and their rows on a terminal's stderr.

    Nothing is shown on Spark Connect, in a pipe, or if the setting `progress` is false.
    """
    shows_bars = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    is_enabled = context.settings.progress is not False and shows_bars
    if not is_enabled or not is_classic(context.spark) or not _TERMINAL.acquire(blocking=False):
        yield
        return
    try:
        from frazil.spark.core.stage_bars import shown_stages

        with shown_stages(context.spark, title):
            yield
    finally:
        _TERMINAL.release()


def is_classic(spark: object) -> bool:
    """Return whether the session has its own JVM, and is not a client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect.")
