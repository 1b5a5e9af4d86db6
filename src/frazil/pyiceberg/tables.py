"""Tables whose changes are committed as fine-grained ones."""

from __future__ import annotations

from pyiceberg.table import StagedTable

from frazil.pyiceberg.retrying.transacting import TransactingTable
from frazil.pyiceberg.transactions import FrazilTransaction


class FrazilTable(TransactingTable):
    """PyIceberg's table; only what leads to a commit differs."""

    def begin(self, *, autocommit: bool = False) -> FrazilTransaction:
        return FrazilTransaction(self, autocommit)


class FrazilStagedTable(StagedTable):
    """A table that comes into being with the commit of its transaction."""
