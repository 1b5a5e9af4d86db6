"""Writes one Parquet file, row group by row group, until it has its target size.

How many bytes rows take in a file is known only once they are written. The writer estimates the
next row group from those so far, so that a file ends near its target and not a row group beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.writing.variant_annotation import annotating
from frazil.datafiles.writing.write_properties import FileOptions, has_option
from frazil.values.footer_statistics import nan_count
from frazil.values.parquet_columns import field_id_of
from frazil.wire.errors import BadRequest

_FULL_FRACTION: Final = 0.95
"""A file with this part of its target is full: the rest would be a tiny row group."""
_MIN_COMPRESSION_RATIO: Final = 1e-3
_SAMPLE_ROWS: Final = 20_000
_MIN_TYPICAL_ROWS: Final = 5_000
"""How many rows it takes to predict the rows of other files."""
_MAX_DISTINCT_FRACTION: Final = 0.4
"""With more distinct values a dictionary costs more than it saves."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str
    size_in_bytes: int
    metadata: Any
    """A `pyarrow.parquet.FileMetaData`."""
    nan_counts: Mapping[int, Sequence[int]]
    """By field id, one count for each row group."""


@dataclass(frozen=True, slots=True)
class _LeafColumn:
    path: str
    """Its name in Parquet."""
    name: str
    """Its name in the table's schema."""
    field_id: int | None
    steps: tuple[int, ...] | None
    """The field indexes from the root through structs; None inside lists and maps."""
    type: pa.DataType


class RollingFile:
    """A Parquet file that is open for writing and says when it is full."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        options: FileOptions,
        dictionary_pays: dict[str, bool] | None = None,
    ) -> None:
        """`dictionary_pays` is shared by the files of one writer: it says for which columns a
        dictionary pays, and the first file with enough rows fills it."""
        self._dictionary_pays = {} if dictionary_pays is None else dictionary_pays
        self._storage = storage
        self.path = path
        self._schema = schema
        self._options = options
        self._leaves = list(_leaves(schema))
        self._pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        """The size in Arrow of the rows that wait for their row group."""
        self._flushed_bytes = 0
        self._ratio = 1.0
        """How many bytes in the file a byte in Arrow took, in the last row group."""
        self._file: pa.NativeFile | None = None
        self._sink: Any = None
        """What the writer writes to: the file, or a wrapper that annotates its variants."""
        self._writer: pq.ParquetWriter | None = None
        self._metadata: list[Any] = []
        self._nan_counts: dict[int, list[int]] = {}

    @property
    def is_full(self) -> bool:
        return self._written_bytes >= _FULL_FRACTION * self._options.target_file_size_bytes

    @property
    def _written_bytes(self) -> int:
        return 0 if self._sink is None else int(self._sink.tell())

    def write(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take the rows that fit into the open row group, and return the rest."""
        room = self._row_group_bytes() - self.pending_bytes
        size = max(rows.nbytes, rows.num_rows)
        count = rows.num_rows
        if size > room:
            count = min(count, max(1, room * count // size))
        taken = rows.slice(0, count)
        self._pending.append(taken)
        self.pending_bytes += max(taken.nbytes, count)
        if self.pending_bytes >= self._row_group_bytes() or count < rows.num_rows:
            self._flush()
        return rows.slice(count)

    def close(self) -> WrittenFile | None:
        """Finish the file; return None if it never had a row."""
        self._flush()
        if self._writer is None or self._sink is None:
            return None
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        return WrittenFile(self.path, size, self._metadata[0], self._nan_counts)

    def abort(self) -> None:
        """Delete the unfinished file."""
        self._pending.clear()
        if self._writer is not None:
            # When it is garbage-collected, an open writer would write a footer.
            self._writer.is_open = False
        if self._file is not None:
            self._file.close()
            self._storage.delete([self.path])
        self._writer = self._file = self._sink = None

    # --- row groups ----------------------------------------------------------------------------

    def _row_group_bytes(self) -> int:
        """Return how many bytes of Arrow the open row group may have."""
        options = self._options
        left = options.target_file_size_bytes - self._written_bytes
        if self._flushed_bytes == 0:
            return max(1, min(options.row_group_size_bytes, left))
        # Never more than was written so far, because later rows may compress differently.
        estimate = min(int(left / self._ratio), self._flushed_bytes)
        return max(1, min(options.row_group_size_bytes, estimate))

    def _flush(self) -> None:
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._schema)
        if self._writer is None:
            self._start(table)
        assert self._writer is not None
        before = self._written_bytes
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._count_nans(table)
        self._ratio = max(
            (self._written_bytes - before) / self.pending_bytes, _MIN_COMPRESSION_RATIO
        )
        self._flushed_bytes += self.pending_bytes
        self._pending, self.pending_bytes = [], 0

    def _start(self, first: pa.Table) -> None:
        self._file = self._storage.open_output(self.path)
        self._sink = annotating(self._file, self._schema)
        options = self._options
        excluded = frozenset(options.without_statistics)
        paths = [leaf.path for leaf in self._leaves if leaf.name not in excluded]
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            use_dictionary=self._dictionaries(first),
            write_statistics=paths if excluded else True,
            write_page_index=True,
            metadata_collector=self._metadata,
            **self._bloom_filters(first.num_rows),
            **options.parquet_options(),
        )

    def _dictionaries(self, first: pa.Table) -> list[str]:
        """Return the columns with few distinct values; for others a dictionary is wasted work."""
        pays = self._dictionary_pays or {
            leaf.path: _dictionary_pays(first, leaf) for leaf in self._leaves
        }
        if first.num_rows >= _MIN_TYPICAL_ROWS:
            self._dictionary_pays.update(pays)
        chosen = dict(self._options.dictionaries)
        return [
            leaf.path
            for leaf in self._leaves
            if chosen.get(leaf.name, pays[leaf.path]) and not pa.types.is_boolean(leaf.type)
        ]

    def _bloom_filters(self, rows: int) -> dict[str, Any]:
        by_name = {leaf.name: leaf for leaf in self._leaves}
        filters = {}
        for wanted in self._options.bloom_filters:
            leaf = by_name.get(wanted.column)
            if leaf is not None and not pa.types.is_boolean(leaf.type):
                ndv = wanted.distinct_values(rows)
                filters[leaf.path] = {"ndv": ndv, "fpp": wanted.fpp}
        if not filters:
            return {}
        if not has_option("bloom_filter_options"):
            raise BadRequest(
                f"Bloom filters are asked for, but pyarrow {pa.__version__} cannot write them: "
                "install a newer one, or remove the table's write.parquet.bloom-filter-* properties"
            )
        return {"bloom_filter_options": filters}

    def _count_nans(self, table: pa.Table) -> None:
        for leaf in self._leaves:
            if leaf.field_id is None or leaf.steps is None or not pa.types.is_floating(leaf.type):
                continue
            count = sum(map(nan_count, _arrays(table, leaf.steps)))
            self._nan_counts.setdefault(leaf.field_id, []).append(count)


