"""Tables whose changes are committed as fine-grained ones."""

from __future__ import annotations

from pyiceberg.table import StagedTable, Table
from pyiceberg.table.maintenance import MaintenanceTable
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics

from frazil.pyiceberg.transactions import FrazilTransaction


class FrazilTable(Table):
    """PyIceberg's table; only what leads to a commit differs."""

    def transaction(self) -> FrazilTransaction:
        return FrazilTransaction(self)

    @property
    def maintenance(self) -> MaintenanceTable:
        return FrazilMaintenance(self)

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

    def _autocommit(self) -> FrazilTransaction:
        return FrazilTransaction(self, autocommit=True)


class FrazilStagedTable(StagedTable):
    """A table that comes into being with the commit of its transaction."""


class FrazilMaintenance(MaintenanceTable):
    def expire_snapshots(self) -> ExpireSnapshots:
        return ExpireSnapshots(transaction=FrazilTransaction(self.tbl, autocommit=True))
