"""Maintenance of tables from Python, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy_names import lazy_names

if TYPE_CHECKING:
    from frazil.maintenance.data_file_rewrite import RewriteResult, rewrite_data_files
    from frazil.maintenance.equality_conversion import ConversionResult, convert_equality_deletes
    from frazil.maintenance.position_delete_rewrite import (
        DeleteRewriteResult,
        rewrite_position_delete_files,
    )

__all__ = [
    "ConversionResult",
    "DeleteRewriteResult",
    "RewriteResult",
    "convert_equality_deletes",
    "rewrite_data_files",
    "rewrite_position_delete_files",
]

# pyarrow is an extra, so it is loaded when one of the names is used.
__getattr__ = lazy_names(
    __name__,
    {
        "ConversionResult": "frazil.maintenance.equality_conversion",
        "DeleteRewriteResult": "frazil.maintenance.position_delete_rewrite",
        "RewriteResult": "frazil.maintenance.data_file_rewrite",
        "convert_equality_deletes": "frazil.maintenance.equality_conversion",
        "rewrite_data_files": "frazil.maintenance.data_file_rewrite",
        "rewrite_position_delete_files": "frazil.maintenance.position_delete_rewrite",
    },
    extra="parquet",
)
