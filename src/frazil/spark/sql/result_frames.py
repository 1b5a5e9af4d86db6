"""What statements give back: frames of Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from frazil.spark.core.results import Result
from frazil.spark.parse.sql_literals import literal_of

if TYPE_CHECKING:
    from frazil.spark.session import Session

RESULT_SCHEMA: Final = (
    "operation string, mode string, snapshot_id bigint, rows_written bigint, rows_deleted bigint, "
    "files_added bigint, files_removed bigint, attempts int"
)


def nothing(session: Session) -> DataFrame:
    """No rows and no columns, as Spark answers a definition."""
    return rows(session, "nothing int", []).select()


def rows(session: Session, schema: str, values: Sequence[Sequence[Any]]) -> DataFrame:
    """Of literals, so that Spark needs no job and no Python worker to show them."""
    columns = [column.split() for column in schema.split(", ")]
    names = ", ".join(name for name, _ in columns)
    shown = values or [[None] * len(columns)]
    lines = ", ".join(
        "("
        + ", ".join(
            f"CAST({literal_of(value, name)} AS {kind})"
            for value, (name, kind) in zip(row, columns, strict=True)
        )
        + ")"
        for row in shown
    )
    found = session.spark.sql(f"SELECT * FROM VALUES {lines} AS answer({names})")
    return found if values else found.limit(0)


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
