"""Maintenance of tables from Python, without Spark: `rewrite_data_files`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy_names import lazy_names

if TYPE_CHECKING:
    from frazil.maintenance.data_file_rewrite import RewriteResult, rewrite_data_files
    from frazil.maintenance.equality_conversion import ConversionResult, convert_equality_deletes

__all__ = ["ConversionResult", "RewriteResult", "convert_equality_deletes", "rewrite_data_files"]

# pyarrow is an extra, so it is loaded when one of the names is used.
__getattr__ = lazy_names(
    __name__,
    {
        "ConversionResult": "frazil.maintenance.equality_conversion",
        "convert_equality_deletes": "frazil.maintenance.equality_conversion",
        "RewriteResult": "frazil.maintenance.data_file_rewrite",
        "rewrite_data_files": "frazil.maintenance.data_file_rewrite",
    },
    extra="parquet",
)
