"""Compares the partition transforms of `frazil.datafiles` with those of `pyiceberg_core`.

    python -m benchmarks.arrow_transforms [rows]

For each transform and type it prints the milliseconds of both for one Arrow column, and whether
both results equal the reference, `frazil.values.transforms.apply`. The columns contain nulls,
negative numbers, timestamps before 1970, and the least and greatest values of their type.
pyiceberg_core comes with the extra `pyiceberg`. The columns have the types that it accepts.
"""

from __future__ import annotations

import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyiceberg_core import transform as core

from frazil.datafiles.writing.row_partitions import transformed
from frazil.values.single_value import decimal_from_unscaled
from frazil.values.transforms import Bucket, Transform, Truncate, apply, parse_transform
from frazil.values.type_json import parse_type
from frazil.values.types import DecimalType, Type, TypeId

ROWS: Final = 200_000
ROUNDS: Final = 5
_CHECKED_ROWS: Final = 5_000
_DISTINCT_TEXTS: Final = 2_000
"""Partition source columns usually repeat their values. A second case has only distinct ones."""

_TIMES: Final = ("year", "month", "day", "hour")
CASES: Final = (
    *((name, "timestamp") for name in _TIMES),
    *((name, "timestamptz") for name in _TIMES),
    *((name, "date") for name in _TIMES[:3]),
    *(
        ("bucket[16]", type_)
        for type_ in (
            "int",
            "long",
            "date",
            "time",
            "timestamp",
            "string",
            "string of distinct values",
            "uuid",
            "binary",
            "fixed[8]",
            "decimal(9, 2)",
            "decimal(38, 10)",
        )
    ),
    *(
        ("truncate[7]", type_)
        for type_ in (
            "int",
            "long",
            "string",
            "string of distinct values",
            "binary",
            "decimal(9, 2)",
            "decimal(38, 10)",
        )
    ),
)


def main(rows: int = ROWS) -> None:
    print(f"{rows} rows, best of {ROUNDS}\n")
    print(f"{'transform':12} {'type':26} {'own ms':>8} {'core ms':>8}  own equals, core equals")
    for name, type_name in CASES:
        print(_line(name, type_name, rows))


def _line(name: str, type_name: str, rows: int) -> str:
    type_ = parse_type(type_name.partition(" of ")[0])
    transform = parse_transform(name)
    values = _values(type_, rows, distinct="distinct" in type_name)
    own_column, core_column = _own_column(type_, values), _core_column(type_, values)
    own = _measured(lambda: transformed(transform, type_, own_column))
    other = _measured(lambda: _core(transform, core_column))
    expected = [apply(transform, type_, value) for value in values[:_CHECKED_ROWS]]
    verdicts = ", ".join(_verdict(result, expected) for _, result in (own, other))
    return f"{name:12} {type_name:26} {own[0]:8.2f} {other[0]:8.2f}  {verdicts}"


