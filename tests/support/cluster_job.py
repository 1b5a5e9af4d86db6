"""The job of a cluster test, for spark-submit: `cluster_job.py URI TABLE FOLDER WRITER`.

First the job appends with four tasks. The first attempt of one task kills its executor after it
has written some of its rows. The first attempt of another task blocks until a speculative copy
has replaced it. Then the job runs a MERGE. It writes its results as JSON to the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from frazil.spark import connect
from frazil.spark.writing.frame_writer import WriteOptions

TASKS, ROWS = 4, 40_000
TROUBLE_AT = 20_000
"""The number of rows after which a task fails or blocks."""
PATIENCE_S = 300


def main() -> None:
    uri, name, folder, writer = sys.argv[1:]
    spark = SparkSession.builder.appName("cluster-job").getOrCreate()
    with connect(spark, uri, reader="own", writer=writer) as session:
        table = session.table(name)
        data = f"{table.load().location.removeprefix('file://')}/data"
        frame = spark.range(0, TASKS * ROWS, 1, TASKS).mapInArrow(troubled(folder, data), "id LONG")
        done = table.append(frame, options=WriteOptions(distribution="none"))
        merged = (
            table.merge(spark.range(ROWS - 10, ROWS), "target.id = source.id")
            .when_matched_delete()
            .execute(mode="merge-on-read")
        )
        found = table.scan().selectExpr("count(*)", "count(DISTINCT id)", "sum(id)").first()
    assert found is not None
    answer: dict[str, Any] = {
        "written": done.rows_written,
        "deleted": merged.rows_deleted,
        "found": list(found),
        "python": python_of_executors(spark),
    }
    Path(folder, "answer.json").write_text(json.dumps(answer))
    spark.stop()


def troubled(folder: str, data: str) -> Callable[[Any], Iterator[Any]]:
    """Return a function that is pickled by value, because executors lack this module."""
    rows_of_task, trouble_at, patience_s = ROWS, TROUBLE_AT, PATIENCE_S

    def is_first(what: str) -> bool:
        try:
            os.close(os.open(os.path.join(folder, what), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def parent_of(pid: int) -> int:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])

    def written_files() -> int:
        return sum(len(names) for _, _, names in os.walk(data))

    def wait_for(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("what this task waits for has not happened")
            time.sleep(0.05)

    def rows(batches: Any) -> Iterator[Any]:
        for batch in batches:
            yield batch
            task, place = divmod(batch.column(0)[0].as_py(), rows_of_task)
            if place < trouble_at:
                continue
            if task == 0 and is_first("killed"):
                # Wait until both running tasks have started their files.
                wait_for(lambda: written_files() >= 2)
                # The worker's parent is a daemon, whose parent is the executor.
                os.kill(parent_of(os.getppid()), signal.SIGKILL)
            elif task == 1 and is_first("overtaken"):
                wait_for(lambda: False)

    return rows


def python_of_executors(spark: SparkSession) -> dict[str, str]:
    """Return the paths of the Python and the `frazil` of each executor."""

    def told(batches: Any) -> Iterator[Any]:
        import frazil

        for _ in batches:
            found = {"python": [sys.executable], "frazil": [frazil.__file__]}
            yield pa.RecordBatch.from_pydict(found)

    row = spark.range(1).mapInArrow(told, "python STRING, frazil STRING").first()
    assert row is not None
    return dict(row.asDict())


if __name__ == "__main__":
    main()
