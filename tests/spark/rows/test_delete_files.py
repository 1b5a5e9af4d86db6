"""Deletion vectors and position deletes are declared, merged with older ones, and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import PositionDeleteFile
from frazil.spark.rows.changed_rows import write_deletes
from frazil.spark.writing.write_commit import new_folder
from frazil.values.deletion_vectors import read_deletion_vector
from frazil.values.puffin import read_footer
from frazil.wire.declared_content import DeleteFileReference
from frazil.wire.errors import BadRequest
from tests.support.touched_tables import local, make_table, touch, without_spark


def delete(client: Client, table: Table, positions: Mapping[str, Sequence[int]]) -> Any:
    context = without_spark(client)
    touched = touch(table, positions)
    written = write_deletes(context, table, touched, new_folder(context, table))
    table.row_delta(add_deletes=written.added, remove_deletes=written.removed)
    return written


def ids_left(server_url: str, table: Table) -> list[int]:
    """Return the ids that PyIceberg reads."""
    catalog = load_catalog("other", type="rest", uri=server_url)
    rows = catalog.load_table(str(table.identifier)).scan().to_arrow()
    return sorted(rows["id"].to_pylist())


def test_vectors_are_declared_with_their_place(
    client: Client, server_url: str, namespace: str
) -> None:
    table = make_table(client, namespace, 3)
    written = delete(client, table, {"0": [0, 9], "2": [5]})
    assert written.removed == ()
    assert len({file.file_path for file in written.added}) == 1
    for file in written.added:
        assert file.file_format == "puffin"
        assert file.partition in (("a",), ("b",))
        data = local(file.file_path).read_bytes()
        assert file.file_size_in_bytes == len(data)
        (blob,) = (one for one in read_footer(data).blobs if one.offset == file.content_offset)
        assert blob.length == file.content_size_in_bytes
        stored = data[blob.offset : blob.offset + blob.length]
        referenced, vector = read_deletion_vector(stored, blob)
        assert referenced == file.referenced_data_file
        assert vector.cardinality == file.record_count
    assert ids_left(server_url, table) == [*range(1, 9), *range(10, 25), *range(26, 30)]


def test_a_new_vector_takes_in_the_old_one(client: Client, server_url: str, namespace: str) -> None:
    first = delete(client, make_table(client, namespace, 3), {"0": [0], "1": [1]})
    table = client.load_table(f"{namespace}.t")
    second = delete(client, table, {"0": [3]})
    (file,) = second.added
    assert file.record_count == 2
    (old,) = (one for one in first.added if one.referenced_data_file == file.referenced_data_file)
    assert second.removed == (DeleteFileReference(old.file_path, old.content_offset),)
    assert ids_left(server_url, table) == [1, 2, *range(4, 11), *range(12, 30)]


def test_a_vector_takes_in_position_deletes_left_from_version_2(
    client: Client, server_url: str, namespace: str
) -> None:
    own = delete(client, make_table(client, namespace, 2), {"0": [0]})
    client.set_properties(f"{namespace}.t", {"write.delete.granularity": "partition"})
    shared = delete(client, client.load_table(f"{namespace}.t"), {"0": [1], "1": [2]})
    client.load_table(f"{namespace}.t").declare_metadata(
        [{"action": "upgrade-format-version", "format-version": 3}]
    )
    table = client.load_table(f"{namespace}.t")
    written = delete(client, table, {"0": [5]})
    (file,) = written.added
    assert file.record_count == 3
    assert written.removed == (own.added[0].file_path,)
    assert shared.added[0].file_path not in written.removed
    assert ids_left(server_url, table) == [*range(2, 5), *range(6, 12), *range(13, 30)]


def test_position_deletes_are_for_one_file_each(
    client: Client, server_url: str, namespace: str
) -> None:
    table = make_table(client, namespace, 2)
    written = delete(client, table, {"0": [9, 0], "1": [4]})
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
    table = make_table(client, namespace, 2)
    for file in delete(client, table, {"0": [9, 0], "2": [4]}).added:
        read = PositionDeleteFile.from_parquet(file.file_path, table, partition=file.partition)
        assert read == file


def test_position_deletes_of_one_file_replace_older_ones(
    client: Client, server_url: str, namespace: str
) -> None:
    first = delete(client, make_table(client, namespace, 2), {"0": [0]})
    table = client.load_table(f"{namespace}.t")
    second = delete(client, table, {"0": [1], "1": [1]})
    assert sorted(file.record_count for file in second.added) == [1, 2]
    assert second.removed == (first.added[0].file_path,)
    assert ids_left(server_url, table) == [*range(2, 11), *range(12, 30)]


def test_position_deletes_by_partition(client: Client, server_url: str, namespace: str) -> None:
    table = make_table(client, namespace, 2, **{"write.delete.granularity": "partition"})
    written = delete(client, table, {"0": [1], "1": [2], "2": [3]})
    shared = {file.partition: file for file in written.added}
    assert shared["a",].record_count == 2
    assert shared["a",].referenced_data_file is None
    assert shared["b",].referenced_data_file is not None
    paths = pq.read_table(local(shared["a",].file_path)).column("file_path").to_pylist()
    assert paths == sorted(paths)
    delete(client, client.load_table(f"{namespace}.t"), {"0": [2]})
    assert ids_left(server_url, table) == [0, *range(3, 12), *range(13, 23), *range(24, 30)]


def test_an_unknown_granularity_is_refused(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2, **{"write.delete.granularity": "row"})
    with pytest.raises(BadRequest, match=r"write\.delete\.granularity"):
        delete(client, table, {"0": [1]})
