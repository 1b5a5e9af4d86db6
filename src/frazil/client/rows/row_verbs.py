"""The methods of tables and clients that take rows or return them.

They need pyarrow, which is imported on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack, cast

from frazil.extras import install_command, is_missing
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.file_operations import CommitOptions
    from frazil.client.declare.table_verbs import Commit, TableName
    from frazil.client.rows.row_input import Rows
    from frazil.client.rows.row_statements import DeleteOptions, RowOptions
    from frazil.client.rows.table_scan import ScanOptions, TableScan
    from frazil.wire.filter_builders import Filter


class RowVerbs:
    """The methods of a table.

    `append`, `delete` and `upsert` work on the table as it is now. `overwrite` replaces rows that
    the caller has seen, so that its base is the snapshot that this table was loaded with.
    """

    def append(self, rows: Rows, **options: Unpack[CommitOptions]) -> Commit:
        """Add rows: a pyarrow Table or reader, a frame of pandas or polars, or a list of dicts.

        Columns are matched by name. This never conflicts with other commits.
        """
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.append(self._table().refreshed("refs"), rows, options)

    def overwrite(
        self, rows: Rows, filter: Filter | None = None, **options: Unpack[DeleteOptions]
    ) -> Commit:
        """Replace the rows that match the filter by others; without a filter, all rows.

        The new rows need not match the filter.
        """
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.overwrite(self._table(), rows, filter, options, pinned=True)

    def overwrite_partitions(self, rows: Rows, **options: Unpack[RowOptions]) -> Commit:
        """Replace all rows of the partitions that the new rows are in."""
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.overwrite_partitions(self._table(), rows, options, pinned=True)

    def delete(self, filter: Filter, **options: Unpack[DeleteOptions]) -> Commit:
        """Delete the rows that match the filter; `"true"` deletes all rows."""
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.delete(self._table().refreshed("refs"), filter, options)

    def upsert(
        self, rows: Rows, keys: Sequence[str] = (), **options: Unpack[DeleteOptions]
    ) -> Commit:
        """Replace the rows that have the same keys, and add the others.

        `keys` are names of columns, by default the table's identifier fields.
        """
        with extra_named():
            from frazil.client.rows import row_upserts
        return row_upserts.upsert(self._table().refreshed("refs"), rows, keys, options)

    def scan(
        self,
        filter: Filter | None = None,
        columns: Sequence[str] | None = None,
        **options: Unpack[ScanOptions],
    ) -> TableScan:
        """Return a scan of the rows that match, which is read by `to_arrow()` and the like.

        It reads main as it was when the table was loaded; or `snapshot`, a branch, a tag or an id;
        or main at the time `as_of`, a datetime with a zone or milliseconds since 1970. `columns`
        may also name `_file`, `_pos`, `_spec_id`, `_row_id` and `_last_updated_sequence_number`.
        """
        with extra_named():
            from frazil.client.rows import table_scan
        return table_scan.scan_of(self._table(), filter, columns, options)

    def _table(self) -> Table:
        return cast("Table", self)


class CatalogRowVerbs(ABC):
    """The methods of a client, which name the table first and work on the table as it is now."""

    @abstractmethod
    def table(self, name: TableName) -> Table:
        """Load a table."""

    def append(self, table: TableName, rows: Rows, **options: Unpack[CommitOptions]) -> Commit:
        """Add rows: a pyarrow Table or reader, a frame of pandas or polars, or a list of dicts."""
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.append(self.table(table), rows, options)

    def overwrite(
        self,
        table: TableName,
        rows: Rows,
        filter: Filter | None = None,
        **options: Unpack[DeleteOptions],
    ) -> Commit:
        """Replace the rows that match the filter by others; without a filter, all rows."""
        loaded = self.table(table)
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.overwrite(loaded, rows, filter, options, pinned=loaded is table)

    def overwrite_partitions(
        self, table: TableName, rows: Rows, **options: Unpack[RowOptions]
    ) -> Commit:
        """Replace all rows of the partitions that the new rows are in."""
        loaded = self.table(table)
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.overwrite_partitions(loaded, rows, options, pinned=loaded is table)

    def delete(self, table: TableName, filter: Filter, **options: Unpack[DeleteOptions]) -> Commit:
        """Delete the rows that match the filter; `"true"` deletes all rows."""
        with extra_named():
            from frazil.client.rows import row_statements
        return row_statements.delete(self.table(table), filter, options)

    def upsert(
        self,
        table: TableName,
        rows: Rows,
        keys: Sequence[str] = (),
        **options: Unpack[DeleteOptions],
    ) -> Commit:
        """Replace the rows that have the same keys, and add the others."""
        with extra_named():
            from frazil.client.rows import row_upserts
        return row_upserts.upsert(self.table(table), rows, keys, options)

    def scan(
        self,
        table: TableName,
        filter: Filter | None = None,
        columns: Sequence[str] | None = None,
        **options: Unpack[ScanOptions],
    ) -> TableScan:
        """Return a scan of the rows that match; the options are those of `Table.scan`."""
        loaded = self.table(table)
        is_old = options.get("snapshot") is not None or options.get("as_of") is not None
        if is_old and loaded is not table:
            # Old snapshots and their schemas are needed too.
            loaded = loaded.refreshed()
        return loaded.scan(filter, columns, **options)


@contextmanager
def extra_named() -> Iterator[None]:
    """If an import of the block fails, say what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not is_missing(error, "parquet"):
            raise
        raise BadRequest(
            f"reading and writing rows needs {error.name}, which is not installed. "
            f"Type: {install_command('parquet')}"
        ) from None
