"""The test table of the matrix, its partitionings and rows, and the operations on it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestampType

from tests.commit.finegrained.trees import local

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "item", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
    NestedField(4, "amount", LongType(), required=False),
    identifier_field_ids=[1],
)
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("item", pa.string()),
        pa.field("at", pa.timestamp("us")),
        pa.field("amount", pa.int64()),
    ]
)
BUCKETS = 8
PARTITIONINGS: Mapping[str, PartitionSpec] = {
    "unpartitioned": UNPARTITIONED_PARTITION_SPEC,
    "identity": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "item")),
    "bucket": PartitionSpec(PartitionField(1, 1000, BucketTransform(BUCKETS), "id_bucket")),
    "truncate": PartitionSpec(PartitionField(1, 1000, TruncateTransform(4), "id_truncate")),
    "day": PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day")),
}
BRANCH = "work"
Row: TypeAlias = tuple[Any, ...]
Write: TypeAlias = Callable[[Table, str], None]


def row(number: int, *, shift: int = 0, amount: int | None = None) -> dict[str, Any]:
    """Return a row with this id; `shift` moves it to another partition, except in partitions by
    id."""
    place = number + shift
    day = datetime.datetime(2026, 5, 1 + place % 4, 12, 30) + datetime.timedelta(minutes=number)
    return {
        "id": number,
        "item": None if place % 7 == 0 else "abc"[place % 3],
        "at": None if place % 11 == 0 else day,
        "amount": number * 10 if amount is None else amount,
    }


def rows(*ids: int, shift: int = 0, amount: int | None = None) -> pa.Table:
    found = [row(number, shift=shift, amount=amount) for number in ids]
    return pa.Table.from_pylist(found, schema=ARROW)


def create(
    catalog: Catalog,
    name: str,
    partitioning: str = "unpartitioned",
    version: int = 2,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    given = {"format-version": str(version), **properties}
    spec = PARTITIONINGS[partitioning]
    return catalog.create_table(name, SCHEMA, partition_spec=spec, properties=given)


def read(table: Table, ref: str = "main") -> list[Row]:
    """Return all rows of the ref, sorted and with duplicates."""
    scan = table.scan() if table.current_snapshot() is None else table.scan().use_ref(ref)
    found = scan.to_arrow()
    columns = sorted(found.column_names)
    return in_order(tuple(one[name] for name in columns) for one in found.to_pylist())


def in_order(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda one: [(value is not None, str(value)) for value in one])


def ids(table: Table, ref: str = "main") -> list[int]:
    scan = table.scan(selected_fields=("id",))
    found = scan.to_arrow() if table.current_snapshot() is None else scan.use_ref(ref).to_arrow()
    return cast("list[int]", sorted(found["id"].to_pylist()))


def partition_of(partitioning: str, one: Mapping[str, Any]) -> Any:
    """Compute the partition value of a row with PyIceberg's transforms."""
    (field,) = PARTITIONINGS[partitioning].fields
    source = SCHEMA.find_field(field.source_id)
    value = one[source.name]
    if value is not None and isinstance(value, datetime.datetime):
        value = int((value - datetime.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
    return field.transform.transform(source.field_type)(value)


# --- operations -----------------------------------------------------------------------------------
# One append adds ids 1 to 12 and another one ids 13 to 20.

FIRST = range(1, 13)
SECOND = range(13, 21)
LATER = range(200, 204)


def fill(table: Table) -> None:
    table.append(rows(*FIRST))
    table.append(rows(*SECOND))


def _append(table: Table, ref: str) -> None:
    table.append(rows(*range(30, 36)), branch=ref)


def _overwrite(table: Table, ref: str) -> None:
    table.overwrite(rows(*range(5, 9), 40, shift=1), branch=ref)


def _overwrite_by_filter(table: Table, ref: str) -> None:
    filled = rows(2, 41, 42, shift=2)
    table.overwrite(filled, overwrite_filter="id <= 3 or item = 'b'", branch=ref)


def _dynamic_partition_overwrite(table: Table, ref: str) -> None:
    table.dynamic_partition_overwrite(replacement(), branch=ref)


def replacement() -> pa.Table:
    """Return rows without nulls that cover some of the partitions in every partitioning."""
    return rows(5, 17, 25, amount=7)


def _delete_files(table: Table, ref: str) -> None:
    table.delete("id >= 13", branch=ref)


def _delete_rows(table: Table, ref: str) -> None:
    table.delete("id in (2, 5, 14) or amount = 70 or at is null", branch=ref)


def _upsert(table: Table, ref: str) -> None:
    changed = [row(2, amount=-2), row(5, shift=1, amount=-5), row(14, shift=2)]
    unchanged = [row(13)]
    inserted = [row(50), row(51)]
    given = pa.Table.from_pylist(changed + unchanged + inserted, schema=ARROW)
    result = table.upsert(given, branch=ref)
    assert (result.rows_updated, result.rows_inserted) == (3, 2)


def _add_files(table: Table, ref: str) -> None:
    table.add_files(importable_files(table, 64, 72), branch=ref)


def importable_files(table: Table, *first_ids: int) -> list[str]:
    """Write files without field ids next to the table's own, each with two rows of one
    partition.

    Only a bucket partition cannot be derived from a footer.
    """
    paths = []
    for number in first_ids:
        path = local(table.location()) / "imported" / f"rows-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        both = [row(number), {**row(number), "id": number + 1}]
        pq.write_table(pa.Table.from_pylist(both, schema=ARROW), path)
        paths.append(f"file://{path}")
    return paths


def _transaction(table: Table, ref: str) -> None:
    """Run several operations in one transaction; each one sees the changes of the previous ones."""
    with table.transaction() as transaction:
        several(transaction, ref)


def several(transaction: Transaction, ref: str) -> None:
    transaction.append(rows(60, 61, 62), branch=ref)
    transaction.delete("id = 61 or id = 3", branch=ref)
    given = [row(62, amount=1), row(4, shift=1), row(5), row(63)]
    result = transaction.upsert(pa.Table.from_pylist(given, schema=ARROW), branch=ref)
    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    with transaction.update_schema() as update:
        update.add_column("note", IntegerType())
    transaction.set_properties({"owner": "somebody", "reason": "a test"})
    schema = ARROW.append(pa.field("note", pa.int32()))
    wider = pa.Table.from_pylist([{**row(19), "note": 19}], schema=schema)
    transaction.overwrite(wider, overwrite_filter="id >= 18 and id < 60", branch=ref)
    transaction.append(pa.Table.from_pylist([{**row(64), "note": 64}], schema=schema), branch=ref)
    transaction.delete("id = 6", branch=ref)


OPERATIONS: Mapping[str, Write] = {
    "append": _append,
    "overwrite": _overwrite,
    "overwrite by filter": _overwrite_by_filter,
    "dynamic_partition_overwrite": _dynamic_partition_overwrite,
    "delete whole files": _delete_files,
    "delete rows": _delete_rows,
    "upsert": _upsert,
    "add_files": _add_files,
    "transaction": _transaction,
}
