"""ALTER TABLE changes the metadata like stock Spark with Iceberg's jar does."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

from frazil.client.catalog_client import Client
from frazil.client.declare.schema_editor import SchemaEditor, promoted
from frazil.client.declare.schema_updates import property_updates, schema_updates
from frazil.values.types import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    DecimalType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
)
from frazil.wire.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from frazil.spark.session import Session

# --- schemas alone --------------------------------------------------------------------------------


def _optional(field_id: int, name: str, type_: Type) -> NestedField:
    return NestedField(field_id, name, type_, required=False)


SCHEMA: Final = StructType(
    (
        _optional(1, "id", INT),
        _optional(2, "s", StructType((_optional(5, "a", INT), _optional(6, "B", FLOAT)))),
        _optional(3, "l", ListType(_optional(7, "element", StructType((_optional(8, "x", INT),))))),
        _optional(
            4,
            "m",
            MapType(
                NestedField(9, "key", STRING, required=True),
                _optional(10, "value", StructType((_optional(11, "q", INT),))),
            ),
        ),
    )
)


def _names(schema: StructType, *path: str) -> list[str]:
    field = SchemaEditor().field(schema, path)
    fields = schema.fields if field is None else field.type.fields  # type: ignore[attr-defined]
    return [one.name for one in fields]


@pytest.mark.parametrize(
    ("path", "position", "inside", "expected"),
    [
        (("n",), None, (), ["id", "s", "l", "m", "n"]),
        (("n",), ("first", None), (), ["n", "id", "s", "l", "m"]),
        (("n",), ("after", "ID"), (), ["id", "n", "s", "l", "m"]),
        (("s", "n"), ("after", "a"), ("s",), ["a", "n", "B"]),
        (("l", "element", "n"), None, ("l", "element"), ["x", "n"]),
        (("l", "n"), None, ("l", "element"), ["x", "n"]),
        (("m", "n"), ("first", None), ("m", "value"), ["n", "q"]),
    ],
)
def test_add_column(
    path: tuple[str, ...], position: Any, inside: tuple[str, ...], expected: list[str]
) -> None:
    new = _optional(0, path[-1], StructType((_optional(0, "y", LONG),)))
    schema = SchemaEditor().add(SCHEMA, path, new, count(12), position)
    assert _names(schema, *inside) == expected
    added = SchemaEditor().field(schema, (*inside, path[-1]))
    assert added == _optional(12, path[-1], StructType((_optional(13, "y", LONG),)))


def test_names_are_compared_as_the_session_does() -> None:
    assert _names(SchemaEditor().drop(SCHEMA, ("S", "b")), "s") == ["a"]
    with pytest.raises(BadRequest, match=r"no column 's\.b'; did you mean 's\.B'"):
        SchemaEditor(case_sensitive=True).drop(SCHEMA, ("s", "b"))


@pytest.mark.parametrize(
    ("old", "new"),
    [(INT, LONG), (FLOAT, DOUBLE), (DecimalType(5, 2), DecimalType(9, 2)), (STRING, STRING)],
    ids=str,
)
def test_promotion(old: Type, new: Type) -> None:
    assert promoted(_optional(1, "a", old), new, ("a",)) == _optional(1, "a", new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LONG, INT),
        (INT, DOUBLE),
        (DecimalType(5, 2), DecimalType(9, 3)),
        (DecimalType(9, 2), DecimalType(5, 2)),
        (INT, STRING),
    ],
    ids=str,
)
def test_no_promotion(old: Type, new: Type) -> None:
    with pytest.raises(BadRequest, match="column a"):
        promoted(_optional(1, "a", old), new, ("a",))


@pytest.mark.parametrize(
    "edit",
    [
        lambda editor: editor.add(SCHEMA, ("S",), _optional(0, "S", INT), count(12)),
        lambda editor: editor.add(SCHEMA, ("id", "x"), _optional(0, "x", INT), count(12)),
        lambda editor: editor.add(SCHEMA, ("n",), NestedField(0, "n", INT, True), count(12)),
        lambda editor: editor.drop(SCHEMA, ("nope",)),
        lambda editor: editor.drop(SCHEMA, ("l", "element")),
        lambda editor: editor.drop(SCHEMA, ("l", "element", "x")),
        lambda editor: editor.rename(SCHEMA, ("id",), "S"),
        lambda editor: editor.rename(SCHEMA, ("m", "value"), "v"),
        lambda editor: editor.move(SCHEMA, ("id",), ("after", "nope")),
        lambda editor: editor.change(
            SCHEMA, ("m", "key"), lambda field: NestedField(9, "key", INT, True)
        ),
    ],
    ids=["twice", "in-int", "required", "unknown", "part", "last", "taken", "map", "after", "key"],
)
def test_changes_that_no_schema_takes(edit: Any) -> None:
    with pytest.raises(BadRequest):
        edit(SchemaEditor())


def test_name_mapping_gets_the_new_name_too(client: Client, namespace: str) -> None:
    mapping = [{"field-id": 1, "names": ["a"]}, {"field-id": 2, "names": ["b", "c"]}]
    table = client.create_table(
        f"{namespace}.t",
        {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "a", "required": False, "type": "int"},
                {"id": 2, "name": "b", "required": False, "type": "int"},
            ],
        },
        properties={
            "schema.name-mapping.default": json.dumps(mapping),
            "write.metadata.metrics.column.b": "none",
        },
    )
    renamed = SchemaEditor().rename(table.schema, ("a",), "c")
    schema = SchemaEditor().drop(renamed, ("b",))
    (removed,) = property_updates(table, schema)
    assert removed["removals"] == ["write.metadata.metrics.column.b"]
    changed = schema_updates(table, schema)[-1]
    assert json.loads(changed["updates"]["schema.name-mapping.default"]) == [
        {"field-id": 1, "names": ["a", "c"]},
        {"field-id": 2, "names": ["b"]},
    ]


# --- beside stock Spark ---------------------------------------------------------------------------

COMPARED: Final = (
    "format-version",
    "schemas",
    "current-schema-id",
    "last-column-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
)
CREATE: Final = """CREATE TABLE {table} (
  id INT NOT NULL COMMENT 'k', v STRING, ts TIMESTAMP,
  s STRUCT<a: INT NOT NULL COMMENT 'x', z: DOUBLE>,
  l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<q: INT>>, d DECIMAL(5, 2))
