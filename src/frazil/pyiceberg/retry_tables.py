"""`retrying(table)`: PyIceberg's table, with commits that know when to try again.

For catalogs that are not Frazil's own. How a commit goes: `frazil.pyiceberg.retry_transaction`.
"""

from __future__ import annotations

from pyiceberg.table import StagedTable, StaticTable, Table, Transaction
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics

from frazil.pyiceberg.retry_transaction import RetryingTransaction


def retrying(table: Table) -> Table:
    """The same table, whose writes are retried on other writers' commits and checked against them.

    `append`, `overwrite`, `dynamic_partition_overwrite`, `delete`, `upsert`, `add_files` and
    `transaction()` work as PyIceberg's. A conflict is raised at once as `ValidationException`.
    """
    if isinstance(table, StaticTable | StagedTable):
        raise ValueError(
            f"retrying() needs a table that was loaded from a catalog, got {type(table).__name__}"
        )
    return RetryingTable(
        identifier=table.name(),
        metadata=table.metadata,
        metadata_location=table.metadata_location,
        io=table.io,
        catalog=table.catalog,
        config=table.config,
    )


class RetryingTable(Table):
    """A table whose transactions, also those of one call, are `RetryingTransaction`s."""

    def transaction(self) -> Transaction:
        return RetryingTransaction(self)

    def manage_snapshots(self) -> ManageSnapshots:
        return ManageSnapshots(transaction=self._autocommit())

    def update_statistics(self) -> UpdateStatistics:
        return UpdateStatistics(transaction=self._autocommit())

    def update_schema(
        self, allow_incompatible_changes: bool = False, case_sensitive: bool = True
    ) -> UpdateSchema:
        return UpdateSchema(
            transaction=self._autocommit(),
            allow_incompatible_changes=allow_incompatible_changes,
            case_sensitive=case_sensitive,
            name_mapping=self.name_mapping(),
        )

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        return UpdateSortOrder(transaction=self._autocommit(), case_sensitive=case_sensitive)

    def update_spec(self, case_sensitive: bool = True) -> UpdateSpec:
        return UpdateSpec(self._autocommit(), case_sensitive=case_sensitive)

    def _autocommit(self) -> RetryingTransaction:
        return RetryingTransaction(self, autocommit=True)
