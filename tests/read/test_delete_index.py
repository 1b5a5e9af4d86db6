"""Which delete files apply to a data file: the rules of the specification on real manifests."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.format.manifest.manifest_columns import metrics
from frazil.format.manifest.manifest_list import DELETES
from frazil.format.metadata.content_files import DataFile
from frazil.read.delete_index import DeleteIndex, IndexedDataFile, TwoDeletionVectors
from frazil.read.manifest_row import ManifestRow
from frazil.values.single_value import to_binary
from frazil.values.types import LONG
from tests.commit.branches import (
    BY_REGION,
    BY_SCORE,
    UNPARTITIONED,
    Branches,
    equality_delete,
    position_delete,
    vector,
)


def index_of(branches: Branches, **options: Any) -> DeleteIndex:
    """Return an index of the live delete files at the head."""
    reader, head = branches.reader, branches.head()
    assert head is not None
    entries: list[ManifestRow] = []
    for listed in reader.manifest_list(head).manifests:
        if listed.content == DELETES:
            columns = reader.columns(listed)
            numbers = columns.inherited(listed).sequence_number
            entries += [
                ManifestRow(listed, columns, row, int(numbers[row]))
                for row in range(len(columns))
                if columns.live()[row]
            ]

    def metrics_of(entry: ManifestRow) -> Any:
        (found,) = metrics(reader.content(entry.listed), entry.columns, [entry.row])
        return found

    return DeleteIndex(entries, branches.metadata, metrics_of=metrics_of, **options)


def applied(
    index: DeleteIndex, path: str, *partition: Any, number: int, metrics: Any = None
) -> list[str]:
    file = IndexedDataFile(path, 0, partition, number, None if metrics is None else lambda: metrics)
    return sorted(entry.file_path for entry in index.for_data_file(file))


def test_equality_deletes_apply_to_older_rows_of_their_partition() -> None:
    branches = Branches.create(2, BY_REGION)
    branches.commit("delete", add=[equality_delete("e-1", "eu")])
    branches.commit("delete", add=[equality_delete("e-2", "eu"), equality_delete("u-2", "us")])
    index = index_of(branches)
    assert applied(index, "a", "eu", number=0) == ["e-1", "e-2"]
    assert applied(index, "a", "eu", number=1) == ["e-2"]
    assert applied(index, "a", "eu", number=2) == []
    assert applied(index, "a", "us", number=0) == ["u-2"]
    assert index.needs_partitions


def test_equality_deletes_without_a_partition_apply_everywhere() -> None:
    branches = Branches.create(2, UNPARTITIONED)
    branches.commit("delete", add=[equality_delete("e-1")])
    index = index_of(branches)
    for number, applies in ((0, ["e-1"]), (1, [])):
        other = IndexedDataFile("a", 7, ("anywhere",), number)
        assert [entry.file_path for entry in index.for_data_file(other)] == applies


def test_position_deletes_apply_to_rows_of_the_same_commit_too() -> None:
    branches = Branches.create(2, BY_REGION)
    branches.commit("delete", add=[position_delete("p-1", "eu")])
    branches.commit("delete", add=[position_delete("p-2", "eu", of="a")])
    index = index_of(branches)
    assert applied(index, "a", "eu", number=1) == ["p-1", "p-2"]
    assert applied(index, "a", "eu", number=2) == ["p-2"]
    assert applied(index, "a", "eu", number=3) == []
    assert applied(index, "b", "eu", number=0) == ["p-1"]
    assert applied(index, "b", "us", number=0) == []


def test_a_vector_takes_the_place_of_position_deletes_but_not_of_equality_deletes() -> None:
    branches = Branches.create(3, BY_REGION)
    older = [position_delete("p-1", "eu"), position_delete("p-2", "eu", of="a")]
    branches.commit("delete", add=[*older, equality_delete("e-1", "eu")])
    branches.commit("delete", add=[vector("v-1", "a", "eu")])
    index = index_of(branches)
    assert applied(index, "a", "eu", number=0) == ["e-1", "v-1"]
    assert applied(index, "b", "eu", number=0) == ["e-1", "p-1"]


def test_two_vectors_of_one_file_are_refused_unless_they_are_of_a_history() -> None:
    branches = Branches.create(3, BY_REGION)
    branches.commit("delete", add=[vector("v-1", "a", "eu"), vector("v-2", "a", "eu")])
    with pytest.raises(TwoDeletionVectors, match="Can't index multiple DVs for a"):
        index_of(branches)
    index = index_of(branches, allow_replaced_vectors=True)
    assert applied(index, "a", "eu", number=0) == ["v-1", "v-2"]
    assert not index.needs_partitions
    assert [entry.file_path for entry in index.for_path("a", 0)] == ["v-1", "v-2"]


def test_nan_partitions_are_one() -> None:
    branches = Branches.create(2, BY_SCORE)
    branches.commit("delete", add=[position_delete("p-1", float("nan"))])
    assert applied(index_of(branches), "a", float("nan"), number=0) == ["p-1"]


def test_an_empty_index() -> None:
    index = DeleteIndex([], Branches.create().metadata)
    assert index.is_empty
    assert applied(index, "a", "eu", number=0) == []


def file(
    field_id: int, least: int | None, greatest: int | None, nulls: int | None, values: int = 10
) -> DataFile:
    """Return a file with metrics of one column of longs."""

    def bound(value: int | None) -> dict[int, bytes] | None:
        return None if value is None else {field_id: to_binary(LONG, value)}

    return DataFile(
        file_path="a",
        file_format="parquet",
        record_count=values,
        file_size_in_bytes=1,
        value_counts={field_id: values},
        null_value_counts=None if nulls is None else {field_id: nulls},
        lower_bounds=bound(least),
        upper_bounds=bound(greatest),
    )


@pytest.mark.parametrize(
    ("data", "applies"),
    [
        (file(1, 0, 4, 0), False),
        (file(1, 0, 5, 0), True),
        (file(1, 6, 20, 0), True),
        (file(1, 7, 20, 0), False),
        (file(1, None, 4, 0), True),
        (file(1, 7, None, 0), True),
    ],
)
def test_equality_deletes_are_excluded_by_values_that_cannot_occur(
    data: DataFile, applies: bool
) -> None:
    branches = Branches.create(2, BY_REGION)
    branches.commit("delete", add=[equality_delete("e-1", "eu", ids=(5, 6))])
    found = applied(index_of(branches), "a", "eu", number=0, metrics=data)
    assert found == (["e-1"] if applies else [])


AMOUNT = 4


@pytest.mark.parametrize(
    ("data", "deletes", "applies"),
    [
        # Null deletes match null rows, whatever the bounds are.
        (file(AMOUNT, 0, 1, 2), file(AMOUNT, 5, 6, 1), True),
        (file(AMOUNT, 0, 1, None), file(AMOUNT, 5, 6, None), True),
        (file(AMOUNT, 0, 1, 0), file(AMOUNT, 5, 6, 1), False),
        (file(AMOUNT, 0, 1, 2), file(AMOUNT, 5, 6, 0), False),
        # One file has only nulls and the other has none.
        (file(AMOUNT, None, None, 10), file(AMOUNT, 5, 6, 0), False),
        (file(AMOUNT, 0, 9, 0), file(AMOUNT, None, None, 10), False),
        (file(AMOUNT, 0, 9, None), file(AMOUNT, None, None, 10), True),
    ],
)
def test_equality_deletes_of_a_column_with_nulls(
    data: DataFile, deletes: DataFile, applies: bool
) -> None:
    branches = Branches.create(2, BY_REGION)
    branches.commit("delete", add=[equality_delete("e-1", "eu", columns=[AMOUNT])])
    index = DeleteIndex(
        index_of(branches).entries, branches.metadata, metrics_of=lambda entry: deletes
    )
    found = applied(index, "a", "eu", number=0, metrics=data)
    assert found == (["e-1"] if applies else [])
