"""SQL and the builders create and replace tables together with their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import functions as F

from frazil.wire.errors import AlreadyExists, BadRequest, NoSuchTable

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.spark.session import Session

COMPARED: Final = (
    "format-version",
    "schemas",
    "current-schema-id",
    "last-column-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
)


def _rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(text).collect()]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_metadata_is_what_stock_makes_of_it(
    session: Session, stock: str, namespace: str, client: Client, version: int
) -> None:
    """A replaced table keeps its uuid, and columns with the same name keep their ids."""
    ours, theirs = f"{namespace}.ours", f"{namespace}.theirs"
    uuids = []
    for statement in (
        "CREATE TABLE {table} USING iceberg PARTITIONED BY (bucket(2, id), p) "
        f"TBLPROPERTIES ('format-version' = '{version}') AS SELECT id, CAST(id % 2 AS INT) AS p, "
        "named_struct('a', id, 'b', array(1)) AS s FROM range(4)",
        "CREATE OR REPLACE TABLE {table} USING iceberg PARTITIONED BY (p, days(ts)) "
        "TBLPROPERTIES ('x' = 'y') AS SELECT CAST(id AS STRING) AS p, id, "
        "named_struct('c', 1, 'a', id) AS s, TIMESTAMP'2026-01-01 00:00:00' AS ts FROM range(3)",
        "REPLACE TABLE {table} (id BIGINT, zz INT) USING iceberg",
    ):
        session.sql(statement.format(table=ours))
        session.spark.sql(statement.format(table=f"{stock}.{theirs}"))
        found, expected = client.load_table(ours), client.load_table(theirs)
        for key in COMPARED:
            assert found.metadata[key] == expected.metadata[key], key
        assert {**found.properties, "owner": expected.properties["owner"]} == expected.properties
        uuids.append(found.uuid)
    assert len(set(uuids)) == 1


def test_a_table_appears_with_its_rows_or_not_at_all(session: Session, namespace: str) -> None:
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        session.sql(
            f"CREATE TABLE {namespace}.t AS SELECT IF(id > 2, raise_error('no'), id) FROM range(4)"
        )
    assert not session.client.table_exists(f"{namespace}.t")
    (row,) = session.sql(f"CREATE TABLE {namespace}.t AS SELECT id FROM range(4)").collect()
    assert (row.operation, row.rows_written) == ("create", 4)
    session.sql(f"CREATE TABLE IF NOT EXISTS {namespace}.t AS SELECT 1 AS other")
    with pytest.raises(AlreadyExists):
        session.sql(f"CREATE TABLE {namespace}.t AS SELECT 1 AS other")
    assert session.sql(f"SELECT * FROM {namespace}.t").columns == ["id"]


def test_a_query_without_rows_still_makes_a_table(session: Session, namespace: str) -> None:
    session.sql(f"CREATE TABLE {namespace}.t AS SELECT id FROM range(4) WHERE false")
    assert _rows(session, f"SELECT * FROM {namespace}.t") == []


def test_a_table_replaced_from_itself_keeps_its_history(
    session: Session, namespace: str, client: Client
) -> None:
    name = f"{namespace}.t"
    with pytest.raises(NoSuchTable):
        session.sql(f"REPLACE TABLE {name} AS SELECT 1 AS id")
    session.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT id FROM range(3)")
    before = client.load_table(name)
    session.sql(f"ALTER TABLE {name} CREATE TAG before")
    (row,) = session.sql(
        f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (even) AS "
        f"SELECT id % 2 = 0 AS even, id + 10 AS id FROM {name}"
    ).collect()
    assert (row.operation, row.rows_written, row.attempts) == ("replace", 3, 1)
    assert _rows(session, f"SELECT id, even FROM {name} ORDER BY id") == [
        (10, True),
        (11, False),
        (12, True),
    ]
    assert _rows(session, f"SELECT * FROM {name} VERSION AS OF {before.head()} ORDER BY id") == [
        (0,),
        (1,),
        (2,),
    ]
    assert session.sql(f"SELECT * FROM {name}.tag_before").count() == 3


def test_a_replacement_that_fails_leaves_the_table_alone(
    session: Session, namespace: str, client: Client
) -> None:
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} AS SELECT id FROM range(3)")
    before = client.load_table(name)
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        session.sql(
            f"CREATE OR REPLACE TABLE {name} AS "
            "SELECT IF(id > 1, raise_error('no'), id) FROM range(3)"
        )
    assert client.load_table(name).metadata_location == before.metadata_location


def test_a_replacement_is_built_again_where_ids_were_given_out_meanwhile(
    session: Session, namespace: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frazil.spark.sql import table_creation

    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} AS SELECT id FROM range(3)")
    late = iter([1])
    build = table_creation.replacement_of

    def meanwhile(*args: Any) -> Any:
        built = build(*args)
        if next(late, None) is not None:
            session.sql(f"ALTER TABLE {name} ADD COLUMN theirs INT")
        return built

    monkeypatch.setattr(table_creation, "replacement_of", meanwhile)
    session.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT id, 1 AS ours FROM range(3)")
    fields = client.load_table(name).schema.fields
    assert [(field.field_id, field.name) for field in fields] == [(1, "id"), (3, "ours")]


# --- builders -------------------------------------------------------------------------------------


def test_write_to(session: Session, namespace: str, client: Client) -> None:
    name = f"{namespace}.t"
    frame = session.spark.range(4).withColumn("p", F.col("id") % 2)
    writer = session.write_to(frame, name).using("iceberg").tableProperty("format-version", "2")
    partitioned = writer.partitionedBy("p", F.partitioning.bucket(1000, "id")).sortedBy("id desc")
    assert partitioned.create().rows_written == 4
    table = client.load_table(name)
    assert [field["name"] for field in table.spec()["fields"]] == ["p", "id_bucket"]
    assert (table.format_version, len(table.sort_order()["fields"])) == (2, 1)

    with_property = session.write_to(frame, name).option("snapshot-property.by", "me")
    appended = with_property.option("branch", "audit").append()
    loaded = client.load_table(name)
    assert loaded.refs["audit"].snapshot_id == appended.snapshot_id
    assert loaded.snapshot("audit").summary["by"] == "me"

    session.write_to(frame.limit(1), name).overwrite("p = 1")
    session.write_to(frame.where("id = 2"), name).overwritePartitions()
    assert sorted(row.id for row in session.read.table(name).collect()) == [0, 0, 2]
    assert session.write_to(frame, name).createOrReplace().operation == "replace"
    assert session.write_to(frame.limit(2), name).replace().rows_written == 2


def test_merge_schema_by_option(session: Session, namespace: str) -> None:
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} (id BIGINT)")
    frame = session.spark.range(1).withColumn("new", F.lit("x"))
    session.write_to(frame, name).option("mergeSchema", True).append()
    assert _rows(session, f"SELECT * FROM {name}") == [(0, "x")]
    with pytest.raises(BadRequest, match="mergeSchema"):
        session.write_to(frame, name).option("nope", 1).append()


def test_read(session: Session, namespace: str, client: Client) -> None:
    name = f"{namespace}.t"
    session.sql(f"CREATE TABLE {name} AS SELECT id FROM range(2)")
    session.sql(f"ALTER TABLE {name} CREATE TAG two")
    session.sql(f"INSERT INTO {name} VALUES (2)")
    first, second = client.load_table(name).snapshots
    read = session.read
    assert read.table(name).count() == 3
    assert read.option("snapshot-id", str(first.snapshot_id)).table(name).count() == 2
    assert read.option("tag", "two").table(name).count() == 2
    assert read.option("as-of-timestamp", second.timestamp_ms + 1).table(name).count() == 3
    between = read.options(
        **{"start-snapshot-id": first.snapshot_id, "end-snapshot-id": second.snapshot_id}
    )
    assert [row.id for row in between.table(name).collect()] == [2]
    with pytest.raises(BadRequest, match="another option names"):
        read.option("branch", "main").option("tag", "two").table(name)
    with pytest.raises(BadRequest, match="snapshot-id"):
        read.option("nope", 1)
    with pytest.raises(NoSuchTable):
        read.table(f"{namespace}.nope")
