"""PyIceberg's table with another kind of transaction, and helpers that both kinds share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TypeVar

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import (
    ROWS_MIGHT_NOT_MATCH,
    ROWS_MUST_MATCH,
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
)
from pyiceberg.manifest import ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.maintenance import MaintenanceTable
from pyiceberg.table.update import TableRequirement
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics

AnyTable = TypeVar("AnyTable", bound=Table)


class TransactingTable(Table):
    """A table that begins every commit with `begin`."""

    @abstractmethod
    def begin(self, *, autocommit: bool = False) -> Transaction:
        """Return a transaction; with `autocommit` it commits each change at once."""

    def transaction(self) -> Transaction:
        return self.begin()

    @property
    def maintenance(self) -> MaintenanceTable:
        return _Maintenance(self)

    def manage_snapshots(self) -> ManageSnapshots:
        return ManageSnapshots(transaction=self.begin(autocommit=True))

    def update_statistics(self) -> UpdateStatistics:
        return UpdateStatistics(transaction=self.begin(autocommit=True))

    def update_schema(
        self, allow_incompatible_changes: bool = False, case_sensitive: bool = True
    ) -> UpdateSchema:
        return UpdateSchema(
            transaction=self.begin(autocommit=True),
            allow_incompatible_changes=allow_incompatible_changes,
            case_sensitive=case_sensitive,
            name_mapping=self.name_mapping(),
        )

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        return UpdateSortOrder(self.begin(autocommit=True), case_sensitive=case_sensitive)

    def update_spec(self, case_sensitive: bool = True) -> UpdateSpec:
        return UpdateSpec(self.begin(autocommit=True), case_sensitive=case_sensitive)


class _Maintenance(MaintenanceTable):
    tbl: TransactingTable

    def expire_snapshots(self) -> ExpireSnapshots:
        return ExpireSnapshots(transaction=self.tbl.begin(autocommit=True))


def copy_as(kind: type[AnyTable], table: Table, config: dict[str, str] | None = None) -> AnyTable:
    """Return a table of another class with the same state."""
    return kind(
        identifier=table.name(),
        metadata=table.metadata,
        metadata_location=table.metadata_location,
        io=table.io,
        catalog=table.catalog,
        config=table.config if config is None else config,
    )


def requirement_subject(requirement: TableRequirement) -> tuple[type, str | None]:
    """Return what a requirement is about: its type, and the ref it names."""
    return type(requirement), getattr(requirement, "ref", None)


def key_columns(schema: Schema, join_cols: list[str] | None) -> list[str]:
    """Return the key columns of an upsert, by default the identifier fields."""
    if join_cols is not None:
        return join_cols
    names = map(schema.find_column_name, schema.identifier_field_ids)
    return [name for name in names if name is not None]


def split_by_predicate(
    entries: Iterable[ManifestEntry],
    schema: Schema,
    predicate: BooleanExpression,
    case_sensitive: bool,
) -> tuple[list[ManifestEntry], bool]:
    """Return the files whose rows all match, and whether rows of other files may match too."""
    must_match = _StrictMetricsEvaluator(schema, predicate, case_sensitive).eval
    may_match = _InclusiveMetricsEvaluator(schema, predicate, case_sensitive).eval
    matching: list[ManifestEntry] = []
    others_may_match = False
    for entry in entries:
        if must_match(entry.data_file) == ROWS_MUST_MATCH:
            matching.append(entry)
        elif may_match(entry.data_file) != ROWS_MIGHT_NOT_MATCH:
            others_may_match = True
    return matching, others_may_match
