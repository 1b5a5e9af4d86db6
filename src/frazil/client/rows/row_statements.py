"""Appends, overwrites, deletes and upserts of rows: what each reads, writes and commits.

A statement writes files into a folder of its own, which is removed if the commit was refused. It
is run again on the newest state of the table if another commit was in its way. `pinned` says that
the caller has read the table as it is given: then such a conflict is an error, because rows that
were computed from the old state could undo the other commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Command, CommitOptions, Isolation, check_options
from frazil.client.declare.table_verbs import Commit
from frazil.client.rows.moved_rows import find_rows
from frazil.client.rows.row_files import MatchingRows, matching_rows, write_rows
from frazil.client.rows.row_input import Rows, fitted_batches
from frazil.client.rows.row_removal import (
    VECTORS_MIN_FORMAT_VERSION,
    Mode,
    check_can_delete_rows,
    copy_files,
    mode_of,
    write_deletes,
)
from frazil.client.rows.write_folders import Write, committing, new_folder
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.scan_tasks import DeletedRows
from frazil.wire.errors import CommitFailed, FrazilError, ValidationError
from frazil.wire.expressions import ALWAYS_TRUE, AlwaysFalse, Expression
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import Filter, expression_of


class RowOptions(CommitOptions, total=False):
    """Options of every operation on rows."""

    isolation: Isolation | str
    """`serializable` or `snapshot`, by default the table's `write.<command>.isolation-level`."""


class DeleteOptions(RowOptions, total=False):
    mode: str | None
    """`copy-on-write` or `merge-on-read`, by default the table's `write.<command>.mode`."""


def append(table: Table, rows: Rows, options: CommitOptions) -> Commit:
    """Add rows; this conflicts with no other commit."""
    check_options(options, CommitOptions)
    with committing(new_folder(table)) as write:
        files = write_rows(table, _batches(table, rows), write.folder)
        if not files and not table.is_staged:
            return nothing(table)
        return write.commit(_paths(files), lambda: table.append_files(files, **options))


@dataclass(frozen=True)
class StagedRows:
    """Rows in files that a transaction commits later."""

    write: Write
    files: tuple[DataFile, ...]

    def committed(self, commit: Commit) -> None:
        """Keep the files that were committed."""
        self.write.committed(_paths(self.files), commit)

    def failed(self, error: FrazilError | None) -> None:
        """Remove the files after a refused commit, or because nothing was sent."""
        if error is not None:
            self.write.refused(error)
        self.write.fail()


def stage_append(table: Table, rows: Rows, options: CommitOptions) -> StagedRows:
    """Write rows that are not committed yet."""
    check_options(options, CommitOptions)
    write = Write(new_folder(table))
    try:
        return StagedRows(write, write_rows(table, _batches(table, rows), write.folder))
    except BaseException:
        write.fail()
        raise


def overwrite(
    table: Table, rows: Rows, filter: Filter | None, options: DeleteOptions, *, pinned: bool
) -> Commit:
    """Replace the rows that match, or all rows, by others."""
    expression = ALWAYS_TRUE if filter is None else expression_of(filter)
    checks = _checks(options)
    with committing(new_folder(table)) as write:
        files = write_rows(table, _batches(table, rows), write.folder)

        def attempt(current: Table) -> Commit:
            base = current.head(branch_of(options))
            matching = matching_rows(current, expression, base, write.folder.storage)
            if not matching and not files:
                return nothing(current)
            if matching.is_proven:
                # The catalog evaluates the filter again, and checks that nothing else matches.
                return write.commit(
                    _paths(files),
                    lambda: current.overwrite_files(
                        files, row_filter=expression, base_snapshot_id=base, **checks
                    ),
                )
            return change_rows(current, write, base, expression, "update", options, files, matching)

        return run_statement(table, attempt, pinned=pinned)


def overwrite_partitions(table: Table, rows: Rows, options: RowOptions, *, pinned: bool) -> Commit:
    """Replace all rows of the partitions that the new rows are in."""
    check_options(options, RowOptions)
    with committing(new_folder(table)) as write:
        files = write_rows(table, _batches(table, rows), write.folder)
        if not files:
            return nothing(table)
        return run_statement(
            table,
            lambda current: write.commit(
                _paths(files),
                lambda: current.replace_partitions(
                    files, base_snapshot_id=current.head(branch_of(options)), **options
                ),
            ),
            pinned=pinned,
        )


