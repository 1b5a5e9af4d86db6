"""The six operations as updates of the wire, each with the clauses that its Java class checks.

    operation            action                          clauses
    append_files         append                          none
    delete_files         delete                          required-data-files
    overwrite_files      overwrite                       see `overwrite_files`
    row_delta            overwrite with delete files     see `row_delta`
    rewrite_files        replace                         required-data-files, required-delete-files,
                                                         not-allowed-new-deletes-for-data-files
    replace_partitions   overwrite, replace-partitions   those of an overwrite, in its partitions

Pure: a table as it was read and the files go in, an update comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import Raw

from frazil.wire.declared_content import (
    NULL,
    AddedDataFile,
    AddedDeleteFile,
    DeclaredDataFile,
    DeleteFileReference,
    NamedDataFile,
    NamedDeleteFile,
    PositionDeleteFile,
    RemovedDeleteFile,
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
from frazil.wire.filter_builders import Filter, filter_json

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table


Command: TypeAlias = Literal["delete", "update", "merge"]
"""The SQL command that an operation carries out; each has an isolation property of its own."""


class Isolation(StrEnum):
    SERIALIZABLE = "serializable"
    """As if the command had run alone: no file that may hold its rows was added meanwhile."""
    SNAPSHOT = "snapshot"
    """Rows that others added meanwhile are not seen, rows that they changed are not lost."""


def isolation_of(
    properties: Mapping[str, str], command: Command, given: Isolation | str | None = None
) -> Isolation:
    """What the caller asks for, or else the table's `write.<command>.isolation-level`."""
    name = f"write.{command}.isolation-level"
    text = properties.get(name, Isolation.SERIALIZABLE) if given is None else given
    try:
        return Isolation(text.lower())
    except ValueError:
        where = name if given is None else "isolation"
        raise BadRequest(f"{where}: {text!r} must be serializable or snapshot") from None


RemovedData: TypeAlias = DeclaredDataFile | NamedDataFile | str
RemovedDeletes: TypeAlias = AddedDeleteFile | NamedDeleteFile | DeleteFileReference | str


class CommitOptions(TypedDict, total=False):
    """Of every operation."""

    branch: str
    summary: Mapping[str, str]
    """Further keys of the snapshot's summary; those that the server computes are refused."""
    stage_only: bool
    """Makes the snapshot without moving the branch: it can be cherry-picked later."""
    once: Once
    """The stream and the epoch that this commit carries, so that it is applied only once."""


class CheckOptions(CommitOptions, total=False):
    """Of the operations that change what others may be changing too."""

    base_snapshot_id: int | None
    """What was read; without it the head of the branch as the table was loaded. None is the state
    before the first snapshot."""
    conflict_filter: Filter
    """Which rows were read; without it all of the table."""
    isolation: Isolation | str
    command: Command
    case_sensitive: bool


def append_files(table: Table, files: Iterable[AddedDataFile], options: CommitOptions) -> Append:
    return Append(add_data_files=tuple(files), **_placed(options))


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
        delete_row_filter_json=_raw(row_filter),
        **_checked(table, clauses, options),
    )


def overwrite_files(
    table: Table,
    add: Iterable[AddedDataFile],
    remove: Iterable[RemovedData],
    row_filter: Filter | None,
    options: CheckOptions,
) -> Overwrite:
    """As Java's BaseOverwriteFiles.validate, with `validateNoConflictingData` if serializable and
    `validateNoConflictingDeletes` always."""
    added, paths = tuple(add), _paths(remove)
    given = _raw(options.get("conflict_filter"))
    row = _raw(row_filter)
    scope = given if given is not NULL else (row if not paths else NULL)
    clauses: list[CommitValidation] = []
    if _isolation(table, options, "update" if added else "delete") is Isolation.SERIALIZABLE:
        clauses.append(NotAllowedAddedDataFiles(filter_json=scope))
    if row is not NULL:
        rows = given if given is not NULL else row
        clauses.append(NotAllowedAddedDeleteFiles(filter_json=rows))
        clauses.append(RequiredDataFiles(filter_json=rows))
    if paths:
        clauses.append(RequiredDataFiles(file_paths=paths))
        clauses.append(NotAllowedNewDeletesForDataFiles(file_paths=paths, filter_json=given))
    return Overwrite(
        add_data_files=added,
        remove_data_files=paths,
        delete_row_filter_json=row,
        **_checked(table, clauses, options),
    )


