"""Equality deletes: which keys can be written, in which partitions, and that readers apply them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile, EqualityDeleteFile
from frazil.spark.core.context import Context, Settings
from frazil.spark.writing.equality_deletes import covering_specs, write_equality_deletes
from frazil.spark.writing.write_commit import new_folder
from frazil.wire.errors import BadRequest
from tests.support.touched_tables import ARROW, add_file, make_table

BY_BUCKET = [{"source-id": 1, "field-id": 1001, "name": "b", "transform": "bucket[4]"}]


def write(
    spark: SparkSession, client: Client, table: Table, rows: list[tuple[Any, ...]], *columns: str
) -> tuple[EqualityDeleteFile, ...]:
    """Write equality deletes and commit them."""
    context = Context(spark, client, Settings(), "")
    types = {"id": "id long", "part": "part string"}
    keys = spark.createDataFrame(rows, ", ".join(types[name] for name in columns))
    key = [field for field in table.schema.fields if field.name in columns]
    files = write_equality_deletes(table, keys, key, new_folder(context, table))
    table.row_delta(add_deletes=files)
    return files


def add_spec(client: Client, table: Table, fields: list[dict[str, Any]]) -> Table:
    table.declare_metadata(
        [
            {"action": "add-spec", "spec": {"spec-id": 1, "fields": fields}},
            {"action": "set-default-spec", "spec-id": -1},
        ]
    )
    return client.load_table(str(table))


def ids_in(spark: SparkSession, stock: str, table: Table) -> list[int]:
    """Return the ids that stock Spark reads."""
    rows = spark.sql(f"SELECT id FROM {stock}.{table} ORDER BY id").collect()
    return [row[0] for row in rows]


def test_keys_are_written_in_their_partitions(
    client: Client, namespace: str, spark: SparkSession, stock: str
) -> None:
    table = make_table(client, namespace, 2)
    rows = [(3, "a"), (13, "a"), (25, "b"), (26, "a"), (None, "b")]
    files = {file.partition: file for file in write(spark, client, table, rows, "id", "part")}
    assert {part: file.record_count for part, file in files.items()} == {("a",): 3, ("b",): 2}
    for file in files.values():
        assert file.equality_ids == (1, 2)
        assert file.sort_order_id is None
        assert file.null_value_counts is not None
    # Row 26 is in another partition, so the delete of its key has no effect.
    expected = [*range(3), *range(4, 13), *range(14, 25), *range(26, 30)]
    assert ids_in(spark, stock, table) == expected


def test_keys_of_an_unpartitioned_table_are_one_file(
    client: Client, namespace: str, spark: SparkSession, stock: str
) -> None:
    table = make_table(client, namespace, 3)
    table = add_spec(client, table, [])
    (file,) = write(spark, client, table, [(3,), (25,)], "id")
    assert (file.spec_id, file.partition, file.equality_ids) == (1, (), (1,))
    read = EqualityDeleteFile.from_parquet(file.file_path, table, columns=["id"])
    assert read == file
    # The delete also applies to files of the older, partitioned spec.
    expected = [*range(3), *range(4, 25), *range(26, 30)]
    assert ids_in(spark, stock, table) == expected


def test_keys_are_written_in_every_spec(
    client: Client, namespace: str, spark: SparkSession, stock: str
) -> None:
    table = add_spec(client, make_table(client, namespace, 2), BY_BUCKET)
    path = add_file(table, "new", pa.table({"id": [40], "part": ["a"]}, ARROW))
    table.append_files([DataFile.from_parquet(path, table)])
    table = client.load_table(str(table))
    files = write(spark, client, table, [(3, "a"), (40, "a")], "id", "part")
    assert sorted({file.spec_id for file in files}) == [0, 1]
    assert ids_in(spark, stock, table) == [*range(3), *range(4, 30)]


# --- without Spark --------------------------------------------------------------------------------


def test_a_key_must_tell_the_partition(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    assert covering_specs(table, [1, 2]) == (0,)
    with pytest.raises(BadRequest, match="column part is not part of the key"):
        covering_specs(table, [1])


def test_specs_without_live_files_do_not_matter(client: Client, namespace: str) -> None:
    table = add_spec(client, make_table(client, namespace, 2), BY_BUCKET)
    with pytest.raises(BadRequest, match=r"part \(spec 0\)"):
        covering_specs(table, [1])
    table.delete_files(row_filter="id >= 0")
    assert covering_specs(client.load_table(str(table)), [1]) == (1,)
