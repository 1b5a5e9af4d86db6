"""Rows in Arrow: of a table's files, of Spark, and between the two. Runs on executors."""

from __future__ import annotations

from frazil.datafiles.arrow.arrow_types import (
    METADATA_FIELDS,
    arrow_schema,
    field_id_of,
    spark_arrow_schema,
)
from frazil.datafiles.arrow.file_projection import Projection, project
from frazil.datafiles.arrow.spark_batches import to_spark, to_table

__all__ = [
    "METADATA_FIELDS",
    "Projection",
    "arrow_schema",
    "field_id_of",
    "project",
    "spark_arrow_schema",
    "to_spark",
    "to_table",
]
