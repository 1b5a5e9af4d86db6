"""MERGE and UPDATE as frames of changed rows, without a catalog: each row has the right outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.sql_columns import qualified
from frazil.spark.parse.parsed_statements import BY_SOURCE, MATCHED, NOT_MATCHED
from frazil.spark.rows.assigned_columns import Rows
from frazil.spark.rows.changed_rows import FileCodes
from frazil.spark.rows.merge_clauses import STAR, Clause, Merge
from frazil.spark.rows.merge_frames import MergeFrames, numbered_source
from frazil.values.type_json import struct_to_json
from frazil.values.types import INT, LONG, STRING, NestedField, StructType
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = StructType(
    (NestedField(1, "id", LONG, False), NestedField(2, "v", INT, False, write_default=7))
)
POINT = StructType((NestedField(11, "x", INT, False), NestedField(12, "y", INT, False)))
STRICT = StructType(
    (
        NestedField(1, "id", LONG, True),
        NestedField(2, "p", POINT, False),
        NestedField(3, "small", INT, False),
        NestedField(4, "text", STRING, False, write_default="none"),
    )
)


def table(schema: StructType = SCHEMA) -> Table:
    metadata = {
        "schemas": [{**struct_to_json(schema), "schema-id": 0}],
        "current-schema-id": 0,
        "format-version": 3,
    }
    return Table(Identifier(("ns",), "t"), metadata, "file:///nowhere")


@pytest.fixture
def target(spark: SparkSession) -> DataFrame:
    """Return keys 1 to 4 and a null key, at positions 1 to 5 and with row ids 101 to 105."""
    return spark.sql(
        """select id, v, 'f' as _file, pos as _pos, 100 + pos as _row_id from values
        (1L, 10, 1L), (2L, 20, 2L), (3L, 30, 3L), (4L, 40, 4L), (null, 50, 5L) as t(id, v, pos)"""
    )


def source_of(spark: SparkSession, rows: str) -> DataFrame:
    return spark.sql(f"select * from values {rows} as s(id, v)")


def changes(
    target: DataFrame,
    source: DataFrame,
    *clauses: Clause,
    on: Any = "target.id = source.id",
    schema: StructType = SCHEMA,
) -> list[tuple[Any, ...]]:
    """Return (position, deleted, row id, written row or None) for each line, in order."""
    merge = Merge(on=on, clauses=clauses)
    merge.check()
    # Row numbers are stored with a source; a frame of constants gives the same numbers every time.
    numbered = numbered_source(source)
    frames = MergeFrames(table(schema), merge, target, numbered, False, True)
    found = _lines(frames.changes(), schema)
    small = replace(frames, is_small_source=True)
    if small.matches_first:
        matches = small.matches(FileCodes.of([]))
        assert _gone(matches) == sorted(line[0] for line in found if line[1])
        written = _written(small.written(matches), schema)
        assert written == sorted((line[2:] for line in found if line[3] is not None), key=str)
    return found


def _gone(matches: DataFrame) -> list[int]:
    return sorted(row["_pos"] for row in matches.where("__frazil_delete").collect())


def _written(frame: DataFrame, schema: StructType) -> list[tuple[Any, ...]]:
    names = [field.name for field in schema.fields]
    assert frame.columns == [*names, "_row_id", "_last_updated_sequence_number"]
    rows = frame.collect()
    assert {row["_last_updated_sequence_number"] for row in rows} <= {None}
    return sorted(((row["_row_id"], tuple(row[name] for name in names)) for row in rows), key=str)


def _lines(frame: DataFrame, schema: StructType) -> list[tuple[Any, ...]]:
    names = [field.name for field in schema.fields]
    found = []
    for row in (line.asDict() for line in frame.collect()):
        written = tuple(row[name] for name in names) if row.get("__frazil_write") else None
        found.append((row["_pos"], row["__frazil_delete"], row.get("_row_id"), written))
    return sorted(found, key=str)


UPDATE = Clause(MATCHED, {"v": "source.v"})


def test_matched_rows_are_updated_and_others_inserted(
    spark: SparkSession, target: DataFrame
) -> None:
    source = source_of(spark, "(1L, 11), (null, 99), (9L, 90)")
    found = changes(target, source, UPDATE, Clause(NOT_MATCHED, {"id": "source.id"}))
    # Nulls match nothing, and columns that an insert does not name get their default.
    assert found == [
        (1, True, 101, (1, 11)),
        (None, False, None, (9, 7)),
        (None, False, None, (None, 7)),
    ]


def test_nulls_match_by_the_null_safe_equality(spark: SparkSession, target: DataFrame) -> None:
    source = source_of(spark, "(null, 99)")
    found = changes(target, source, UPDATE, on="target.id <=> source.id")
    assert found == [(5, True, 105, (None, 99))]


def test_the_first_clause_that_holds_decides(spark: SparkSession, target: DataFrame) -> None:
    source = source_of(spark, "(1L, 1), (2L, 2), (3L, 3), (8L, 8), (9L, 9)")
    found = changes(
        target,
        source,
        Clause(MATCHED, None, "source.v = 1"),
        Clause(MATCHED, {"v": "target.v + source.v"}, "source.v <= 2"),
        Clause(NOT_MATCHED, STAR, "source.v = 8"),
    )
    assert found == [
        (1, True, 101, None),
        (2, True, 102, (2, 22)),
        # Matched but unchanged. The line is still needed to detect a second match.
        (3, False, 103, None),
        (None, False, None, (8, 8)),
    ]


def test_rows_that_the_source_does_not_have(spark: SparkSession, target: DataFrame) -> None:
    source = source_of(spark, "(1L, 1), (9L, 9)")
    found = changes(
        target,
        source,
        Clause(NOT_MATCHED, STAR),
        Clause(BY_SOURCE, {"v": "target.v + 1"}, "target.v < 30"),
        Clause(BY_SOURCE, None, "target.v < 50"),
    )
    assert found == [
        (2, True, 102, (2, 21)),
        (3, True, 103, None),
        (4, True, 104, None),
        (None, False, None, (9, 9)),
    ]


def test_only_deletes_need_no_columns(spark: SparkSession, target: DataFrame) -> None:
    merge = Merge(on="target.id = source.id", clauses=(Clause(MATCHED),))
    assert not merge.checks_cardinality
    narrow = target.select("id", "_file", "_pos", "_row_id")
    source = numbered_source(source_of(spark, "(2L, 0), (2L, 0)"))
    frame = MergeFrames(table(), merge, narrow, source, False, True).changes()
    assert frame.columns == ["_file", "_pos", "__frazil_delete"]
    assert [row["_pos"] for row in frame.collect()] == [2, 2]


def test_conditions_may_be_columns(spark: SparkSession, target: DataFrame) -> None:
    source = source_of(spark, "(1L, 1), (2L, 2)")
    found = changes(
        target,
        source,
        Clause(MATCHED, {"v": fn.col("source.v") * 2}, fn.col("source.v") > 1),
        on=fn.col("target.id") == fn.col("source.id"),
    )
    assert found == [(1, False, 101, None), (2, True, 102, (2, 4))]


def test_which_merges_look_for_rows_that_are_matched_twice() -> None:
    def checks(*clauses: Clause) -> bool:
        return Merge(on="true", clauses=clauses).checks_cardinality

    assert checks(UPDATE)
    assert checks(Clause(MATCHED, None, "source.v = 1"))
    assert checks(Clause(MATCHED, None, "source.v = 1"), Clause(MATCHED))
    assert not checks(Clause(MATCHED))
    assert not checks(Clause(NOT_MATCHED, STAR), Clause(BY_SOURCE))


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        (Merge(on="true"), "add a WHEN clause"),
        (Merge(on="true", clauses=(UPDATE, UPDATE)), "only the last WHEN MATCHED"),
        (
            Merge(on="true", clauses=(UPDATE,), source_alias="Target"),
            "target and source are both called target",
        ),
    ],
    ids=["no clause", "unreachable clause", "one alias"],
)
def test_merges_that_cannot_be(merge: Merge, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        merge.check()


# --- assignments ----------------------------------------------------------------------------------


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    frame = spark.sql(
        """select * from values
        (1L, named_struct('x', 1, 'y', 2), 5, 'a'), (2L, null, 6, 'b') as t(id, p, small, text)"""
    )
    return Rows(frame.alias("t"), STRICT, "t", table="ns.t")


def updated(rows: Rows, **assignments: Any) -> list[dict[str, Any]]:
    columns = rows.updated({name.replace("__", "."): value for name, value in assignments.items()})
    named = [column.alias(field.name) for column, field in zip(columns, STRICT.fields, strict=True)]
    found = rows.frame.select(*named).orderBy("id").collect()
    return [row.asDict(recursive=True) for row in found]


def test_values_are_stored_in_the_types_of_their_columns(rows: Rows) -> None:
    first, second = updated(rows, small="id * 2", text="small", t__p__x="100")
    assert first == {"id": 1, "p": {"x": 100, "y": 2}, "small": 2, "text": "5"}
    # An update sets one field of a struct that was null; its other fields are then null.
    assert second == {"id": 2, "p": {"x": 100, "y": None}, "small": 4, "text": "6"}


def test_structs_are_stored_by_the_names_of_their_fields(rows: Rows) -> None:
    first, _ = updated(rows, P="named_struct('Y', 20L, 'X', 10L)", text="default")
    assert (first["p"], first["text"]) == ({"x": 10, "y": 20}, "none")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ({"small": "text"}, "column small: string cannot be stored as int"),
        ({"nowhere": "1"}, "ns.t has no column nowhere to set"),
        ({"p.x": "1", "p": "null"}, "column p is set twice"),
        ({"p": "named_struct('x', 1)"}, "column p: the value has no field y"),
        ({"p": "named_struct('x', 1, 'y', 2, 'z', 3)"}, "column p has no field z"),
    ],
    ids=["type", "unknown", "twice", "field missing", "field unknown"],
)
def test_assignments_that_do_not_fit(rows: Rows, assignments: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        rows.updated(assignments)


def test_values_that_do_not_fit_fail_the_job(rows: Rows) -> None:
    with pytest.raises(PySparkException, match="3000000000 does not fit int"):
        updated(rows, small="id + 2999999999")
    with pytest.raises(PySparkException, match="column id is required"):
        updated(rows, id="case when id = 1 then id end")


def test_inserts_need_what_is_required(rows: Rows) -> None:
    with pytest.raises(BadRequest, match="column id is required and has no default"):
        rows.inserted({"small": "1"})
    with pytest.raises(BadRequest, match="sets whole columns"):
        rows.inserted({"id": "1", "p.x": "1"})
    with pytest.raises(BadRequest, match="has no column p, small"):
        rows.all_from("s", ["ID", "text"])


def test_names_of_clauses_that_see_one_side_only(spark: SparkSession, target: DataFrame) -> None:
    """Both sides have `id` and `v`; like stock Spark, the clause uses the only side it can see."""
    found = changes(
        target,
        source_of(spark, "(1L, 11), (9L, 90)"),
        UPDATE,
        Clause(NOT_MATCHED, {"id": "id", "v": "abs(v) + `V`"}, "id > 8"),
        Clause(BY_SOURCE, {"v": "v + target.v"}, "id = 2"),
    )
    assert found == [
        (1, True, 101, (1, 11)),
        (2, True, 102, (2, 40)),
        (None, False, None, (9, 180)),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", "`s`.id"),
        ("s.id + id", "s.id + `s`.id"),
        ("concat(v, 'id')", "concat(`s`.v, 'id')"),
        ("v.x", "`s`.v.x"),
        ("id(v)", "id(`s`.v)"),
        ("transform(v, id -> id + 1)", "transform(v, id -> id + 1)"),
        ("other", "other"),
        ("'unclosed", "'unclosed"),
    ],
)
def test_where_an_alias_is_put(text: str, expected: str) -> None:
    assert qualified(text, "s", ["id", "v"], case_sensitive=False) == expected
