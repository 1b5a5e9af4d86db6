"""Deletion vectors and position deletes: what is declared, what is taken in, who reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from frazil.client.client import Client
from frazil.client.tables import Table
from frazil.spark.context import Context
from frazil.spark.delete_files import write_deletes
from frazil.spark.folders import new_folder
from frazil.spark.positions import Positions
from frazil.spark.scan_tasks import task_of
from frazil.spark.settings import Settings
from frazil.spark.touched import Touched
from frazil.values.deletion_vectors import read_deletion_vector
from frazil.values.puffin import read_blob, read_footer
from frazil.wire.content_files import DeleteFileReference
from frazil.wire.errors import BadRequest, UnsupportedOperation

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "part", "required": False, "type": "string"},
    ],
}
BY_PART = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}],
}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("part", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://").removeprefix("file:"))


def make_table(client: Client, namespace: str, version: int, **properties: str) -> Table:
    """Three files of ten rows, two of the partition `a` and one of `b`."""
    name = f"{namespace}.t"
    client.create_table(
        name,
        SCHEMA,
        partition_spec=BY_PART,
        properties={"format-version": str(version), **properties},
    )
    table = client.load_table(name)
    paths = []
    for number, part in enumerate("aab"):
        path = local(table.location) / "data" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = list(range(number * 10, number * 10 + 10))
        pq.write_table(pa.table({"id": ids, "part": [part] * 10}, ARROW), path)
        paths.append(f"{table.location.partition('/')[0]}{path}" if ":" in table.location else path)
    client.append_files(name, paths)
    return client.load_table(name)


def context_of(client: Client) -> Context:
    """Little work is done without Spark."""
    return Context(cast(SparkSession, None), client, Settings(), "")


def touch(table: Table, positions: Mapping[int, Sequence[int]]) -> list[Touched]:
    """By the number of the file."""
    touched = []
    for planned in table.plan().tasks:
        number = int(Path(planned.data_file.file_path).stem)
        if number in positions:
            touched.append(Touched(task_of(planned), Positions.of(positions[number])))
    return touched


def delete(client: Client, table: Table, positions: Mapping[int, Sequence[int]]) -> Any:
    context = context_of(client)
    touched = touch(table, positions)
    written = write_deletes(context, table, touched, new_folder(context, table))
    table.row_delta(add_deletes=written.added, remove_deletes=written.removed)
    return written


def ids_left(server_url: str, table: Table) -> list[int]:
    """As PyIceberg reads them."""
    catalog = load_catalog("other", type="rest", uri=server_url)
    rows = catalog.load_table(str(table.identifier)).scan().to_arrow()
    return sorted(rows["id"].to_pylist())


def test_vectors_are_declared_with_their_place(
    client: Client, server_url: str, namespace: str
) -> None:
    table = make_table(client, namespace, 3)
    written = delete(client, table, {0: [0, 9], 2: [5]})
    assert written.removed == ()
    assert len({file.file_path for file in written.added}) == 1
    for file in written.added:
        assert file.file_format == "puffin"
        assert file.partition in (("a",), ("b",))
        data = local(file.file_path).read_bytes()
        assert file.file_size_in_bytes == len(data)
        (blob,) = (one for one in read_footer(data).blobs if one.offset == file.content_offset)
        assert blob.length == file.content_size_in_bytes
        referenced, vector = read_deletion_vector(read_blob(data, blob), blob)
        assert referenced == file.referenced_data_file
        assert vector.cardinality == file.record_count
    assert ids_left(server_url, table) == [*range(1, 9), *range(10, 25), *range(26, 30)]


def test_a_new_vector_takes_in_the_old_one(client: Client, server_url: str, namespace: str) -> None:
    first = delete(client, make_table(client, namespace, 3), {0: [0], 1: [1]})
    table = client.load_table(f"{namespace}.t")
    second = delete(client, table, {0: [3]})
    (file,) = second.added
    assert file.record_count == 2
    (old,) = (one for one in first.added if one.referenced_data_file == file.referenced_data_file)
    assert second.removed == (DeleteFileReference(old.file_path, old.content_offset),)
    assert ids_left(server_url, table) == [1, 2, *range(4, 11), *range(12, 30)]


def test_a_vector_takes_in_position_deletes_left_from_version_2(
    client: Client, server_url: str, namespace: str
) -> None:
    own = delete(client, make_table(client, namespace, 2), {0: [0]})
    client.set_properties(f"{namespace}.t", {"write.delete.granularity": "partition"})
    shared = delete(client, client.load_table(f"{namespace}.t"), {0: [1], 1: [2]})
    client.load_table(f"{namespace}.t").declare_metadata(
        [{"action": "upgrade-format-version", "format-version": 3}]
    )
    table = client.load_table(f"{namespace}.t")
    written = delete(client, table, {0: [5]})
    (file,) = written.added
    assert file.record_count == 3
    assert written.removed == (own.added[0].file_path,)
    assert shared.added[0].file_path not in written.removed
    assert ids_left(server_url, table) == [*range(2, 5), *range(6, 12), *range(13, 30)]


def test_position_deletes_are_for_one_file_each(
    client: Client, server_url: str, namespace: str
) -> None:
    table = make_table(client, namespace, 2)
    written = delete(client, table, {0: [9, 0], 1: [4]})
    by_file = {file.referenced_data_file: file for file in written.added}
    (first, *_) = (path for path in by_file if path is not None and path.endswith("0.parquet"))
    file = by_file[first]
    found = pq.read_table(local(file.file_path))
    assert found.column("file_path").to_pylist() == [first, first]
    assert found.column("pos").to_pylist() == [0, 9]
    ids = [field.metadata[b"PARQUET:field_id"] for field in found.schema]
    assert ids == [b"2147483546", b"2147483545"]
    assert not any(field.nullable for field in found.schema)
    assert (file.record_count, file.spec_id, file.partition) == (2, 0, ("a",))
    assert file.lower_bounds is not None
    assert file.upper_bounds is not None
    assert file.lower_bounds.values == (first.encode().hex(), "00" * 8)
    assert file.upper_bounds.values == (first.encode().hex(), "09" + "00" * 7)
    assert file.file_size_in_bytes == local(file.file_path).stat().st_size
    assert ids_left(server_url, table) == [*range(1, 9), *range(10, 14), *range(15, 30)]


def test_what_is_declared_is_what_the_footer_says(client: Client, namespace: str) -> None:
    from frazil.client.data_files import PositionDeleteFile

    table = make_table(client, namespace, 2)
    for file in delete(client, table, {0: [9, 0], 2: [4]}).added:
        read = PositionDeleteFile.from_parquet(file.file_path, table, partition=file.partition)
        assert read == file


def test_position_deletes_of_one_file_replace_older_ones(
    client: Client, server_url: str, namespace: str
) -> None:
    first = delete(client, make_table(client, namespace, 2), {0: [0]})
    table = client.load_table(f"{namespace}.t")
    second = delete(client, table, {0: [1], 1: [1]})
    assert sorted(file.record_count for file in second.added) == [1, 2]
    assert second.removed == (first.added[0].file_path,)
    assert ids_left(server_url, table) == [*range(2, 11), *range(12, 30)]


def test_position_deletes_by_partition(client: Client, server_url: str, namespace: str) -> None:
    table = make_table(client, namespace, 2, **{"write.delete.granularity": "partition"})
    written = delete(client, table, {0: [1], 1: [2], 2: [3]})
    shared = {file.partition: file for file in written.added}
    assert shared["a",].record_count == 2
    assert shared["a",].referenced_data_file is None
    assert shared["b",].referenced_data_file is not None
    paths = pq.read_table(local(shared["a",].file_path)).column("file_path").to_pylist()
    assert paths == sorted(paths)
    delete(client, client.load_table(f"{namespace}.t"), {0: [2]})
    assert ids_left(server_url, table) == [0, *range(3, 12), *range(13, 23), *range(24, 30)]


def test_version_1_has_no_delete_files(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 1)
    with pytest.raises(UnsupportedOperation, match="format version 1"):
        delete(client, table, {0: [1]})


def test_an_unknown_granularity_is_refused(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2, **{"write.delete.granularity": "row"})
    with pytest.raises(BadRequest, match=r"write\.delete\.granularity"):
        delete(client, table, {0: [1]})
