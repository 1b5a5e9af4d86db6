"""Upserts: rows that replace those with the same key.

By equality deletes nothing is read: the commit deletes all older rows with the keys and adds the
new rows. Deletes and rows of one commit have one sequence number, and equality deletes apply to
strictly older data only (spec, "Scan Planning"), so that the new rows stay. By a merge the old rows
are found, and deleted by position or by rewriting their files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import TableVerbs
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import column, names_of, quoted
from frazil.spark.core.statement_runs import Result, complete_options, run_statement
from frazil.spark.rows.merge_clauses import Merge
from frazil.spark.rows.merge_frames import numbered_source
from frazil.spark.rows.merge_statement import MergeBuilder
from frazil.spark.rows.row_dependence import reads_only_other_data
from frazil.spark.schema.frame_fitting import fit
from frazil.spark.schema.spark_types import FLOATS
from frazil.spark.writing.equality_deletes import covering_specs, write_equality_deletes
from frazil.spark.writing.frame_statements import FrameStatement
from frazil.spark.writing.frame_writer import write_rows
from frazil.spark.writing.staging import Staged, staged
from frazil.spark.writing.write_commit import commit_files, writing
from frazil.values.types import NestedField
from frazil.wire.errors import BadRequest

EQUALITY_DELETES: Final = "equality-deletes"
DELETION_VECTORS: Final = "deletion-vectors"
COPY_ON_WRITE: Final = "copy-on-write"
METHODS: Final = (EQUALITY_DELETES, DELETION_VECTORS, COPY_ON_WRITE)

_MERGE_MODES: Final = {DELETION_VECTORS: "merge-on-read", COPY_ON_WRITE: "copy-on-write"}
_OPERATION: Final = "upsert"
_DELETES: Final = "_frazil_deletes"
_RANK: Final = "_frazil_rank"


@dataclass(frozen=True, kw_only=True)
class Upsert:
    keys: tuple[str, ...]
    method: str = EQUALITY_DELETES
    order_by: str | None = None
    """SQL: of several rows with one key, the one with the greatest value is written."""
    delete_when: str | None = None
    """SQL: rows that match delete the row of their key and are not written."""
    drop_columns: tuple[str, ...] = ()
    """Columns that only the two expressions use."""

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the frame without the columns that are not part of the table."""
        return frame.drop(*self.drop_columns)


def upsert_of(
    is_upsert: bool,
    keys: Sequence[str] | None,
    method: str,
    order_by: str | None,
    delete_when: str | None,
    drop_columns: Sequence[str],
) -> Upsert | None:
    """Check the arguments; return None if the mode is another one."""
    if not is_upsert:
        if keys or order_by or delete_when or drop_columns:
            raise BadRequest(
                'keys, order_by, delete_when and drop_columns are of the mode "upsert" alone'
            )
        return None
    if method not in METHODS:
        raise BadRequest(f"upsert: {method!r} is none of {', '.join(METHODS)}")
    if not keys or isinstance(keys, str):
        raise BadRequest('keys: the mode "upsert" needs a list of the names of the key\'s columns')
    return Upsert(
        keys=tuple(keys),
        method=method,
        order_by=order_by,
        delete_when=delete_when,
        drop_columns=tuple(drop_columns),
    )


def checked_keys(
    context: Context, upsert: Upsert, table: Table, *, merge_schema: bool
) -> tuple[NestedField, ...]:
    """Return the key's columns; refuse an upsert that the table does not allow."""
    fields = names_of(context.spark).chosen(table.schema, upsert.keys, f"keys: {table}")
    for field in fields:
        if field.type.is_nested or field.type.type_id in FLOATS:
            raise BadRequest(
                f"keys: column {field.name} of {table} has the type {field.type}, by which rows "
                "cannot be told apart: take another key"
            )
    if upsert.method != EQUALITY_DELETES:
        if merge_schema:
            raise BadRequest(f"merge_schema: upserts by {upsert.method} cannot change the schema")
        return fields
    if table.format_version < 2:
        raise BadRequest(
            f"{table} has format version 1, which has no equality deletes: upgrade it, or take "
            f"upsert={COPY_ON_WRITE!r}"
        )
    covering_specs(table, [field.field_id for field in fields])
    return fields


# --- the statement --------------------------------------------------------------------------------


