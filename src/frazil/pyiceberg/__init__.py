"""PyIceberg with safer commits.

`FrazilCatalog` keeps PyIceberg's API and commits file changes through a Frazil server.
`retrying(table)` adds conflict checks and retries to a table of any other catalog.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.pyiceberg.commit_messages import DuplicateFilesError, ValidationError
    from frazil.pyiceberg.frazil_catalog import FrazilCatalog, load_catalog
    from frazil.pyiceberg.frazil_transaction import FrazilTable, FrazilTransaction
    from frazil.pyiceberg.retry.retrying_transaction import retrying

__all__ = [
    "DuplicateFilesError",
    "FrazilCatalog",
    "FrazilTable",
    "FrazilTransaction",
    "ValidationError",
    "load_catalog",
    "retrying",
]

_MODULES = {
    "DuplicateFilesError": "commit_messages",
    "FrazilCatalog": "frazil_catalog",
    "FrazilTable": "frazil_transaction",
    "FrazilTransaction": "frazil_transaction",
    "ValidationError": "commit_messages",
    "load_catalog": "frazil_catalog",
    "retrying": "retry.retrying_transaction",
}


def __getattr__(name: str) -> Any:
    """Import each name on first use, because PyIceberg is large."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
