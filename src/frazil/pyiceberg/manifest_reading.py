"""Read manifests: all fields of their entries, and which files may contain rows of a filter.

The chain of evaluators is that of Java's `ManifestGroup`: the filter's inclusive projection on a
manifest's partition summaries, the same projection on a file's partition, then the filter on the
file's column metrics. Without the second step, writers of disjoint `bucket(id)` partitions would
conflict, because metrics say nothing about buckets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyiceberg.avro.file import AvroFile
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Or,
)
from pyiceberg.expressions.visitors import (
    IN_PREDICATE_LIMIT,
    _InclusiveMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

MAX_FILTER_TEXT = 200


def full_entries(manifest: ManifestFile, io: FileIO) -> Iterator[ManifestEntry]:
    """Read the entries with the fields of version 3, some of which PyIceberg's reader drops."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        yield from entries


@dataclass(frozen=True, slots=True)
class _SpecEvaluators:
    manifest: Callable[[ManifestFile], bool]
    partition: Callable[[Record], bool]


class RowFilter:
    """A filter bound to the schema of the writer, whose fields are compared by id."""

    def __init__(self, expression: BooleanExpression, schema: Schema, case_sensitive: bool) -> None:
        self.expression = expression
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._narrowed = _narrowed(expression)
        self._metrics = _InclusiveMetricsEvaluator(schema, self._narrowed, case_sensitive).eval
        self._by_spec: dict[int, _SpecEvaluators] = {}

    @property
    def matches_nothing(self) -> bool:
        return isinstance(self.expression, AlwaysFalse)

    @property
    def matches_all(self) -> bool:
        return isinstance(self.expression, AlwaysTrue)

    def may_match_manifest(self, manifest: ManifestFile, metadata: TableMetadata) -> bool:
        if self.matches_all:
            return True
        return self._of_spec(manifest.partition_spec_id, metadata).manifest(manifest)

    def may_match_file(self, file: DataFile, metadata: TableMetadata) -> bool:
        if self.matches_all:
            return True
        if not self._of_spec(file.spec_id, metadata).partition(file.partition):
            return False
        try:
            return self._metrics(file)
        except struct.error:
            # Another writer promoted the column's type, so the bounds have another width than in
            # this schema. Bounds that cannot be read prove nothing.
            return True

    def _of_spec(self, spec_id: int, metadata: TableMetadata) -> _SpecEvaluators:
        evaluators = self._by_spec.get(spec_id)
        if evaluators is None:
            spec = metadata.specs()[spec_id]
            schema = schema_of_spec(spec, metadata)
            projected = inclusive_projection(self._schema, spec, self._case_sensitive)(
                self._narrowed
            )
            partition_schema = Schema(*spec.partition_type(schema).fields)
            evaluators = _SpecEvaluators(
                manifest=manifest_evaluator(spec, schema, projected, True),
                partition=expression_evaluator(partition_schema, projected, True),
            )
            self._by_spec[spec_id] = evaluators
        return evaluators

    def __str__(self) -> str:
        """Return a short text for messages: the filter of an upsert names every key."""
        text = str(self.expression)
        if len(text) > MAX_FILTER_TEXT:
            return f"{text[:MAX_FILTER_TEXT]}…"
        return text


def schema_of_spec(spec: PartitionSpec, metadata: TableMetadata) -> Schema:
    """Return the newest schema with every source column, so that each partition value has a
    type."""
    sources = {field.source_id for field in spec.fields}
    current = metadata.schema()
    for schema in (current, *reversed(metadata.schemas)):
        if sources <= set(schema.field_ids):
            return schema
    return current


def _narrowed(expression: BooleanExpression) -> BooleanExpression:
    """Add the range of values to each long list of values.

    The metrics evaluator ignores lists over its limit, and every file would match. It always
    checks ranges.
    """
    if isinstance(expression, And):
        return And(_narrowed(expression.left), _narrowed(expression.right))
    if isinstance(expression, Or):
        return Or(_narrowed(expression.left), _narrowed(expression.right))
    if isinstance(expression, In) and _has_range(expression):
        lowest = min(expression.literals, key=lambda literal: literal.value)
        highest = max(expression.literals, key=lambda literal: literal.value)
        return And(
            expression,
            GreaterThanOrEqual(term=expression.term, value=lowest),
            LessThanOrEqual(term=expression.term, value=highest),
        )
    return expression


def _has_range(expression: In) -> bool:
    """Check for a list over the limit whose values have an order (NaN has none)."""
    return len(expression.literals) > IN_PREDICATE_LIMIT and not any(
        isinstance(literal.value, float) for literal in expression.literals
    )
