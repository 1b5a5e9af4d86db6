"""`retrying(table)`: PyIceberg's table, with commits that know when to try again.

For catalogs other than Frazil. See `frazil.pyiceberg.retry.retrying_transaction` for the loop.
"""

from __future__ import annotations

from pyiceberg.table import StagedTable, StaticTable, Table, Transaction

from frazil.pyiceberg.retry.retrying_transaction import RetryingTransaction
from frazil.pyiceberg.transacting_table import TransactingTable


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


class RetryingTable(TransactingTable):
    """A table whose transactions, also those of one call, are `RetryingTransaction`s."""

    def begin(self, *, autocommit: bool = False) -> Transaction:
        return RetryingTransaction(self, autocommit)
