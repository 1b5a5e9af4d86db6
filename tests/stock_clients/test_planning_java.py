"""Iceberg's Java library reads files, statistics, deletes and residuals from our plans
correctly.

Java's own planner and its client of the server plan the same scans of the same table. The
resulting objects must be equal, field by field.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession

from tests.stock_clients.declared import BY_PART, SCHEMA, Http, RealTable
from tests.stock_clients.java_api import JavaCatalog
from tests.stock_clients.stock import pyiceberg_catalog
from tests.support.server import RunningServer, running_server

TYPES: dict[str, IcebergType] = {
    "b": BooleanType(),
    "i": IntegerType(),
    "l": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "dec": DecimalType(20, 3),
    "day": DateType(),
    "t": TimeType(),
    "ts": TimestampType(),
    "tz": TimestamptzType(),
    "s": StringType(),
    "u": UUIDType(),
    "fx": FixedType(3),
    "bin": BinaryType(),
    "st": StructType(NestedField(100, "a", IntegerType(), required=False)),
}
FIELDS = [
    NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(TYPES.items(), 1)
]
COLUMNS = [name for name in TYPES if name != "st"] + ["st.a"]
SPEC = PartitionSpec(
    PartitionField(11, 1000, TruncateTransform(width=2), "s_trunc"),
    PartitionField(9, 1001, DayTransform(), "ts_day"),
    PartitionField(6, 1002, IdentityTransform(), "dec"),
)


def row(number: int) -> dict[str, Any]:
    moment = dt.datetime(1969 + number, 2, 3, 4, 5, 6, 7)
    return {
        "b": number % 2 == 0,
        "i": number - 2,
        "l": (number - 2) << 40,
        "f": float("nan") if number == 1 else number - 1.5,
        "d": -0.0 if number == 0 else number / 3,
        "dec": Decimal(number - 2) / 8,
        "day": moment.date(),
        "t": moment.time(),
        "ts": moment,
        "tz": moment.replace(tzinfo=dt.UTC),
        "s": None if number == 3 else f"{number} längere Texte werden abgeschnitten",
        "u": uuid.UUID(int=number << 100).bytes,
        "fx": bytes([255, number, 0]),
        "bin": bytes([255 - number] * 40),
        "st": {"a": number},
    }


def rows(schema: Schema, *numbers: int) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in numbers], schema=schema.as_arrow())


class Scans:
    """A table in two of Java's catalogs, one of which uses server-side planning."""

    def __init__(self, spark: SparkSession, url: str, table: str) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._iceberg = jvm.org.apache.iceberg
        self._local = JavaCatalog(spark, url)
        self._planned = JavaCatalog(spark, url, **{"scan-planning-mode": "server"})
        self._tables = [catalog.load(table) for catalog in (self._local, self._planned)]
        kinds = [found.getClass().getSimpleName() for found in self._tables]
        assert kinds == ["BaseTable", "RESTTable"]

    def plan(
        self, filter: dict[str, Any] | bool = True, stats: Sequence[str] = (), **how: Any
    ) -> list[Any]:
        """Return the planned tasks after checking that both catalogs give the same tasks."""
        case_sensitive = how.get("case_sensitive", True)
        both = [self._tasks(table, filter, stats, **how) for table in self._tables]
        struct = self._tables[0].schema().asStruct()
        equivalent = self._iceberg.expressions.ExpressionUtil.equivalent
        for expected, found in zip(*both, strict=True):
            # Equivalent filters can be written in different ways.
            residuals = expected.pop("residual"), found.pop("residual")
            assert equivalent(*residuals, struct, case_sensitive), [str(one) for one in residuals]
            assert found == expected
        return both[1]

    def _tasks(self, table: Any, filter: Any, stats: Sequence[str], **how: Any) -> list[Any]:
        scan = table.newScan().filter(
            self._iceberg.expressions.ExpressionParser.fromJson(json.dumps(filter))
        )
        if "snapshot" in how:
            scan = scan.useSnapshot(how["snapshot"])
        if how.get("case_sensitive") is False:
            scan = scan.caseSensitive(False)
        if stats:
            scan = scan.includeColumnStats(list(stats))
        with closing(scan.planFiles()) as planned:
            iterator = planned.iterator()
            tasks = []
            while iterator.hasNext():
                tasks.append(self._described(iterator.next(), table))
        return sorted(tasks, key=lambda task: task["file"]["file-path"])

    def _described(self, task: Any, table: Any) -> dict[str, Any]:
        parser = self._iceberg.ContentFileParser
        return {
            "file": by_field_id(json.loads(parser.toJson(task.file(), task.spec()))),
            "deletes": sorted(
                (
                    without_statistics(
                        json.loads(parser.toJson(file, table.specs().get(file.specId())))
                    )
                    for file in task.deletes()
                ),
                key=repr,
            ),
            "residual": task.residual(),
        }

    def close(self) -> None:
        self._local.close()
        self._planned.close()


def by_field_id(file: dict[str, Any]) -> dict[str, Any]:
    """Turn the key and value lists of each map into a dict, because their order does not matter."""
    return {
        name: dict(sorted(zip(value["keys"], value["values"], strict=True)))
        if isinstance(value, dict)
        else value
        for name, value in file.items()
    }


def without_statistics(file: dict[str, Any]) -> dict[str, Any]:
    """Drop statistics: for delete files, a plan contains only what is needed to read them."""
    return {k: v for k, v in file.items() if not k.endswith(("-counts", "-bounds", "-sizes"))}


