"""Runs statements: their target and result, their repetition, and the options of their commit.

After a conflict a statement runs again from a new scan, in the only retry loop for statements. A
conflict means that the rows or the schema which it has read are out of date, so that everything is
done again: loading the table, reading, writing files and committing. An attempt removes its files
before it raises.

No other loop retries what this one does. The client sends lost requests again, but declares a
statement's changes with `declare_metadata` and file operations, which it never rebuilds after a
conflict. A statement inside another one, such as the DELETE that a SQL text runs, works on a pinned
target and runs once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar, cast

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import Commit
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.core.jvm_errors import repeated, translated
from frazil.spark.core.write_audit import audit_of
from frazil.wire.errors import BadRequest, CommitFailed, NoSuchTable, ValidationError
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The table and branch that a statement writes to."""

    identifier: Identifier
    branch: str = MAIN
    pinned: Table | None = field(default=None, compare=False)
    """The table as an outer statement has loaded it. That one also runs again after a conflict."""

    def __str__(self) -> str:
        return str(self.identifier)

    def load(self, context: Context) -> Table:
        """Load the table as it is now, or return the pinned one; raise BadRequest for a view."""
        if self.pinned is not None:
            return self.pinned
        try:
            return context.client.load_table(self.identifier)
        except NoSuchTable:
            refuse_view(context.client, self.identifier, "write to the tables that it reads")
            raise


def refuse_view(client: Client, identifier: Identifier, advice: str) -> None:
    """Raise BadRequest if the catalog has a view of this name."""
    if client.view_exists(identifier):
        raise BadRequest(f"{identifier} is a view: {advice}")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a statement has written."""

    commit: Commit | None
    """None where nothing had to change, so that there is no new snapshot."""
    operation: str
    """`append`, `overwrite`, `delete`, `update`, `merge`, `create`."""
    mode: str | None = None
    """`copy-on-write`, `merge-on-read`, or `metadata` where whole files were removed unread."""
    rows_written: int = 0
    """Rows that were added or changed, without copies of unchanged rows."""
    rows_deleted: int | None = 0
    """None if it is not known: equality deletes, or removed files that had deleted rows already."""
    files_added: int = 0
    files_removed: int | None = 0
    """None if it is not known: a replaced table, or a catalog that was away after the commit."""
    attempts: int = 1
    """How often the statement ran, each time from a new scan."""

    @property
    def snapshot_id(self) -> int | None:
        return None if self.commit is None else self.commit.snapshot_id


def run_statement(context: Context, target: Target, attempt: Callable[[], T]) -> T:
    """Run `attempt` until it is not refused, or the retries are used up.

    Only a conflict is retried: one of rows, or a requirement about the schema that no longer holds.
    An unknown outcome is not: the first run may have been committed, and a second would make the
    same change twice. A `Result` gets the number of its attempt.

    An attempt also runs again if Iceberg's runtime did not reach the catalog. It has committed
    nothing then, since only the client commits, and the client waits by itself.
    """
    with context.leases.statement(context.client.leases):
        return _run_until_accepted(context, target, attempt)


def _run_until_accepted(context: Context, target: Target, attempt: Callable[[], T]) -> T:
    retries = 0 if target.pinned is not None else context.settings.statement_retries
    for number in count(1):
        try:
            with translated():
                return _numbered(repeated(context, target.identifier, attempt), number)
        except (ValidationError, CommitFailed) as error:
            if number > retries:
                raise
            LOGGER.info(
                "attempt %d was refused, the statement runs again from a new scan: %s",
                number,
                error,
            )
    raise AssertionError("unreachable: the loop ends by returning or raising")


def _numbered(result: T, number: int) -> T:
    return cast(T, replace(result, attempts=number)) if isinstance(result, Result) else result


# --- options of a commit --------------------------------------------------------------------------


def complete_options(
    context: Context, target: Target, options: Mapping[str, Any], table: Table | None = None
) -> dict[str, Any]:
    """Add the target's branch, and Spark's application id to the summary, as stock Spark does.

    `table` is the existing table, whose writes may be audited; None for a new one.
    """
    has_branch = "branch" in options or target.branch != MAIN
    audited = {} if table is None else audit_of(context.spark, table).commit_options(has_branch)
    completed = {"branch": target.branch, **audited, **options}
    summary = {**audited.get("summary", {}), **(options.get("summary") or {})}
    application = context.spark.conf.get("spark.app.id", None)
    if application is not None:
        summary.setdefault("spark.app.id", application)
    return {**completed, "summary": summary}
