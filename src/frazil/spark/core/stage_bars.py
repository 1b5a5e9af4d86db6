"""Shows the running stages of a classic session, which it reads from the JVM's status store.

Only this module uses a SparkContext; it is never imported on Spark Connect.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_S: Final = 0.2


@dataclass(frozen=True)
class Stage:
    stage_id: int
    tasks: int
    tasks_done: int
    rows: int
    """Rows that finished tasks have read from files or a shuffle; Spark counts no others."""


@contextmanager
def shown_stages(spark: SparkSession, title: str, console: Console | None = None) -> Iterator[None]:
    """Show a bar for each running stage of the jobs that the block starts."""
    spark_context = spark.sparkContext
    tag = f"frazil-{uuid.uuid4()}"
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
        console=console or Console(stderr=True),
        transient=True,
    )
    ended = threading.Event()
    spark_context.addJobTag(tag)
    try:
        with bars:
            watcher = threading.Thread(
                target=_watch, args=(spark_context, tag, _Bars(bars, title), ended), daemon=True
            )
            watcher.start()
            try:
                yield
            finally:
                ended.set()
                watcher.join()
    finally:
        spark_context.removeJobTag(tag)


def running_stages(spark_context: SparkContext, tag: str) -> list[Stage]:
    """Return the active stages of the jobs with the tag."""
    jvm_context: Any = spark_context._jsc.sc()
    tracker = jvm_context.statusTracker()
    tagged: set[int] = set()
    for job_id in tracker.getJobIdsForTag(tag):
        job = tracker.getJobInfo(job_id)
        if job.isDefined():
            tagged.update(job.get().stageIds())
    active = jvm_context.statusStore().activeStages()
    stages = [_stage(active.apply(number)) for number in range(active.size())]
    return sorted(
        (stage for stage in stages if stage.stage_id in tagged), key=lambda stage: stage.stage_id
    )


def _stage(data: Any) -> Stage:
    rows = data.inputRecords() + data.shuffleReadRecords()
    return Stage(data.stageId(), data.numTasks(), data.numCompleteTasks(), rows)


class _Bars:
    """The lines of the display: one for the statement, then one for each running stage."""

    def __init__(self, bars: Progress, title: str) -> None:
        self._bars = bars
        self._title = bars.add_task(title, total=None, tasks="", rows="")
        self._stages: dict[int, TaskID] = {}

    def show(self, stages: Sequence[Stage]) -> None:
        for stage_id in self._stages.keys() - {stage.stage_id for stage in stages}:
            self._bars.remove_task(self._stages.pop(stage_id))
        for stage in stages:
            if stage.stage_id not in self._stages:
                self._stages[stage.stage_id] = self._bars.add_task(
                    f"  stage {stage.stage_id}", total=stage.tasks, tasks="", rows=""
                )
            self._bars.update(
                self._stages[stage.stage_id],
                completed=stage.tasks_done,
                tasks=f"{stage.tasks_done}/{stage.tasks} tasks",
                rows=f"{stage.rows:,} rows" if stage.rows else "",
            )


def _watch(spark_context: SparkContext, tag: str, bars: _Bars, ended: threading.Event) -> None:
    while not ended.wait(_POLL_S):
        try:
            bars.show(running_stages(spark_context, tag))
        except Py4JError:
            # The JVM has stopped. The statement raises that error, so the display need not.
            return
