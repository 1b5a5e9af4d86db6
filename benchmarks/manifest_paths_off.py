"""Switches that turn a path through the manifest code off, for `benchmarks.manifest_paths`.

Each returns a context in which the work is done in the plain way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from inspect import unwrap
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.planning import trees
from frazil.commit.snapshot import manifest_tree
from frazil.format.avro import avro_files, avro_types
from frazil.format.avro.avro_schema import cached_by_schema
from frazil.format.manifest import (
    copied_entries,
    entry_decoder,
    entry_fields,
    manifest_columns,
    manifest_encoder,
    manifest_list,
    manifest_writer,
    reading_columns,
)
from frazil.format.pruning import column_evaluators, metric_columns, metric_decoder
from frazil.format.pruning.column_evaluators import ColumnEvaluator
from frazil.format.pruning.evaluators import inclusive_metrics_evaluator
from frazil.format.pruning.metric_columns import MetricColumns
from frazil.format.pruning.metric_values import Literals, Mask, both, either, negated
from frazil.plan import plan_answers
from frazil.read import column_files, filters, history, manifest_cache, path_index
from frazil.wire.expressions import Expression

Switch = Callable[[], AbstractContextManager[object]]


def lockstep_rows() -> AbstractContextManager[object]:
    """Read the entries of all manifests one by one."""
    return patch.object(entry_decoder, "lockstep", lambda schema: None)


@contextmanager
def skipping_patterns() -> Iterator[None]:
    """Skip the fields of an entry one by one."""
    with (
        patch.object(avro_files, "_MAX_PATTERN_NODES", 0),
        # What was made with patterns is cached.
        patch.object(entry_decoder, "_entry_reader", _uncached(entry_decoder._entry_reader)),
        patch.object(
            entry_fields, "_metrics_projection", _uncached(entry_fields._metrics_projection)
        ),
    ):
        yield


def _uncached(function: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function of a schema with a cache of its own."""
    return cached_by_schema(unwrap(function))


def lockstep_statistics() -> AbstractContextManager[object]:
    """Read the statistics of all manifests entry by entry."""
    return patch.object(metric_decoder, "lockstep", lambda schema: None)


def lockstep_reading() -> AbstractContextManager[object]:
    """Read the reading columns entry by entry."""
    return patch.object(reading_columns, "_MIN_LOCKSTEP_ROWS", 1 << 60)


def decoded_together() -> AbstractContextManager[object]:
    """Decompress a manifest once for its columns and once for its statistics."""

    def separately(content: bytes) -> tuple[manifest_columns.ManifestColumns, MetricColumns]:
        columns = manifest_columns.decode_columns(content)
        return columns, metric_decoder.decode_metrics(content, columns)

    return patch.object(manifest_cache, "decode_manifest", separately)


def files_of_small_manifests() -> AbstractContextManager[object]:
    """Build arrays for the statistics of small manifests."""

    def arrays(file: Any, columns: Any) -> MetricColumns:
        decoder = metric_decoder._Decoder(file, columns)
        for chunk in metric_decoder._chunks(file, columns):
            decoder.take(chunk)
        return decoder.builder.columns()

    return patch.object(metric_decoder, "_few_metrics", arrays)


def columns_on_disk() -> AbstractContextManager[object]:
    return patch.object(column_files.ColumnFiles, "get", lambda *_: None)


def statistics_on_disk() -> AbstractContextManager[object]:
    return patch.object(column_files.ColumnFiles, "get_metrics", lambda *_: None)


def reading() -> AbstractContextManager[object]:
    """Read the planned files from their manifests for each plan."""

    def documents(self: Any, piece: Any, spec_id: int) -> Iterator[dict[str, Any]]:
        files = self._files(piece.listed, piece.columns, piece.rows, stats=False)
        return (self._file_document(file, spec_id) for file in files)

    return patch.object(plan_answers.TaskWriter, "_from_columns", documents)


