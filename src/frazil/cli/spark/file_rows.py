"""`frazil spark load` and `frazil spark merge`: write the rows of files to a table with Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, unknown_if_interrupted
from frazil.cli.shared.shell_completion import complete_table
from frazil.cli.shared.typed_names import BadName, key_values, table_name
from frazil.cli.spark.spark_session import ConfOption, print_result, spark_session
from frazil.cli.tables.table_commands import TABLE_HELP, BranchOption, SaveConflictOption
from frazil.client.declare.text_cursor import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    from frazil.spark.core.statement_runs import Result
    from frazil.spark.rows.merge_statement import MergeBuilder
    from frazil.spark.session import Session
    from frazil.spark.table import SparkTable
    from frazil.wire.identifiers import Identifier


TableOption = Annotated[
    str, typer.Option("--table", metavar="TABLE", help=TABLE_HELP, autocompletion=complete_table)
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="An option of Spark's reader, such as sep=;."
    ),
]


class FileFormat(StrEnum):
    """Values of --format."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


FormatOption = Annotated[
    FileFormat | None,
    typer.Option("--format", help="Format of the files. [default: from their names]"),
]


class LoadMode(StrEnum):
    """Values of `load --mode`."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite-partitions"


class RowMode(StrEnum):
    """Values of `merge --mode`."""

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"


SUFFIXES: Final = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})
_DEFAULTS: Final[dict[str, dict[str, str]]] = {
    # Check headers against the columns, and fail on invalid values instead of reading null.
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}


@dataclass(frozen=True, slots=True)
class Source:
    """Files with rows, and how to read them."""

    files: tuple[str, ...]
    format: str | None = None
    options: tuple[str, ...] = ()

    def read(self, spark: SparkSession, known: StructType | None = None) -> DataFrame:
        """Read the files. Columns in `known` are read with its types; other types are inferred."""
        chosen = self.format or format_of(self.files)
        options = {**_DEFAULTS[chosen], **key_values("--option", self.options)}
        if chosen == "csv" and "sep" not in options and _suffix(self.files[0]) == ".tsv":
            options["sep"] = "\t"
        # The working directory may not be that of Spark.
        paths = [name if ":/" in name else os.path.abspath(name) for name in self.files]
        if chosen == "parquet":
            return spark.read.options(**options).parquet(*paths)
        types = {field.name.lower(): field for field in known or ()}
        # A CSV file has column names in its first line; types must be inferred from all lines.
        reader = spark.read.format(chosen).options(**options)
        schema = reader.load(paths).schema
        if chosen == "csv" and any(field.name.lower() not in types for field in schema):
            schema = reader.options(inferSchema="true").load(paths).schema
        return spark.read.format(chosen).options(**options).schema(typed(schema, types)).load(paths)


def format_of(files: Iterable[str]) -> str:
    formats = {SUFFIXES.get(_suffix(name)) for name in files}
    if len(formats) != 1 or None in formats:
        raise BadName(
            "the names of the files do not show one format: give --format csv, json or parquet"
        )
    return str(formats.pop())


def typed(schema: StructType, types: dict[str, StructField]) -> StructType:
    """Return the columns of the files, with the types of the table where it has them."""
    from pyspark.sql.types import StructField, StructType

    fields: list[Any] = []
    for field in schema:
        known = types.get(field.name.lower())
        fields.append(StructField(field.name, field.dataType if known is None else known.dataType))
    return StructType(fields)


def _suffix(name: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


# --- load -----------------------------------------------------------------------------------------


def load(
    choice: CatalogChoice,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Files, folders or patterns that Spark can read."),
    ],
    table: TableOption,
    format: FormatOption = None,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create the table if it does not exist."),
    ] = False,
    partitioned_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TERM",
            help="With --create: a column or a transform, such as day(ts) or bucket(16, id).",
        ),
    ] = None,
    property: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="With --create: a property of the table."),
    ] = None,
    mode: Annotated[
        LoadMode, typer.Option(help="What happens to existing rows.")
    ] = LoadMode.APPEND,
    merge_schema: Annotated[
        bool,
        typer.Option("--merge-schema", help="Add missing columns and widen types."),
    ] = False,
    option: OptionsOption = None,
    branch: BranchOption = "main",
    conf: ConfOption = None,
) -> None:
    """Load CSV, JSON or Parquet files into a table, in one commit."""
    name = table_name(table)
    if not create and (partitioned_by or property):
        choice.usage("--partitioned-by and --property apply to a new table: give --create")
    source = Source(tuple(files), format, tuple(option or ()))
    needed = None if create else name
    with spark_session(choice, conf, table=needed) as session, unknown_if_interrupted():
        if create and not session.client.table_exists(name):
            done = _create(session, name, source, partitioned_by or (), property or ())
        else:
            done = _load(session, session.table(name).on_branch(branch), source, mode, merge_schema)
    print_result(choice, str(name), branch, done)


def _load(
    session: Session, table: SparkTable, source: Source, mode: LoadMode, merge_schema: bool
) -> Result:
    from frazil.spark.schema.spark_types import spark_schema

    frame = source.read(session.spark, spark_schema(table.load().schema))
    if mode is LoadMode.OVERWRITE:
        return table.overwrite(frame, merge_schema=merge_schema)
    if mode is LoadMode.OVERWRITE_PARTITIONS:
        return table.overwrite_partitions(frame, merge_schema=merge_schema)
    return table.append(frame, merge_schema=merge_schema)


def _create(
    session: Session,
    name: Identifier,
    source: Source,
    partitioned_by: Sequence[str],
    properties: Sequence[str],
) -> Result:
    full_name = quoted(*name.namespace, name.name)
    writer = session.write_to(source.read(session.spark), full_name)
    for key, value in key_values("--property", properties).items():
        writer = writer.tableProperty(key, value)
    return writer.partitionedBy(*partitioned_by).create()


# --- merge ----------------------------------------------------------------------------------------


def merge(
    choice: CatalogChoice,
    source: Annotated[
        list[str], typer.Option(metavar="FILE", help="A file, folder or pattern with new rows.")
    ],
    table: TableOption,
    on: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN|CONDITION",
            help="A key column, or a condition such as 'target.id = source.id'.",
        ),
    ],
    update: Annotated[
        bool, typer.Option(help="Update matching rows with the source's values.")
    ] = True,
    insert: Annotated[bool, typer.Option(help="Insert source rows without a match.")] = True,
    delete_when: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Delete matching rows instead if this is true, such as 'source.gone'.",
        ),
    ] = None,
    delete_missing: Annotated[
        bool,
        typer.Option("--delete-missing", help="Delete table rows without a match in the source."),
    ] = False,
    mode: Annotated[
        RowMode | None, typer.Option(help="[default: the table's write.merge.mode]")
    ] = None,
    format: FormatOption = None,
    option: OptionsOption = None,
    branch: BranchOption = "main",
    save_conflict: SaveConflictOption = None,
    conf: ConfOption = None,
) -> None:
    """Merge the rows of files into a table: update, insert and delete in one commit."""
    name = table_name(table)
    if not (update or insert or delete_when or delete_missing):
        choice.usage("merge: nothing to do, every clause is disabled")
    files = Source(tuple(source), format, tuple(option or ()))
    with spark_session(choice, conf, table=name) as session, unknown_if_interrupted():
        target = session.table(name).on_branch(branch)
        statement, values = _matched(session, target, files, on)
        if delete_when is not None:
            statement = statement.when_matched_delete(delete_when)
        if update:
            statement = statement.when_matched_update(values)
        if insert:
            statement = statement.when_not_matched_insert(values)
        if delete_missing:
            statement = statement.when_not_matched_by_source_delete()
        done = statement.execute(**({} if mode is None else {"mode": mode.value}))
    print_result(choice, str(name), branch, done)


def _matched(
    session: Session, table: SparkTable, source: Source, on: Sequence[str]
) -> tuple[MergeBuilder, dict[str, str]]:
    """Return the merge of the files, and the values of the columns that they have."""
    from frazil.spark.schema.spark_types import spark_schema

    known = spark_schema(table.load().schema)
    frame = source.read(session.spark, known)
    columns = {field.name.lower() for field in known}
    merge = table.merge(frame, on_condition(on, columns))
    # Columns that are not in the files keep their values.
    shared = [name for name in frame.columns if name.lower() in columns]
    return merge, {name: _column("source", name) for name in shared}


def on_condition(texts: Sequence[str], columns: set[str]) -> str:
    """Join key columns and conditions with AND."""
    parts = []
    for text in texts:
        if text.lower() in columns:
            parts.append(f"{_column('target', text)} = {_column('source', text)}")
        elif text.isidentifier():
            known = ", ".join(sorted(columns))
            raise BadName(f"--on {text}: the table has no such column, only {known}")
        else:
            parts.append(f"({text})")
    return " AND ".join(parts)


def _column(side: str, name: str) -> str:
    return f"{side}.{quoted(name)}"
