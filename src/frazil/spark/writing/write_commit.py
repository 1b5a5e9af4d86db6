"""The last step of a write: commit with one request, and remove files that were not committed.

Files are removed only on proof. Before the request is sent, and after a rejection, all files of the
write are removed. After an unknown outcome none are. After a commit only those are removed that
lost attempts of tasks have left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final, Protocol
from uuid import uuid4

from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import Commit, TableVerbs
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.writing.write_folder import WriteFolder, new_folder
from frazil.wire.errors import CommitStateUnknown, FrazilError, ValidationError

DUPLICATE_FILE: Final = "duplicate-file"


class _State(Enum):
    UNSENT = auto()
    SENT = auto()
    """The outcome is not known, and may never be."""
    REJECTED = auto()
    COMMITTED = auto()


class Write:
    """One write into a folder of its own."""

    def __init__(self, folder: WriteFolder) -> None:
        self.folder = folder
        self._state = _State.UNSENT
        self._keep: frozenset[str] = frozenset()

    def commit(self, paths: Collection[str], submit: Callable[[], Commit]) -> Commit:
        """Send the change; `paths` are the files that it declares."""
        self._state = _State.SENT
        try:
            commit = submit()
        except CommitStateUnknown:
            raise
        except FrazilError as error:
            self._state = _State.REJECTED
            if isinstance(error, ValidationError):
                # A path that is already live must stay, whoever has written it.
                self._keep = frozenset(duplicate_paths(error.conflicts))
            raise
        self._state = _State.COMMITTED
        with _only_logged(self.folder):
            if not commit.already_committed:
                self.folder.keep_only(paths)
            elif commit.attempts == 1:
                # The request was sent once, so that an earlier run has committed its own files.
                self.folder.discard()
        return commit

    @property
    def is_unsent(self) -> bool:
        return self._state is _State.UNSENT

    def fail(self) -> None:
        """Clean up after a write that was not committed, as far as that is known."""
        if self._state in (_State.UNSENT, _State.REJECTED):
            with _only_logged(self.folder):
                self.folder.discard(self._keep)
        elif self._state is _State.SENT:
            LOGGER.warning("outcome unknown: the files below %s are kept", self.folder.location)


@contextmanager
def writing(context: Context, table: Table) -> Iterator[Write]:
    """Start a write; its files are removed if the block ends without a commit."""
    write = Write(new_folder(context, table))
    try:
        with _stopped_by_failure(context.spark, write):
            yield write
    except BaseException:
        write.fail()
        raise
    if write.is_unsent:
        write.fail()


@contextmanager
def _stopped_by_failure(spark: SparkSession, write: Write) -> Iterator[None]:
    """Stop the Spark jobs of the block when it fails.

    An interrupt ends the wait for a job but not always the job, which would go on writing.
    """
    tag = f"frazil-{uuid4()}"
    spark.addTag(tag)
    try:
        yield
    except BaseException:
        if write.is_unsent:
            with _only_logged(write.folder):
                spark.interruptTag(tag)
        raise
    finally:
        with _only_logged(write.folder):
            spark.removeTag(tag)


class SchemaChange(Protocol):
    """Updates that give the table a new schema; empty if it stays the same."""

    @property
    def updates(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def requirements(self) -> Sequence[Mapping[str, Any]]: ...


def submitted(
    context: Context,
    table: Table,
    schema: SchemaChange,
    declare: Callable[[TableVerbs[Any]], Any],
    *,
    has_files: bool,
) -> Commit:
    """Commit the change of the schema and the declared files in one request.

    `declare_metadata` is not rebuilt by the client if a requirement fails: `run_statement` decides
    whether to run the whole statement again.
    """
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


def duplicate_paths(conflicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the files that a rejection reports as already live."""
    for conflict in conflicts:
        if conflict.get("clause") == DUPLICATE_FILE:
            for file in conflict.get("files", ()):
                yield str(file["file-path"])


@contextmanager
def _only_logged(folder: WriteFolder) -> Iterator[None]:
    """Log errors of the clean-up, so that they do not hide the outcome of the write.

    Files that stay behind are left to the removal of orphan files.
    """
    try:
        yield
    except Exception:
        LOGGER.warning("could not clean up below %s", folder.location, exc_info=True)
