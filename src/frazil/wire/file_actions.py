"""The actions of fine-grained commits: a client declares files, the server builds the snapshot.

Four actions change the files of a branch, a fifth publishes a staged snapshot. They are values of
`action`, like Iceberg's own table updates. The clauses in `commit-validations` say what must not
have happened since the base snapshot. Every object is closed: an unknown field is an error.

`check_request` refuses what is wrong without knowing the table. What depends on the table (format
version, schema, specs, live files) is checked when the commit is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, field

from frazil.wire.declared_content import (
    NULL,
    AddedDataFile,
    AddedDeleteFile,
    Count,
    DeleteFileReference,
    FilePath,
    PositionDeleteFile,
    RemovedDataFile,
    RemovedDeleteFile,
    data_file_path,
    delete_file_key,
    optional_raw,
)
from frazil.wire.errors import BadRequest
from frazil.wire.rest_updates import AddSnapshot, Int64, SetSnapshotRef, TableUpdate, Update

MAIN: Final = "main"

# --- validation clauses -------------------------------------------------------------------------

RemoveOperation: TypeAlias = Literal[
    "DELETE", "OVERWRITE", "REPLACE", "delete", "overwrite", "replace"
]


class Validation(
    Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    tag_field="type",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A condition on the changes between the base snapshot and the head of the branch."""

    filter_json: Raw = field(name="filter", default=NULL)
    base_snapshot_id: Int64 | None = None
    """Overrides the base of the action. Without any base, all history is checked."""

    @property
    def filter(self) -> Raw | None:
        return optional_raw(self.filter_json)

    @property
    def clause(self) -> str:
        """Return the name of the clause in JSON."""
        return str(self.__struct_config__.tag)


class NotAllowedAddedDataFiles(
    Validation, frozen=True, kw_only=True, tag="not-allowed-added-data-files"
):
    """Requires that no data file was added that may contain rows matching the filter."""


class NotAllowedAddedDeleteFiles(
    Validation, frozen=True, kw_only=True, tag="not-allowed-added-delete-files"
):
    """Requires that no delete file was added that may apply to rows matching the filter."""


class RequiredDataFiles(Validation, frozen=True, kw_only=True, tag="required-data-files"):
    """Requires that files still exist: those listed, or all that may contain matching rows."""

    file_paths: tuple[FilePath, ...] | None = None
    allowed_remove_operations: tuple[RemoveOperation, ...] = ()

    @property
    def allowed_operations(self) -> frozenset[str]:
        """Return the operations that may have removed a required file, as snapshots name them."""
        return frozenset(operation.lower() for operation in self.allowed_remove_operations)


class RequiredDeleteFiles(Validation, frozen=True, kw_only=True, tag="required-delete-files"):
    """Requires that delete files still exist. A Puffin path alone means all its live vectors."""

    file_paths: tuple[FilePath | DeleteFileReference, ...] | None = None


class NotAllowedNewDeletesForDataFiles(
    Validation, frozen=True, kw_only=True, tag="not-allowed-new-deletes-for-data-files"
):
    """Requires that no delete file was added that applies to one of the data files."""

    file_paths: tuple[FilePath, ...] | None = None


CommitValidation: TypeAlias = (
    NotAllowedAddedDataFiles
    | NotAllowedAddedDeleteFiles
    | RequiredDataFiles
    | RequiredDeleteFiles
    | NotAllowedNewDeletesForDataFiles
)

# --- actions ------------------------------------------------------------------------------------

BranchName: TypeAlias = Annotated[str, Meta(min_length=1)]


