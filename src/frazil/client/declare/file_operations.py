"""The six file operations as updates, each with the validation clauses that Java checks.

    operation            action                          clauses
    append_files         append                          none
    delete_files         delete                          required-data-files
    overwrite_files      overwrite                       see `overwrite_files`
    row_delta            overwrite with delete files     see `row_delta`
    rewrite_files        replace                         required-data-files, required-delete-files,
                                                         not-allowed-new-deletes-for-data-files
    replace_partitions   overwrite, replace-partitions   those of an overwrite, in its partitions

Each function takes a table as it was read and the files, and returns an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from frazil.wire.declared_content import (
    NULL,
    AddedDataFile,
    AddedDeleteFile,
    DeclaredDataFile,
    DeleteFileReference,
    NamedDataFile,
    NamedDeleteFile,
    PositionDeleteFile,
    data_file_path,
    delete_file_key,
)
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import (
    MAIN,
    Append,
    CommitValidation,
    Delete,
    NotAllowedAddedDataFiles,
    NotAllowedAddedDeleteFiles,
    NotAllowedNewDeletesForDataFiles,
    Once,
    Overwrite,
    RemoveOperation,
    Replace,
    RequiredDataFiles,
    RequiredDeleteFiles,
)
from frazil.wire.filter_builders import Filter, optional_filter_json
from frazil.wire.near_names import name_hint

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

T = TypeVar("T", NamedDeleteFile, DeleteFileReference)

Command: TypeAlias = Literal["delete", "update", "merge"]
"""The SQL command of an operation; each has its own isolation property."""


class Isolation(StrEnum):
    """How a row-level command is isolated from concurrent commits."""

    SERIALIZABLE = "serializable"
    """No file that may contain matching rows was added concurrently."""
    SNAPSHOT = "snapshot"
    """Concurrently added rows are ignored; concurrent changes of rows are not lost."""


def isolation_of(
    properties: Mapping[str, str], command: Command, requested: Isolation | str | None = None
) -> Isolation:
    """Return the requested isolation, or the table's `write.<command>.isolation-level`."""
    name = f"write.{command}.isolation-level"
    text = properties.get(name, Isolation.SERIALIZABLE) if requested is None else requested
    try:
        return Isolation(text.lower())
    except ValueError:
        where = name if requested is None else "isolation"
        raise BadRequest(f"{where}: {text!r} must be serializable or snapshot") from None


RemovedData: TypeAlias = DeclaredDataFile | NamedDataFile | str
RemovedDeletes: TypeAlias = AddedDeleteFile | NamedDeleteFile | DeleteFileReference | str


class CommitOptions(TypedDict, total=False):
    """Options of every operation."""

    branch: str
    summary: Mapping[str, str]
    """More keys for the snapshot summary. Keys that the server computes are refused."""
    stage_only: bool
    """Create the snapshot without moving the branch, to cherry-pick it later."""
    once: Once
    """The stream and epoch of this commit, which is then applied only once."""


class CheckOptions(CommitOptions, total=False):
    """Options of operations that can conflict with other commits."""

    base_snapshot_id: int | None
    """The snapshot that was read, by default the head of the branch when the table was loaded. None
    is the state before the first snapshot."""
    conflict_filter: Filter
    """The rows that were read, by default the whole table."""
    isolation: Isolation | str
    command: Command
    case_sensitive: bool


def append_files(table: Table, files: Iterable[AddedDataFile], options: CommitOptions) -> Append:
    return Append(add_data_files=tuple(files), **_common_fields(options))


def delete_files(
    table: Table,
    files: Iterable[RemovedData],
    row_filter: Filter | None,
    options: CheckOptions,
) -> Delete:
    paths = _paths(files)
    clauses = [RequiredDataFiles(file_paths=paths)] if paths else []
    return Delete(
        remove_data_files=paths,
        delete_row_filter_json=optional_filter_json(row_filter),
        **_validated_fields(table, clauses, options),
    )


