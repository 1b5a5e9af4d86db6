"""PyIceberg's table with transactions of another kind: what the two tables here share."""

from __future__ import annotations

from abc import abstractmethod

from pyiceberg.table import Table, Transaction
from pyiceberg.table.maintenance import MaintenanceTable
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics


class TransactingTable(Table):
    """All that leads to a commit goes through `begin`."""

    @abstractmethod
    def begin(self, *, autocommit: bool = False) -> Transaction:
        """A transaction of the table's own kind; one that commits what is staged at once."""

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
