"""Row filters bound to a table: which manifests, partitions and files they select.

There are two kinds of tests. Inclusive ("may"): False is certain, and everything that may have a
matching row is selected. Strict ("must"): True is certain, and only files whose rows all match
are selected. A validation clause is tested like in Java's ManifestReader: partition, then
metrics, with the whole filter. A `delete-row-filter` is tested like in Java's
ManifestFilterManager: metrics, with the residual of the filter in the file's partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from frazil.format.avro.avro_schema import RecordSchema
from frazil.format.expr.expression_binding import (
    BoundPredicate,
    BoundTerm,
    bind,
)
from frazil.format.expr.projection import inclusive_projection, strict_projection
from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.manifest.manifest_list import ManifestFile, is_nan, partition_summaries
from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.format.metadata.schema import Schema
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.pruning.column_evaluators import (
    ColumnEvaluator,
    inclusive_column_evaluator,
    inclusive_mask,
    strict_mask,
)
from frazil.format.pruning.evaluators import (
    Evaluator,
    Summaries,
    manifest_evaluator,
    partition_evaluator,
    residual_evaluator,
)
from frazil.format.pruning.metric_columns import MetricColumns
from frazil.values.transforms import Identity
from frazil.values.types import TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    And,
    Expression,
    Or,
    parse_expression,
)
from frazil.wire.filter_text import filter_text

Bools: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.int64]
MetricsOf: TypeAlias = Callable[[Rows], MetricColumns]
"""Returns the statistics of some rows of a manifest, in their order."""

_SHOWN_CHARACTERS: Final = 300
_SHOWN_PARTITIONS: Final = 10


def partitions_of(
    columns: ManifestColumns, spec: PartitionSpec | None
) -> Sequence[tuple[Any, ...]]:
    """Return the distinct partitions of a manifest, in the order of the spec's fields.

    A manifest has an order of its own and may lack fields. The order is kept if the table no longer
    has the spec.
    """
    if spec is None:
        return columns.partitions
    wanted = tuple(part.field_id for part in spec.fields)
    if columns.partition_field_ids == wanted:
        return columns.partitions
    positions = {field_id: at for at, field_id in enumerate(columns.partition_field_ids)}
    picked = [positions.get(field_id) for field_id in wanted]
    return [
        tuple(None if at is None else values[at] for at in picked) for values in columns.partitions
    ]


def comparable_partition(partition: Iterable[Any]) -> tuple[Any, ...]:
    """Return a partition as a key. As in Java, all NaNs are one value."""
    return tuple("NaN" if is_nan(value) else value for value in partition)


class PartitionSet:
    """A set of partitions of a table with the interface of a filter (Java's PartitionSet).

    The clauses of a commit that replaces partitions apply to partitions, not rows.
    """

    def __init__(
        self, partitions: Iterable[tuple[int, tuple[Any, ...]]], metadata: TableMetadata
    ) -> None:
        self._partitions: dict[int, set[tuple[Any, ...]]] = {}
        for spec_id, partition in partitions:
            self._partitions.setdefault(spec_id, set()).add(comparable_partition(partition))
        self._specs = {spec.spec_id: spec for spec in metadata.partition_specs}

    @property
    def text(self) -> str:
        shown = [
            _partition_text(self._specs.get(spec_id), partition)
            for spec_id, partitions in sorted(self._partitions.items())
            for partition in list(partitions)[:_SHOWN_PARTITIONS]
        ]
        more = sum(map(len, self._partitions.values())) - len(shown)
        return "partitions " + ", ".join([*shown, *([f"and {more} more"] if more else [])])

    def may_match_spec(self, spec_id: int) -> bool:
        return spec_id in self._partitions

    def may_match_manifest(self, listed: ManifestFile, schema: RecordSchema) -> bool:
        return self.may_match_spec(listed.partition_spec_id)

    def may_match_partitions(self, columns: ManifestColumns, spec_id: int) -> Bools:
        """Return for each distinct partition of a manifest whether it is in the set."""
        spec = self._specs.get(spec_id)
        wanted = self._partitions.get(spec_id, set())
        partitions = partitions_of(columns, spec)
        return _each(lambda partition: comparable_partition(partition) in wanted, partitions)

    def rows_that_may_match(
        self, columns: ManifestColumns, spec_id: int, rows: Rows, metrics_of: MetricsOf
    ) -> Rows:
        return rows[self.may_match_partitions(columns, spec_id)[columns.partition[rows]]]


def _partition_text(spec: PartitionSpec | None, partition: tuple[Any, ...]) -> str:
    if spec is None or len(spec.fields) != len(partition):
        return str(partition)
    parts = zip(spec.fields, partition, strict=True)
    return "/".join(f"{part.name}={value}" for part, value in parts)


class PartitionTest:
    """A projected filter for the partitions of many manifests. Each distinct partition is tested
    once."""

    def __init__(self, projected: Expression, spec: PartitionSpec) -> None:
        self._constant = {ALWAYS_TRUE: True, ALWAYS_FALSE: False}.get(projected)
        self._test = partition_evaluator(projected, spec)
        # Equal floats can differ: a zero has two signs.
        self._remembers = not any(
            term.type.type_id in (TypeId.FLOAT, TypeId.DOUBLE) for term in bound_terms(projected)
        )
        self._known: dict[tuple[Any, ...], bool] = {}

    def __call__(self, partition: Sequence[Any]) -> bool:
        if self._constant is not None:
            return self._constant
        if not self._remembers:
            return self._test(partition)
        key = tuple(partition)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._test(key)
        return known

    def of(self, columns: ManifestColumns, spec: PartitionSpec) -> Bools:
        if self._constant is not None:
            return np.full(len(columns.partitions), self._constant)
        return _each(self, partitions_of(columns, spec))


@dataclass(frozen=True, slots=True)
class _SpecFilter:
    """The parts of a filter for one spec."""

    spec: PartitionSpec
    may_match_summaries: Evaluator[Summaries]
    may_match: PartitionTest
    must_match: PartitionTest
    residual: Callable[[Sequence[Any]], Expression]


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """The rows of a manifest that a `delete-row-filter` selects."""

    whole: Rows
    """All rows of these files must match."""
    partial: Rows
    """Some rows of these files may match, and it is not certain that all do."""


class BoundFilter:
    """A row filter that is bound to a schema and to the table's partition specs."""

    def __init__(self, expression: Expression, text: str, specs: Iterable[PartitionSpec]) -> None:
        self.expression = expression
        self.text = text
        """The filter in a readable form, for messages."""
        self._specs = {spec.spec_id: spec for spec in specs}
        self._by_spec: dict[int, _SpecFilter | None] = {}

    @property
    def matches_everything(self) -> bool:
        return self.expression == ALWAYS_TRUE

    @property
    def matches_nothing(self) -> bool:
        return self.expression == ALWAYS_FALSE

    # --- manifests and partitions ---

    def may_match_manifest(self, listed: ManifestFile, schema: RecordSchema) -> bool:
        """Return whether the summaries in the list allow a match. `schema` is that of the list."""
        if self.matches_everything or self.matches_nothing:
            return self.matches_everything
        spec_filter = self._for_spec(listed.partition_spec_id)
        return spec_filter is None or spec_filter.may_match_summaries(
            partition_summaries(schema, listed)
        )

    def may_match_partitions(self, columns: ManifestColumns, spec_id: int) -> Bools:
        """Return for each distinct partition of a manifest whether it may have a matching row."""
        spec_filter = self._for_spec(spec_id)
        if spec_filter is None or self.matches_everything:
            return np.full(len(columns.partitions), not self.matches_nothing)
        return spec_filter.may_match.of(columns, spec_filter.spec)

    def must_match_partitions(self, columns: ManifestColumns, spec_id: int) -> Bools:
        """Return for each distinct partition of a manifest whether all of its rows must match."""
        spec_filter = self._for_spec(spec_id)
        if spec_filter is None or self.matches_everything:
            return np.full(len(columns.partitions), self.matches_everything)
        return spec_filter.must_match.of(columns, spec_filter.spec)

    # --- files ---

    def rows_that_may_match(
        self, columns: ManifestColumns, spec_id: int, rows: Rows, metrics_of: MetricsOf
    ) -> Rows:
        """Return the rows whose file may have a matching row, by partition and then by metrics.

        Metrics are read only if the partition is not sufficient.
        """
        if self.matches_everything or not len(rows):
            return rows
        allowed = self.may_match_partitions(columns, spec_id)
        rows = rows[allowed[columns.partition[rows]]]
        return rows[self._inclusive_columns(metrics_of(rows))] if len(rows) else rows

    def rows_by_metrics(self, metrics: MetricColumns, rows: Rows) -> Rows:
        """Return the rows whose statistics allow a match. `metrics` are of the whole manifest."""
        own = metrics if len(rows) == len(metrics) else metrics.take(rows)
        return rows[self._inclusive_columns(own)]

    def is_decided_by(self, spec_id: int) -> bool:
        """Return whether partitions of a spec are sufficient to know for every file that all or
        none of its rows match."""
        spec = self._specs.get(spec_id)
        if self.matches_everything or self.matches_nothing:
            return True
        if spec is None:
            return False
        identities = {
            part.source_id for part in spec.fields if isinstance(part.transform, Identity)
        }
        return {term.ref.field_id for term in bound_terms(self.expression)} <= identities

    def matched_rows(
        self, columns: ManifestColumns, spec_id: int, rows: Rows, metrics_of: MetricsOf | None
    ) -> MatchedRows:
        """Return the rows that a `delete-row-filter` selects, like Java's ManifestFilterManager.

        If `metrics_of` is None, the partition alone must prove that all rows match. This is right
        for delete files, whose rows are not those of their data files.
        """
        # As in Java, a file without rows has none that match.
        rows = rows[columns.record_count[rows] != 0]
        residuals = self.residuals(columns, spec_id)
        of_row = columns.partition[rows]
        proven = np.array([residual == ALWAYS_TRUE for residual in residuals], bool)
        excluded = np.array([residual == ALWAYS_FALSE for residual in residuals], bool)
        whole = rows[proven[of_row]]
        open_rows = rows[~(proven | excluded)[of_row]]
        if metrics_of is None or not len(open_rows):
            return MatchedRows(whole, open_rows)
        judged = self._judged(columns, residuals, open_rows, metrics_of)
        return MatchedRows(
            np.sort(np.concatenate([whole, open_rows[judged == _MUST]])),
            open_rows[judged == _MAY],
        )

    # --- inside ---

    def _judged(
        self,
        columns: ManifestColumns,
        residuals: Sequence[Expression],
        rows: Rows,
        metrics_of: MetricsOf,
    ) -> NDArray[np.uint8]:
        """Return for each row whether its file cannot, may or must match the residual."""
        metrics = metrics_of(rows)
        answers = np.zeros(len(rows), np.uint8)
        for residual, own in _by_residual(residuals, columns.partition[rows]):
            some = metrics if own is None else metrics.take(own)
            may = inclusive_mask(residual, some)
            must = strict_mask(residual, some)
            answers[... if own is None else own] = np.where(may, np.where(must, _MUST, _MAY), 0)
        return answers

    def residuals(self, columns: ManifestColumns, spec_id: int) -> list[Expression]:
        """Return the residual of the filter for each distinct partition of a manifest."""
        spec_filter = self._for_spec(spec_id)
        if spec_filter is None:
            return [self.expression] * len(columns.partitions)
        return [
            spec_filter.residual(partition)
            for partition in partitions_of(columns, spec_filter.spec)
        ]

    def _for_spec(self, spec_id: int) -> _SpecFilter | None:
        """Return the filter for a spec, or None if the table no longer has the spec, because the
        partitions are then unknown."""
        if spec_id not in self._by_spec:
            spec = self._specs.get(spec_id)
            self._by_spec[spec_id] = None if spec is None else _spec_filter(self.expression, spec)
        return self._by_spec[spec_id]

    @cached_property
    def _inclusive_columns(self) -> ColumnEvaluator:
        return inclusive_column_evaluator(self.expression)


_MAY: Final = 1
_MUST: Final = 2


def _spec_filter(expression: Expression, spec: PartitionSpec) -> _SpecFilter:
    inclusive = inclusive_projection(expression, spec)
    return _SpecFilter(
        spec=spec,
        may_match_summaries=manifest_evaluator(inclusive, spec),
        may_match=PartitionTest(inclusive, spec),
        must_match=PartitionTest(strict_projection(expression, spec), spec),
        residual=residual_evaluator(expression, spec),
    )


def _each(test: Evaluator[Sequence[Any]], partitions: Sequence[tuple[Any, ...]]) -> Bools:
    return np.fromiter(map(test, partitions), bool, len(partitions))


def _by_residual(
    residuals: Sequence[Expression], partition: NDArray[np.int32]
) -> Iterator[tuple[Expression, Rows | None]]:
    """Return the positions of rows with the same residual, or None for all rows. Partitions that
    prove nothing do not change the filter."""
    distinct: dict[Expression, int] = {}
    number = np.array(
        [distinct.setdefault(residual, len(distinct)) for residual in residuals], np.int64
    )
    of_row = number[partition]
    order = np.argsort(of_row, kind="stable")
    numbers, starts = np.unique(of_row[order], return_index=True)
    expressions = list(distinct)
    if len(numbers) == 1:
        yield expressions[int(numbers[0])], None
        return
    for which, own in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        yield expressions[which], own


def bound_terms(expression: Expression) -> Iterator[BoundTerm]:
    """Return the terms of a bound expression."""
    if isinstance(expression, And | Or):
        for operand in expression.operands:
            yield from bound_terms(operand)
    elif isinstance(expression, BoundPredicate):
        yield expression.term


# --- from a request --------------------------------------------------------------------------


def bound_filter(
    raw: Raw | bytes,
    metadata: TableMetadata,
    *,
    case_sensitive: bool,
    json_path: str,
    schema: Schema | None = None,
) -> BoundFilter:
    """Return the filter of a request. `json_path` names it in messages. Raises BadRequest if it
    does not bind to the schema, by default the table's current one."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise BadRequest(f"{json_path}: not valid JSON: {error}") from None
    expression = parse_expression(value, json_path)
    try:
        bound = bind(expression, schema or metadata.current_schema, case_sensitive=case_sensitive)
    except BadRequest as error:
        raise BadRequest(f"{json_path}: {error.message}") from None
    return BoundFilter(bound, _shortened_text(expression), metadata.partition_specs)


def every_row(metadata: TableMetadata) -> BoundFilter:
    """Return the filter that matches everything."""
    return BoundFilter(ALWAYS_TRUE, "true", metadata.partition_specs)


def _shortened_text(expression: Expression) -> str:
    text = filter_text(expression)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
