"""Maintenance of tables from Python: rewrites by this process, and jobs of the server."""

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
    from frazil.maintenance.server_jobs import (
        JobResult,
        delete_unreachable_files,
        expire_snapshots,
        remove_dangling_deletes,
        remove_orphan_files,
        rewrite_manifests,
        undo,
    )

__all__ = [
    "ConversionResult",
    "DeleteRewriteResult",
    "JobResult",
    "RewriteResult",
    "convert_equality_deletes",
    "delete_unreachable_files",
    "expire_snapshots",
    "remove_dangling_deletes",
    "remove_orphan_files",
    "rewrite_data_files",
    "rewrite_manifests",
    "rewrite_position_delete_files",
    "undo",
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
        "JobResult": "frazil.maintenance.server_jobs",
        "delete_unreachable_files": "frazil.maintenance.server_jobs",
        "expire_snapshots": "frazil.maintenance.server_jobs",
        "remove_dangling_deletes": "frazil.maintenance.server_jobs",
        "remove_orphan_files": "frazil.maintenance.server_jobs",
        "rewrite_manifests": "frazil.maintenance.server_jobs",
        "undo": "frazil.maintenance.server_jobs",
    },
    extra="parquet",
)
