"""PyIceberg through Frazil: the same calls, committed as declared changes of files.

`FrazilCatalog` is for Frazil's server; `retrying` makes a table of any other catalog retry its
commits on a newer head where that is right.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.pyiceberg.catalog import FrazilCatalog, load_catalog
    from frazil.pyiceberg.errors import DuplicateFilesError, ValidationError
    from frazil.pyiceberg.retrying.retry_tables import retrying
    from frazil.pyiceberg.tables import FrazilTable
    from frazil.pyiceberg.transactions import FrazilTransaction

__all__ = [
    "DuplicateFilesError",
    "FrazilCatalog",
    "FrazilTable",
    "FrazilTransaction",
    "ValidationError",
    "load_catalog",
    "retrying",
]

_HOMES = {
    "DuplicateFilesError": "errors",
    "FrazilCatalog": "catalog",
    "FrazilTable": "tables",
    "FrazilTransaction": "transactions",
    "ValidationError": "errors",
    "load_catalog": "catalog",
    "retrying": "retry_tables",
}


def __getattr__(name: str) -> Any:
    """Each name is loaded when it is asked for: PyIceberg is large."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
