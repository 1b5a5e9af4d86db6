"""The last step of a write: one request, and then no file that is in no table.

A file dies only on proof. Before anything is sent, and after a rejection, all that the write has
made goes; after an unknown outcome nothing does; after a commit only what lost attempts of tasks
have left behind.
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
    """Nobody knows yet, and perhaps nobody ever will."""
    REJECTED = auto()
    COMMITTED = auto()


class Write:
    """One write into a folder of its own."""

    def __init__(self, folder: WriteFolder) -> None:
        self.folder = folder
        self._state = _State.UNSENT
        self._keep: frozenset[str] = frozenset()

    def commit(self, paths: Collection[str], submit: Callable[[], Commit]) -> Commit:
        """Sends the change; `paths` are the files that it declares."""
        self._state = _State.SENT
        try:
            commit = submit()
        except CommitStateUnknown:
            raise
        except FrazilError as error:
            self._state = _State.REJECTED
            if isinstance(error, ValidationError):
                # A path that is live already belongs to somebody, whoever has written it.
                self._keep = frozenset(duplicate_paths(error.conflicts))
            raise
        self._state = _State.COMMITTED
        with _only_logged(self.folder):
            if not commit.already_committed:
                self.folder.keep_only(paths)
            elif commit.attempts == 1:
                # Sent once, so the files of that epoch are those of an earlier run.
                self.folder.discard()
        return commit

    @property
    def is_unsent(self) -> bool:
        return self._state is _State.UNSENT

    def fail(self) -> None:
        """The write has come to nothing, or nobody knows."""
        if self._state in (_State.UNSENT, _State.REJECTED):
            with _only_logged(self.folder):
                self.folder.discard(self._keep)
        elif self._state is _State.SENT:
            LOGGER.warning("outcome unknown: the files below %s are kept", self.folder.location)


@contextmanager
def writing(context: Context, table: Table) -> Iterator[Write]:
    """A write whose files are gone when the block ends with nothing committed."""
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
    """Jobs that the block has started end with it: an interrupt stops the waiting for a job, and
    not always the job, which would go on writing."""
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
    """What makes a schema the table's; nothing where it stays."""

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
    """The change of the schema and what is declared of files in one request."""
    if not schema.updates and not table.is_staged:
        done: Commit = declare(table)
        return done
    with context.client.transaction() as transaction:
        changes = transaction.table(table)
        if schema.updates or not has_files:
            changes.declare_metadata(schema.updates, schema.requirements)
        if has_files:
            declare(changes)
    (commit,) = transaction.commits
    return commit


def duplicate_paths(conflicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The files that a rejection names as live already."""
    for conflict in conflicts:
        if conflict.get("clause") == DUPLICATE_FILE:
            for file in conflict.get("files", ()):
                yield str(file["file-path"])


@contextmanager
def _only_logged(folder: WriteFolder) -> Iterator[None]:
    """What the write came to is what the user must see, not that its remains could not be removed:
    they are a matter for the clean-up of orphans."""
    try:
        yield
    except Exception:
        LOGGER.warning("could not clean up below %s", folder.location, exc_info=True)