class _FileUpdate(Update, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of the four actions that change files."""

    branch: BranchName = MAIN
    stage_only: bool = False
    summary: dict[str, str] = field(default_factory=dict)
    base_snapshot_id: Int64 | None = None
    commit_validations: tuple[CommitValidation, ...] | CommitValidation = ()
    case_sensitive: bool = True

    @property
    def validations(self) -> tuple[CommitValidation, ...]:
        """Return the clauses. A client may send one object instead of a list."""
        clauses = self.commit_validations
        return clauses if isinstance(clauses, tuple) else (clauses,)


class Append(_FileUpdate, frozen=True, kw_only=True, tag="append"):
    add_data_files: tuple[AddedDataFile, ...] = ()


class Overwrite(_FileUpdate, frozen=True, kw_only=True, tag="overwrite"):
    """Java's OverwriteFiles and RowDelta, and with `replace-partitions` its ReplacePartitions."""

    add_data_files: tuple[AddedDataFile, ...] = ()
    add_delete_files: tuple[AddedDeleteFile, ...] = ()
    remove_data_files: tuple[RemovedDataFile, ...] = ()
    remove_delete_files: tuple[RemovedDeleteFile, ...] = ()
    delete_row_filter_json: Raw = field(name="delete-row-filter", default=NULL)
    replace_partitions: bool = False
    rebase_deletion_vectors: bool = False
    """Whether the server merges the vectors with those that others have committed since."""

    @property
    def delete_row_filter(self) -> Raw | None:
        return optional_raw(self.delete_row_filter_json)


class Replace(_FileUpdate, frozen=True, kw_only=True, tag="replace"):
    """Writes the same rows to other files, as Java's RewriteFiles."""

    add_data_files: tuple[AddedDataFile, ...] = ()
    add_delete_files: tuple[AddedDeleteFile, ...] = ()
    remove_data_files: tuple[RemovedDataFile, ...] = ()
    remove_delete_files: tuple[RemovedDeleteFile, ...] = ()
    data_sequence_number: Count | None = None
    """The sequence number of the added data files, so that newer equality deletes apply to them."""
    rebase_deletion_vectors: bool = False
    """Whether the server merges the vectors with those that others have committed since."""
    lost_rounds: Count = 0
    """How often this change was refused because others had deleted rows of the replaced files."""


class Delete(_FileUpdate, frozen=True, kw_only=True, tag="delete"):
    remove_data_files: tuple[RemovedDataFile, ...] = ()
    remove_delete_files: tuple[RemovedDeleteFile, ...] = ()
    delete_row_filter_json: Raw = field(name="delete-row-filter", default=NULL)

    @property
    def delete_row_filter(self) -> Raw | None:
        return optional_raw(self.delete_row_filter_json)


class CherryPick(Update, frozen=True, kw_only=True, omit_defaults=True, tag="cherry-pick"):
    """Publishes a staged snapshot on a branch, as Java's CherryPickOperation."""

    snapshot_id: Int64
    branch: BranchName = MAIN


FileUpdate: TypeAlias = Append | Overwrite | Replace | Delete
FineGrainedUpdate: TypeAlias = FileUpdate | CherryPick

CommitUpdate: TypeAlias = TableUpdate | FineGrainedUpdate
"""An update in a table's commit: one of Iceberg's or one of ours, in any order."""


class Once(Struct, frozen=True, forbid_unknown_fields=True):
    """The name and epoch of a stream. A commit with them is applied once, however often it is
    sent."""

    id: Annotated[str, Meta(min_length=1)]
    epoch: Count
    """Not negative: Java uses -1 for 'none committed yet', so such an epoch would not be
    applied."""


# --- checks that need no table ------------------------------------------------------------------

MAX_STREAM_BYTES: Final = 1024
"""The longest id of a stream, and the longest name of its branch."""

STREAM_KEYS: Final = frozenset({"spark.sql.streaming.queryId", "spark.sql.streaming.epochId"})
"""Summary keys that the server sets for a request with `once`. Without it clients may set them."""

SERVER_SUMMARY_KEYS: Final = frozenset(
    {
        "operation",
        "added-data-files",
        "deleted-data-files",
        "total-data-files",
        "added-delete-files",
        "added-equality-delete-files",
        "added-position-delete-files",
        "added-dvs",
        "removed-delete-files",
        "removed-equality-delete-files",
        "removed-position-delete-files",
        "removed-dvs",
        "total-delete-files",
        "added-records",
        "deleted-records",
        "total-records",
        "added-files-size",
        "removed-files-size",
        "total-files-size",
        "added-position-deletes",
        "removed-position-deletes",
        "total-position-deletes",
        "added-equality-deletes",
        "removed-equality-deletes",
        "total-equality-deletes",
        "deleted-duplicate-files",
        "changed-partition-count",
        "partition-summaries-included",
        "manifests-created",
        "manifests-kept",
        "manifests-replaced",
        "entries-processed",
        "replace-partitions",
        "source-snapshot-id",
        "published-wap-id",
    }
)
"""The keys of Java's SnapshotSummary, besides all keys that begin with `partitions.`."""


def is_server_key(name: str) -> bool:
    """Return whether the server computes a key of snapshot summaries, so that clients may not."""
    return name in SERVER_SUMMARY_KEYS or name.startswith("partitions.")


def check_request(
    updates: Sequence[CommitUpdate], once: Once | None = None, json_path: str = ""
) -> None:
    """Refuse updates of a table that are wrong whatever the table is.

    `json_path` is the path of the table's change, such as `table-changes[1].` in a transaction.
    """
    fine_grained = False
    for index, update in enumerate(updates):
        if isinstance(update, FineGrainedUpdate):
            fine_grained = True
            check_update(update, f"{json_path}updates[{index}]")
    if fine_grained:
        _refuse_add_snapshot(updates, json_path)
    if once is not None:
        _check_once(once, updates, json_path)


def check_update(update: FineGrainedUpdate, json_path: str) -> None:
    """Refuse an action that is wrong whatever the table is; `json_path` is like `updates[0]`."""
    if isinstance(update, CherryPick):
        return
    _check_summary(update.summary, json_path)
    for index, validation in enumerate(update.validations):
        _check_validation(validation, f"{json_path}.{_validation_path(update, index)}")
    match update:
        case Append():
            _check_append(update, json_path)
        case Overwrite():
            _check_overwrite(update, json_path)
        case Replace():
            _check_replace(update, json_path)
        case Delete():
            _check_delete(update, json_path)


def _check_append(update: Append, json_path: str) -> None:
    if not update.add_data_files:
        raise _changes_nothing(json_path, "append", "add-data-files")
    _check_once_each(update.add_data_files, data_file_path, f"{json_path}.add-data-files")


def _check_delete(update: Delete, json_path: str) -> None:
    names = "remove-data-files, remove-delete-files or delete-row-filter"
    removes_files = update.remove_data_files or update.remove_delete_files
    if not removes_files and update.delete_row_filter is None:
        raise _changes_nothing(json_path, "delete", names)
    _check_removals(update, json_path)


def _check_overwrite(update: Overwrite, json_path: str) -> None:
    if update.replace_partitions:
        _check_replace_partitions(update, json_path)
    elif not (
        update.add_data_files
        or update.add_delete_files
        or update.remove_data_files
        or update.remove_delete_files
        or update.delete_row_filter is not None
    ):
        raise _changes_nothing(
            json_path, "overwrite", "files to add, files to remove or delete-row-filter"
        )
    _check_file_lists(update, json_path)


def _check_replace_partitions(update: Overwrite, json_path: str) -> None:
    for name, sent in (
        ("delete-row-filter", update.delete_row_filter is not None),
        ("remove-data-files", bool(update.remove_data_files)),
        ("remove-delete-files", bool(update.remove_delete_files)),
        ("rebase-deletion-vectors", update.rebase_deletion_vectors),
    ):
        if sent:
            raise BadRequest(
                f"{json_path}.{name}: not allowed with replace-partitions, which itself removes "
                "the partitions of the added files"
            )
    if not update.add_data_files:
        raise BadRequest(
            f"{json_path}.add-data-files: required with replace-partitions, the added files say "
            "which partitions are replaced"
        )
    spec_ids = {file.spec_id for file in (*update.add_data_files, *update.add_delete_files)}
    if len(spec_ids) > 1:
        raise BadRequest(
            f"{json_path}.add-data-files: with replace-partitions all added files must be of one "
            f"partition spec, but there are spec-id {', '.join(map(str, sorted(spec_ids)))}"
        )


def _check_replace(update: Replace, json_path: str) -> None:
    """Refuse what Java's BaseRewriteFiles refuses: a rewrite cannot create rows."""
    if not (update.remove_data_files or update.remove_delete_files):
        raise BadRequest(
            f"{json_path}.remove-data-files: a replace must name the files it replaces, here or in "
            "remove-delete-files"
        )
    if update.add_data_files and not update.remove_data_files:
        raise BadRequest(
            f"{json_path}.add-data-files: a replace that adds data files must remove data files"
        )
    if not update.remove_delete_files and _deletes_of_other_files(update):
        raise BadRequest(
            f"{json_path}.add-delete-files: a replace that adds delete files must remove delete "
            "files, unless they name data files that it adds in referenced-data-file"
        )
    if update.data_sequence_number is not None and update.base_snapshot_id is None:
        raise BadRequest(
            f"{json_path}.data-sequence-number: needs base-snapshot-id, the snapshot that the "
            "replaced files were read from"
        )
    _check_file_lists(update, json_path)


def _deletes_of_other_files(update: Replace) -> bool:
    """Return whether an added delete file may delete rows of files that the update does not add.

    A rewrite that ran beside deletes carries them over: it adds files with their deletes.
    """
    own = set(map(data_file_path, update.add_data_files))
    return any(
        not isinstance(file, PositionDeleteFile) or file.referenced_data_file not in own
        for file in update.add_delete_files
    )


def _changes_nothing(json_path: str, action: str, names: str) -> BadRequest:
    return BadRequest(f"{json_path}: this {action} would change nothing, send {names}")


# --- duplicate files ----------------------------------------------------------------------------


def _check_file_lists(update: Overwrite | Replace, json_path: str) -> None:
    added_data = _check_once_each(
        update.add_data_files, data_file_path, f"{json_path}.add-data-files"
    )
    added_deletes = _check_once_each(
        update.add_delete_files, delete_file_key, f"{json_path}.add-delete-files"
    )
    _check_one_vector_each(update.add_delete_files, f"{json_path}.add-delete-files")
    removed_data, removed_deletes = _check_removals(update, json_path)
    for path in added_data & removed_data:
        raise _both(f"{json_path}.remove-data-files", path)
    whole = {path for path, offset in removed_deletes if offset is None}
    for key in added_deletes:
        if key in removed_deletes or key[0] in whole:
            raise _both(f"{json_path}.remove-delete-files", key)


def _check_one_vector_each(files: Sequence[AddedDeleteFile], json_path: str) -> None:
    """Refuse two deletion vectors for one data file, because readers refuse them."""
    seen: set[str] = set()
    for file in files:
        if not isinstance(file, PositionDeleteFile) or not file.is_deletion_vector:
            continue
        named = file.referenced_data_file
        if named is not None and named in seen:
            raise BadRequest(
                f"{json_path}: there are two deletion vectors for {named}, and a data file has at "
                "most one: merge them"
            )
        seen.add(named or "")


def _check_removals(
    update: Overwrite | Replace | Delete, json_path: str
) -> tuple[set[str], set[tuple[str, int | None]]]:
    data = _check_once_each(
        update.remove_data_files, data_file_path, f"{json_path}.remove-data-files"
    )
    name = f"{json_path}.remove-delete-files"
    deletes = _check_once_each(update.remove_delete_files, delete_file_key, name)
    whole = {path for path, offset in deletes if offset is None}
    for path, offset in deletes:
        if offset is not None and path in whole:
            raise BadRequest(
                f"{name}: {path} stands there both whole and with content-offset {offset}"
            )
    return data, deletes


def _check_once_each(files: Sequence[Any], key: Callable[[Any], Any], json_path: str) -> set[Any]:
    """Return the keys of the files in a list. Refuse a file that is listed more than once."""
    keys = [key(file) for file in files]
    distinct = set(keys)
    if len(distinct) != len(keys):
        twice = next(item for item, count in Counter(keys).items() if count > 1)
        raise BadRequest(
            f"{json_path}: {_shown(twice)} stands there more than once, send each file once"
        )
    return distinct


def _both(json_path: str, key: Any) -> BadRequest:
    return BadRequest(f"{json_path}: {_shown(key)} is added and removed in the same update")


def _shown(key: str | tuple[str, int | None]) -> str:
    if isinstance(key, str):
        return key
    path, offset = key
    return path if offset is None else f"{path} with content-offset {offset}"


# --- summary, clauses, once ---------------------------------------------------------------------


def _check_summary(summary: dict[str, str], json_path: str) -> None:
    for name in summary:
        if is_server_key(name):
            raise BadRequest(f"{json_path}.summary: {name} is computed by the server, remove it")


def _validation_path(update: FileUpdate, index: int) -> str:
    listed = isinstance(update.commit_validations, tuple)
    return f"commit-validations[{index}]" if listed else "commit-validations"


def _check_validation(validation: CommitValidation, json_path: str) -> None:
    """Refuse a clause about named files without names, which would check nothing."""
    by_path = RequiredDeleteFiles | NotAllowedNewDeletesForDataFiles
    if (
        isinstance(validation, by_path)
        and validation.file_paths is None
        and validation.filter is None
    ):
        raise BadRequest(
            f"{json_path}.file-paths: required in {validation.clause} without a filter"
        )


def _refuse_add_snapshot(updates: Sequence[Update], json_path: str) -> None:
    for index, update in enumerate(updates):
        if isinstance(update, AddSnapshot):
            raise BadRequest(
                f"{json_path}updates[{index}].action: add-snapshot cannot stand beside an action "
                "that lets the server build the snapshot, send them in two requests"
            )


def _check_once(once: Once, updates: Sequence[Update], json_path: str) -> None:
    branch = None
    for index, update in enumerate(updates):
        named = _branch_of(update)
        if named is None:
            continue
        name = "ref-name" if isinstance(update, SetSnapshotRef) else "branch"
        if branch is not None and named != branch:
            raise BadRequest(
                f"{json_path}updates[{index}].{name}: under once all updates must name one branch, "
                f"but there are {branch!r} and {named!r}"
            )
        branch = named
        if isinstance(update, FileUpdate):
            _refuse_stream_keys(update.summary, f"{json_path}updates[{index}]")
    if not any(isinstance(update, FineGrainedUpdate) for update in updates):
        raise BadRequest(
            f"{json_path}once: needs an update with the action append, overwrite, replace, delete "
            "or cherry-pick"
        )
    # The id and the branch are a key in the database.
    for name, text in (("id", once.id), ("branch", branch or "")):
        if "\0" in text or len(text.encode()) > MAX_STREAM_BYTES:
            raise BadRequest(
                f"{json_path}once: the {name} must be at most {MAX_STREAM_BYTES} bytes of UTF-8, "
                "without the NUL character"
            )


def _branch_of(update: Update) -> str | None:
    if isinstance(update, FineGrainedUpdate):
        return update.branch
    if isinstance(update, SetSnapshotRef) and update.type == "branch":
        return update.ref_name
    return None


def _refuse_stream_keys(summary: dict[str, str], json_path: str) -> None:
    for name in sorted(STREAM_KEYS & summary.keys()):
        raise BadRequest(f"{json_path}.summary: {name} is set by the server under once, remove it")
