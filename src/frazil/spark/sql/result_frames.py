"""Build the small frames that statements return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from frazil.spark.core.statement_runs import Result
from frazil.spark.parse.sql_literals import literal_of
from frazil.spark.sql.table_names import SqlSession

RESULT_SCHEMA: Final = (
    "operation string, mode string, snapshot_id bigint, rows_written bigint, rows_deleted bigint, "
    "files_added bigint, files_removed bigint, attempts int"
)


def no_columns(session: SqlSession) -> DataFrame:
    """Return a frame without rows and columns, as Spark does for DDL."""
    return literal_rows(session, "nothing int", []).select()


def literal_rows(session: SqlSession, schema: str, rows: Sequence[Sequence[Any]]) -> DataFrame:
    """Return a frame of literals, which Spark can show without a job or a Python worker."""
    columns = [column.split() for column in schema.split(", ")]
    names = ", ".join(name for name, _ in columns)
    shown = rows or [[None] * len(columns)]
    lines = ", ".join(
        "("
        + ", ".join(
            f"CAST({literal_of(value, name)} AS {kind})"
            for value, (name, kind) in zip(row, columns, strict=True)
        )
        + ")"
        for row in shown
    )
    frame = session.spark.sql(f"SELECT * FROM VALUES {lines} AS answer({names})")
    return frame if rows else frame.limit(0)


def statement_result(session: SqlSession, result: Result) -> DataFrame:
    """Return one row that describes what a statement changed."""
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
    return literal_rows(session, RESULT_SCHEMA, [row])