def overwrite_files(
    table: Table,
    add: Iterable[AddedDataFile],
    remove: Iterable[RemovedData],
    row_filter: Filter | None,
    options: CheckOptions,
) -> Overwrite:
    """Build the clauses of Java's BaseOverwriteFiles.validate.

    `validateNoConflictingData` applies under serializable isolation, and
    `validateNoConflictingDeletes` always.
    """
    added, paths = tuple(add), _paths(remove)
    conflict_filter = optional_filter_json(options.get("conflict_filter"))
    row_filter_json = optional_filter_json(row_filter)
    data_filter = conflict_filter
    if conflict_filter is NULL and not paths:
        data_filter = row_filter_json
    clauses: list[CommitValidation] = []
    if _isolation(table, options, "update" if added else "delete") is Isolation.SERIALIZABLE:
        clauses.append(NotAllowedAddedDataFiles(filter_json=data_filter))
    if row_filter_json is not NULL:
        rows = conflict_filter if conflict_filter is not NULL else row_filter_json
        clauses.append(NotAllowedAddedDeleteFiles(filter_json=rows))
        clauses.append(RequiredDataFiles(filter_json=rows))
    if paths:
        clauses.append(RequiredDataFiles(file_paths=paths))
        clauses.append(
            NotAllowedNewDeletesForDataFiles(file_paths=paths, filter_json=conflict_filter)
        )
    return Overwrite(
        add_data_files=added,
        remove_data_files=paths,
        delete_row_filter_json=row_filter_json,
        **_validated_fields(table, clauses, options),
    )


def row_delta(
    table: Table,
    add_data: Iterable[AddedDataFile],
    add_deletes: Iterable[AddedDeleteFile],
    remove_data: Iterable[RemovedData],
    remove_deletes: Iterable[RemovedDeletes],
    referenced_data_files: Iterable[str],
    options: CheckOptions,
    *,
    replaced_data_files: Iterable[str] = (),
    rebase_deletion_vectors: bool = False,
) -> Overwrite:
    """Build the clauses that Spark's SparkPositionDeltaWrite requests of Java's RowDelta.

    If a concurrent DELETE removed a referenced file, another DELETE has nothing left to do there,
    but an UPDATE or MERGE would bring its rows back. The clause on referenced files has no filter,
    because removing one of them is a conflict whatever the filter matches.
    """
    added, deletes = tuple(add_data), tuple(add_deletes)
    removed, removed_deletes = _paths(remove_data), tuple(remove_deletes)
    command: Command = options.get("command") or ("update" if added else "delete")
    conflict_filter = optional_filter_json(options.get("conflict_filter"))
    clauses: list[CommitValidation] = []
    referenced = _referenced_data_files(deletes, referenced_data_files)
    allowed: tuple[RemoveOperation, ...] = ("DELETE",) if command == "delete" else ()
    if referenced:
        clauses.append(RequiredDataFiles(file_paths=referenced, allowed_remove_operations=allowed))
    replaced = tuple(replaced_data_files)
    if replaced:
        allowed = ("REPLACE", *allowed)
        clauses.append(RequiredDataFiles(file_paths=replaced, allowed_remove_operations=allowed))
    clauses += _removal_clauses(removed, removed_deletes)
    if command != "delete":
        clauses.append(NotAllowedAddedDeleteFiles(filter_json=conflict_filter))
    if _isolation(table, options, command) is Isolation.SERIALIZABLE:
        clauses.append(NotAllowedAddedDataFiles(filter_json=conflict_filter))
    return Overwrite(
        add_data_files=added,
        add_delete_files=deletes,
        remove_data_files=removed,
        remove_delete_files=_delete_files(NamedDeleteFile, removed_deletes),
        rebase_deletion_vectors=rebase_deletion_vectors,
        **_validated_fields(table, clauses, options),
    )


