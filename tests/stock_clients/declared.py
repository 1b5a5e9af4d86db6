"""Tables with real Parquet and Puffin files, which the tests write and declare to the catalog.

A client of the fine-grained interface works the same way: it writes the files, describes them
and sends one POST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.values.deletion_vectors import DeletionVector, deletion_vector_blob
from frazil.values.puffin import write_puffin
from tests.commit.finegrained.requests import Json
from tests.commit.finegrained.tables import Answer, Table
from tests.support.patience import HANG_S

SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "name", "required": False, "type": "string"},
        {"id": 3, "name": "part", "required": False, "type": "string"},
    ],
}
BY_PART: Json = {
    "fields": [{"source-id": 3, "field-id": 1000, "name": "part", "transform": "identity"}]
}
FLAT: Json = {"fields": []}
Row = tuple[int, str, str]

_FILE_PATH_ID, _POS_ID = 2147483546, 2147483545
"""The reserved ids of the columns in position delete files."""


class Http:
    """Sends requests to a server over its own connection."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=HANG_S)

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        found = self.client.request(method, path, json=body, headers=headers)
        return Answer(found.status_code, found.headers, found.json() if found.content else None)

    def close(self) -> None:
        self.client.close()


def rows(*ids: int, part: str = "a") -> list[Row]:
    return [(number, f"row-{number}", part) for number in ids]


class RealTable(Table):
    """A table of ids, names and parts."""

    def write(self, name: str, *ids: int, part: str = "a", partition: Any = "part") -> Json:
        """Write a data file of these ids; by default in the partition of its part."""
        content = rows(*ids, part=part)
        columns = {
            "id": pa.array([row[0] for row in content], pa.int64()),
            "name": pa.array([row[1] for row in content], pa.string()),
            "part": pa.array([row[2] for row in content], pa.string()),
        }
        path = self._path(f"{name}.parquet")
        pq.write_table(_with_ids(pa.table(columns), (1, 2, 3)), path)
        values = [] if not self.is_partitioned else [part if partition == "part" else partition]
        return self._described(path, values, len(ids)) | {
            "value-counts": {"keys": [1, 2, 3], "values": [len(ids)] * 3},
            "null-value-counts": {"keys": [1, 2, 3], "values": [0] * 3},
            "lower-bounds": {"keys": [1, 3], "values": [min(ids), part]},
            "upper-bounds": {"keys": [1, 3], "values": [max(ids), part]},
        }

    @property
    def is_partitioned(self) -> bool:
        return bool(self.spec["fields"])

    def write_position_deletes(self, name: str, target: Json, *positions: int) -> Json:
        columns = {
            "file_path": pa.array([target["file-path"]] * len(positions), pa.string()),
            "pos": pa.array(sorted(positions), pa.int64()),
        }
        path = self._path(f"{name}.parquet")
        pq.write_table(_with_ids(pa.table(columns), (_FILE_PATH_ID, _POS_ID)), path)
        described = self._described(path, target["partition"], len(positions))
        return described | {
            "content": "position-deletes",
            "referenced-data-file": target["file-path"],
        }

    def write_equality_deletes(self, name: str, *ids: int, part: str = "a") -> Json:
        path = self._path(f"{name}.parquet")
        pq.write_table(_with_ids(pa.table({"id": pa.array(ids, pa.int64())}), (1,)), path)
        values = [part] if self.is_partitioned else []
        described = self._described(path, values, len(ids))
        return described | {"content": "equality-deletes", "equality-ids": [1]}

    def write_vectors(self, name: str, *vectors: tuple[Json, Sequence[int]]) -> list[Json]:
        """Write one Puffin file with a deletion vector for each data file."""
        made = [(target, DeletionVector.from_positions(positions)) for target, positions in vectors]
        blobs = [deletion_vector_blob(vector, target["file-path"]) for target, vector in made]
        content, placed = write_puffin(blobs, {"created-by": "a test"})
        path = self._path(f"{name}.puffin")
        path.write_bytes(content)
        return [
            self._described(path, target["partition"], vector.cardinality)
            | {
                "content": "position-deletes",
                "file-format": "puffin",
                "referenced-data-file": target["file-path"],
                "content-offset": blob.offset,
                "content-size-in-bytes": blob.length,
            }
            for (target, vector), blob in zip(made, placed, strict=True)
        ]

    def write_deletes(self, name: str, target: Json, *positions: int) -> Json:
        """Write deletes by position, in the form that the table's format version requires."""
        if self.version >= 3:
            return self.write_vectors(name, (target, positions))[0]
        return self.write_position_deletes(name, target, *positions)

    def _path(self, name: str) -> Path:
        folder = Path(self.location.removeprefix("file://")) / "data"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def _described(self, path: Path, partition: Sequence[Any], count: int) -> Json:
        return {
            "content": "data",
            "file-path": f"file://{path}",
            "file-format": "parquet",
            "spec-id": self.metadata["default-spec-id"],
            "partition": list(partition),
            "record-count": count,
            "file-size-in-bytes": path.stat().st_size,
        }


def _with_ids(table: pa.Table, field_ids: Sequence[int]) -> pa.Table:
    """Set the field ids, because Iceberg finds a Parquet column by its field id."""
    fields = [
        column.with_metadata({"PARQUET:field_id": str(field_id)})
        for column, field_id in zip(table.schema, field_ids, strict=True)
    ]
    return table.cast(pa.schema(fields))
