"""Rows of users get the columns and types of a table, or an error that names the column."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.arrow.row_fitting import fit_rows
from frazil.values.type_json import parse_struct
from frazil.wire.errors import BadRequest


def schema_of(*columns: tuple[Any, ...]) -> Any:
    fields = [
        {"id": at, "name": name, "type": type_, "required": bool(rest)}
        for at, (name, type_, *rest) in enumerate(columns, 1)
    ]
    return parse_struct({"fields": fields}, "schema")


def fitted(schema: Any, **columns: pa.Array) -> list[dict[str, Any]]:
    rows = fit_rows(pa.record_batch(columns), schema)
    assert rows.schema.equals(arrow_schema(schema), check_metadata=True)
    rows.validate(full=True)
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


@pytest.mark.parametrize(
    ("type_", "given", "value"),
    [
        ("int", pa.array([7], pa.int64()), 7),
        ("int", pa.array([7.0]), 7),
        ("long", pa.array([7], pa.uint64()), 7),
        ("double", pa.array([7]), 7.0),
        ("double", pa.array([1.5], pa.float32()), 1.5),
        ("decimal(9, 2)", pa.array([Decimal("1.500")]), Decimal("1.50")),
        ("decimal(9, 2)", pa.array([3]), Decimal("3.00")),
        ("date", pa.array([date(2026, 5, 1)], pa.date64()), date(2026, 5, 1)),
        ("timestamp", pa.array([datetime(2026, 5, 1)], pa.timestamp("s")), datetime(2026, 5, 1)),
        ("timestamp", pa.array([date(2026, 5, 1)]), datetime(2026, 5, 1)),
        (
            "timestamptz",
            pa.array([datetime(2026, 5, 1, tzinfo=UTC)], pa.timestamp("ns", "Europe/Berlin")),
            datetime(2026, 5, 1, tzinfo=UTC),
        ),
        ("string", pa.array(["x"], pa.large_string()), "x"),
        ("string", pa.array(["x"], pa.string_view()), "x"),
        ("string", pa.array(["x"]).dictionary_encode(), "x"),
        ("uuid", pa.array([str(UUID(int=5))]), UUID(int=5)),
        ("uuid", pa.array([UUID(int=5).bytes]), UUID(int=5)),
        ("fixed[2]", pa.array([b"ab"]), b"ab"),
        ("binary", pa.array([b"ab"], pa.large_binary()), b"ab"),
        ("geometry", pa.array([b"\1"], pa.large_binary()), b"\1"),
        ("int", pa.array([None]), None),
    ],
)
def test_values_that_the_column_can_have(type_: str, given: pa.Array, value: Any) -> None:
    rows = fitted(schema_of(("x", type_)), x=given)
    assert rows == [{"x": value}]


@pytest.mark.parametrize(
    ("type_", "given", "message"),
    [
        ("int", pa.array([2**31]), "column x: a value of int64 does not fit int32: .*2147483648"),
        ("int", pa.array([1.5]), "column x: a value of double does not fit int32: .*1.5"),
        ("float", pa.array([0.1]), "column x: double cannot be read as float"),
        ("decimal(9, 2)", pa.array([Decimal("0.001")]), "column x: a value of decimal"),
        ("decimal(9, 2)", pa.array([0.1]), "column x: double cannot be read as decimal"),
        ("long", pa.array(["1"]), "column x: string cannot be read as int64"),
        ("string", pa.array([1]), "column x: int64 cannot be read as string"),
        ("timestamp", pa.array([1], pa.timestamp("ns")), "column x: a value of timestamp.*would"),
        ("timestamptz", pa.array([1], pa.timestamp("us")), "column x is a timestamptz, but the"),
        ("timestamp", pa.array([1], pa.timestamp("us", "UTC")), "column x is a timestamp without"),
        ("uuid", pa.array(["x"]), "column x: 'x' is no uuid"),
        ("fixed[2]", pa.array([b"abc"]), "column x: a value of binary is no fixed"),
    ],
)
def test_values_that_would_change_are_refused(type_: str, given: pa.Array, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        fitted(schema_of(("x", type_)), x=given)


NESTED: Any = schema_of(
    (
        "place",
        {
            "type": "struct",
            "fields": [
                {"id": 10, "name": "city", "type": "string", "required": True},
                {"id": 11, "name": "zip", "type": "int", "required": False},
            ],
        },
    ),
    ("tags", {"type": "list", "element-id": 12, "element": "string", "element-required": True}),
    (
        "sizes",
        {
            "type": "map",
            "key-id": 13,
            "key": "string",
            "value-id": 14,
            "value": "long",
            "value-required": False,
        },
    ),
)


def test_nested_columns_are_matched_by_name() -> None:
    rows = fitted(
        NESTED,
        sizes=pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
        tags=pa.array([["x", "y"], None], pa.large_list(pa.large_string())),
        place=pa.array([{"zip": 5, "city": "Ulm"}, None]),
    )
    assert rows == [
        {"place": {"city": "Ulm", "zip": 5}, "tags": ["x", "y"], "sizes": [("a", 1)]},
        {"place": None, "tags": None, "sizes": None},
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"place": [{"city": "Ulm", "nope": 1}]}, "column place.nope: the table has no such"),
        ({"place": [{"zip": 1}]}, "column place.city is required, but the rows do not have it"),
        ({"place": [{"city": None, "zip": 1}]}, "column place.city is required, but has nulls"),
        ({"tags": [["x", None]]}, "column tags.element is required, but has nulls"),
        ({"tags": [1]}, "column tags: int64 cannot be read as list"),
        ({"nope": [1]}, "column nope: the table has no such column; it has place, tags, sizes"),
    ],
)
def test_nested_misfits_name_the_whole_path(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        fitted(NESTED, **{name: pa.array(values) for name, values in columns.items()})


def test_missing_columns_get_their_default() -> None:
    fields = [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "n", "type": "int", "required": True, "write-default": 7},
        {"id": 3, "name": "note", "type": "string", "required": False},
    ]
    schema = parse_struct({"fields": fields}, "schema")
    assert fitted(schema, id=pa.array([1])) == [{"id": 1, "n": 7, "note": None}]
    with pytest.raises(BadRequest, match="column id is required, but the rows do not have it"):
        fitted(schema, note=pa.array(["x"]))
    with pytest.raises(BadRequest, match="column id is required, but 1 of the rows have no value"):
        fitted(schema, id=pa.array([1, None]))
    with pytest.raises(BadRequest, match="column n: the rows do not have it, and its values"):
        fit_rows(pa.record_batch({"id": [1]}), schema, is_complete=True)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(BadRequest, match="column x: the rows have two columns of this name"):
        fit_rows(twice, schema_of(("x", "long")))


def test_a_column_of_type_unknown_is_only_null() -> None:
    schema = schema_of(("id", "long"), ("nothing", "unknown"))
    assert fitted(schema, id=pa.array([1]), nothing=pa.array([None])) == [{"id": 1}]
    with pytest.raises(BadRequest, match="column nothing has the type unknown"):
        fitted(schema, id=pa.array([1]), nothing=pa.array([5]))
