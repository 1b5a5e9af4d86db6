"""`rewrite_data_files` with a Spark session: in the driver's process, or by jobs of Spark."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column

from frazil.maintenance.data_file_rewrite import RewriteResult
from frazil.maintenance.data_file_rewrite import rewrite_data_files as rewrite
from frazil.maintenance.rewrite_options import ENGINE_OPTION
from frazil.spark.conditions.sql_conditions import filter_of
from frazil.spark.core.context import Context
from frazil.spark.core.progress import progress
from frazil.spark.maintenance.spark_engine import SparkEngine
from frazil.wire.expressions import Expression
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier


def rewrite_data_files(
    context: Context,
    table: str | tuple[str, ...] | Identifier,
    *,
    strategy: str | None = None,
    sort_order: str | None = None,
    where: str | Column | Expression | None = None,
    branch: str = MAIN,
    options: Mapping[str, str] | None = None,
    engine: str | None = None,
    dry_run: bool = False,
) -> RewriteResult:
    """Rewrite small, large and partly deleted files into files of the target size."""
    loaded = context.client.load_table(table)
    with progress(context, f"rewrite data files of {loaded}"):
        return rewrite(
            loaded,
            strategy=strategy,
            sort_order=sort_order,
            where=filter_of(context, loaded, where).expression,
            branch=branch,
            options={**(options or {}), **({} if engine is None else {ENGINE_OPTION: engine})},
            properties=context.properties,
            spark_engine=SparkEngine(context),
            dry_run=dry_run,
        )
