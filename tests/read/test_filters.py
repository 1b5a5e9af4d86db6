"""Filters of a commit, evaluated on manifests, partitions and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.pruning.metric_columns import MetricColumns, metrics_of_files
from frazil.read.filters import BoundFilter, bound_filter, every_row, partitions_of
from frazil.values.single_value import to_binary
from frazil.values.types import LONG
from frazil.wire.errors import BadRequest

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "Region", "type": "string", "required": False},
        {"id": 3, "name": "at", "type": "date", "required": False},
    ],
}
SPEC = {
    "fields": [
        {"source-id": 2, "field-id": 1000, "name": "region", "transform": "identity"},
        {"source-id": 3, "field-id": 1001, "name": "month", "transform": "month"},
    ]
}


def table() -> TableMetadata:
    return new_table(
        schema=json.dumps(SCHEMA).encode(),
        spec=json.dumps(SPEC).encode(),
        order=None,
        location="file:/tables/filters",
        properties={"format-version": "2"},
        uuid="7b4d7a1e-0000-4000-8000-000000000001",
        now_ms=1,
    )


def bound(filter_json: Any, *, case_sensitive: bool = True) -> BoundFilter:
    raw = json.dumps(filter_json).encode()
    return bound_filter(raw, table(), case_sensitive=case_sensitive, json_path="updates[0].filter")


def compare(column: str, operation: str, value: Any) -> dict[str, Any]:
    return {"type": operation, "term": column, "value": value}


def both(left: Any, right: Any) -> dict[str, Any]:
    return {"type": "and", "left": left, "right": right}


@dataclass
class Columns:
    """The part of a manifest's columns that filters use."""

    partitions: tuple[tuple[Any, ...], ...]
    partition: NDArray[np.int32]
    record_count: NDArray[np.int64]
    partition_field_ids: tuple[int, ...] = (1000, 1001)
    files: list[DataFile] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def metrics_of(self, rows: NDArray[np.int64]) -> MetricColumns:
        self.asked += rows.tolist()
        return metrics_of_files([self.files[row] for row in rows])

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.arange(len(self.files))


def columns_of(files: Sequence[tuple[tuple[Any, ...], int, int]], **kept: Any) -> Any:
    """Return columns for files given as (partition, lowest id, highest id)."""
    partitions = tuple(dict.fromkeys(partition for partition, _, _ in files))
    made = [
        DataFile(
            file_path=f"f{at}",
            file_format="parquet",
            partition=partition,
            record_count=1 + greatest - least,
            file_size_in_bytes=1,
            value_counts={1: 1 + greatest - least},
            null_value_counts={1: 0},
            lower_bounds={1: to_binary(LONG, least)},
            upper_bounds={1: to_binary(LONG, greatest)},
        )
        for at, (partition, least, greatest) in enumerate(files)
    ]
    return Columns(
        partitions,
        np.array([partitions.index(partition) for partition, _, _ in files], np.int32),
        np.array([file.record_count for file in made], np.int64),
        files=made,
        **kept,
    )


FILES = columns_of([(("eu", 600), 1, 5), (("eu", 601), 3, 9), (("us", 600), 1, 5)])


def test_the_partition_is_asked_before_the_metrics() -> None:
    files = columns_of([(("eu", 600), 1, 5), (("eu", 601), 6, 9), (("us", 600), 1, 5)])
    found = bound(both(compare("Region", "eq", "eu"), compare("id", "gt", 5))).rows_that_may_match(
        files, 0, files.rows, files.metrics_of
    )
    assert found.tolist() == [1]
    assert files.asked == [0, 1]


def test_partitions_are_read_in_the_order_of_the_manifest() -> None:
    spec = table().default_spec
    turned = columns_of([((600, "eu"), 1, 5)], partition_field_ids=(1001, 1000))
    assert list(partitions_of(turned, spec)) == [("eu", 600)]
    assert bound(compare("Region", "eq", "eu")).may_match_partitions(turned, 0).tolist() == [True]
    lacking = columns_of([((600,), 1, 5)], partition_field_ids=(1001,))
    assert list(partitions_of(lacking, spec)) == [(None, 600)]


def test_strict_needs_all_rows_and_joins_partition_with_metrics() -> None:
    wanted = bound(both(compare("Region", "eq", "eu"), compare("id", "lt-eq", 5)))
    found = wanted.matched_rows(FILES, 0, FILES.rows, FILES.metrics_of)
    assert (found.whole.tolist(), found.partial.tolist()) == ([0], [1])
    # The partition alone does not prove that the first file matches.
    assert not wanted.must_match_partitions(FILES, 0).any()


def test_a_transform_that_cuts_a_partition_is_partial() -> None:
    in_january = compare("at", "lt", "2020-01-15")
    found = bound(in_january).matched_rows(FILES, 0, FILES.rows, FILES.metrics_of)
    assert (found.whole.tolist(), found.partial.tolist()) == ([], [0, 2])
    until_february = compare("at", "lt", "2020-02-01")
    found = bound(until_february).matched_rows(FILES, 0, FILES.rows, FILES.metrics_of)
    assert (found.whole.tolist(), found.partial.tolist()) == ([0, 2], [])


def test_delete_files_are_proven_by_their_partition_alone() -> None:
    found = bound(compare("id", "lt", 100)).matched_rows(FILES, 0, FILES.rows, None)
    assert found.whole.tolist() == []
    found = bound(compare("Region", "eq", "eu")).matched_rows(FILES, 0, FILES.rows, None)
    assert found.whole.tolist() == [0, 1]


def test_a_file_without_rows_is_never_deleted_by_a_filter() -> None:
    empty = columns_of([(("eu", 600), 1, 0), (("eu", 600), 1, 1)])
    found = every_row(table()).matched_rows(empty, 0, empty.rows, empty.metrics_of)
    assert found.whole.tolist() == [1]


def test_a_spec_the_table_does_not_have_proves_and_excludes_nothing() -> None:
    wanted = bound(compare("Region", "eq", "eu"))
    assert wanted.may_match_partitions(FILES, 7).all()
    assert not wanted.must_match_partitions(FILES, 7).any()
    assert wanted.matched_rows(FILES, 7, FILES.rows, FILES.metrics_of).partial.tolist() == [0, 1, 2]
    assert not bound(False).may_match_partitions(FILES, 7).any()


def test_binding_follows_case_sensitivity_and_says_where() -> None:
    assert bound(compare("region", "eq", "eu"), case_sensitive=False).text == "region = 'eu'"
    with pytest.raises(BadRequest, match=r"updates\[0\]\.filter: .*'region'"):
        bound(compare("region", "eq", "eu"))
    with pytest.raises(BadRequest, match=r"updates\[0\]\.filter"):
        bound({"type": "eq"})


def test_filters_are_told_to_a_person() -> None:
    text = bound(
        {
            "type": "not",
            "child": {
                "type": "or",
                "left": {"type": "in", "term": "id", "values": [1, 2]},
                "right": {"type": "is-null", "term": "Region"},
            },
        }
    ).text
    assert text == "NOT ((id IN (1, 2) OR Region IS NULL))"
    assert len(bound({"type": "in", "term": "id", "values": list(range(1000))}).text) < 310
