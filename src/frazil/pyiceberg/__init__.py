"""PyIceberg with safer commits.

`FrazilCatalog` keeps PyIceberg's API and commits file changes through a Frazil server.
`retrying(table)` adds conflict checks and retries to a table of any other catalog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy_names import lazy_names

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

# PyIceberg is large, so it is loaded when one of the names is used.
__getattr__ = lazy_names(
    __name__,
    {
        "DuplicateFilesError": "frazil.pyiceberg.commit_messages",
        "FrazilCatalog": "frazil.pyiceberg.frazil_catalog",
        "FrazilTable": "frazil.pyiceberg.frazil_transaction",
        "FrazilTransaction": "frazil.pyiceberg.frazil_transaction",
        "ValidationError": "frazil.pyiceberg.commit_messages",
        "load_catalog": "frazil.pyiceberg.frazil_catalog",
        "retrying": "frazil.pyiceberg.retry.retrying_transaction",
    },
    extra="pyiceberg",
)
