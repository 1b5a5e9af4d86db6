"""Metadata tables have the columns and the rows of stock Spark's, without Iceberg's runtime."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from frazil.spark.inspection.metadata_tables import METADATA_TABLES, OF_SNAPSHOT
from frazil.spark.session import Session
from frazil.wire.errors import BadRequest

STOCK_TABLES = METADATA_TABLES - {"maintenance_runs"}
"""Those that Iceberg has too."""

COLUMNS = (
    "id BIGINT, cat STRING, at TIMESTAMP, part STRUCT<a: INT, b: DECIMAL(10, 2)>, size DOUBLE, "
    "local TIMESTAMP_NTZ, tags ARRAY<STRING>, more MAP<STRING, DATE>, raw BINARY"
)
ROWS = """
    SELECT id, CASE WHEN id % 3 = 0 THEN NULL ELSE concat('c', id % 2) END AS cat,
      timestamp_seconds(1767225600 + id * 86400) AS at,
      named_struct('a', CAST(id AS INT), 'b', CAST(id * 1.25 AS DECIMAL(10, 2))) AS part,
      CASE WHEN id = 2 THEN double('nan') ELSE id / 2 END AS size,
      TIMESTAMP_NTZ '2026-05-01 01:02:03' AS local, array('x') AS tags,
      map('k', DATE '2026-05-01') AS more, X'00FF' AS raw
    FROM range({start}, {end})
"""
CASES = {
    "v1 with a dropped partition": ("1", "PARTITIONED BY (cat, truncate(1, cat))", "copy-on-write"),
    "v2 with deletes": ("2", "PARTITIONED BY (cat)", "merge-on-read"),
    "v3 with vectors": ("3", "PARTITIONED BY (days(at))", "merge-on-read"),
    "not partitioned": ("2", "", "merge-on-read"),
}


def shape(frame: DataFrame) -> list[tuple[str, str, bool]]:
    """Return the columns with everything but comments and ids."""
    return [(field.name, field.dataType.simpleString(), field.nullable) for field in frame.schema]


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest, session: Session, stock: str, namespace: str) -> str:
    """Return a table with several snapshots, specs, branches and kinds of files."""
    version, partitioned, mode = CASES[request.param]
    name = f"{namespace}.t"
    session.sql(
        f"CREATE TABLE {name} ({COLUMNS}) {partitioned} TBLPROPERTIES "
        f"('format-version' = '{version}', 'write.delete.mode' = '{mode}')"
    )
    session.sql(f"INSERT INTO {name} {ROWS.format(start=0, end=6)}")
    session.sql(f"DELETE FROM {name} WHERE id IN (1, 4)")
    if version != "3":
        partition = "DROP PARTITION FIELD cat" if version == "1" else "ADD PARTITION FIELD raw"
        session.sql(f"ALTER TABLE {name} {partition}")
    session.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    session.sql(f"INSERT INTO {name}.branch_audit {ROWS.format(start=6, end=8)}")
    session.spark.sql(f"INSERT INTO {stock}.{name} {ROWS.format(start=8, end=10)}")
    session.sql(f"DELETE FROM {name} WHERE id = 9")
    return name


def test_every_table_is_as_in_stock_spark(
    own_session: Session, stock: str, name: str, request: pytest.FixtureRequest
) -> None:
    spark = own_session.spark
    first = own_session.client.history(name)[-1].snapshot_id
    for metadata in sorted(STOCK_TABLES):
        ours = own_session.sql(f"SELECT * FROM {name}.{metadata}")
        theirs = spark.sql(f"SELECT * FROM {stock}.{name}.{metadata}")
        assert shape(ours) == shape(theirs), metadata
        assert rows(ours) == rows(theirs), metadata
        if metadata in OF_SNAPSHOT:
            # Each case compares one of two ways to choose the snapshot.
            version = first if "v2" in request.node.name else "'audit'"
            query = f"SELECT * FROM {{}}.{metadata} VERSION AS OF {version}"
            ours = own_session.sql(query.format(name))
            assert rows(ours) == rows(spark.sql(query.format(f"{stock}.{name}"))), metadata


def test_a_table_without_rows_has_them_too(
    own_session: Session, stock: str, namespace: str
) -> None:
    name = f"{namespace}.t"
    own_session.sql(f"CREATE TABLE {name} ({COLUMNS}) PARTITIONED BY (cat)")
    for metadata in sorted(STOCK_TABLES):
        ours = own_session.sql(f"SELECT * FROM {name}.{metadata}")
        theirs = own_session.spark.table(f"{stock}.{name}.{metadata}")
        assert (shape(ours), rows(ours)) == (shape(theirs), rows(theirs)), metadata


def test_names_and_options_choose_the_snapshot(
    session: Session, own_session: Session, namespace: str
) -> None:
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} (id BIGINT, moment TIMESTAMP)")
    session.sql(f"INSERT INTO {name} VALUES (1, NULL)")
    first = session.client.load_table(name).head()
    session.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    session.sql(f"INSERT INTO {name}.branch_audit VALUES (2, NULL)")
    session.sql(f"INSERT INTO {name} VALUES (3, NULL)")
    session.sql(f"INSERT INTO {name} VALUES (4, NULL)")

    def counts(each: Session) -> list[Any]:
        frames = [
            each.sql(f"SELECT * FROM {name}.files"),
            each.sql(f"SELECT * FROM {name}.files VERSION AS OF {first}"),
            each.sql(f"SELECT * FROM {name}.files.branch_audit"),
            each.read.option("snapshot-id", first).table(f"{name}.data_files"),
            each.read.table(f"{name}.entries.branch_audit"),
            each.sql(f"SELECT * FROM {name}.all_entries"),
        ]
        return [frame.count() for frame in frames]

    assert counts(session) == counts(own_session) == [3, 1, 2, 1, 2, 4]
    for each in (session, own_session):
        with pytest.raises(BadRequest, match="all_files shows all snapshots, so it has no version"):
            each.sql(f"SELECT * FROM {name}.all_files VERSION AS OF {first}")


def test_types_that_stock_spark_does_not_have_are_shown(session: Session, namespace: str) -> None:
    name = f"{namespace}.t"
    fields = [
        {"id": 1, "name": "u", "type": "uuid", "required": False},
        {"id": 2, "name": "ns", "type": "timestamp_ns", "required": False},
        {"id": 3, "name": "f", "type": "fixed[2]", "required": False},
    ]
    session.client.create_table(
        name,
        {"type": "struct", "fields": fields},
        partition_spec={
            "fields": [{"name": "u", "transform": "identity", "source-id": 1, "field-id": 1000}]
        },
        properties={"format-version": "3"},
    )
    uuid = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    session.sql(
        f"INSERT INTO {name} VALUES ('{uuid}', TIMESTAMP_NTZ '2026-05-01 01:02:03', X'0102')"
    )
    row = session.sql(f"SELECT * FROM {name}.files").collect()[0]
    assert row.partition.u == uuid
    assert row.readable_metrics.ns.lower_bound.isoformat() == "2026-05-01T01:02:03"
    assert row.readable_metrics.f.upper_bound == b"\x01\x02"
