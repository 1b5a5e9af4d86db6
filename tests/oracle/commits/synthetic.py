"""Draws random content files and filters: metadata only, with the metrics of made-up rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from frazil.values.single_value import to_binary, to_json
from frazil.values.transforms import apply, parse_transform
from frazil.values.types import Type, type_from_name
from tests.oracle.commits.cases import SCHEMA, Doc, Key, SpecField, delete_key

Row = tuple[int | None, str | None, int | None, float | None]

TYPES: Final[dict[int, Type]] = {
    item["id"]: type_from_name(item["type"]) for item in SCHEMA["fields"]
}
NAMES: Final = {item["id"]: item["name"] for item in SCHEMA["fields"]}
WORDS: Final = ("apple", "avocado", "banana", "berry", "cherry")
SCORES: Final = (-2.0, 0.5, 1.5, 8.25)
FIRST_DAY: Final = 19_700
DAYS: Final = 4
MICROS_PER_HOUR: Final = 3_600_000_000
MICROS_PER_DAY: Final = 24 * MICROS_PER_HOUR
FILE_PATH_ID: Final = 2_147_483_546
"""The reserved id of the path column in position delete files."""

_SPECS: Final[tuple[tuple[tuple[int, str, str], ...], ...]] = (
    (),
    ((2, "name", "identity"),),
    ((1, "id_bucket", "bucket[3]"),),
    ((1, "id_trunc", "truncate[10]"),),
    ((2, "name_trunc", "truncate[1]"),),
    ((3, "ts_day", "day"),),
    ((2, "name", "identity"), (1, "id_bucket_2", "bucket[2]")),
    ((3, "ts_day", "day"), (2, "name_trunc", "truncate[1]")),
)


def draw_spec(random: Random, known: dict[str, SpecField]) -> tuple[SpecField, ...]:
    """Draw a spec; a field that the table has had before keeps its id."""
    parts = []
    for source_id, name, transform in random.choice(_SPECS):
        if name not in known:
            known[name] = SpecField(source_id, 1000 + len(known), name, transform)
        parts.append(known[name])
    return tuple(parts)


def draw_row(random: Random, nulls: float = 0.06) -> Row:
    """Draw a row in which each value is null with the given probability."""
    values = (
        random.randrange(40),
        random.choice(WORDS),
        (FIRST_DAY + random.randrange(DAYS)) * MICROS_PER_DAY
        + random.randrange(24) * MICROS_PER_HOUR,
        math.nan if random.random() < 0.08 else random.choice(SCORES),
    )
    number, word, time, score = (None if random.random() < nulls else value for value in values)
    return number, word, time, score  # type: ignore[return-value]


def partition_of(spec: Sequence[SpecField], row: Row) -> tuple[Any, ...]:
    """Return the partition of a row as internal values."""
    return tuple(
        apply(parse_transform(part.transform), TYPES[part.source_id], row[part.source_id - 1])
        for part in spec
    )


def partition_json(spec: Sequence[SpecField], partition: Sequence[Any]) -> list[Any]:
    return [
        None
        if value is None
        else to_json(parse_transform(part.transform).result_type(TYPES[part.source_id]), value)
        for part, value in zip(spec, partition, strict=True)
    ]


def draw_rows(
    random: Random, nulls: float, spec: Sequence[SpecField], partition: tuple[Any, ...] | None
) -> list[Row]:
    """Draw rows of one partition: the given one, or that of the first row."""
    rows: list[Row] = []
    wanted = random.randint(1, 4)
    for _ in range(400):
        row = draw_row(random, nulls)
        own = partition_of(spec, row)
        if partition is None:
            partition = own
        if own == partition:
            rows.append(row)
        if len(rows) == wanted:
            break
    return rows


@dataclass
class Files:
    """Creates the files of one case; remembers each file and the rows that it represents."""

    random: Random
    location: str
    nulls: float = 0.06
    """The fraction of values that are null."""
    poor: float = 0.16
    """The fraction of files that lack some or all of their metrics."""
    docs: dict[Key, Doc] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    count: int = 0

    def data_file(
        self,
        spec_id: int,
        spec: Sequence[SpecField],
        partition: tuple[Any, ...] | None = None,
        rows: list[Row] | None = None,
    ) -> Doc:
        rows = rows or draw_rows(self.random, self.nulls, spec, partition)
        rows = rows or [draw_row(self.random)]
        own = partition if partition is not None else partition_of(spec, rows[0])
        path = self._path("data", "parquet")
        doc = {
            "spec-id": spec_id,
            "content": "data",
            "file-path": path,
            "file-format": "parquet",
            "partition": partition_json(spec, own),
            "file-size-in-bytes": self.random.randint(100, 999),
            "record-count": len(rows),
            **self._metrics(rows, list(TYPES)),
        }
        if self.random.random() < 0.2:
            doc["split-offsets"] = [4]
        if self.random.random() < 0.2:
            doc["sort-order-id"] = 0
        self.rows[path] = rows
        return self._kept(doc)

    def copy_of(self, targets: Sequence[Doc], spec_id: int, spec: Sequence[SpecField]) -> Doc:
        """Create a file with the rows of other files, in a spec that puts them in one partition."""
        rows = [row for target in targets for row in self.rows[target["file-path"]]]
        partition = partition_of(spec, rows[0])
        kept = [row for row in rows if partition_of(spec, row) == partition]
        return self.data_file(spec_id, spec, partition, kept)

    def position_deletes(self, target: Doc) -> Doc:
        path = self._path("pos", "parquet")
        doc = {
            **_same_partition(target),
            "content": "position-deletes",
            "file-path": path,
            "file-format": "parquet",
            "file-size-in-bytes": self.random.randint(100, 999),
            "record-count": self.random.randint(1, target["record-count"]),
        }
        drawn = self.random.random()
        if drawn < 0.4:
            doc["referenced-data-file"] = target["file-path"]
        elif drawn < 0.7:
            bound = {"keys": [FILE_PATH_ID], "values": [_hex(target["file-path"].encode())]}
            doc["lower-bounds"] = doc["upper-bounds"] = bound
        return self._kept(doc)

    def equality_deletes(self, spec_id: int, partition: Sequence[Any], rows: list[Row]) -> Doc:
        path = self._path("eq", "parquet")
        ids = self.random.choice(([1], [2], [1, 2], [3], [1, 4]))
        doc = {
            "spec-id": spec_id,
            "partition": list(partition),
            "content": "equality-deletes",
            "file-path": path,
            "file-format": "parquet",
            "file-size-in-bytes": self.random.randint(100, 999),
            "record-count": len(rows),
            "equality-ids": ids,
            **self._metrics(rows, ids),
        }
        return self._kept(doc)

    def deletion_vectors(self, targets: Sequence[Doc]) -> list[Doc]:
        """Create vectors for some data files, in one Puffin file."""
        path = self._path("dv", "puffin")
        size = 4 + 50 * len(targets) + self.random.randint(10, 99)
        return [
            self._kept(
                {
                    **_same_partition(target),
                    "content": "position-deletes",
                    "file-path": path,
                    "file-format": "puffin",
                    "file-size-in-bytes": size,
                    "record-count": self.random.randint(1, target["record-count"]),
                    "referenced-data-file": target["file-path"],
                    "content-offset": 4 + 50 * index,
                    "content-size-in-bytes": 40 + self.random.randrange(9),
                }
            )
            for index, target in enumerate(targets)
        ]

    def _path(self, kind: str, suffix: str) -> str:
        self.count += 1
        return f"{self.location}/data/{kind}-{self.count:03}.{suffix}"

    def _kept(self, doc: Doc) -> Doc:
        self.docs[delete_key(doc)] = doc
        return doc

    def _metrics(self, rows: list[Row], columns: Sequence[int]) -> dict[str, Any]:
        metrics, bounds = _counts(rows, columns), _bounds(rows, columns)
        if self.random.random() < self.poor:
            return self.random.choice(({}, metrics, bounds))
        return {**metrics, **bounds}


def _same_partition(target: Doc) -> dict[str, Any]:
    return {"spec-id": target["spec-id"], "partition": target["partition"]}


def _hex(data: bytes) -> str:
    return data.hex().upper()


def _counts(rows: list[Row], columns: Sequence[int]) -> dict[str, Any]:
    nans = [sum(1 for row in rows if row[3] is not None and math.isnan(row[3]))]
    counts = {
        "value-counts": {"keys": list(columns), "values": [len(rows)] * len(columns)},
        "null-value-counts": {
            "keys": list(columns),
            "values": [sum(row[column - 1] is None for row in rows) for column in columns],
        },
    }
    if 4 in columns:
        counts["nan-value-counts"] = {"keys": [4], "values": nans}
    return counts


def _bounds(rows: list[Row], columns: Sequence[int]) -> dict[str, Any]:
    lower: dict[int, str] = {}
    upper: dict[int, str] = {}
    for column in columns:
        values: list[Any] = [
            value
            for row in rows
            if (value := row[column - 1]) is not None
            and not (isinstance(value, float) and math.isnan(value))
        ]
        if values:
            lower[column] = _hex(to_binary(TYPES[column], min(values)))
            upper[column] = _hex(to_binary(TYPES[column], max(values)))
    return {
        name: {"keys": list(bounds), "values": list(bounds.values())}
        for name, bounds in (("lower-bounds", lower), ("upper-bounds", upper))
        if bounds
    }


# --- filters ------------------------------------------------------------------------------------


def draw_filter(random: Random, rows: Sequence[Row], depth: int = 0) -> Any:
    """Draw a filter that usually affects some of the rows."""
    drawn = random.random()
    if depth < 2 and drawn < 0.14:
        kind = random.choice(("and", "or"))
        return {
            "type": kind,
            "left": draw_filter(random, rows, depth + 1),
            "right": draw_filter(random, rows, depth + 1),
        }
    if depth < 2 and drawn < 0.18:
        return {"type": "not", "child": draw_filter(random, rows, depth + 1)}
    if depth == 0 and drawn < 0.22:
        return random.random() < 0.9
    row = random.choice(rows) if rows and random.random() < 0.85 else draw_row(random)
    return _predicate(random, row)


def covering_filter(random: Random, rows: Sequence[Row]) -> Any:
    """Draw a filter on one column that matches all of the rows."""
    column = random.choice((1, 2, 3))
    values: list[Any] = [row[column - 1] for row in rows]
    name = NAMES[column]
    known = [to_json(TYPES[column], value) for value in sorted({*values} - {None})]
    if not known:
        return {"type": "is-null", "term": name}
    if len(known) == 1:
        within: Any = {"type": "eq", "term": name, "value": known[0]}
    elif random.random() < 0.4:
        within = {"type": "in", "term": name, "values": known}
    else:
        within = {
            "type": "and",
            "left": {"type": "gt-eq", "term": name, "value": known[0]},
            "right": {"type": "lt-eq", "term": name, "value": known[-1]},
        }
    if None in values:
        return {"type": "or", "left": {"type": "is-null", "term": name}, "right": within}
    return within


def _predicate(random: Random, row: Row) -> Any:
    column = random.choice((1, 1, 2, 2, 3, 4))
    value = row[column - 1]
    name = NAMES[column]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        kinds = ["is-null", "not-null"] + (["is-nan", "not-nan"] if column == 4 else [])
        return {"type": random.choice(kinds), "term": name}
    if column in (1, 2) and random.random() < 0.08:
        term = {"type": "transform", "transform": "bucket[3]", "term": name}
        bucket = apply(parse_transform("bucket[3]"), TYPES[column], value)
        return {"type": random.choice(("eq", "not-eq")), "term": term, "value": bucket}
    literal = to_json(TYPES[column], value)
    if column == 2 and random.random() < 0.25:
        kind = random.choice(("starts-with", "not-starts-with"))
        return {"type": kind, "term": name, "value": literal[: random.randint(1, 3)]}
    if random.random() < 0.2:
        others = {to_json(TYPES[column], other) for other in _others(random, column)}
        kind = random.choice(("in", "in", "not-in"))
        return {"type": kind, "term": name, "values": sorted({literal, *others})}
    kind = random.choice(("eq", "eq", "not-eq", "lt", "lt-eq", "gt", "gt-eq"))
    return {"type": kind, "term": name, "value": literal}


def _others(random: Random, column: int) -> list[Any]:
    values = [draw_row(random)[column - 1] for _ in range(2)]
    return [
        value
        for value in values
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    ]
