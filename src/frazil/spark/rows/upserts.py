"""Rows that take the place of those with the same key.

By equality deletes nothing is read: the commit says of each key that older rows with it are gone,
and adds the new rows. Deletes and rows of one commit have one sequence number, and equality deletes
apply to strictly older data only (spec, "Scan Planning"), so that the new rows stay. By a merge the
old rows are found and deleted by position, or their files written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import TableVerbs
from frazil.spark.core import statement_runs
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import column, names_of, quoted
from frazil.spark.core.results import Result
from frazil.spark.core.targets import Target
from frazil.spark.rows.merge_clauses import MergeBuilder
from frazil.spark.schema.frame_fitting import fit
from frazil.spark.schema.spark_types import spark_type
from frazil.spark.writing.equality_deletes import covering_specs, write_equality_deletes
from frazil.spark.writing.frame_statements import placed_options
from frazil.spark.writing.frame_writer import WriteOptions, write_rows
from frazil.spark.writing.staging import staged
from frazil.spark.writing.write_commit import submitted, writing
from frazil.values.types import NestedField, TypeId
from frazil.wire.errors import BadRequest

EQUALITY_DELETES: Final = "equality-deletes"
DELETION_VECTORS: Final = "deletion-vectors"
COPY_ON_WRITE: Final = "copy-on-write"
METHODS: Final = (EQUALITY_DELETES, DELETION_VECTORS, COPY_ON_WRITE)

_MERGE_MODES: Final = {DELETION_VECTORS: "merge-on-read", COPY_ON_WRITE: "copy-on-write"}
_OPERATION: Final = "upsert"
_DELETES: Final = "_frazil_deletes"
_RANK: Final = "_frazil_rank"
_FLOATING: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})


@dataclass(frozen=True, kw_only=True)
class Upsert:
    keys: tuple[str, ...]
    method: str = EQUALITY_DELETES
    order_by: str | None = None
    """SQL: of rows with one key that with the greatest value counts."""
    delete_when: str | None = None
    """SQL: rows that match delete theirs and bring none."""
    drop_columns: tuple[str, ...] = ()
    """What only the two above look at."""

    def rows(self, frame: DataFrame) -> DataFrame:
        """The frame with the columns that go into the table."""
        return frame.drop(*self.drop_columns)


def upsert_of(
    is_upsert: bool,
    keys: Sequence[str] | None,
    method: str,
    order_by: str | None,
    delete_when: str | None,
    drop_columns: Sequence[str],
) -> Upsert | None:
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


def check(upsert: Upsert, table: Table, *, case_sensitive: bool, merge_schema: bool) -> None:
    """What the table does not allow."""
    fields = key_fields(upsert, table, case_sensitive)
    for field in fields:
        if field.type.is_nested or field.type.type_id in _FLOATING:
            raise BadRequest(
                f"keys: column {field.name} of {table} has the type {field.type}, by which rows "
                "cannot be told apart: take another key"
            )
    if upsert.method != EQUALITY_DELETES:
        if merge_schema:
            raise BadRequest(f"merge_schema: upserts by {upsert.method} cannot change the schema")
        return
    if table.format_version < 2:
        raise BadRequest(
            f"{table} has format version 1, which knows no equality deletes: upgrade it, or take "
            f"upsert={COPY_ON_WRITE!r}"
        )
    covering_specs(table, [field.field_id for field in fields])


def key_fields(upsert: Upsert, table: Table, case_sensitive: bool) -> tuple[NestedField, ...]:
    by_name = {field.name: field for field in table.schema.fields}
    if not case_sensitive:
        by_name = {name.lower(): field for name, field in by_name.items()} | by_name
    found = []
    for key in upsert.keys:
        field = by_name.get(key) or (None if case_sensitive else by_name.get(key.lower()))
        if field is None:
            known = ", ".join(field.name for field in table.schema.fields)
            raise BadRequest(f"keys: {table} has no column {key}; it has {known}")
        found.append(field)
    return tuple(found)


# --- the statement --------------------------------------------------------------------------------


def write(
    context: Context,
    target: Target,
    frame: DataFrame,
    upsert: Upsert,
    merge_schema: bool,
    options: WriteOptions | None,
    commit_options: Mapping[str, Any],
) -> Result:
    """The rows are evaluated once: what is deleted and what is added must be of the same keys."""
    with staged(context, prepared(frame, upsert), target.load(context)) as stored:
        rows = stored.frame
        refuse_twice(rows, upsert)
        if upsert.method != EQUALITY_DELETES:
            return _merge(context, target, rows, upsert, options, commit_options)

        def attempt(_: int) -> Result:
            return _by_equality(
                context, target, rows, upsert, merge_schema, options, commit_options
            )

        return statement_runs.run(context, attempt)


def prepared(frame: DataFrame, upsert: Upsert) -> DataFrame:
    """One row for each key, if `order_by` can tell; with what becomes of it in a column."""
    rows = frame
    if upsert.order_by is not None:
        window = Window.partitionBy(*map(column, upsert.keys)).orderBy(
            fn.expr(upsert.order_by).desc()
        )
        # Rows that share the first place all stay, and are then found to be more than one.
        rows = rows.withColumn(_RANK, fn.rank().over(window)).where(fn.col(_RANK) == 1).drop(_RANK)
    deletes = fn.lit(False)
    if upsert.delete_when is not None:
        deletes = fn.coalesce(fn.expr(upsert.delete_when), fn.lit(False))
    rows = rows.withColumn(_DELETES, deletes)
    for key in upsert.keys:
        refused = fn.raise_error(fn.lit(f"upsert: key column {key} is null: each row needs a key"))
        rows = rows.withColumn(key, fn.coalesce(column(key), refused))
    return upsert.rows(rows)


def refuse_twice(rows: DataFrame, upsert: Upsert) -> None:
    keys = [column(key) for key in upsert.keys]
    found = rows.groupBy(*keys).count().where(fn.col("count") > 1).limit(1).collect()
    if not found:
        return
    (one,) = found
    named = ", ".join(f"{key}={one[place]!r}" for place, key in enumerate(upsert.keys))
    raise BadRequest(
        f"upsert: {one['count']} rows of the batch have the key {named}: give order_by, by which "
        "the last one can be told, and which is not the same for two of them"
    )


def _by_equality(
    context: Context,
    target: Target,
    rows: DataFrame,
    upsert: Upsert,
    merge_schema: bool,
    options: WriteOptions | None,
    commit_options: Mapping[str, Any],
) -> Result:
    table = target.load(context)
    case_sensitive = names_of(context.spark).case_sensitive
    check(upsert, table, case_sensitive=case_sensitive, merge_schema=merge_schema)
    keys = key_fields(upsert, table, case_sensitive)
    fitted = fit(rows.where(~fn.col(_DELETES)).drop(_DELETES), table, merge_schema=merge_schema)
    with writing(context, table) as one:
        files = write_rows(context, table, fitted.frame, one.folder, options, schema=fitted.schema)
        deletes = write_equality_deletes(
            context,
            table,
            rows.select(*(_typed(field) for field in keys)),
            [field.name for field in keys],
            one.folder,
        )
        if not files and not deletes and not fitted.updates:
            return Result(commit=None, operation=_OPERATION)
        placed = placed_options(context, target, commit_options, table)

        def declare(changes: TableVerbs[Any]) -> Any:
            # Nothing was read, so that there is nothing that others could have changed meanwhile.
            return changes.row_delta(
                files, deletes, command="delete", isolation="snapshot", **placed
            )

        paths = {file.file_path for file in (*files, *deletes)}
        commit = one.commit(
            paths,
            lambda: submitted(context, table, fitted, declare, has_files=bool(paths)),
        )
    return Result(
        commit=commit,
        operation=_OPERATION,
        mode="merge-on-read",
        rows_written=sum(file.record_count for file in files),
        rows_deleted=None,
        files_added=len(files) + len(deletes),
    )


def _typed(field: NestedField) -> Column:
    return column(field.name).cast(spark_type(field.type)).alias(field.name)


def _merge(
    context: Context,
    target: Target,
    rows: DataFrame,
    upsert: Upsert,
    options: WriteOptions | None,
    commit_options: Mapping[str, Any],
) -> Result:
    on = " AND ".join(f"target.{quoted(key)} = source.{quoted(key)}" for key in upsert.keys)
    deletes = f"source.{_DELETES}"
    merge = MergeBuilder(context, target, rows, on, target_alias="target", source_alias="source")
    if upsert.delete_when is None:
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
    else:
        merge = (
            merge.when_matched_delete(deletes)
            .when_matched_update_all()
            .when_not_matched_insert_all(f"NOT {deletes}")
        )
    extra = {} if options is None else {"options": options}
    return merge.execute(mode=_MERGE_MODES[upsert.method], **extra, **commit_options)
