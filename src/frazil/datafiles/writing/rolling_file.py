"""One Parquet file, written row group by row group until it has the size that it should have.

How large rows become in a file shows only when they are written: from the row groups so far the
size of the next is foretold, so that a file ends near its target and not a row group beyond it.
Runs on executors.
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
from frazil.values.parquet_columns import field_id_of
from frazil.wire.errors import BadRequest

_FULL: Final = 0.95
"""A file of that part of its target is full: what is missing would be a tiny row group."""
_LEAST_RATIO: Final = 1e-3
_SAMPLE_ROWS: Final = 20_000
_TELLING_ROWS: Final = 5_000
"""So many tell what the rows of other files will be like."""
_MAX_DISTINCT: Final = 0.4
"""Beyond that part of distinct values a dictionary costs more than it saves."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str
    size_in_bytes: int
    metadata: Any
    """A `pyarrow.parquet.FileMetaData`."""
    nan_counts: Mapping[int, Sequence[int]]
    """By field id, for each row group."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: str
    """As Parquet names it."""
    name: str
    """As the schema names it."""
    field_id: int | None
    steps: tuple[int, ...] | None
    """The positions that lead to it through structs; None inside lists and maps."""
    type: pa.DataType


class RollingFile:
    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        options: FileOptions,
        pays: dict[str, bool] | None = None,
    ) -> None:
        """`pays` is what files of one writer know of their columns; the first that has rows enough
        finds out for all."""
        self._pays = {} if pays is None else pays
        self._storage = storage
        self._path = path
        self._schema = schema
        self._options = options
        self._leaves = list(_leaves(schema))
        self._pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        """Of rows that wait for their row group, as Arrow has them."""
        self._flushed_bytes = 0
        self._ratio = 1.0
        """Bytes of the file for a byte of Arrow, in the last row group."""
        self._file: pa.NativeFile | None = None
        self._sink: Any = None
        """What the writer writes to: the file, or what annotates its variants on the way."""
        self._writer: pq.ParquetWriter | None = None
        self._metadata: list[Any] = []
        self._nan_counts: dict[int, list[int]] = {}

    @property
    def is_full(self) -> bool:
        return self._written_bytes >= _FULL * self._options.target_file_size_bytes

    @property
    def _written_bytes(self) -> int:
        return 0 if self._sink is None else int(self._sink.tell())

    def write(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Takes what fits into the row group that is open, and returns the rest."""
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
        """Ends the file; None if it never had a row."""
        self._flush()
        if self._writer is None or self._sink is None:
            return None
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        return WrittenFile(self._path, size, self._metadata[0], self._nan_counts)

    def abort(self) -> None:
        """Leaves no half file behind."""
        self._pending.clear()
        if self._writer is not None:
            # It would end the file with a footer when it is collected.
            self._writer.is_open = False
        if self._file is not None:
            self._file.close()
            self._storage.delete([self._path])
        self._writer = self._file = self._sink = None

    # --- row groups ----------------------------------------------------------------------------

    def _row_group_bytes(self) -> int:
        """How many bytes of Arrow the row group that is open may have."""
        options = self._options
        left = options.target_file_size_bytes - self._written_bytes
        if self._flushed_bytes == 0:
            return max(1, min(options.row_group_size_bytes, left))
        # Never more than there is so far: what lies beyond may be of another kind.
        foretold = min(int(left / self._ratio), self._flushed_bytes)
        return max(1, min(options.row_group_size_bytes, foretold))

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
        self._ratio = max((self._written_bytes - before) / self.pending_bytes, _LEAST_RATIO)
        self._flushed_bytes += self.pending_bytes
        self._pending, self.pending_bytes = [], 0

    def _start(self, first: pa.Table) -> None:
        self._file = self._storage.open_output(self._path)
        self._sink = annotating(self._file, self._schema)
        options = self._options
        silent = frozenset(options.without_statistics)
        paths = [leaf.path for leaf in self._leaves if leaf.name not in silent]
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            use_dictionary=self._dictionaries(first),
            write_statistics=paths if silent else True,
            write_page_index=True,
            metadata_collector=self._metadata,
            **self._bloom_filters(first.num_rows),
            **options.parquet_options(),
        )

    def _dictionaries(self, first: pa.Table) -> list[str]:
        """Columns of few distinct values: for others a dictionary is only tried and given up."""
        pays = self._pays or {leaf.path: _pays(first, leaf) for leaf in self._leaves}
        if first.num_rows >= _TELLING_ROWS:
            self._pays.update(pays)
        said = dict(self._options.dictionaries)
        return [
            leaf.path
            for leaf in self._leaves
            if said.get(leaf.name, pays[leaf.path]) and not pa.types.is_boolean(leaf.type)
        ]

    def _bloom_filters(self, rows: int) -> dict[str, Any]:
        by_name = {leaf.name: leaf for leaf in self._leaves}
        found = {}
        for wanted in self._options.bloom_filters:
            leaf = by_name.get(wanted.column)
            if leaf is not None and not pa.types.is_boolean(leaf.type):
                ndv = wanted.distinct_values(rows)
                found[leaf.path] = {"ndv": ndv, "fpp": wanted.fpp}
        if not found:
            return {}
        if not has_option("bloom_filter_options"):
            raise BadRequest(
                f"Bloom filters are asked for, which pyarrow {pa.__version__} does not write: "
                "install a newer one, or remove the table's write.parquet.bloom-filter-* properties"
            )
        return {"bloom_filter_options": found}

    def _count_nans(self, table: pa.Table) -> None:
        for leaf in self._leaves:
            if leaf.field_id is None or leaf.steps is None or not pa.types.is_floating(leaf.type):
                continue
            count = sum(
                pc.sum(pc.is_nan(array)).as_py() or 0 for array in _arrays(table, leaf.steps)
            )
            self._nan_counts.setdefault(leaf.field_id, []).append(count)


# --- leaves -------------------------------------------------------------------------------------


def _leaves(schema: pa.Schema) -> Iterator[_Leaf]:
    for position, field in enumerate(schema):
        yield from _below(field, field.name, field.name, (position,))


def _below(field: pa.Field, path: str, name: str, steps: tuple[int, ...] | None) -> Iterator[_Leaf]:
    type_ = field.type
    if pa.types.is_struct(type_):
        for position in range(type_.num_fields):
            child = type_.field(position)
            inner = None if steps is None else (*steps, position)
            yield from _below(child, f"{path}.{child.name}", f"{name}.{child.name}", inner)
    elif pa.types.is_list(type_):
        yield from _below(type_.value_field, f"{path}.list.element", f"{name}.element", None)
    elif pa.types.is_map(type_):
        yield from _below(type_.key_field, f"{path}.key_value.key", f"{name}.key", None)
        yield from _below(type_.item_field, f"{path}.key_value.value", f"{name}.value", None)
    else:
        yield _Leaf(path, name, field_id_of(field), steps, type_)


def _arrays(table: pa.Table, steps: Sequence[int]) -> Iterator[pa.Array]:
    for array in table.column(steps[0]).chunks:
        for step in steps[1:]:
            # Where a struct is null its fields still have some value, which does not count.
            array = array.flatten()[step]
        yield array


def _pays(first: pa.Table, leaf: _Leaf) -> bool:
    """Whether a column has few distinct values; inside lists and maps nobody looks."""
    if leaf.steps is None:
        return True
    values = pa.chunked_array(list(_arrays(first.slice(0, _SAMPLE_ROWS), leaf.steps)))
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    distinct: int = pc.count_distinct(values).as_py()
    return distinct <= max(1, _MAX_DISTINCT * len(values))