USING iceberg PARTITIONED BY (days(ts), bucket(4, id), truncate(2, v), v) COMMENT 'hey'
TBLPROPERTIES ('format-version' = '{version}', 'write.metadata.metrics.column.v' = 'full',
  'write.metadata.metrics.column.d' = 'none')"""
CHANGES: Final = (
    "ADD COLUMNS (w INT COMMENT 'c' AFTER id, s.b STRING FIRST, l.element.y BIGINT)",
    "ADD COLUMN m.value.r ARRAY<INT>",
    "ADD COLUMN e STRUCT<f: INT, g: ARRAY<STRING>> AFTER v",
    "SET IDENTIFIER FIELDS id",
    "RENAME COLUMN v TO vv",
    "RENAME COLUMN s.a TO aa",
    "ALTER COLUMN id TYPE BIGINT",
    "ALTER COLUMN d TYPE DECIMAL(9, 2)",
    "ALTER COLUMN id COMMENT 'the id'",
    "DROP IDENTIFIER FIELDS id",
    "ALTER COLUMN id DROP NOT NULL",
    "ALTER COLUMN ts FIRST",
    "ALTER COLUMN s.z AFTER b",
    "DROP COLUMN d",
    "DROP COLUMNS (w, e)",
    "ADD PARTITION FIELD bucket(8, id)",
    "ADD PARTITION FIELD truncate(3, vv) AS short",
    "DROP PARTITION FIELD short",
    "DROP PARTITION FIELD days(ts)",
    "REPLACE PARTITION FIELD id_bucket_8 WITH bucket(16, id)",
    "REPLACE PARTITION FIELD bucket(16, id) WITH bucket(32, id) AS shard",
    "ADD PARTITION FIELD days(ts)",
    "ADD PARTITION FIELD truncate(3, vv)",
    "ADD PARTITION FIELD s.aa",
    "WRITE ORDERED BY id DESC, bucket(4, id) ASC NULLS LAST",
    "WRITE DISTRIBUTED BY PARTITION",
    "WRITE LOCALLY ORDERED BY id",
    "WRITE UNORDERED",
    "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id, ts DESC",
    "SET TBLPROPERTIES ('a' = 'b', 'c' = 'd')",
    "UNSET TBLPROPERTIES ('zz', 'a')",
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_metadata_is_what_stock_makes_of_it(
    session: Session, stock: str, namespace: str, client: Client, version: int
) -> None:
    ours, theirs = f"{namespace}.ours", f"{namespace}.theirs"
    session.sql(CREATE.format(table=ours, version=version))
    session.spark.sql(CREATE.format(table=f"{stock}.{theirs}", version=version))
    for change in CHANGES:
        session.sql(f"ALTER TABLE {ours} {change}")
        session.spark.sql(f"ALTER TABLE {stock}.{theirs} {change}")
    found, expected = client.load_table(ours), client.load_table(theirs)
    for key in COMPARED:
        assert found.metadata[key] == expected.metadata[key], key
    owned = {**expected.properties}
    owned.pop("owner")
    assert found.properties == owned


# --- on the catalog -------------------------------------------------------------------------------


@pytest.fixture
def table(session: Session, namespace: str) -> str:
    name = f"{namespace}.t"
    session.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, v STRING, p INT) PARTITIONED BY (p) "
        "TBLPROPERTIES ('format-version' = '3')"
    )
    return name


def test_defaults_and_older_rows(session: Session, table: str) -> None:
    session.sql(f"INSERT INTO {table} VALUES (1, 'a', 0)")
    session.sql(
        f"ALTER TABLE {table} ADD COLUMNS (n INT NOT NULL DEFAULT 3 + 4, "
        "d DATE DEFAULT DATE'2026-05-01', ts TIMESTAMP DEFAULT '2026-05-01 02:00:00')"
    )
    session.sql(f"ALTER TABLE {table} ALTER COLUMN n SET DEFAULT 8")
    session.sql(f"INSERT INTO {table} (id) VALUES (2)")
    found = session.sql(f"SELECT id, n, CAST(d AS STRING), CAST(ts AS STRING) FROM {table}")
    assert sorted(tuple(row) for row in found.collect()) == [
        (1, 7, "2026-05-01", "2026-05-01 02:00:00"),
        (2, 8, "2026-05-01", "2026-05-01 02:00:00"),
    ]


def test_not_null_is_only_for_tables_without_rows(session: Session, table: str) -> None:
    session.sql(f"ALTER TABLE {table} ALTER COLUMN v SET NOT NULL")
    session.sql(f"ALTER TABLE {table} ALTER COLUMN v DROP NOT NULL")
    session.sql(f"INSERT INTO {table} VALUES (1, NULL, 0)")
    with pytest.raises(BadRequest, match="column v: rows that are there already may be null"):
        session.sql(f"ALTER TABLE {table} ALTER COLUMN v SET NOT NULL")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("DROP COLUMN p", "first drop the partition field p"),
        ("DROP COLUMN id", "identifier field"),
        ("SET IDENTIFIER FIELDS v", "may be null"),
        ("DROP IDENTIFIER FIELDS v", "no identifier field"),
        ("ADD PARTITION FIELD p", "already"),
        ("ADD PARTITION FIELD bucket(4, id) AS p", "name this one"),
        ("DROP PARTITION FIELD nope", "not partitioned by nope"),
        ("ADD PARTITION FIELD nope(id)", "nope"),
        ("WRITE ORDERED BY nope", "no column 'nope'"),
        ("ADD COLUMN x INT DEFAULT id", "not a constant"),
        ("ADD COLUMN x ARRAY<INT> DEFAULT array(1)", "cannot have a default"),
        ("REPLACE BRANCH nope", "no branch nope"),
    ],
)
def test_changes_that_are_refused(session: Session, table: str, change: str, part: str) -> None:
    session.sql(f"ALTER TABLE {table} SET IDENTIFIER FIELDS id")
    with pytest.raises(BadRequest, match=part):
        session.sql(f"ALTER TABLE {table} {change}")


def test_a_change_is_built_again_where_others_were_faster(
    session: Session, table: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frazil.client.declare import column_changes

    build = schema_updates
    late = iter([1])

    def meanwhile(*args: Any) -> Any:
        built = build(*args)
        if next(late, None) is not None:
            with monkeypatch.context() as patch:
                patch.setattr(column_changes, "schema_updates", build)
                session.sql(f"ALTER TABLE {table} ADD COLUMN theirs INT")
        return built

    monkeypatch.setattr(column_changes, "schema_updates", meanwhile)
    session.sql(f"ALTER TABLE {table} ADD COLUMN ours INT")
    fields = client.load_table(table).schema.fields
    assert [(field.field_id, field.name) for field in fields[3:]] == [(4, "theirs"), (5, "ours")]


def test_branches_and_tags(session: Session, table: str, client: Client) -> None:
    with pytest.raises(NotFound, match="no snapshot yet"):
        session.sql(f"ALTER TABLE {table} CREATE BRANCH b")
    session.sql(f"INSERT INTO {table} VALUES (1, 'a', 0)")
    session.sql(
        f"ALTER TABLE {table} CREATE BRANCH b RETAIN 7 DAYS "
        "WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 HOURS"
    )
    first = client.load_table(table).head()
    session.sql(f"INSERT INTO {table} VALUES (2, 'b', 0)")
    session.sql(f"ALTER TABLE {table} CREATE BRANCH IF NOT EXISTS b")
    session.sql(f"ALTER TABLE {table} CREATE TAG x AS OF VERSION {first} RETAIN 1 DAYS")
    session.sql(f"ALTER TABLE {table} CREATE OR REPLACE TAG x")
    loaded = client.load_table(table)
    branch, tag = loaded.refs["b"], loaded.refs["x"]
    assert (branch.snapshot_id, branch.max_ref_age_ms) == (first, 7 * 86_400_000)
    assert (branch.min_snapshots_to_keep, branch.max_snapshot_age_ms) == (2, 10_800_000)
    assert (tag.snapshot_id, tag.max_ref_age_ms) == (loaded.head(), None)
    session.sql(f"ALTER TABLE {table} DROP BRANCH b")
    session.sql(f"ALTER TABLE {table} DROP BRANCH IF EXISTS b")
    session.sql(f"ALTER TABLE {table} DROP TAG x")
    assert set(client.load_table(table).refs) == {"main"}


def test_rename_table(session: Session, table: str, namespace: str, client: Client) -> None:
    session.sql(f"ALTER TABLE {table} RENAME TO u")
    session.sql(f"ALTER TABLE {namespace}.u RENAME TO {namespace}.v")
    assert client.table_exists(f"{namespace}.v")
