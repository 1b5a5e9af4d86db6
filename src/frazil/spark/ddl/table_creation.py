"""Create and replace tables, together with their rows.

A replaced table keeps its UUID, history and properties, like in Java's replace transaction. Columns
with the same name keep their IDs. Schema, partitions and rows change in one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import Commit, TableVerbs
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.spark.core.context import Context
from frazil.spark.core.progress import progress
from frazil.spark.core.statement_runs import Result, Target, complete_options, run_statement
from frazil.spark.ddl.partition_terms import partition_spec, sort_order
from frazil.spark.ddl.table_replacement import Replacement, replacement_of
from frazil.spark.schema.frame_fitting import fit
from frazil.spark.schema.spark_types import iceberg_schema, struct_with_ids
from frazil.spark.writing.frame_statements import write_frame
from frazil.spark.writing.frame_writer import WriteOptions, write_rows
from frazil.spark.writing.write_commit import writing
from frazil.values.type_json import struct_to_json
from frazil.values.types import StructType
from frazil.wire.errors import AlreadyExists, NoSuchTable
from frazil.wire.identifiers import Identifier

CREATE = "create"


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a table without its columns."""

    partitioned_by: tuple[str, ...] = ()
    """Terms such as `day(ts)`, `bucket(16, id)` or a column."""
    sorted_by: tuple[str, ...] = ()
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def create_table(
    context: Context,
    identifier: Identifier,
    schema: StructType,
    definition: Definition,
    *,
    if_not_exists: bool = False,
) -> Table | None:
    """Create an empty table; the IDs of `schema` are assigned here.

    Return None if the table exists and `if_not_exists` allows that.
    """
    if if_not_exists and context.client.table_exists(identifier):
        return None
    arguments = _arguments(struct_with_ids(schema), definition)
    try:
        return context.client.create_table(identifier, **arguments)
    except AlreadyExists:
        if if_not_exists:
            return None
        raise


def create_table_as(
    context: Context,
    identifier: Identifier,
    frame: DataFrame,
    definition: Definition,
    options: WriteOptions | None = None,
    commit_options: Mapping[str, Any] | None = None,
) -> Result:
    """Create a table with a frame's columns and rows in one commit."""
    schema = iceberg_schema(frame.schema, all_optional=True)
    staged = context.client.stage_table(identifier, **_arguments(schema, definition))
    completed = complete_options(context, Target(identifier), commit_options or {})

    def declare(changes: TableVerbs[Any], files: Sequence[DataFile]) -> Any:
        return changes.append_files(files, **completed)

    with progress(context, f"create {identifier}"):
        return write_frame(context, staged, frame, CREATE, declare, options=options)


def replace_table(
    context: Context,
    identifier: Identifier,
    schema: StructType,
    definition: Definition,
    *,
    or_create: bool = False,
) -> None:
    """Replace a table with an empty one."""

    def attempt() -> None:
        table = _existing(context, identifier, or_create=or_create)
        if table is None:
            create_table(context, identifier, schema, definition)
            return
        new = _replacement(table, struct_with_ids(schema), definition)
        new.table.declare_metadata(new.updates, new.requirements)

    run_statement(context, Target(identifier), attempt)


def replace_table_as(
    context: Context,
    identifier: Identifier,
    frame: DataFrame,
    definition: Definition,
    *,
    or_create: bool = False,
    options: WriteOptions | None = None,
    commit_options: Mapping[str, Any] | None = None,
) -> Result:
    """Replace a table with a frame's columns and rows."""

    def attempt() -> Result:
        table = _existing(context, identifier, or_create=or_create)
        if table is None:
            return create_table_as(context, identifier, frame, definition, options, commit_options)
        schema = iceberg_schema(frame.schema, all_optional=True)
        new = _replacement(table, schema, definition)
        completed = complete_options(context, Target(identifier), commit_options or {})
        return _replaced(context, new, frame, options, completed)

    with progress(context, f"replace {identifier}"):
        return run_statement(context, Target(identifier), attempt)


def _arguments(schema: StructType, definition: Definition) -> dict[str, Any]:
    """Return the arguments of `Client.create_table`."""
    return {
        "schema": {**struct_to_json(schema), "schema-id": 0},
        "partition_spec": partition_spec(schema, definition.partitioned_by),
        "write_order": sort_order(schema, definition.sorted_by),
        "location": definition.location,
        "properties": dict(definition.properties),
    }


def _existing(context: Context, identifier: Identifier, *, or_create: bool) -> Table | None:
    try:
        return context.client.load_table(identifier)
    except NoSuchTable:
        if or_create:
            return None
        raise


def _replacement(table: Table, schema: StructType, definition: Definition) -> Replacement:
    return replacement_of(
        table,
        schema,
        definition.partitioned_by,
        definition.sorted_by,
        definition.location,
        definition.properties,
    )


def _replaced(
    context: Context,
    new: Replacement,
    frame: DataFrame,
    options: WriteOptions | None,
    placed: Mapping[str, Any],
) -> Result:
    fitted = fit(frame, new.table)
    with writing(context, new.table) as write:
        files = write_rows(
            context, new.table, fitted.frame, write.folder, options or WriteOptions()
        )

        def submit() -> Commit:
            with context.client.transaction() as transaction:
                changes = transaction.table(new.table)
                changes.declare_metadata(new.updates, new.requirements)
                if files:
                    # Main is empty after the replacement, so the files are appended.
                    changes.append_files(files, **placed)
            (commit,) = transaction.commits
            return commit

        commit = write.commit({file.file_path for file in files}, submit)
    return Result(
        commit=commit,
        operation="replace",
        rows_written=sum(file.record_count for file in files),
        rows_deleted=None,
        files_added=len(files),
    )