@pytest.fixture
def typed(iceberg: Catalog, namespace: str) -> str:
    """Create a table with a column of each type and files in several partitions."""
    schema = Schema(*FIELDS)
    table = iceberg.create_table((namespace, "t"), schema, partition_spec=SPEC)
    table.append(rows(table.schema(), 0, 1))
    table.append(rows(table.schema(), 2, 3))
    return f"{namespace}.t"


@pytest.fixture
def scans(spark: SparkSession, catalog_server: RunningServer, typed: str) -> Iterator[Scans]:
    found = Scans(spark, catalog_server.url, typed)
    yield found
    found.close()


def test_statistics_of_every_type(scans: Scans) -> None:
    bare = scans.plan()
    assert len(bare) == 4
    assert not any("lower-bounds" in task["file"] for task in bare)
    full = scans.plan(stats=COLUMNS)
    for task in full:
        # PyIceberg writes no bounds for nested columns (st.a is 16 now) and does not count NaN.
        assert task["file"]["value-counts"] == dict.fromkeys([*range(1, 15), 16], 1)
        lower, upper = (set(task["file"][name]) for name in ("lower-bounds", "upper-bounds"))
        assert lower >= set(range(1, 15)) - {4, 11}
        assert lower >= upper
    assert list(scans.plan(stats=["s", "i"])[0]["file"]["lower-bounds"]) == [2, 11]


FILTERS: list[tuple[dict[str, Any], int]] = [
    ({"type": "eq", "term": "b", "value": True}, 2),
    ({"type": "gt", "term": "i", "value": 0}, 1),
    ({"type": "lt", "term": "l", "value": 0}, 2),
    ({"type": "is-nan", "term": "f"}, 4),
    ({"type": "eq", "term": "d", "value": 0.0}, 1),
    ({"type": "gt-eq", "term": "dec", "value": "0.000"}, 2),
    ({"type": "lt", "term": "day", "value": "1971-01-01"}, 2),
    ({"type": "eq", "term": "t", "value": "04:05:06.000007"}, 4),
    ({"type": "lt", "term": "ts", "value": "1970-02-03T04:05:06.000007"}, 1),
    ({"type": "gt", "term": "tz", "value": "1970-06-01T00:00:00+00:00"}, 2),
    ({"type": "starts-with", "term": "s", "value": "1 l"}, 1),
    ({"type": "is-null", "term": "s"}, 1),
    ({"type": "eq", "term": "u", "value": str(uuid.UUID(int=2 << 100))}, 1),
    ({"type": "eq", "term": "fx", "value": "FF0200"}, 1),
    ({"type": "eq", "term": "bin", "value": "FE" * 40}, 1),
    ({"type": "in", "term": "st.a", "values": [1, 2]}, 4),
    (
        {
            "type": "or",
            "left": {"type": "eq", "term": "i", "value": 1},
            "right": {"type": "not-null", "term": "s"},
        },
        4,
    ),
]


@pytest.mark.parametrize(("filter", "files"), FILTERS)
def test_filters_of_every_type(scans: Scans, filter: dict[str, Any], files: int) -> None:
    assert len(scans.plan(filter)) == files


def test_names_without_case(scans: Scans) -> None:
    assert len(scans.plan({"type": "gt", "term": "I", "value": 0}, case_sensitive=False)) == 1


@pytest.mark.parametrize("version", [2, 3])
def test_deletes(
    spark: SparkSession, catalog_server: RunningServer, namespace: str, version: int
) -> None:
    with closing(Http(catalog_server.url)) as http:
        table = RealTable(
            http, namespace=namespace, name="t", schema=SCHEMA, spec=BY_PART, version=version
        )
        table.create()
        a, b = table.write("a", 1, 2, 3), table.write("b", 4, 5, part="b")
        first = table.append(a, b)["snapshot-id"]
        table.overwrite(add_deletes=[table.write_deletes("d", a, 0)])
        table.overwrite(add_deletes=[table.write_equality_deletes("e", 5, part="b")])
        table.append(table.write("c", 6))
    with closing(Scans(spark, catalog_server.url, f"{namespace}.t")) as scans:
        assert [len(task["deletes"]) for task in scans.plan()] == [1, 1, 0]
        assert [len(task["deletes"]) for task in scans.plan(snapshot=first)] == [0, 0]
        assert len(scans.plan({"type": "eq", "term": "part", "value": "b"})) == 1


def test_java_polls_and_fetches_pages(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With no wait time and one file per page, every plan is submitted, polled and fetched."""
    flags = ("--plan-wait-s", "0", "--plan-page-files", "1")
    with (
        running_server(tmp_path_factory.mktemp("polls"), *flags) as server,
        closing(Http(server.url)) as http,
    ):
        http("POST", "/v1/namespaces", {"namespace": ["ns"]})
        table = RealTable(http, namespace="ns", name="t", schema=SCHEMA, spec=BY_PART)
        table.create()
        table.append(*(table.write(f"f{number}", number) for number in range(4)))
        with closing(Scans(spark, server.url, "ns.t")) as scans:
            assert len(scans.plan()) == 4
            assert server.log.count("operation=fetchScanTasks") == 3
            # A plan may finish before the server needs to answer that it is still running.
            for _ in range(20):
                if "operation=fetchPlanningResult" in server.log:
                    break
                assert len(scans.plan()) == 4
        assert "operation=fetchPlanningResult" in server.log
        assert "operation=cancelPlanning" in server.log
        catalog = pyiceberg_catalog(server.url, **{"scan-planning-mode": "server"})
        scan = catalog.load_table("ns.t").scan()
        with (
            closing(catalog),
            pytest.raises(NotImplementedError, match="Async scan planning not yet supported"),
        ):
            for _ in range(20):  # PyIceberg cannot poll.
                scan.plan_files()