def write_upsert(statement: FrameStatement, upsert: Upsert) -> Result:
    """Upsert the rows; the frame is evaluated once, since deletes and rows must have equal keys."""
    context, target = statement.context, statement.target
    merges = upsert.method != EQUALITY_DELETES
    rows = prepared(statement.frame, upsert)
    if merges:
        rows = numbered_source(rows)
    table = target.load(context)
    with staged(context, rows, table) as stored:
        refuse_duplicate_keys(stored.frame, upsert)
        if merges:
            is_apart = reads_only_other_data(statement.frame, table)
            return _merge(statement, stored, upsert, is_apart=is_apart)
        stored_statement = replace(statement, frame=stored.frame)
        return run_statement(context, target, lambda: _by_equality(stored_statement, upsert))


def prepared(frame: DataFrame, upsert: Upsert) -> DataFrame:
    """Return the rows with a column for `delete_when`, and the last row of each key only.

    Rows of one key that are equal by `order_by` all stay, and are refused later.
    """
    rows = frame
    if upsert.order_by is not None:
        window = Window.partitionBy(*map(column, upsert.keys)).orderBy(
            fn.expr(upsert.order_by).desc()
        )
        rows = rows.withColumn(_RANK, fn.rank().over(window)).where(fn.col(_RANK) == 1).drop(_RANK)
    deletes = fn.lit(False)
    if upsert.delete_when is not None:
        deletes = fn.coalesce(fn.expr(upsert.delete_when), fn.lit(False))
    rows = rows.withColumn(_DELETES, deletes)
    for key in upsert.keys:
        refused = fn.raise_error(fn.lit(f"upsert: key column {key} is null: each row needs a key"))
        rows = rows.withColumn(key, fn.coalesce(column(key), refused))
    return upsert.rows(rows)


def refuse_duplicate_keys(rows: DataFrame, upsert: Upsert) -> None:
    keys = [column(key) for key in upsert.keys]
    duplicates = rows.groupBy(*keys).count().where(fn.col("count") > 1).limit(1).collect()
    if not duplicates:
        return
    (row,) = duplicates
    values = ", ".join(f"{key}={row[position]!r}" for position, key in enumerate(upsert.keys))
    raise BadRequest(
        f"upsert: {row['count']} rows of the batch have the key {values}: give order_by, by which "
        "the last one can be told, and which is not the same for two of them"
    )


def _by_equality(statement: FrameStatement, upsert: Upsert) -> Result:
    context, rows = statement.context, statement.frame
    table = statement.target.load(context)
    merge_schema = statement.merge_schema
    keys = checked_keys(context, upsert, table, merge_schema=merge_schema)
    fitted = fit(rows.where(~fn.col(_DELETES)).drop(_DELETES), table, merge_schema=merge_schema)
    with writing(context, table) as pending:
        schema = fitted.evolution.schema
        files = write_rows(
            context, table, fitted.frame, pending.folder, statement.options, schema=schema
        )
        deletes = write_equality_deletes(table, rows, keys, pending.folder)
        if not files and not deletes and not fitted.evolution.updates:
            return Result(commit=None, operation=_OPERATION)
        options = complete_options(context, statement.target, statement.commit_options, table)

        def declare(changes: TableVerbs[Any]) -> Any:
            # Nothing was read, so that no concurrent change can be a conflict.
            return changes.row_delta(
                files, deletes, command="delete", isolation="snapshot", **options
            )

        commit = commit_files(
            pending, context, table, fitted.evolution, (*files, *deletes), declare
        )
    return Result(
        commit=commit,
        operation=_OPERATION,
        mode="merge-on-read",
        rows_written=sum(file.record_count for file in files),
        rows_deleted=None,
        files_added=len(files) + len(deletes),
    )


def _merge(statement: FrameStatement, source: Staged, upsert: Upsert, *, is_apart: bool) -> Result:
    on = " AND ".join(f"target.{quoted(key)} = source.{quoted(key)}" for key in upsert.keys)
    deletes = f"source.{_DELETES}"
    merge = MergeBuilder(
        statement.context, statement.target, source, Merge(on=on), is_apart=is_apart
    )
    if upsert.delete_when is None:
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
    else:
        merge = (
            merge.when_matched_delete(deletes)
            .when_matched_update_all()
            .when_not_matched_insert_all(f"NOT {deletes}")
        )
    mode = _MERGE_MODES[upsert.method]
    return merge.execute(mode=mode, options=statement.options, **statement.commit_options)
