"""Defects of PyIceberg's own commit loop, and the behavior of `retrying` in the same cases.

The tests named `stock` record PyIceberg's behavior. If one fails after an upgrade, the library
has changed and the difference is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from frazil.pyiceberg import retrying
from tests.pyiceberg.retrying.retrying_tables import (
    BY_BUCKET,
    QUICK,
    SCHEMA,
    SNAPSHOT_ISOLATION,
    InterleavedCatalog,
    commit_deletes,
    data_files,
    position_delete,
    read,
    rows,
    sql_catalog,
    stray_metadata,
)

Wrap = Callable[[Table], Table]
BUCKET = BucketTransform(4).transform(LongType())


def stock(table: Table) -> Table:
    return table


@pytest.fixture
def catalog(tmp_path: Path) -> InterleavedCatalog:
    return sql_catalog(tmp_path)


def rewrite(table: Table, old: DataFile) -> Transaction:
    """Return an open compaction that replaces one file by another with the same rows."""
    transaction = table.transaction()
    rewritten = table.scan().to_arrow()
    new = next(iter(_dataframe_to_data_files(table.metadata, rewritten, table.io)))
    overwrite = transaction.update_snapshot().overwrite()
    overwrite.delete_data_file(old)
    overwrite.append_data_file(new)
    overwrite.commit()
    return transaction


def race_with_position_delete(catalog: InterleavedCatalog, wrap: Wrap) -> tuple[Table, Transaction]:
    table = catalog.create_table("db.t", SCHEMA, properties={**QUICK, **SNAPSHOT_ISOLATION})
    table.append(rows((1, "a", 1), (2, "a", 2), (3, "a", 3)))
    [old] = data_files(table)
    transaction = rewrite(wrap(catalog.load_table("db.t")), old)
    commit_deletes(table, [position_delete(table, old, 0)])
    assert read(table) == [(2, "a", 2), (3, "a", 3)]
    catalog.load_table("db.t").append(rows((100, "a", 100)))
    return table, transaction


def test_stock_brings_back_a_row_that_was_deleted_beside_it(catalog: InterleavedCatalog) -> None:
    table, transaction = race_with_position_delete(catalog, stock)
    transaction.commit_transaction()
    assert (1, "a", 1) in read(table)


def test_a_row_that_was_deleted_beside_a_rewrite_stays_deleted(catalog: InterleavedCatalog) -> None:
    table, transaction = race_with_position_delete(catalog, retrying)
    with pytest.raises(ValidationException, match="found new deletes for replaced data files"):
        transaction.commit_transaction()
    assert read(table) == [(100, "a", 100), (2, "a", 2), (3, "a", 3)]
    assert stray_metadata(table) == set()


def ids_of_two_buckets() -> tuple[list[int], list[int]]:
    """Return two lists of ids whose ranges overlap and whose buckets differ."""
    numbers = range(1, 100)
    first, second = BUCKET(1), next(BUCKET(each) for each in numbers if BUCKET(each) != BUCKET(1))
    return (
        [each for each in numbers if BUCKET(each) == first][:4],
        [each for each in numbers if BUCKET(each) == second][:4],
    )


def bucket_table(catalog: InterleavedCatalog) -> tuple[Table, list[int], list[int]]:
    mine, theirs = ids_of_two_buckets()
    table = catalog.create_table("db.t", SCHEMA, partition_spec=BY_BUCKET, properties=QUICK)
    table.append(rows(*[(each, "a", 0) for each in (*mine, *theirs)]))
    return table, mine, theirs


def two_deletes(catalog: InterleavedCatalog, wrap: Wrap) -> tuple[list[int], list[int]]:
    """Run two deletes, each of two inner ids of its own bucket, so that both rewrite a file."""
    table, mine, theirs = bucket_table(catalog)
    first, second = wrap(catalog.load_table("db.t")), wrap(catalog.load_table("db.t"))
    first.delete(f"id in ({mine[1]}, {mine[2]})")
    second.delete(f"id in ({theirs[1]}, {theirs[2]})")
    return sorted(row[0] or 0 for row in read(table)), sorted(
        [mine[0], mine[3], theirs[0], theirs[3]]
    )


def test_stock_refuses_a_delete_in_another_bucket(catalog: InterleavedCatalog) -> None:
    with pytest.raises(ValidationException):
        two_deletes(catalog, stock)


def test_deletes_in_different_buckets_both_land(catalog: InterleavedCatalog) -> None:
    found, wanted = two_deletes(catalog, retrying)
    assert found == wanted


def two_upserts(catalog: InterleavedCatalog, wrap: Wrap) -> tuple[list[int], list[int]]:
    """Run two upserts that each update an inner id of its own bucket."""
    table, mine, theirs = bucket_table(catalog)
    first, second = wrap(catalog.load_table("db.t")), wrap(catalog.load_table("db.t"))
    first.upsert(rows((mine[1], "a", 1)), join_cols=["id"])
    second.upsert(rows((theirs[1], "a", 2)), join_cols=["id"])
    values = {row[0]: row[2] for row in read(table)}
    assert len(read(table)) == len(values)
    return [values[mine[1]] or 0, values[theirs[1]] or 0], [1, 2]


def test_stock_refuses_an_upsert_in_another_bucket(catalog: InterleavedCatalog) -> None:
    with pytest.raises(ValidationException):
        two_upserts(catalog, stock)


def test_upserts_in_different_buckets_both_land(catalog: InterleavedCatalog) -> None:
    found, wanted = two_upserts(catalog, retrying)
    assert found == wanted


def two_inserts_of_a_key(catalog: InterleavedCatalog, wrap: Wrap) -> Table:
    table = catalog.create_table("db.t", SCHEMA, properties=QUICK)
    table.append(rows((1, "a", 1)))
    first, second = wrap(catalog.load_table("db.t")), wrap(catalog.load_table("db.t"))
    first.upsert(rows((7, "a", 1)), join_cols=["id"])
    second.upsert(rows((7, "a", 2)), join_cols=["id"])
    return table


def test_stock_inserts_a_key_twice(catalog: InterleavedCatalog) -> None:
    table = two_inserts_of_a_key(catalog, stock)
    assert read(table) == [(1, "a", 1), (7, "a", 1), (7, "a", 2)]


def test_a_key_is_inserted_once(catalog: InterleavedCatalog) -> None:
    with pytest.raises(ValidationException, match="conflicting files that can contain records"):
        two_inserts_of_a_key(catalog, retrying)
    table = catalog.load_table("db.t")
    assert read(table) == [(1, "a", 1), (7, "a", 1)]


def tag_beside_append(catalog: InterleavedCatalog, wrap: Wrap) -> Table:
    table = catalog.create_table("db.t", SCHEMA, properties=QUICK)
    table.append(rows((1, "a", 1)))
    tagged = table.metadata.current_snapshot_id
    assert tagged is not None
    transaction = wrap(catalog.load_table("db.t")).transaction()
    transaction.append(rows((2, "a", 2)))
    transaction._stage(*transaction._set_ref_snapshot(tagged, "kept", "tag"))
    table.append(rows((3, "a", 3)))
    transaction.commit_transaction()
    return catalog.load_table("db.t")


def test_stock_forgets_a_tag_on_its_retry(catalog: InterleavedCatalog) -> None:
    table = tag_beside_append(catalog, stock)
    assert "kept" not in table.metadata.refs


def test_a_tag_of_the_transaction_is_kept_on_a_retry(catalog: InterleavedCatalog) -> None:
    table = tag_beside_append(catalog, retrying)
    assert "kept" in table.metadata.refs
    assert read(table) == [(1, "a", 1), (2, "a", 2), (3, "a", 3)]
