"""Functions that Spark's Python workers run. Runs on executors.

A task that writes files gives back a few bytes. Where tasks are short it is the worker that costs:
before each of them PySpark invalidates the import caches, and Python then reads the directories of
pyspark.zip and spark-core.jar anew, once for each package that was looked for in them. That was
0.13 s of CPU in every task, three times of what it takes to write 50,000 rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Final, TypeAlias
from uuid import uuid4
from zipimport import zipimporter

import pyarrow as pa

ArrowTask: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes."""

RESULT_SCHEMA: Final = "result binary"
"""Of a frame that `arrow_task` makes, in Spark's words."""
_RESULT: Final = pa.schema([pa.field("result", pa.binary())])
_OWN_ARCHIVES: Final = ("pyspark", "py4j", "spark-core")
"""They do not change while a worker lives."""


def arrow_task(work: Callable[[Iterable[pa.RecordBatch]], Iterable[bytes]]) -> ArrowTask:
    """A function for `mapInArrow` whose rows are the results of `work`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archives()
        results = pa.array(list(work(batches)), pa.binary())
        yield pa.RecordBatch.from_arrays([results], schema=_RESULT)

    return run


def keep_archives() -> None:
    """Takes PySpark's archives out of what is invalidated before the next task.

    An import makes their entries anew, from the directory that Python has read already.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            name = PurePath(finder.archive).name
            if name.startswith(_OWN_ARCHIVES):
                del sys.path_importer_cache[path]


def task_name() -> str:
    """A name that no other attempt has, in whichever task or job.

    Attempt ids are unique in an application, but its folder may outlive it.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    random = uuid4().hex[:12]
    if task is None:
        return f"00000-0-{random}"
    return f"{task.partitionId():05d}-{task.taskAttemptId()}-{random}"
