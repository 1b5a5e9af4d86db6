"""Runs a procedure of stock Iceberg in a Spark of its own, from start to end.

It imports nothing of Frazil, so that its CPU time is that of Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import psutil

from scripts.java import find_java
from tests.support.spark import add_catalog, start_spark

_CATALOG: Final = "stock"


def main(url: str, call: str, settings: str, folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    spark = start_spark(find_java(), Path(folder), **json.loads(settings))
    add_catalog(spark, _CATALOG, url)
    rewritten = spark.sql(call).first()
    assert rewritten is not None
    assert rewritten[0] > 0
    spark.stop()
    # Nobody waits for the JVM, so that its CPU time has to be read while it runs.
    children = psutil.Process().children(recursive=True)
    used = [sum(process.cpu_times()[:2]) for process in children]
    print(f"children: {sum(used):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
