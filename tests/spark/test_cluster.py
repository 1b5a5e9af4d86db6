"""Lost executors and speculative copies do not change the result on a standalone cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from frazil.client.catalog_client import Client
from scripts.java import Java
from tests.support import cluster_job
from tests.support.patience import HANG_S
from tests.support.spark_cluster import (
    Cluster,
    bare_environment,
    packed_environment,
    spark_cluster,
    zipped_package,
)

JOB = Path(cluster_job.__file__)
LONG = {"id": 1, "name": "id", "required": False, "type": "long"}
# Small row groups, because a file is created with its first row group.
PROPERTIES = {"format-version": "3", "write.parquet.row-group-size-bytes": "32768"}
TROUBLE = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


def run_job(
    cluster: Cluster, client: Client, url: str, table: str, writer: str, shipped: Mapping[str, str]
) -> dict[str, Any]:
    """Append on the cluster while executors die; return the results of the job."""
    folder = cluster.directory / table
    folder.mkdir()
    client.create_table(table, {"type": "struct", "fields": [LONG]}, properties=PROPERTIES)
    arguments = [url, table, str(folder), writer]
    done = cluster.submit(JOB, arguments, {**TROUBLE, **shipped}, HANG_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}\n{cluster.logs}"
    assert (folder / "killed").exists(), "no executor was killed"
    assert (folder / "overtaken").exists(), "no task was overtaken"
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def check(client: Client, name: str, answer: Mapping[str, Any]) -> None:
    """Check that each row exists once, each statement made one commit, and no file is orphaned."""
    rows = cluster_job.TASKS * cluster_job.ROWS
    gone = range(cluster_job.ROWS - 10, cluster_job.ROWS)
    assert (answer["written"], answer["deleted"]) == (rows, 10)
    left = rows - len(gone)
    assert answer["found"] == [left, left, sum(range(rows)) - sum(gone)]
    table = client.load_table(name)
    assert [each.operation for each in table.snapshots] == ["append", "delete"]
    tasks = list(table.plan().tasks)
    known = {task.data_file.file_path for task in tasks}
    known |= {deletes.file_path for task in tasks for deletes in task.delete_files}
    folder = Path(table.location.removeprefix("file://"), "data")
    assert {f"file://{path}" for path in folder.rglob("*") if path.is_file()} == known


@pytest.fixture
def cluster(java: Java, tmp_path: Path) -> Iterator[Cluster]:
    with spark_cluster(java, tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def zipped(tmp_path: Path) -> Mapping[str, str]:
    """Return the code for --py-files, and a Python that lacks it."""
    return {
        "spark.submit.pyFiles": str(zipped_package(tmp_path)),
        "spark.pyspark.python": str(bare_environment(tmp_path) / "bin" / "python"),
    }


def test_an_executor_dies_in_mid_write(
    cluster: Cluster, zipped: Mapping[str, str], client: Client, server_url: str, namespace: str
) -> None:
    table = f"{namespace}.t"
    answer = run_job(cluster, client, server_url, table, "arrow", zipped)
    check(client, table, answer)
    assert "frazil.zip" in answer["python"]["frazil"]


@pytest.mark.full
def test_a_packed_environment_and_both_writers(
    cluster: Cluster, tmp_path: Path, client: Client, server_url: str, namespace: str
) -> None:
    """The job ships Python itself, through spark.archives."""
    shipped = {
        "spark.archives": f"{packed_environment(tmp_path)}#shipped",
        "spark.pyspark.python": "./shipped/bin/python",
    }
    for writer in ("jvm", "arrow"):
        table = f"{namespace}.{writer}"
        answer = run_job(cluster, client, server_url, table, writer, shipped)
        check(client, table, answer)
        assert "/shipped/" in answer["python"]["frazil"]
