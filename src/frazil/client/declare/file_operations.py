"""The six file operations as updates, each with the validation clauses that Java checks.

    operation            action                          clauses
    append_files         append                          none
    delete_files         delete                          required-data-files
    overwrite_files      overwrite                       see `overwrite_files`
    row_delta            overwrite with delete files     see `row_delta`
    rewrite_files        replace                         required-data-files, required-delete-files,
                                                         not-allowed-new-deletes-for-data-files
    replace_partitions   overwrite, replace-partitions   those of an overwrite, in its partitions

A file is declared, or given by the path of a Parquet file, whose footer is then read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
)

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
    FileUpdate,
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

R = TypeVar("R")
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


NewData: TypeAlias = AddedDataFile | str | Path
"""A data file, or the path of a Parquet file, whose footer is then read."""
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


class FileVerbs(ABC, Generic[R]):
    """The methods that declare files; each returns `R`."""

    @abstractmethod
    def _base(self) -> Table:
        """Return the table as it was read."""

    @abstractmethod
    def _declare(self, update: FileUpdate, options: CommitOptions) -> R:
        """Commit the update, or add it to a transaction."""

    def append_files(self, files: Iterable[NewData], **options: Unpack[CommitOptions]) -> R:
        """Add data files. This never conflicts with other commits."""
        added = _read(self._base(), files)
        return self._declare(Append(add_data_files=added, **_common_fields(options)), options)

    def delete_files(
        self,
        files: Iterable[RemovedData] = (),
        *,
        row_filter: Filter | None = None,
        **options: Unpack[CheckOptions],
    ) -> R:
        """Remove data files by path, and data files whose rows all match a filter."""
        paths = _paths(files)
        clauses = [RequiredDataFiles(file_paths=paths)] if paths else []
        update = Delete(
            remove_data_files=paths,
            delete_row_filter_json=optional_filter_json(row_filter),
            **_validated_fields(self._base(), clauses, options),
        )
        return self._declare(update, options)

    def overwrite_files(
        self,
        add: Iterable[NewData] = (),
        remove: Iterable[RemovedData] = (),
        *,
        row_filter: Filter | None = None,
        **options: Unpack[CheckOptions],
    ) -> R:
        """Replace data files, selected by path or by a filter (copy-on-write).

        The clauses are those of Java's BaseOverwriteFiles.validate: `validateNoConflictingData`
        applies under serializable isolation, and `validateNoConflictingDeletes` always.
        """
        table = self._base()
        added, paths = _read(table, add), _paths(remove)
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
        update = Overwrite(
            add_data_files=added,
            remove_data_files=paths,
            delete_row_filter_json=row_filter_json,
            **_validated_fields(table, clauses, options),
        )
        return self._declare(update, options)

    def row_delta(
        self,
        add_data: Iterable[NewData] = (),
        add_deletes: Iterable[AddedDeleteFile] = (),
        *,
        remove_data: Iterable[RemovedData] = (),
        remove_deletes: Iterable[RemovedDeletes] = (),
        referenced_data_files: Iterable[str] = (),
        replaced_data_files: Iterable[str] = (),
        rebase_deletion_vectors: bool = False,
        **options: Unpack[CheckOptions],
    ) -> R:
        """Add rows and deletes of rows (merge-on-read).

        `referenced_data_files` are data files that position deletes refer to without naming them in
        `referenced-data-file`. `replaced_data_files` are files whose rows a compaction has moved:
        the vectors are for the new files, and nothing else may have removed the old ones.

        With `rebase_deletion_vectors` the server merges the vectors with those that others have
        added to the same data files, unless a row was deleted twice. Use it only if the change
        depends on nothing but the rows that it deletes. Format version 3 only.

        The clauses are those that Spark's SparkPositionDeltaWrite requests of Java's RowDelta. If a
        concurrent DELETE removed a referenced file, another DELETE has nothing left to do there,
        but an UPDATE or MERGE would bring its rows back. The clause on referenced files has no
        filter, because removing one of them is a conflict whatever the filter matches.
        """
        table = self._base()
        added, deletes = _read(table, add_data), tuple(add_deletes)
        removed, removed_deletes = _paths(remove_data), tuple(remove_deletes)
        command: Command = options.get("command") or ("update" if added else "delete")
        conflict_filter = optional_filter_json(options.get("conflict_filter"))
        clauses: list[CommitValidation] = []
        referenced = _referenced_data_files(deletes, referenced_data_files)
        replaced = tuple(replaced_data_files)
        allowed: tuple[RemoveOperation, ...] = ("DELETE",) if command == "delete" else ()
        for paths, operations in ((referenced, allowed), (replaced, ("REPLACE", *allowed))):
            if paths:
                clauses.append(
                    RequiredDataFiles(file_paths=paths, allowed_remove_operations=operations)
                )
        clauses += _removal_clauses(removed, removed_deletes)
        if command != "delete":
            clauses.append(NotAllowedAddedDeleteFiles(filter_json=conflict_filter))
        if _isolation(table, options, command) is Isolation.SERIALIZABLE:
            clauses.append(NotAllowedAddedDataFiles(filter_json=conflict_filter))
        update = Overwrite(
            add_data_files=added,
            add_delete_files=deletes,
            remove_data_files=removed,
            remove_delete_files=_delete_files(NamedDeleteFile, removed_deletes),
            rebase_deletion_vectors=rebase_deletion_vectors,
            **_validated_fields(table, clauses, options),
        )
        return self._declare(update, options)

    def rewrite_files(
        self,
        remove_data: Iterable[RemovedData] = (),
        add_data: Iterable[NewData] = (),
        *,
        remove_deletes: Iterable[RemovedDeletes] = (),
        add_deletes: Iterable[AddedDeleteFile] = (),
        data_sequence_number: int | None = None,
        deletes_seen_at: int | None = None,
        required_data_files: Iterable[str] = (),
        lost_rounds: int = 0,
        rebase_deletion_vectors: bool = False,
        **options: Unpack[CheckOptions],
    ) -> R:
        """Replace files by others with the same rows (compaction).

        `deletes_seen_at` is the snapshot up to which `add_deletes` carry the deletes of the
        replaced files over to the added ones, by default the base. `lost_rounds` says how often the
        change was refused because of such deletes: after three times they wait for it.
        `required_data_files` are not replaced, but only a DELETE may have removed them.
        `rebase_deletion_vectors` is as in `row_delta`, for vectors of files that are not replaced.
        The clauses are those of Java's BaseRewriteFiles, which apply at every isolation level.
        """
        table = self._base()
        paths, removed_deletes = _paths(remove_data), tuple(remove_deletes)
        clauses = list(_removal_clauses(paths, removed_deletes, deletes_seen_at))
        required = tuple(required_data_files)
        if required:
            allowed: tuple[RemoveOperation, ...] = ("DELETE",)
            clauses.append(
                RequiredDataFiles(file_paths=required, allowed_remove_operations=allowed)
            )
        update = Replace(
            add_data_files=_read(table, add_data),
            add_delete_files=tuple(add_deletes),
            remove_data_files=paths,
            remove_delete_files=_delete_files(NamedDeleteFile, removed_deletes),
            data_sequence_number=data_sequence_number,
            lost_rounds=lost_rounds,
            rebase_deletion_vectors=rebase_deletion_vectors,
            **_validated_fields(table, clauses, options),
        )
        return self._declare(update, options)

    def replace_partitions(self, add: Iterable[NewData], **options: Unpack[CheckOptions]) -> R:
        """Replace all rows in the partitions of the new files.

        The clauses have no filters; the server limits them to the partitions of the added files.
        """
        table = self._base()
        clauses = replacement_clauses(_isolation(table, options, "update"))
        update = Overwrite(
            add_data_files=_read(table, add),
            replace_partitions=True,
            **_validated_fields(table, clauses, options),
        )
        return self._declare(update, options)


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
    paths: tuple[str, ...],
    delete_files: Sequence[RemovedDeletes],
    deletes_seen_at: int | None = None,
) -> Iterable[CommitValidation]:
    """Require that the removed files still exist, and that no rows of theirs were deleted."""
    if paths:
        yield RequiredDataFiles(file_paths=paths)
        yield NotAllowedNewDeletesForDataFiles(file_paths=paths, base_snapshot_id=deletes_seen_at)
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


# --- footers ------------------------------------------------------------------------------------


def _read(table: Table, files: Iterable[NewData]) -> tuple[AddedDataFile, ...]:
    """Return data files; those given by path are read from their footers, in parallel."""
    if isinstance(files, str | Path):
        raise TypeError(f"files: give a list of files, as in [{str(files)!r}]")
    files = tuple(files)
    for file in files:
        if not isinstance(file, DeclaredDataFile | str | Path):
            raise TypeError(
                f"files: a file is a path or a DataFile, not {type(file).__name__}; "
                "append, overwrite and upsert take rows"
            )
    paths = [str(file) for file in files if not isinstance(file, DeclaredDataFile)]
    if not paths:
        return tuple(file for file in files if isinstance(file, DeclaredDataFile))
    from frazil.datafiles.footers.files_from_parquet import read_data_files

    read = iter(read_data_files(paths, table))
    return tuple(file if isinstance(file, DeclaredDataFile) else next(read) for file in files)
