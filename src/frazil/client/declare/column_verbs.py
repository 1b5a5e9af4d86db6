"""The methods that change a table's columns, partition fields, sort order and identifier fields.

Each is built again on fresh metadata if somebody else changed the same part of the table first.
Names are case-sensitive. A column inside another one is named with dots, such as `place.city`, or
as a tuple of names if a name itself has dots. What builds the changes is imported on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.metadata_updates import MetadataUpdates
    from frazil.client.declare.table_definition import PartitionTerm
    from frazil.wire.filter_builders import Value

R = TypeVar("R")

ColumnName: TypeAlias = str | tuple[str, ...]
Distribution: TypeAlias = Literal["none", "hash", "range"]
Part: TypeAlias = Literal["schema", "partition spec", "sort order"]


class ColumnVerbs(ABC, Generic[R]):
    """The methods that change the definition of a table; each returns `R`."""

    @abstractmethod
    def _change_part(self, part: Part, build: Callable[[Table], MetadataUpdates]) -> R:
        """Apply updates of one part of the metadata, which are built for the table as it is."""

    # --- columns -------------------------------------------------------------------------------

    def add_column(
        self,
        name: ColumnName,
        type: str,
        *,
        doc: str | None = None,
        default: Value | None = None,
        required: bool = False,
        first: bool = False,
        after: str | None = None,
    ) -> R:
        """Add a column of a type such as `"long"` or `"struct<x: double, y: double>"`.

        Existing rows have the `default`, or null. So a required column needs a default, and
        defaults need format version 3.
        """
        from frazil.client.declare import column_edits

        build = column_edits.add_column(
            name,
            type,
            doc=doc,
            default=default,
            required=required,
            first=first,
            after=after,
        )
        return self._change_part("schema", build)

    def add_columns(self, columns: str | Mapping[str, str]) -> R:
        """Add columns, as text or by name: `"size int, note string"`, `{"size": "int"}`."""
        from frazil.client.declare import column_edits

        return self._change_part("schema", column_edits.add_columns(columns))

    def rename_column(self, name: ColumnName, new_name: str) -> R:
        """Rename a column; rows, filters on older files and other columns stay as they are."""
        from frazil.client.declare import column_edits

        return self._change_part("schema", column_edits.rename_column(name, new_name))

    def drop_column(self, name: ColumnName) -> R:
        """Drop a column; files keep its values, but nothing reads them."""
        from frazil.client.declare import column_edits

        return self._change_part("schema", column_edits.drop_column(name))

    def update_column(
        self,
        name: ColumnName,
        *,
        type: str | None = None,
        required: bool | None = None,
        doc: str | None = None,
        default: Value | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> R:
        """Change a column; what is left out stays.

        A type can only be widened: int to long, float to double, and the precision of a decimal.
        `required=False` allows nulls. `default` is for new rows without a value. `first` and
        `after` move the column among its neighbors.
        """
        from frazil.client.declare import column_edits

        build = column_edits.update_column(
            name,
            type=type,
            required=required,
            doc=doc,
            default=default,
            first=first,
            after=after,
        )
        return self._change_part("schema", build)

    def move_column(self, name: ColumnName, *, first: bool = False, after: str | None = None) -> R:
        """Move a column to the first place, or after another one beside it."""
        from frazil.client.declare import column_edits

        return self._change_part("schema", column_edits.move_column(name, first, after))

    def set_identifier_fields(self, *names: ColumnName) -> R:
        """Make required columns the ones that identify a row; without names, none do."""
        from frazil.client.declare import column_edits

        return self._change_part("schema", column_edits.set_identifier_fields(names))

    # --- partitions and order ------------------------------------------------------------------

    def add_partition_field(self, term: PartitionTerm, *, name: str | None = None) -> R:
        """Partition new files also by a term such as `"day(at)"`; older files stay as they are."""
        from frazil.client.declare import column_edits

        build = column_edits.change_partition_fields(added=term, name=name)
        return self._change_part("partition spec", build)

    def drop_partition_field(self, term: PartitionTerm) -> R:
        """Stop partitioning by a term; the field may also be given by its name."""
        from frazil.client.declare import column_edits

        build = column_edits.change_partition_fields(dropped=term)
        return self._change_part("partition spec", build)

    def replace_partition_field(
        self, term: PartitionTerm, by: PartitionTerm, *, name: str | None = None
    ) -> R:
        """Partition new files by another term than before."""
        from frazil.client.declare import column_edits

        build = column_edits.change_partition_fields(dropped=term, added=by, name=name)
        return self._change_part("partition spec", build)

    def set_sort_order(self, *terms: str, distribution: Distribution | None = None) -> R:
        """Sort new files by terms such as `"day(at) desc nulls last"`; without terms, by none.

        `distribution` tells engines such as Spark how to divide rows among their tasks.
        """
        from frazil.client.declare import column_edits

        return self._change_part("sort order", column_edits.set_sort_order(terms, distribution))
