"""Whether a statement shows its progress, which only a classic session on a terminal can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from frazil.spark.core.context import Context

# A terminal has room for one bar: what runs inside or beside the statement it shows stays silent.
_TERMINAL: Final = threading.Lock()


@contextmanager
def progress(context: Context, title: str) -> Iterator[None]:
    """Shows the stages of the block's Spark jobs and their rows on a terminal's stderr.

    Nothing elsewhere: on Spark Connect, into a pipe, or where the setting `progress` is false.
    """
    wanted = context.settings.progress is not False and sys.stderr.isatty()
    if not wanted or not is_classic(context.spark) or not _TERMINAL.acquire(blocking=False):
        yield
        return
    try:
        from frazil.spark.core.stage_bars import shown_stages

        with shown_stages(context.spark, title):
            yield
    finally:
        _TERMINAL.release()


def is_classic(spark: object) -> bool:
    """Whether the session is one with a JVM of its own, and not a client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect.")