def row_delta(
    table: Table,
    add_data: Iterable[AddedDataFile],
    add_deletes: Iterable[AddedDeleteFile],
    remove_data: Iterable[RemovedData],
    remove_deletes: Iterable[RemovedDeletes],
    referenced_data_files: Iterable[str],
    options: CheckOptions,
) -> Overwrite:
    """As Spark's SparkPositionDeltaWrite asks Java's RowDelta.

    A DELETE that meets a file which another DELETE has removed has nothing left to do there; an
    UPDATE or MERGE would bring its rows back. The clause on the referenced files carries no filter:
    a removal of one of them is never harmless, whatever the filter says.
    """
    added, deletes = tuple(add_data), tuple(add_deletes)
    removed, removed_deletes = _paths(remove_data), tuple(remove_deletes)
    command: Command = options.get("command") or ("update" if added else "delete")
    scope = _raw(options.get("conflict_filter"))
    clauses: list[CommitValidation] = []
    referenced = _referenced(deletes, referenced_data_files)
    if referenced:
        allowed: tuple[RemoveOperation, ...] = ("DELETE",) if command == "delete" else ()
        clauses.append(RequiredDataFiles(file_paths=referenced, allowed_remove_operations=allowed))
    if removed:
        clauses.append(RequiredDataFiles(file_paths=removed))
        clauses.append(NotAllowedNewDeletesForDataFiles(file_paths=removed))
    if removed_deletes:
        clauses.append(RequiredDeleteFiles(file_paths=_references(removed_deletes)))
    if command != "delete":
        clauses.append(NotAllowedAddedDeleteFiles(filter_json=scope))
    if _isolation(table, options, command) is Isolation.SERIALIZABLE:
        clauses.append(NotAllowedAddedDataFiles(filter_json=scope))
    return Overwrite(
        add_data_files=added,
        add_delete_files=deletes,
        remove_data_files=removed,
        remove_delete_files=_named(removed_deletes),
        **_checked(table, clauses, options),
    )


def rewrite_files(
    table: Table,
    remove_data: Iterable[RemovedData],
    add_data: Iterable[AddedDataFile],
    remove_deletes: Iterable[RemovedDeletes],
    add_deletes: Iterable[AddedDeleteFile],
    data_sequence_number: int | None,
    options: CheckOptions,
) -> Replace:
    """The checks of Java's BaseRewriteFiles, which no isolation level turns off."""
    paths, removed_deletes = _paths(remove_data), tuple(remove_deletes)
    clauses: list[CommitValidation] = []
    if paths:
        clauses.append(RequiredDataFiles(file_paths=paths))
        clauses.append(NotAllowedNewDeletesForDataFiles(file_paths=paths))
    if removed_deletes:
        clauses.append(RequiredDeleteFiles(file_paths=_references(removed_deletes)))
    return Replace(
        add_data_files=tuple(add_data),
        add_delete_files=tuple(add_deletes),
        remove_data_files=paths,
        remove_delete_files=_named(removed_deletes),
        data_sequence_number=data_sequence_number,
        **_checked(table, clauses, options),
    )


def replace_partitions(
    table: Table, add: Iterable[AddedDataFile], options: CheckOptions
) -> Overwrite:
    """The clauses carry no filter: the server scopes them to the partitions of the added files."""
    clauses: list[CommitValidation] = []
    if _isolation(table, options, "update") is Isolation.SERIALIZABLE:
        clauses.append(NotAllowedAddedDataFiles())
    clauses.append(RequiredDataFiles())
    clauses.append(NotAllowedAddedDeleteFiles())
    return Overwrite(
        add_data_files=tuple(add), replace_partitions=True, **_checked(table, clauses, options)
    )


# --- parts ---------------------------------------------------------------------------------------


def _placed(options: CommitOptions) -> dict[str, Any]:
    """Where the snapshot goes and what its summary says."""
    return {
        "branch": options.get("branch", MAIN),
        "stage_only": options.get("stage_only", False),
        "summary": dict(options.get("summary", {})),
    }


def _checked(
    table: Table, clauses: Iterable[CommitValidation], options: CheckOptions
) -> dict[str, Any]:
    placed = _placed(options)
    validations = tuple(clauses)
    base: int | None = None
    if "base_snapshot_id" in options:
        base = options["base_snapshot_id"]
    elif validations:
        base = table.head(placed["branch"])
    return {
        **placed,
        "base_snapshot_id": base,
        "commit_validations": validations,
        "case_sensitive": options.get("case_sensitive", True),
    }


def _isolation(table: Table, options: CheckOptions, command: Command) -> Isolation:
    return isolation_of(
        table.properties, options.get("command") or command, options.get("isolation")
    )


def _raw(condition: Filter | None) -> Raw:
    return NULL if condition is None else Raw(msgspec.json.encode(filter_json(condition)))


def _paths(files: Iterable[RemovedData]) -> tuple[str, ...]:
    return tuple(data_file_path(file) for file in files)


def _referenced(deletes: Iterable[AddedDeleteFile], named: Iterable[str]) -> tuple[str, ...]:
    """The data files that new delete files refer to, and those that only the caller knows."""
    by_file = (
        file.referenced_data_file
        for file in deletes
        if isinstance(file, PositionDeleteFile) and file.referenced_data_file is not None
    )
    return tuple(dict.fromkeys((*by_file, *named)))


def _references(files: Iterable[RemovedDeletes]) -> tuple[str | DeleteFileReference, ...]:
    keys = [delete_file_key(file) for file in files]
    return tuple(
        path if offset is None else DeleteFileReference(path, offset) for path, offset in keys
    )


def _named(files: Iterable[RemovedDeletes]) -> tuple[RemovedDeleteFile, ...]:
    keys = [delete_file_key(file) for file in files]
    return tuple(
        path if offset is None else NamedDeleteFile(file_path=path, content_offset=offset)
        for path, offset in keys
    )