def delete(table: Table, filter: Filter, options: DeleteOptions) -> Commit:
    """Delete the rows that match."""
    check_options(options, DeleteOptions)
    expression = expression_of(filter)
    checks = _checks(options)
    mode_of(table, "delete", options.get("mode"))

    def attempt(current: Table) -> Commit:
        base = current.head(branch_of(options))
        if isinstance(expression, AlwaysFalse):
            return nothing(current)
        with committing(new_folder(current)) as write:
            matching = matching_rows(current, expression, base, write.folder.storage)
            if not matching:
                return nothing(current)
            if matching.is_proven:
                allowed = CommitOptions.__annotations__
                without_checks = {name: value for name, value in checks.items() if name in allowed}
                # As the catalog evaluates the filter again, no commit can be in the way.
                return current.delete_files(row_filter=expression, **without_checks)
            return change_rows(current, write, base, expression, "delete", options, (), matching)

    return run_statement(table, attempt)


def nothing(table: Table) -> Commit:
    """Return the result of a statement that had nothing to change."""
    return Commit(
        identifier=table.identifier, metadata_location=table.metadata_location, attempts=0
    )


# --- parts ----------------------------------------------------------------------------------------


def run_statement(
    table: Table, attempt: Callable[[Table], Commit], *, pinned: bool = False
) -> Commit:
    """Run a statement until it is not refused for a conflict, or its retries are used up."""
    budget = table.retry_budget()
    with table.leased_plans(is_base=True) as leased:
        while True:
            try:
                return attempt(leased)
            except (ValidationError, CommitFailed):
                if pinned or not budget.wait():
                    raise
            leased = leased.refreshed("refs")


def change_rows(
    table: Table,
    write: Write,
    base: int | None,
    conflict_filter: Expression,
    command: Command,
    options: DeleteOptions,
    added: Sequence[DataFile],
    removed: MatchingRows,
) -> Commit:
    """Commit new files and the removal of rows, by the table's mode for the command."""
    checks: dict[str, Any] = {
        "base_snapshot_id": base,
        "conflict_filter": conflict_filter,
        "command": command,
        **_checks(options),
    }
    whole = [task.file_path for task in removed.whole]
    touched = [rows.file_path for rows in removed.partial]
    if mode_of(table, command, options.get("mode")) is Mode.COPY_ON_WRITE:
        files = (*added, *copy_files(table, removed.partial, write.folder))
        return write.commit(
            _paths(files), lambda: table.overwrite_files(files, [*whole, *touched], **checks)
        )
    if touched:
        check_can_delete_rows(table, command)
    # What is committed depends only on rows that the vectors delete.
    merges_vectors = table.format_version >= VECTORS_MIN_FORMAT_VERSION

    def delete_rows(partial: Sequence[DeletedRows], replaced: tuple[str, ...]) -> Commit:
        deletes = write_deletes(table, partial, write.folder)
        try:
            return write.commit(
                _paths((*added, *deletes.added)),
                lambda: table.row_delta(
                    added,
                    deletes.added,
                    remove_data=whole,
                    remove_deletes=deletes.removed,
                    referenced_data_files=[rows.file_path for rows in partial],
                    replaced_data_files=replaced,
                    rebase_deletion_vectors=merges_vectors,
                    **checks,
                ),
            )
        except ValidationError as refused:
            branch, storage = branch_of(options), write.folder.storage
            found = find_rows(refused, table, branch, base, conflict_filter, partial, storage)
            if found is None or not merges_vectors:
                raise
            return delete_rows(found.rows, (*replaced, *found.replaced))

    return delete_rows(removed.partial, ())


def _batches(table: Table, rows: Rows) -> Any:
    return fitted_batches(rows, table.schema, whole=bool(table.spec()["fields"]))


def _paths(files: Sequence[Any]) -> set[str]:
    return {file.file_path for file in files}


def branch_of(options: Mapping[str, Any]) -> str:
    branch: str = options.get("branch", MAIN)
    return branch


def _checks(options: DeleteOptions) -> dict[str, Any]:
    """Return the options of a file operation."""
    check_options(options, DeleteOptions)
    return {name: value for name, value in options.items() if name != "mode"}