def rewrite_files(
    table: Table,
    remove_data: Iterable[RemovedData],
    add_data: Iterable[AddedDataFile],
    remove_deletes: Iterable[RemovedDeletes],
    add_deletes: Iterable[AddedDeleteFile],
    data_sequence_number: int | None,
    options: CheckOptions,
    *,
    rebase_deletion_vectors: bool = False,
) -> Replace:
    """Build the clauses of Java's BaseRewriteFiles, which apply at every isolation level."""
    paths, removed_deletes = _paths(remove_data), tuple(remove_deletes)
    return Replace(
        add_data_files=tuple(add_data),
        add_delete_files=tuple(add_deletes),
        remove_data_files=paths,
        remove_delete_files=_delete_files(NamedDeleteFile, removed_deletes),
        data_sequence_number=data_sequence_number,
        rebase_deletion_vectors=rebase_deletion_vectors,
        **_validated_fields(table, _removal_clauses(paths, removed_deletes), options),
    )


def replace_partitions(
    table: Table, add: Iterable[AddedDataFile], options: CheckOptions
) -> Overwrite:
    """Build clauses without filters; the server limits them to the partitions of the added
    files."""
    clauses = replacement_clauses(_isolation(table, options, "update"))
    return Overwrite(
        add_data_files=tuple(add),
        replace_partitions=True,
        **_validated_fields(table, clauses, options),
    )


def replacement_clauses(isolation: Isolation) -> Iterable[CommitValidation]:
    """Return the clauses of Java's ReplacePartitions as Spark uses it."""
    if isolation is Isolation.SERIALIZABLE:
        yield NotAllowedAddedDataFiles()
    yield RequiredDataFiles()
    yield NotAllowedAddedDeleteFiles()


# --- parts ---------------------------------------------------------------------------------------


def check_options(options: Mapping[str, Any], kind: type) -> None:
    """Raise TypeError for an option that the operation does not have.

    A misspelled `branch` must not write to the main branch.
    """
    known = kind.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"{name!r} is not an option; {name_hint(name, known, 'options')}")


def _common_fields(options: CommitOptions, kind: type = CommitOptions) -> dict[str, Any]:
    """Return the fields of every operation: branch, staging and summary."""
    check_options(options, kind)
    return {
        "branch": options.get("branch", MAIN),
        "stage_only": options.get("stage_only", False),
        "summary": dict(options.get("summary", {})),
    }


def _validated_fields(
    table: Table, clauses: Iterable[CommitValidation], options: CheckOptions
) -> dict[str, Any]:
    common = _common_fields(options, CheckOptions)
    validations = tuple(clauses)
    base: int | None = None
    if "base_snapshot_id" in options:
        base = options["base_snapshot_id"]
    elif validations:
        base = table.head(common["branch"])
    return {
        **common,
        "base_snapshot_id": base,
        "commit_validations": validations,
        "case_sensitive": options.get("case_sensitive", True),
    }


def _isolation(table: Table, options: CheckOptions, command: Command) -> Isolation:
    return isolation_of(
        table.properties, options.get("command") or command, options.get("isolation")
    )


def _removal_clauses(
    paths: tuple[str, ...], delete_files: Sequence[RemovedDeletes]
) -> Iterable[CommitValidation]:
    """Require that the removed files still exist, and that no rows of theirs were deleted."""
    if paths:
        yield RequiredDataFiles(file_paths=paths)
        yield NotAllowedNewDeletesForDataFiles(file_paths=paths)
    if delete_files:
        yield RequiredDeleteFiles(file_paths=_delete_files(DeleteFileReference, delete_files))


def _paths(files: Iterable[RemovedData]) -> tuple[str, ...]:
    return tuple(data_file_path(file) for file in files)


def _referenced_data_files(
    deletes: Iterable[AddedDeleteFile], named: Iterable[str]
) -> tuple[str, ...]:
    """Return the data files that new delete files refer to, and those that the caller names."""
    by_file = (
        file.referenced_data_file
        for file in deletes
        if isinstance(file, PositionDeleteFile) and file.referenced_data_file is not None
    )
    return tuple(dict.fromkeys((*by_file, *named)))


def _delete_files(kind: type[T], files: Iterable[RemovedDeletes]) -> tuple[str | T, ...]:
    """Return paths, and an object of the kind for each deletion vector."""
    return tuple(
        path if offset is None else kind(file_path=path, content_offset=offset)
        for path, offset in map(delete_file_key, files)
    )
