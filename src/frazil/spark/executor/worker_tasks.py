"""Wraps functions as tasks of Spark's Python workers, and names the running task.

A task that writes files returns a few bytes. In short tasks the worker itself is the cost. Before
each task PySpark invalidates Python's import caches, and Python then reads the directories of
pyspark.zip and spark-core.jar again, once for each package that was looked for in them. That was
0.13 s of CPU in every task, three times of what it takes to write 50,000 rows.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import PurePath
from typing import Final, TypeAlias
from uuid import uuid4
from zipimport import zipimporter

import msgspec
import pyarrow as pa

Work: TypeAlias = Callable[[Sequence[bytes]], Iterable[bytes]]
"""Takes items and returns any number of results; it must be picklable."""
BatchWork: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterable[bytes]]
"""Takes rows and returns any number of results."""
ArrowTask: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function that `mapInArrow` takes."""

RESULT_SCHEMA: Final = "result binary"
"""Spark's schema of a frame that `arrow_task` makes."""
_RESULT: Final = pa.schema([pa.field("result", pa.binary())])
_SPARK_ARCHIVES: Final = ("pyspark", "py4j", "spark-core")
"""Archives that do not change while a worker lives."""


def arrow_task(work: BatchWork) -> ArrowTask:
    """Return a function for `mapInArrow` whose rows are the results of `work`."""
    return partial(_run, work)


def share_task(work: Work) -> ArrowTask:
    """Return a function for `mapInArrow` on rows that are encoded lists of items."""
    return arrow_task(partial(_run_shares, work))


def _run(work: BatchWork, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    keep_archives()
    yield pa.RecordBatch.from_arrays([binary_column(list(work(batches)))], schema=_RESULT)


def _run_shares(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        for share in batch.column(0).to_pylist():
            yield from work(msgspec.msgpack.decode(share, type=list[bytes]))


def binary_column(values: Sequence[bytes]) -> pa.Array:
    """Return a column of bytes without loading pandas.

    `pa.array` checks for objects of pandas and imports it where it is installed: a second in each
    new Python process of an executor, which is more than many tasks take.
    """
    offsets = array("i", [0, *accumulate(map(len, values))])
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def keep_archives() -> None:
    """Remove Spark's archives from the caches that are invalidated before the next task.

    The next import adds them again, from the directory that Python has in memory.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            name = PurePath(finder.archive).name
            if name.startswith(_SPARK_ARCHIVES):
                del sys.path_importer_cache[path]


def task_name() -> str:
    """Return a name that no other attempt of any task or job has.

    Attempt ids are unique in an application, but a folder may outlive the application.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    random = uuid4().hex[:12]
    if task is None:
        return f"00000-0-{random}"
    return f"{task.partitionId():05d}-{task.taskAttemptId()}-{random}"


def task_settings(*names: str) -> dict[str, str]:
    """Return the values of Spark's settings and local properties that the driver has for this task.

    Spark passes the settings of its session to the tasks of a query as local properties.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return {}
    values = {name: task.getLocalProperty(name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
