"""Frazil: an Apache Iceberg REST catalog that commits declared file changes.

The names of the client are loaded when they are first used, so that importing the package costs
nothing: no HTTP library, no pyarrow, no pyiceberg.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.client.client import Client
    from frazil.client.declare.isolation import Isolation
    from frazil.client.declare.outcomes import Commit
    from frazil.client.declare.plans import Plan
    from frazil.client.declare.tables import Snapshot, Table
    from frazil.client.declare.transactions import Transaction
    from frazil.client.filter.expressions import col
    from frazil.client.send.errors import CatalogUnreachable
    from frazil.client.send.retries import RetryPolicy
    from frazil.datafiles.footers.data_files import DataFile, read_data_files
    from frazil.wire.actions import Once
    from frazil.wire.content_files import EqualityDeleteFile, PositionDeleteFile
    from frazil.wire.errors import (
        CommitFailed,
        CommitStateUnknown,
        FrazilError,
        ValidationError,
    )
    from frazil.wire.identifiers import Identifier
    from frazil.wire.planned_files import FileScanTask

_HOMES = {
    "CatalogUnreachable": "frazil.client.send.errors",
    "Client": "frazil.client.client",
    "Commit": "frazil.client.declare.outcomes",
    "CommitFailed": "frazil.wire.errors",
    "CommitStateUnknown": "frazil.wire.errors",
    "DataFile": "frazil.datafiles.footers.data_files",
    "EqualityDeleteFile": "frazil.wire.content_files",
    "FileScanTask": "frazil.wire.planned_files",
    "FrazilError": "frazil.wire.errors",
    "Identifier": "frazil.wire.identifiers",
    "Isolation": "frazil.client.declare.isolation",
    "Once": "frazil.wire.actions",
    "Plan": "frazil.client.declare.plans",
    "PositionDeleteFile": "frazil.wire.content_files",
    "RetryPolicy": "frazil.client.send.retries",
    "Snapshot": "frazil.client.declare.tables",
    "Table": "frazil.client.declare.tables",
    "Transaction": "frazil.client.declare.transactions",
    "ValidationError": "frazil.wire.errors",
    "col": "frazil.client.filter.expressions",
    "read_data_files": "frazil.datafiles.footers.data_files",
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
    "Isolation",
    "Once",
    "Plan",
    "PositionDeleteFile",
    "RetryPolicy",
    "Snapshot",
    "Table",
    "Transaction",
    "ValidationError",
    "__version__",
    "col",
    "read_data_files",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
