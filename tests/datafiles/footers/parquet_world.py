"""Tables made from metadata only, and real Parquet files with field ids, for tests of footers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frazil import Table
from frazil.values.single_value import from_binary
from frazil.values.type_json import parse_type
from frazil.values.types import Type
from frazil.wire.declared_content import CountMap, DeclaredContentFile, ValueMap
from frazil.wire.identifiers import Identifier

_numbers = itertools.count()


def column(
    field_id: int, name: str, type_: Any, *, required: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a schema field as Iceberg's JSON."""
    return {"id": field_id, "name": name, "type": type_, "required": required, **more}


def struct(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def part(source_id: int, name: str, transform: str) -> dict[str, Any]:
    return {"source-id": source_id, "field-id": 0, "name": name, "transform": transform}


def table_of(
    *columns: Mapping[str, Any],
    spec: Iterable[Mapping[str, Any]] = (),
    properties: Mapping[str, str] | None = None,
    former: Sequence[Mapping[str, Any]] = (),
    sort_fields: Sequence[Mapping[str, Any]] = (),
    location: str = "file:///warehouse/ns/t",
    format_version: int = 2,
) -> Table:
    """Return a table as a client has it after loading; `former` are columns of an earlier
    schema."""
    fields = [{**one, "field-id": 1000 + at} for at, one in enumerate(spec)]
    metadata = {
        "format-version": format_version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": location,
        "schemas": [
            {**struct(*former), "schema-id": 0},
            {**struct(*columns), "schema-id": 1},
        ],
        "current-schema-id": 1,
        "partition-specs": [
            {"spec-id": 0, "fields": fields},
            {"spec-id": 7, "fields": []},
        ],
        "default-spec-id": 0,
        "sort-orders": [{"order-id": 1, "fields": list(sort_fields)}],
        "default-sort-order-id": 1,
        "properties": dict(properties or {}),
    }
    return Table(Identifier(("ns",), "t"), metadata, f"{location}/metadata/v1.json")


def arrow(
    name: str, type_: pa.DataType, field_id: int | None = None, *, nullable: bool = True
) -> pa.Field:
    """Return an Arrow field; with an id, it has the metadata of a field in a Parquet file."""
    ids = None if field_id is None else {"PARQUET:field_id": str(field_id)}
    return pa.field(name, type_, nullable, metadata=ids)


def write(
    folder: Path, fields: Sequence[pa.Field], *values: Any, name: str | None = None, **options: Any
) -> str:
    """Write one array or list of values for each field and return the path."""
    arrays = [
        one if isinstance(one, pa.Array | pa.ChunkedArray) else pa.array(one, field.type)
        for field, one in zip(fields, values, strict=True)
    ]
    path = folder / (name or f"{next(_numbers)}.parquet")
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(list(fields))), path, **options)
    return str(path)


def counts(found: CountMap | None) -> dict[int, int]:
    return {} if found is None else dict(found.items())


def hex_bounds(found: ValueMap | None) -> dict[int, bytes]:
    if found is None:
        return {}
    return {
        key: bytes.fromhex(str(value)) for key, value in zip(found.keys, found.values, strict=True)
    }


def bounds(file: DeclaredContentFile, field_id: int, type_: Type | str) -> tuple[Any, Any]:
    """Return the lower and the upper bound as values, None where a bound is missing."""
    known = parse_type(type_) if isinstance(type_, str) else type_
    sides = (hex_bounds(file.lower_bounds), hex_bounds(file.upper_bounds))
    lower, upper = (
        from_binary(known, side[field_id]) if field_id in side else None for side in sides
    )
    return lower, upper
