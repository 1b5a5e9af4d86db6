"""The annotation that turns a group of two binary columns into a variant."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.datafiles.arrow.arrow_types import arrow_schema, spark_arrow_schema
from frazil.datafiles.arrow.spark_batches import to_table
from frazil.datafiles.writing.variant_annotation import annotate, annotating, variant_ids
from frazil.values import types as it
from frazil.values.types import ListType, MapType, NestedField, StructType

PLAIN = StructType(
    (NestedField(21, "metadata", it.BINARY, True), NestedField(22, "value", it.BINARY, True))
)
SCHEMA = StructType(
    (
        NestedField(1, "id", it.LONG, True),
        NestedField(2, "v", it.VARIANT, False),
        NestedField(3, "l", ListType(NestedField(4, "element", it.VARIANT, False)), False),
        NestedField(
            5,
            "m",
            MapType(
                NestedField(6, "key", it.STRING, True), NestedField(7, "value", it.VARIANT, False)
            ),
            False,
        ),
        NestedField(8, "s", StructType((NestedField(9, "v", it.VARIANT, True),)), False),
        NestedField(10, "plain", PLAIN, False),
    )
)
ONE = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "v": ONE, "l": [ONE, None], "m": [("k", ONE)], "s": {"v": ONE}, "plain": ONE},
    {"id": 2, "v": None, "l": None, "m": None, "s": None, "plain": None},
]


def batch_of(schema: StructType, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    given = pa.RecordBatch.from_pylist(rows, schema=spark_arrow_schema(schema))
    return to_table(given, arrow_schema(schema))


def write(sink: Any, batch: pa.RecordBatch, **options: Any) -> int:
    """Write the batch twice and return the file size that the sink reports."""
    writer = pq.ParquetWriter(sink, batch.schema, **options)
    writer.write_batch(batch)
    writer.write_batch(batch)
    writer.close()
    size = int(sink.tell())
    sink.close()
    return size


def groups_of(file: pq.ParquetFile) -> dict[str, bool]:
    """Return the groups of a file by name, and whether each is a variant."""
    lines = str(file.schema).splitlines()
    return {
        line.split("field_id=")[1].split()[0]: "(Variant(1))" in line
        for line in lines
        if " group field_id=" in line and "field_id=-1" not in line
    }


@pytest.mark.parametrize("page_index", [False, True], ids=["plain", "indexed"])
def test_variants_are_annotated_at_every_level_and_nothing_else_is(
    tmp_path: Path, page_index: bool
) -> None:
    batch = batch_of(SCHEMA, ROWS)
    assert variant_ids(batch.schema) == {2, 4, 7, 9}
    path = tmp_path / "variants.parquet"
    sink = annotating(path.open("wb"), batch.schema)
    size = write(sink, batch, write_page_index=page_index, write_batch_size=1)
    assert size == path.stat().st_size
    file = pq.ParquetFile(path)
    assert groups_of(file) == {
        "2": True,
        "3": False,
        "4": True,
        "5": False,
        "7": True,
        "8": False,
        "9": True,
        "10": False,
    }
    assert file.read().to_pylist() == [*batch.to_pylist(), *batch.to_pylist()]
    with duckdb.connect() as connection:
        query = f"SELECT id, v, l, s.v FROM '{path}' ORDER BY id"
        rows = connection.sql(query).fetchall()
        types = [str(type_) for type_ in connection.sql(query).types]
    assert types == ["BIGINT", "VARIANT", "VARIANT[]", "VARIANT"]
    assert rows[0] == (1, 1, [1, None], 1)


def test_a_file_without_variants_keeps_its_sink() -> None:
    plain = StructType((NestedField(10, "plain", PLAIN, False),))
    sink = io.BytesIO()
    assert annotating(sink, arrow_schema(plain)) is sink


def test_what_is_annotated_already_stays() -> None:
    batch = batch_of(SCHEMA, ROWS)
    buffer = _Kept()
    write(annotating(buffer, batch.schema), batch)
    data = buffer.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    assert annotate(footer, {2, 4, 7, 9}) == footer
    assert annotate(footer, {10}) != footer


class _Kept(io.BytesIO):
    """A buffer that can still be read after it was closed."""

    def close(self) -> None:
        self.flush()


def test_many_columns_and_large_ids_are_walked_over() -> None:
    fields = [NestedField(1000 + n, f"c{n}", it.DOUBLE, False) for n in range(40)]
    schema = StructType((*fields, NestedField(2_000_000, "v", it.VARIANT, False)))
    batch = batch_of(schema, [{"c0": 1.0, "v": ONE}])
    buffer = _Kept()
    write(annotating(buffer, batch.schema), batch)
    file = pq.ParquetFile(io.BytesIO(buffer.getvalue()))
    assert groups_of(file) == {"2000000": True}
    assert file.metadata.num_rows == 2
