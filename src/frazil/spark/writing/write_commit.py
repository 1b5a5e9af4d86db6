"""One write of Spark: its jobs, which end with it, and its commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import Commit, TableVerbs
from frazil.client.rows import write_folders
from frazil.client.rows.write_folders import Write as Write
from frazil.client.rows.write_folders import WriteFolder as WriteFolder
from frazil.client.rows.write_folders import committing as committing
from frazil.client.rows.write_folders import data_location as data_location
from frazil.client.rows.write_folders import only_logged
from frazil.datafiles.portable_table import FileTable
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.schema.schema_evolution import Evolution
from frazil.wire.declared_content import DeclaredContentFile
from frazil.wire.errors import FrazilError


def new_folder(context: Context, table: FileTable) -> WriteFolder:
    """Make the folder of a new write, whose files are reached by the session's properties too."""
    return write_folders.new_folder(table, context.properties)


@contextmanager
def writing(context: Context, table: Table) -> Iterator[Write]:
    """Start a write with jobs of Spark, which are stopped if the block fails.

    The catalog knows its folder, unless the table does not exist yet.
    """
    declare = None if table.is_staged else table.intent
    with (
        committing(new_folder(context, table), declare) as write,
        stopped_by_failure(context.spark, write.folder, lambda: write.is_unsent),
    ):
        yield write


@contextmanager
def stopped_by_failure(
    spark: SparkSession, folder: WriteFolder, is_unsent: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Stop the Spark jobs of the block when it fails before its commit is sent.

    An interrupt ends the wait for a job but not always the job, which would go on writing.
    """
    tag = f"frazil-{uuid4()}"
    spark.addTag(tag)
    try:
        yield
    except BaseException:
        if is_unsent():
            with only_logged(folder):
                spark.interruptTag(tag)
        raise
    finally:
        with only_logged(folder):
            spark.removeTag(tag)


def commit_files(
    write: Write,
    context: Context,
    table: Table,
    schema: Evolution,
    files: Collection[DeclaredContentFile],
    declare: Callable[[TableVerbs[Any]], Any],
    *,
    even_empty: bool = False,
) -> Commit:
    """Commit the written files, which `declare` adds, and the change of the schema.

    With `even_empty` `declare` also counts without files, since it removes something.
    `declare_metadata` is not rebuilt by the client if a requirement fails: `run_statement` decides
    whether to run the whole statement again.
    """
    has_files = bool(files) or even_empty

    def submit() -> Commit:
        if not schema.updates and not table.is_staged:
            commit: Commit = declare(table)
            return commit
        with context.client.transaction() as transaction:
            changes = transaction.table(table)
            if schema.updates or not has_files:
                changes.declare_metadata(schema.updates, schema.requirements)
            if has_files:
                declare(changes)
        (commit,) = transaction.commits
        return commit

    return write.commit({file.file_path for file in files}, submit)


@dataclass(frozen=True)
class Removed:
    """What a commit has removed; None for numbers that are not known."""

    rows: int | None = 0
    files: int | None = 0


def removed_by(context: Context, commit: Commit) -> Removed:
    """Return what a commit has removed by a filter or by partitions.

    The catalog has found the files in the commit. The summary of its snapshot counts them.
    """
    if commit.snapshot_id is None or commit.operation == "append":
        return Removed()
    try:
        summary = context.client.load_table(commit.identifier).snapshot(commit.snapshot_id).summary
    except FrazilError as error:
        LOGGER.info("%s: what the commit has removed is not known: %s", commit.identifier, error)
        return Removed(None, None)
    rows, data_files, delete_files, deletes_left = (
        int(summary.get(name, "0"))
        for name in (
            "deleted-records",
            "deleted-data-files",
            "removed-delete-files",
            "total-delete-files",
        )
    )
    # The records of removed files also count rows that delete files had deleted before.
    had_deletes = delete_files + deletes_left > 0
    return Removed(None if had_deletes else rows, data_files + delete_files)
