"""Creates files that exist only in metadata, with the metrics of known rows."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from frazil.values.single_value import to_binary, to_json
from frazil.values.transforms import apply, parse_transform
from frazil.values.types import Type, TypeId
from tests.oracle.plans.columns import Leaf, order

Doc = dict[str, Any]
Row = Mapping[int, Any]
"""The values of the leaves by field id; leaves that the writer did not know are missing."""
Key = tuple[str, int | None]
"""A delete file's path, and the content offset of a deletion vector."""

FILE_PATH_ID: Final = 2_147_483_546
"""The reserved id of the path column in position delete files."""


@dataclass(frozen=True)
class SpecField:
    source_id: int
    field_id: int
    name: str
    transform: str
    type: Type
    """The type of the source column; promotions do not change partition values."""

    def json(self) -> Doc:
        return {
            "source-id": self.source_id,
            "field-id": self.field_id,
            "name": self.name,
            "transform": self.transform,
        }


Spec = tuple[SpecField, ...]


def partition_of(spec: Spec, row: Row) -> tuple[Any, ...]:
    """Return the partition of a row as internal values."""
    return tuple(
        apply(parse_transform(part.transform), part.type, row.get(part.source_id)) for part in spec
    )


def same_partition(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Compare partitions: all NaNs are equal, and the two zeros differ."""
    return all(
        order(one) == order(other) or (is_nan(one) and is_nan(other))
        for one, other in zip(left, right, strict=True)
    )


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def partition_json(spec: Spec, partition: Sequence[Any]) -> list[Any]:
    return [
        _partition_value(parse_transform(part.transform).result_type(part.type), value)
        for part, value in zip(spec, partition, strict=True)
    ]


def _partition_value(type_: Type, value: Any) -> Any:
    """Return the value as JSON; a non-finite value becomes a text, which only Java can write."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return to_json(type_, value)


def is_json(doc: Doc) -> bool:
    """Return whether a client can declare the file to our engine."""
    return not {"nan", "inf", "-inf"}.intersection(
        value for value in doc["partition"] if isinstance(value, str)
    )


@dataclass(frozen=True)
class DataFile:
    path: str
    spec_id: int
    partition: tuple[Any, ...]
    rows: tuple[Row, ...]
    doc: Doc = field(repr=False)


@dataclass(frozen=True)
class DeleteFile:
    """A delete file and the rows that it deletes."""

    key: Key
    kind: str
    """`position`, `equality` or `vector`."""
    spec_id: int
    partition: tuple[Any, ...]
    is_global: bool
    """Whether this is an equality delete of an unpartitioned spec."""
    positions: frozenset[tuple[str, int]]
    equality_ids: tuple[int, ...]
    values: tuple[tuple[Any, ...], ...]
    """The deleted values of the columns of `equality_ids`."""
    doc: Doc = field(repr=False)

    def deletes(self, file: DataFile, position: int) -> bool:
        """Return whether it deletes a row, ignoring sequence numbers (spec, "Scan Planning")."""
        if self.kind != "equality":
            return (file.path, position) in self.positions
        in_scope = self.is_global or (
            self.spec_id == file.spec_id and same_partition(self.partition, file.partition)
        )
        row = file.rows[position]
        own = tuple(row.get(field_id) for field_id in self.equality_ids)
        return in_scope and any(same_partition(own, values) for values in self.values)


@dataclass(frozen=True)
class Metrics:
    """Describes how a writer computes metrics."""

    truncate: int | None = None
    """The maximum length of text and binary bounds."""
    poor: float = 0.2
    """The fraction of files that lack some metrics."""

    def of(self, random: Random, leaves: Sequence[Leaf], rows: Sequence[Row]) -> Doc:
        counts: dict[str, dict[int, Any]] = {
            name: {}
            for name in (
                "value-counts",
                "null-value-counts",
                "nan-value-counts",
                "lower-bounds",
                "upper-bounds",
            )
        }
        for leaf in leaves:
            values = [row[leaf.field_id] for row in rows]
            counts["value-counts"][leaf.field_id] = len(values)
            counts["null-value-counts"][leaf.field_id] = values.count(None)
            known = [value for value in values if value is not None and not is_nan(value)]
            if leaf.type.type_id in (TypeId.FLOAT, TypeId.DOUBLE):
                counts["nan-value-counts"][leaf.field_id] = sum(map(is_nan, values))
            if known:
                self._add_bounds(leaf, known, counts)
        self._impoverish(random, counts)
        return {
            name: {"keys": list(found), "values": list(found.values())}
            for name, found in counts.items()
            if found
        }

    def _add_bounds(
        self, leaf: Leaf, known: list[Any], counts: Mapping[str, dict[int, Any]]
    ) -> None:
        lower, upper = min(known, key=order), max(known, key=order)
        if self.truncate is not None and leaf.type.type_id in (TypeId.STRING, TypeId.BINARY):
            lower = lower[: self.truncate]
            upper = _truncated_above(upper, self.truncate)
        counts["lower-bounds"][leaf.field_id] = _hex(leaf.type, lower)
        if upper is not None:
            counts["upper-bounds"][leaf.field_id] = _hex(leaf.type, upper)

    def _impoverish(self, random: Random, counts: Mapping[str, dict[int, Any]]) -> None:
        if random.random() >= self.poor:
            return
        drawn = random.random()
        for found in counts.values():
            # Writers omit a metric for all columns or for some, so draw both cases.
            share = 1.0 if drawn < 0.3 else random.choice((0.0, 0.3, 1.0))
            for field_id in list(found):
                if random.random() < share:
                    del found[field_id]


def _truncated_above(value: Any, length: int) -> Any:
    """Return an upper bound of at most this length that is not below the value, or None."""
    if len(value) <= length:
        return value
    kept = value[:length]
    while kept:
        last = kept[-1]
        if isinstance(kept, str) and ord(last) < 0x10FFFF:
            # Skip the surrogates, which UTF-8 cannot encode.
            return kept[:-1] + chr(0xE000 if ord(last) == 0xD7FF else ord(last) + 1)
        if isinstance(kept, bytes) and last < 0xFF:
            return kept[:-1] + bytes([last + 1])
        kept = kept[:-1]
    return None


def _hex(type_: Type, value: Any) -> str:
    return to_binary(type_, value).hex().upper()


@dataclass
class Files:
    """Creates the files of one table."""

    random: Random
    location: str
    metrics: Metrics
    count: int = 0

    def data_file(
        self, spec_id: int, spec: Spec, leaves: Sequence[Leaf], rows: Sequence[Row]
    ) -> DataFile:
        path = self._path("data", "parquet")
        partition = partition_of(spec, rows[0])
        doc = {
            "spec-id": spec_id,
            "content": "data",
            "file-path": path,
            "file-format": "parquet",
            "partition": partition_json(spec, partition),
            "file-size-in-bytes": self.random.randint(100, 999),
            "record-count": len(rows),
            **self.metrics.of(self.random, leaves, rows),
        }
        if self.random.random() < 0.05:
            doc = _with_nan_bounds(self.random, leaves, doc)
        return DataFile(path, spec_id, partition, tuple(rows), doc)

    def position_deletes(self, targets: Sequence[DataFile]) -> DeleteFile:
        """Create deletes for files of one partition; they may reference a single file."""
        path = self._path("pos", "parquet")
        positions = self._positions(targets)
        doc = self._delete_doc(targets[0].doc, path, len(positions))
        drawn = self.random.random()
        if len(targets) == 1 and drawn < 0.35:
            doc["referenced-data-file"] = targets[0].path
        elif drawn < 0.8:
            paths = sorted(target.path for target in targets)
            for name, bound in (("lower-bounds", paths[0]), ("upper-bounds", paths[-1])):
                doc[name] = {"keys": [FILE_PATH_ID], "values": [bound.encode().hex().upper()]}
        return self._delete("position", (path, None), targets[0], positions, doc)

    def deletion_vectors(self, targets: Sequence[DataFile]) -> list[DeleteFile]:
        """Create vectors for some data files, in one Puffin file."""
        path = self._path("dv", "puffin")
        found = []
        for index, target in enumerate(targets):
            positions = self._positions([target])
            doc = self._delete_doc(target.doc, path, len(positions))
            doc |= {
                "file-format": "puffin",
                "file-size-in-bytes": 4 + 60 * len(targets),
                "referenced-data-file": target.path,
                "content-offset": 4 + 50 * index,
                "content-size-in-bytes": 45,
            }
            key = (path, doc["content-offset"])
            found.append(self._delete("vector", key, target, positions, doc))
        return found

    def equality_deletes(
        self,
        spec_id: int,
        spec: Spec,
        partition: tuple[Any, ...],
        leaves: Sequence[Leaf],
        rows: Sequence[Row],
    ) -> DeleteFile:
        path = self._path("eq", "parquet")
        ids = tuple(leaf.field_id for leaf in leaves)
        doc = {
            "spec-id": spec_id,
            "partition": partition_json(spec, partition),
            "content": "equality-deletes",
            "file-path": path,
            "file-format": "parquet",
            "file-size-in-bytes": self.random.randint(100, 999),
            "record-count": len(rows),
            "equality-ids": list(ids),
            **self.metrics.of(self.random, leaves, rows),
        }
        values = tuple(tuple(row[field_id] for field_id in ids) for row in rows)
        return DeleteFile(
            (path, None),
            "equality",
            spec_id,
            partition,
            all(part.transform == "void" for part in spec),
            frozenset(),
            ids,
            values,
            doc,
        )

    def _positions(self, targets: Sequence[DataFile]) -> frozenset[tuple[str, int]]:
        return frozenset(
            (target.path, self.random.randrange(len(target.rows))) for target in targets
        )

    def _delete(
        self,
        kind: str,
        key: Key,
        target: DataFile,
        positions: frozenset[tuple[str, int]],
        doc: Doc,
    ) -> DeleteFile:
        return DeleteFile(
            key, kind, target.spec_id, target.partition, False, positions, (), (), doc
        )

    def _delete_doc(self, target: Doc, path: str, count: int) -> Doc:
        return {
            "spec-id": target["spec-id"],
            "partition": target["partition"],
            "content": "position-deletes",
            "file-path": path,
            "file-format": "parquet",
            "file-size-in-bytes": self.random.randint(100, 999),
            "record-count": count,
        }

    def _path(self, kind: str, suffix: str) -> str:
        self.count += 1
        return f"{self.location}/data/{kind}-{self.count:03}.{suffix}"


def _with_nan_bounds(random: Random, leaves: Sequence[Leaf], doc: Doc) -> Doc:
    """Replace float bounds by NaN, as older writers did for a column that contains NaN."""
    nan = {
        TypeId.FLOAT: struct.pack("<f", math.nan).hex(),
        TypeId.DOUBLE: struct.pack("<d", math.nan).hex(),
    }
    found = dict(doc)
    for name in ("lower-bounds", "upper-bounds"):
        bounds = doc.get(name)
        if bounds is None or random.random() < 0.3:
            continue
        types = {leaf.field_id: leaf.type.type_id for leaf in leaves}
        values = [
            nan.get(types[field_id], value)
            for field_id, value in zip(bounds["keys"], bounds["values"], strict=True)
        ]
        found[name] = {"keys": bounds["keys"], "values": values}
    return found
