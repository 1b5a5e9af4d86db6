"""What statements give back: frames of Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from frazil.spark.results import Result

if TYPE_CHECKING:
    from frazil.spark.session import Session

RESULT_SCHEMA: Final = (
    "operation string, mode string, snapshot_id bigint, rows_written bigint, rows_deleted bigint, "
    "files_added bigint, files_removed bigint, attempts int"
)


def nothing(session: Session) -> DataFrame:
    """No rows and no columns, as Spark answers a definition."""
    return session.spark.range(0).select()


def rows(session: Session, schema: str, values: Sequence[Sequence[Any]]) -> DataFrame:
    return session.spark.createDataFrame([tuple(row) for row in values], schema)


def outcome(session: Session, result: Result) -> DataFrame:
    """One row that says what was done."""
    row = (
        result.operation,
        result.mode,
        result.snapshot_id,
        result.rows_written,
        result.rows_deleted,
        result.files_added,
        result.files_removed,
        result.attempts,
    )
    return rows(session, RESULT_SCHEMA, [row])