def _measured(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the best time in milliseconds, and the result or the exception."""
    best, result = float("inf"), None
    for _ in range(ROUNDS):
        start = time.perf_counter()
        try:
            result = run()
        except BaseException as error:  # a panic of pyo3 is not an Exception
            result = error
        best = min(best, (time.perf_counter() - start) * 1e3)
    return best, result


def _verdict(result: Any, expected: list[Any]) -> str:
    if isinstance(result, BaseException):
        return f"{type(result).__name__}: {str(result)[:60]}"
    column = result.slice(0, len(expected))
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    different = [
        (actual, wanted)
        for actual, wanted in zip(column.to_pylist(), expected, strict=True)
        if actual != wanted
    ]
    return f"no: {len(different)} differ, such as {different[0]}" if different else "yes"


def _core(transform: Transform, column: pa.Array) -> pa.Array:
    if isinstance(transform, Bucket):
        return core.bucket(column, transform.num_buckets)
    if isinstance(transform, Truncate):
        return core.truncate(column, transform.width)
    return getattr(core, str(transform))(column)


# --- values ---------------------------------------------------------------------------------------


def _values(type_: Type, rows: int, *, distinct: bool) -> list[Any]:
    draw = random.Random(1)
    edges = [edge for edge in _edges(type_) if edge is not None]
    pool: list[Any] = []
    if type_.type_id in (TypeId.STRING, TypeId.BINARY, TypeId.FIXED, TypeId.UUID):
        pool = [_value(type_, draw) for _ in range(rows if distinct else _DISTINCT_TEXTS)]
        body = pool if distinct else [draw.choice(pool) for _ in range(rows)]
    else:
        body = [_value(type_, draw) for _ in range(rows)]
    for position in range(0, rows, 10):
        body[position] = None
    return [*edges, *body][:rows]


def _edges(type_: Type) -> list[Any]:
    if type_.type_id in (TypeId.INT, TypeId.DATE):
        return [-1, 0, 1, -(2**31) + 10, 2**31 - 1]
    if type_.type_id in (TypeId.LONG,):
        return [-1, 0, 1, -(2**63) + 10, 2**63 - 1]
    if type_.type_id in (TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ):
        return [-1, 0, 1, -(2**55), 2**55, -3_600_000_000, -86_400_000_000]
    if type_.type_id is TypeId.STRING:
        return ["", "ä" * 9, "\U0001f600" * 9, "a\U0001f600" * 9]
    return []


def _value(type_: Type, draw: random.Random) -> Any:
    if isinstance(type_, DecimalType):
        limit = 10 ** (type_.precision - 1)
        return decimal_from_unscaled(draw.randrange(-limit, limit), type_.scale)
    makers: dict[TypeId, Callable[[], Any]] = {
        TypeId.INT: lambda: draw.randrange(-(2**31), 2**31) // 2,
        TypeId.LONG: lambda: draw.randrange(-(2**63), 2**63) // 2,
        TypeId.DATE: lambda: draw.randrange(-30_000, 30_000),
        TypeId.TIME: lambda: draw.randrange(86_400_000_000),
        TypeId.TIMESTAMP: lambda: draw.randrange(-(2**51), 2**51),
        TypeId.TIMESTAMPTZ: lambda: draw.randrange(-(2**51), 2**51),
        TypeId.STRING: lambda: "".join(draw.choices("abcdefghij ö", k=draw.randrange(24))),
        TypeId.UUID: lambda: uuid.UUID(int=draw.getrandbits(128)),
        TypeId.BINARY: lambda: draw.randbytes(draw.randrange(24)),
        TypeId.FIXED: lambda: draw.randbytes(8),
    }
    return makers[type_.type_id]()


def _core_column(type_: Type, values: list[Any]) -> pa.Array:
    if type_.type_id is TypeId.UUID:
        stored = [None if value is None else value.bytes for value in values]
        return pa.array(stored, pa.binary(16))
    if type_.type_id is TypeId.FIXED:
        return pa.array(values, pa.binary(8))
    return _own_column(type_, values)


def _own_column(type_: Type, values: list[Any]) -> pa.Array:
    """Return the column as Spark passes it."""
    if isinstance(type_, DecimalType):
        return pa.array(values, pa.decimal128(type_.precision, type_.scale))
    if type_.type_id is TypeId.UUID:
        return pa.array([None if value is None else str(value) for value in values])
    number, viewed = {
        TypeId.INT: (pa.int32(), None),
        TypeId.LONG: (pa.int64(), None),
        TypeId.DATE: (pa.int32(), pa.date32()),
        TypeId.TIME: (pa.int64(), pa.time64("us")),
        TypeId.TIMESTAMP: (pa.int64(), pa.timestamp("us")),
        TypeId.TIMESTAMPTZ: (pa.int64(), pa.timestamp("us", "UTC")),
        TypeId.STRING: (pa.string(), None),
        TypeId.BINARY: (pa.binary(), None),
        TypeId.FIXED: (pa.binary(), None),
    }[type_.type_id]
    column = pa.array(values, number)
    return column if viewed is None else column.view(viewed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