# --- leaves -------------------------------------------------------------------------------------


def _leaves(schema: pa.Schema) -> Iterator[_LeafColumn]:
    for position, field in enumerate(schema):
        yield from _nested_leaves(field, field.name, field.name, (position,))


def _nested_leaves(
    field: pa.Field, path: str, name: str, steps: tuple[int, ...] | None
) -> Iterator[_LeafColumn]:
    type_ = field.type
    if pa.types.is_struct(type_):
        for position in range(type_.num_fields):
            child = type_.field(position)
            inner = None if steps is None else (*steps, position)
            yield from _nested_leaves(child, f"{path}.{child.name}", f"{name}.{child.name}", inner)
    elif pa.types.is_list(type_):
        yield from _nested_leaves(
            type_.value_field, f"{path}.list.element", f"{name}.element", None
        )
    elif pa.types.is_map(type_):
        yield from _nested_leaves(type_.key_field, f"{path}.key_value.key", f"{name}.key", None)
        yield from _nested_leaves(
            type_.item_field, f"{path}.key_value.value", f"{name}.value", None
        )
    else:
        yield _LeafColumn(path, name, field_id_of(field), steps, type_)


def _arrays(table: pa.Table, steps: Sequence[int]) -> Iterator[pa.Array]:
    for array in table.column(steps[0]).chunks:
        for step in steps[1:]:
            # `flatten` hides the values that fields may have below a null struct.
            array = array.flatten()[step]
        yield array


def _dictionary_pays(first: pa.Table, leaf: _LeafColumn) -> bool:
    """Whether a column has few distinct values; assumed for columns inside lists and maps."""
    if leaf.steps is None:
        return True
    values = pa.chunked_array(list(_arrays(first.slice(0, _SAMPLE_ROWS), leaf.steps)))
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    distinct: int = pc.count_distinct(values).as_py()
    return distinct <= max(1, _MAX_DISTINCT_FRACTION * len(values))
