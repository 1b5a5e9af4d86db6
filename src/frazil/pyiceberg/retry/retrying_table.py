"""`retrying(table)`: a PyIceberg table of any catalog whose commits are checked and retried.

`frazil.pyiceberg.retry.retrying_transaction` contains the loop.
"""

from __future__ import annotations

from pyiceberg.table import StagedTable, StaticTable, Table, Transaction

from frazil.pyiceberg.retry.retrying_transaction import RetryingTransaction
from frazil.pyiceberg.transacting_table import TransactingTable, copy_as


def retrying(table: Table) -> Table:
    """Return the table with commits that are checked against other commits and retried.

    `append`, `overwrite`, `dynamic_partition_overwrite`, `delete`, `upsert`, `add_files` and
    `transaction()` work like PyIceberg's. A conflict raises `ValidationException` at once.
    """
    if isinstance(table, StaticTable | StagedTable):
        raise ValueError(
            f"retrying() needs a table that was loaded from a catalog, got {type(table).__name__}"
        )
    return copy_as(RetryingTable, table)


class RetryingTable(TransactingTable):
    """A table that commits with `RetryingTransaction`, also for single calls."""

    def begin(self, *, autocommit: bool = False) -> Transaction:
        return RetryingTransaction(self, autocommit)
