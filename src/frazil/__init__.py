"""Frazil: an Apache Iceberg REST catalog that commits declared file changes.

The names of the client are imported on first use, so that importing the package loads no HTTP
library, no pyarrow and no pyiceberg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy_names import lazy_names
from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.declare.client_table import Snapshot, Table
    from frazil.client.declare.client_view import View
    from frazil.client.declare.file_operations import Isolation
    from frazil.client.declare.scan_plans import Plan
    from frazil.client.declare.table_verbs import Commit, Transaction
    from frazil.client.send.error_answers import CatalogUnreachable, LeaseLost
    from frazil.client.send.lease_calls import Intent, Lease
    from frazil.client.send.retry_policy import RetryPolicy
    from frazil.datafiles.footers.files_from_parquet import DataFile, read_data_files
    from frazil.wire.declared_content import EqualityDeleteFile, PositionDeleteFile
    from frazil.wire.errors import (
        CommitFailed,
        CommitStateUnknown,
        FrazilError,
        ValidationError,
    )
    from frazil.wire.file_actions import Once
    from frazil.wire.filter_builders import bucket, col, day, hour, month, truncate, year
    from frazil.wire.identifiers import Identifier
    from frazil.wire.scan_planning import FileScanTask

_MODULES = {
    "CatalogUnreachable": "frazil.client.send.error_answers",
    "Client": "frazil.client.catalog_client",
    "Commit": "frazil.client.declare.table_verbs",
    "CommitFailed": "frazil.wire.errors",
    "CommitStateUnknown": "frazil.wire.errors",
    "DataFile": "frazil.datafiles.footers.files_from_parquet",
    "EqualityDeleteFile": "frazil.wire.declared_content",
    "FileScanTask": "frazil.wire.scan_planning",
    "FrazilError": "frazil.wire.errors",
    "Identifier": "frazil.wire.identifiers",
    "Intent": "frazil.client.send.lease_calls",
    "Isolation": "frazil.client.declare.file_operations",
    "Lease": "frazil.client.send.lease_calls",
    "LeaseLost": "frazil.client.send.error_answers",
    "Once": "frazil.wire.file_actions",
    "Plan": "frazil.client.declare.scan_plans",
    "PositionDeleteFile": "frazil.wire.declared_content",
    "RetryPolicy": "frazil.client.send.retry_policy",
    "Snapshot": "frazil.client.declare.client_table",
    "Table": "frazil.client.declare.client_table",
    "Transaction": "frazil.client.declare.table_verbs",
    "ValidationError": "frazil.wire.errors",
    "View": "frazil.client.declare.client_view",
    "bucket": "frazil.wire.filter_builders",
    "col": "frazil.wire.filter_builders",
    "day": "frazil.wire.filter_builders",
    "hour": "frazil.wire.filter_builders",
    "month": "frazil.wire.filter_builders",
    "read_data_files": "frazil.datafiles.footers.files_from_parquet",
    "truncate": "frazil.wire.filter_builders",
    "year": "frazil.wire.filter_builders",
}

__all__ = [
    "CatalogUnreachable",
    "Client",
    "Commit",
    "CommitFailed",
    "CommitStateUnknown",
    "DataFile",
    "EqualityDeleteFile",
    "FileScanTask",
    "FrazilError",
    "Identifier",
    "Intent",
    "Isolation",
    "Lease",
    "LeaseLost",
    "Once",
    "Plan",
    "PositionDeleteFile",
    "RetryPolicy",
    "Snapshot",
    "Table",
    "Transaction",
    "ValidationError",
    "View",
    "__version__",
    "bucket",
    "col",
    "day",
    "hour",
    "month",
    "read_data_files",
    "truncate",
    "year",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
