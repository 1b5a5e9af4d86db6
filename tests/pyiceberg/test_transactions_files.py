"""A failed commit deletes its own data files and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, NestedField

from frazil.pyiceberg import ValidationError
from frazil.pyiceberg.written_files import FilesAbandoned, WrittenFiles
from tests.commit.finegrained.trees import local
from tests.pyiceberg.conftest import frazil_catalog
from tests.pyiceberg.recorded import Commits, data_files_on_disk
from tests.pyiceberg.tables import create, ids, importable_files, rows
from tests.stock_clients.stock import ID_NAME, id_name, pyiceberg_ids
from tests.support.server import RunningServer


class Broken(Exception):
    """The error that tests raise."""


@pytest.fixture
def table(frazil: Catalog, namespace: str) -> Table:
    properties = {"write.target-file-size-bytes": "1"}
    table = frazil.create_table((namespace, "t"), ID_NAME, properties=properties)
    table.append(id_name(*range(10)))
    return table


def breaking_reader(batches: int) -> pa.RecordBatchReader:
    """Return a reader that raises an error after some batches; each batch becomes a file."""

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(batches):
            yield id_name(number).to_batches()[0]
        raise Broken("no more")

    return pa.RecordBatchReader.from_batches(id_name().schema, rows())


def test_rows_that_end_in_an_error(frazil: Catalog, table: Table) -> None:
    before = data_files_on_disk(table)
    commits = Commits(frazil)
    with pytest.raises(Broken):
        table.append(breaking_reader(5))
    assert data_files_on_disk(table) == before
    assert commits.bodies == []


def test_an_overwrite_that_ends_in_an_error(table: Table) -> None:
    """The delete of the overwrite has already rewritten a file."""
    before = data_files_on_disk(table)
    with pytest.raises(Broken):
        table.overwrite(breaking_reader(3), "id = 1")
    assert data_files_on_disk(table) == before
    assert pyiceberg_ids(table.refresh()) == list(range(10))


def test_a_transaction_left_by_an_exception(frazil: Catalog, table: Table) -> None:
    before = data_files_on_disk(table)
    commits = Commits(frazil)
    with pytest.raises(Broken), table.transaction() as transaction:
        transaction.append(id_name(20, 21))
        transaction.delete("id = 1")
        assert data_files_on_disk(table) > before
        raise Broken
    assert data_files_on_disk(table) == before
    assert commits.bodies == []


def test_what_went_well_before_a_failed_operation_stays(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append(id_name(20))
        with pytest.raises(Broken):
            transaction.overwrite(breaking_reader(3), "id = 1")
        transaction.append(id_name(21))
    assert pyiceberg_ids(table) == [*range(10), 20, 21]


def test_a_request_that_the_server_finds_wrong(frazil: Catalog, table: Table) -> None:
    """The request names a file below another table's location, which only the server can detect."""
    other = frazil.create_table((*table.name()[:-1], "other"), ID_NAME)
    other.append(id_name(1))
    (foreign,) = data_files_on_disk(other)
    before = data_files_on_disk(table)
    with pytest.raises(BadRequestError), table.transaction() as transaction:
        transaction.append(id_name(20))
        transaction.add_files([f"file://{foreign}"])
    assert data_files_on_disk(table) == before
    assert foreign.exists()


def test_files_of_the_user_are_never_taken(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    paths = importable_files(table, 64, 72)
    with pytest.raises(Broken), table.transaction() as transaction:
        transaction.append(rows(1))
        transaction.add_files(paths)
        raise Broken
    assert data_files_on_disk(table) == {local(path) for path in paths}
    table.add_files(paths)
    with pytest.raises(ValueError, match="already referenced"), table.transaction() as transaction:
        transaction.append(rows(2))
        transaction.add_files(paths)
    assert data_files_on_disk(table) == {local(path) for path in paths}
    assert ids(table) == [64, 65, 72, 73]


def test_a_file_added_and_removed_in_one_transaction_stays_for_its_snapshot(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append(id_name(20, 21))
        transaction.delete("id = 20")
    staged = table.metadata.snapshots[-2]
    found = table.scan(snapshot_id=staged.snapshot_id).to_arrow()
    assert sorted(found["id"].to_pylist()) == [*range(10), 20, 21]
    assert pyiceberg_ids(table) == [*range(10), 21]


@pytest.mark.parametrize("io", ["pyarrow.PyArrowFileIO", "fsspec.FsspecFileIO"])
def test_files_of_either_file_io_are_noted(
    catalog_server: RunningServer, namespace: str, io: str
) -> None:
    catalog = frazil_catalog(catalog_server.url, **{"py-io-impl": f"pyiceberg.io.{io}"})
    table = create(catalog, f"{namespace}.t", properties={"write.target-file-size-bytes": "1"})
    assert type(table.io).__name__ == io.split(".")[1]
    table.append(rows(1, 2, 3))
    table.delete("id = 2")
    assert ids(table) == [1, 3]
    before = data_files_on_disk(table)
    stale = catalog.load_table(table.name())
    table.append(rows(4))
    after = data_files_on_disk(table)
    assert after > before
    with pytest.raises(ValidationError):
        stale.overwrite(rows(5), "id >= 3")
    assert data_files_on_disk(table) == after
    catalog.close()


def test_a_partition_value_that_json_lacks_is_named(frazil: Catalog, namespace: str) -> None:
    schema = Schema(NestedField(1, "ratio", DoubleType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ratio_part"))
    table = frazil.create_table((namespace, "t"), schema, partition_spec=spec)
    with pytest.raises(ValueError, match="partition field 'ratio_part'"):
        table.append(pa.table({"ratio": [1.0, float("inf")]}))
    assert data_files_on_disk(table) == set()


# --- the record itself --------------------------------------------------------------------------


def test_a_thread_that_comes_late_writes_nothing(table: Table) -> None:
    written = WrittenFiles(table.io)
    io = written.begin()
    early = io.new_output(f"{table.location()}/data/early.parquet")
    late = io.new_output(f"{table.location()}/data/late.parquet")
    with early.create() as stream:
        stream.write(b"x")
    assert local(early.location).exists()
    written.abandon(io, keep=())
    assert not local(early.location).exists()
    for output in (late, io.new_output(f"{table.location()}/data/later.parquet")):
        with pytest.raises(FilesAbandoned):
            output.create()
        assert not local(output.location).exists()
    other = written.begin().new_output(late.location)
    other.create().close()
    assert written.paths == {late.location}


def test_only_what_is_not_forgotten_goes(table: Table) -> None:
    written = WrittenFiles(table.io)
    io = written.begin()
    outputs = [io.new_output(f"{table.location()}/data/{name}.parquet") for name in "abc"]
    for output in outputs:
        output.create().close()
    first, second, third = (output.location for output in outputs)
    written.forget({first})
    written.discard(keep={second})
    assert [local(path).exists() for path in (first, second, third)] == [True, True, False]
    assert written.paths == {second}
