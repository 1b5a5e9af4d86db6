"""`frazil spark load` and `frazil spark merge`: write the rows of files to a table with Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from frazil.cli.shared.catalog_command import CatalogChoice, unknown_if_interrupted, usage
from frazil.cli.shared.typed_names import BadName, key_values, table_name
from frazil.cli.spark.spark_commands import LoadMode
from frazil.cli.spark.spark_session import print_result, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    from frazil.spark.core.statement_runs import Result
    from frazil.spark.session import Session
    from frazil.spark.table import SparkTable
    from frazil.wire.identifiers import Identifier


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
    """Arguments and options of the command."""

    files: tuple[str, ...]
    format: str | None = None
    options: tuple[str, ...] = ()

    def read(self, spark: SparkSession, known: StructType | None = None) -> DataFrame:
        """Read the files. Columns in `known` are read with its types; other types are inferred."""
        chosen = self.format or format_of(self.files)
        options = {**_DEFAULTS[chosen], **key_values("--option", self.options)}
        if chosen == "csv" and "sep" not in options and _suffix(self.files[0]) == ".tsv":
            options["sep"] = "\t"
        paths = [_absolute(name) for name in self.files]
        if chosen == "parquet":
            return spark.read.options(**options).parquet(*paths)
        types = {field.name.lower(): field for field in known or ()}
        # A CSV file has column names in its first line; types must be inferred from all lines.
        reader = spark.read.format(chosen).options(**options)
        schema = reader.load(paths).schema
        if chosen == "csv" and _has_unknown(schema, types):
            schema = reader.options(inferSchema="true").load(paths).schema
        return spark.read.format(chosen).options(**options).schema(typed(schema, types)).load(paths)


def _absolute(name: str) -> str:
    """Resolve a path against the working directory, which may not be that of Spark."""
    return name if ":/" in name else os.path.abspath(name)


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


def _has_unknown(schema: StructType, types: dict[str, StructField]) -> bool:
    return any(field.name.lower() not in types for field in schema)


def _suffix(name: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@dataclass(frozen=True, slots=True)
class LoadArguments:
    """Arguments and options of the command."""

    source: Source
    table: str
    create: bool = False
    partitioned_by: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    mode: LoadMode = LoadMode.APPEND
    merge_schema: bool = False
    branch: str = "main"
    conf: tuple[str, ...] = ()
    dry_run: bool = False


def run_load(choice: CatalogChoice, args: LoadArguments) -> None:
    name = table_name(args.table)
    if not args.create and (args.partitioned_by or args.properties):
        usage("--partitioned-by and --property apply to a new table: give --create", choice.output)
    needed = None if args.create else name
    with (
        spark_session(choice, args.conf, table=needed, dry_run=args.dry_run) as session,
        unknown_if_interrupted(),
    ):
        done = _load(session, name, args)
    print_result(choice, str(name), args.branch, done)


def _load(session: Session, name: Identifier, args: LoadArguments) -> Result:
    from frazil.spark.schema.spark_types import spark_schema

    if args.create and not session.client.table_exists(name):
        return _create(session, name, args)
    table = session.table(name).on_branch(args.branch)
    frame = args.source.read(session.spark, spark_schema(table.load().schema))
    if args.mode is LoadMode.OVERWRITE:
        return table.overwrite(frame, merge_schema=args.merge_schema)
    if args.mode is LoadMode.OVERWRITE_PARTITIONS:
        return table.overwrite_partitions(frame, merge_schema=args.merge_schema)
    return table.append(frame, merge_schema=args.merge_schema)


def _create(session: Session, name: Identifier, args: LoadArguments) -> Result:
    full_name = ".".join(map(_quoted, (*name.namespace, name.name)))
    writer = session.write_to(args.source.read(session.spark), full_name)
    for key, value in key_values("--property", args.properties).items():
        writer = writer.tableProperty(key, value)
    return writer.partitionedBy(*args.partitioned_by).create()


@dataclass(frozen=True, slots=True)
class MergeArguments:
    """Arguments and options of the command."""

    source: Source
    table: str
    on: tuple[str, ...]
    update: bool = True
    insert: bool = True
    delete_when: str | None = None
    delete_missing: bool = False
    mode: str | None = None
    branch: str = "main"
    conf: tuple[str, ...] = ()
    dry_run: bool = False


def run_merge(choice: CatalogChoice, args: MergeArguments) -> None:
    name = table_name(args.table)
    if not (args.update or args.insert or args.delete_when or args.delete_missing):
        usage("merge: nothing to do, every clause is disabled", choice.output)
    with (
        spark_session(choice, args.conf, table=name, dry_run=args.dry_run) as session,
        unknown_if_interrupted(),
    ):
        done = _merge(session, session.table(name).on_branch(args.branch), args)
    print_result(choice, str(name), args.branch, done)


def _merge(session: Session, table: SparkTable, args: MergeArguments) -> Result:
    from frazil.spark.schema.spark_types import spark_schema

    known = spark_schema(table.load().schema)
    frame = args.source.read(session.spark, known)
    columns = {field.name.lower() for field in known}
    merge = table.merge(frame, on_condition(args.on, columns))
    if args.delete_when is not None:
        merge = merge.when_matched_delete(args.delete_when)
    # Columns that are not in the files keep their values.
    shared = [name for name in frame.columns if name.lower() in columns]
    values = {name: _column("source", name) for name in shared}
    if args.update:
        merge = merge.when_matched_update(values)
    if args.insert:
        merge = merge.when_not_matched_insert(values)
    if args.delete_missing:
        merge = merge.when_not_matched_by_source_delete()
    return merge.execute(**({} if args.mode is None else {"mode": args.mode}))


def on_condition(texts: tuple[str, ...], columns: set[str]) -> str:
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
    return f"{side}.{_quoted(name)}"


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