def vectorized_filters() -> AbstractContextManager[object]:
    """Evaluate a filter file by file."""

    def evaluator(expression: Expression) -> ColumnEvaluator:
        judge = inclusive_metrics_evaluator(expression)
        return lambda metrics: np.fromiter(map(judge, map(metrics.row, range(len(metrics)))), bool)

    return patch.object(filters, "inclusive_column_evaluator", evaluator)


def ranked_literals() -> AbstractContextManager[object]:
    """Compare the bounds with every literal of an IN."""

    def overlap(literals: Literals) -> Callable[[Any], Mask]:
        def test(facts: Any) -> Mask:
            found: Mask = False
            for value in literals.values:
                found = either(found, _between(facts, value))
            return found

        return test

    return patch.object(column_evaluators, "_overlap", overlap)


def _between(facts: Any, value: Any) -> Mask:
    from_lower = column_evaluators._or_unknown(facts.lower, lambda own: own.less_equal(value))
    to_upper = column_evaluators._or_unknown(facts.upper, lambda own: negated(own.less(value)))
    return both(from_lower, to_upper)


def cached_summaries() -> AbstractContextManager[object]:
    uncached = manifest_list._summaries.__wrapped__
    return patch.object(manifest_list, "_summaries", uncached)


@contextmanager
def constant_columns() -> Iterator[None]:
    def same(array: Any) -> Any:
        return array

    with (
        patch.object(manifest_columns, "compact", same),
        patch.object(metric_columns, "compact", same),
    ):
        yield


def new_manifests() -> AbstractContextManager[object]:
    """Make the columns of every new manifest at once."""
    return patch.object(manifest_tree, "MAX_FILES", 0)


def path_index_levels() -> AbstractContextManager[object]:
    """Search the path hashes of each manifest."""
    return patch.object(
        path_index.PathIndexes, "candidates", lambda self, table, listed, hashes, hashed: listed
    )


def list_blocks() -> AbstractContextManager[object]:
    """Compress the whole manifest list for each commit."""
    return patch.object(manifest_list, "_common_tail", lambda one, other: 0)


def columns_of_copies() -> AbstractContextManager[object]:
    """Decode rewritten manifests."""
    return patch.object(manifest_writer, "columns_of_copies", lambda *_: None)


def copied_blocks() -> AbstractContextManager[object]:
    """Compress all blocks of a rewritten manifest again."""

    def one_run(self: Any, *_: Any) -> Iterator[Any]:
        yield copied_entries.Run(False, range(len(self.spans)), 0, len(self.columns))

    return patch.object(copied_entries.Blocks, "runs", one_run)


def same_schema_copies() -> AbstractContextManager[object]:
    """Copy entries field by field, even if both manifests have one schema."""
    return patch.object(copied_entries, "_remembered_suffix", lambda source, target: None)


def single_rows() -> AbstractContextManager[object]:
    """Read the statistics of a whole manifest for a few files."""
    return patch.object(history, "_is_alone", lambda *_: False)


def count_frames() -> AbstractContextManager[object]:
    """Encode the counts of a file one by one."""
    return patch.object(manifest_encoder, "CountMap", None)


@contextmanager
def cached_numbers() -> Iterator[None]:
    """Encode every number again."""

    def encode(_: avro_types.Longs, value: int) -> bytes:
        return avro_types.encode_long(value)

    caches = (avro_types.LONGS, avro_types.INTS)
    kept = [dict(cache) for cache in caches]
    with (
        patch.object(
            avro_types.Longs, "__missing__", lambda _, value: avro_types.encode_long(value)
        ),
        patch.object(manifest_encoder, "encode_count", avro_types.encode_long),
    ):
        for cache in caches:
            cache.clear()
        yield
    for cache, entries in zip(caches, kept, strict=True):
        cache.update(entries)


def manifests_of(files: int) -> AbstractContextManager[object]:
    """Make the small manifests of a planned table have so many files. This is no path."""
    return patch.object(trees, "_FILES_OF_A_SMALL_ONE", files)
