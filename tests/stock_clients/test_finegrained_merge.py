"""A stock Spark MERGE commits while sixteen writers declare files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession

from tests.commit.finegrained.requests import append
from tests.stock_clients.declared import BY_PART, SCHEMA, Http, RealTable
from tests.stock_clients.stock import spark_column, spark_rows
from tests.support.patience import HANG_S
from tests.support.server import RunningServer

APPENDERS = 16
MERGES = 3
MOST = 20
MINIMAL = {"Prefer": "return=minimal"}
OWN = "t.part = 'spark' AND"
MERGE_ON_READ = {"write.merge.mode": "merge-on-read"}


@dataclass
class Appenders:
    """Sixteen connections that append files of one row each.

    They run until they are stopped or have appended enough for Spark to read.
    """

    url: str
    table: RealTable
    pause_s: float
    end: threading.Event = field(default_factory=threading.Event)
    appended: list[int] = field(default_factory=list)
    failed: list[object] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._append, args=(number,)) for number in range(APPENDERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.end.set()
            for thread in threads:
                thread.join(HANG_S)

    def _append(self, number: int) -> None:
        with closing(Http(self.url)) as http:
            own = RealTable(
                http,
                namespace=self.table.namespace,
                name=self.table.name,
                schema=SCHEMA,
                spec=BY_PART,
                metadata=self.table.metadata,
            )
            row = 1_000_000 * (number + 1)
            for _ in range(MOST):
                if self.end.wait(self.pause_s):
                    return
                file = own.write(f"app-{row}", row, part="app")
                answer = own.post(append(file), headers=MINIMAL)
                if answer.status == 200:
                    self.appended.append(row)
                else:
                    self.failed.append(answer.body)
                row += 1


@pytest.mark.parametrize(
    ("isolation", "where", "version"),
    [
        pytest.param("snapshot", "", 2, id="snapshot isolation, v2"),
        pytest.param("snapshot", "", 3, id="snapshot isolation, v3", marks=pytest.mark.full),
        pytest.param("serializable", OWN, 2, id="own partition, v2", marks=pytest.mark.full),
        pytest.param("serializable", OWN, 3, id="own partition, v3"),
    ],
)
def test_merges_get_in_beside_appends(
    sql: SparkSession,
    catalog_server: RunningServer,
    namespace: str,
    isolation: str,
    where: str,
    version: int,
) -> None:
    properties = MERGE_ON_READ | {"write.merge.isolation-level": isolation}
    with closing(Http(catalog_server.url)) as http:
        table = RealTable(
            http,
            namespace=namespace,
            name="t",
            schema=SCHEMA,
            spec=BY_PART,
            version=version,
            properties=properties,
        )
        table.create()
        table.append(table.write("start", *range(10), part="spark"))
        appenders = Appenders(catalog_server.url, table, pause_s=0.3)
        with appenders.running():
            for number in range(MERGES):
                sql.sql(
                    "MERGE INTO t USING"
                    f" (SELECT id, 'merged-{number}' AS name FROM range(5, 12)) AS s"
                    f" ON {where} t.id = s.id"
                    " WHEN MATCHED THEN UPDATE SET name = s.name"
                    " WHEN NOT MATCHED THEN INSERT (id, name, part) VALUES (s.id, s.name, 'spark')"
                )
        table.load()
    assert appenders.failed == []
    assert appenders.appended, "nobody appended while Spark merged"
    kept = [(number, f"row-{number}") for number in range(5)]
    merged = [(number, f"merged-{MERGES - 1}") for number in range(5, 12)]
    found = spark_rows(sql, "SELECT id, name FROM t WHERE part = 'spark' ORDER BY id")
    assert found == kept + merged
    ids = spark_column(sql, "SELECT id FROM t WHERE part = 'app' ORDER BY id")
    assert ids == sorted(appenders.appended)
    operations = [found["summary"]["operation"] for found in table.metadata["snapshots"]]
    assert operations.count("overwrite") == MERGES
    assert operations.count("append") == len(appenders.appended) + 1
