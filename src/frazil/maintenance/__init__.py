"""Maintenance of tables from Python, without Spark: `rewrite_data_files`."""

from frazil.maintenance.data_file_rewrite import RewriteResult as RewriteResult
from frazil.maintenance.data_file_rewrite import rewrite_data_files as rewrite_data_files
