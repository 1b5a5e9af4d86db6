"""Fine-grained commits: a client declares files, the server builds and commits the snapshot.

Four actions name what happens to the files of a branch, a fifth publishes a staged snapshot. They
are values of a table update's own `action`; the clauses in `commit-validations` say what must not
have happened since the base snapshot. Everything is closed: a field that is not listed for an
action is an error.

`check_request` refuses what the request's text alone shows to be wrong. What depends on the table
(its format version, schema, specs and live files) is judged when the commit is applied.
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
    given,
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
    """Something that must hold between the base snapshot and the head of the branch."""

    filter_json: Raw = field(name="filter", default=NULL)
    base_snapshot_id: Int64 | None = None
    """Wins over the update's own. Where neither is given: from the beginning."""

    @property
    def filter(self) -> Raw | None:
        return given(self.filter_json)

    @property
    def clause(self) -> str:
        """The clause's name on the wire."""
        return str(self.__struct_config__.tag)


class NotAllowedAddedDataFiles(
    Validation, frozen=True, kw_only=True, tag="not-allowed-added-data-files"
):
    """No data file that may hold rows of the filter was added."""


class NotAllowedAddedDeleteFiles(
    Validation, frozen=True, kw_only=True, tag="not-allowed-added-delete-files"
):
    """No delete file that may apply to rows of the filter was added."""


class RequiredDataFiles(Validation, frozen=True, kw_only=True, tag="required-data-files"):
    """The files, or without paths every file that may hold rows of the filter, are still there."""

    file_paths: tuple[FilePath, ...] | None = None
    allowed_remove_operations: tuple[RemoveOperation, ...] = ()

    @property
    def allowed_operations(self) -> frozenset[str]:
        """Operations that may have removed a required file, as snapshots name them."""
        return frozenset(operation.lower() for operation in self.allowed_remove_operations)


class RequiredDeleteFiles(Validation, frozen=True, kw_only=True, tag="required-delete-files"):
    """The delete files are still there; a bare Puffin path means all its live vectors."""

    file_paths: tuple[FilePath | DeleteFileReference, ...] | None = None


class NotAllowedNewDeletesForDataFiles(
    Validation, frozen=True, kw_only=True, tag="not-allowed-new-deletes-for-data-files"
):
    """No delete file that applies to one of the data files was added."""

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
    """What the four actions that change files have in common."""

    branch: BranchName = MAIN
    stage_only: bool = False
    summary: dict[str, str] = field(default_factory=dict)
    base_snapshot_id: Int64 | None = None
    commit_validations: tuple[CommitValidation, ...] | CommitValidation = ()
    case_sensitive: bool = True

    @property
    def validations(self) -> tuple[CommitValidation, ...]:
        """The clauses; one object was sent for a list of one."""
        clauses = self.commit_validations
        return clauses if isinstance(clauses, tuple) else (clauses,)


class Append(_FileUpdate, frozen=True, kw_only=True, tag="append"):
    add_data_files: tuple[AddedDataFile, ...] = ()


class Overwrite(_FileUpdate, frozen=True, kw_only=True, tag="overwrite"):
    """Java's OverwriteFiles and RowDelta, with `replace-partitions` its ReplacePartitions."""

    add_data_files: tuple[AddedDataFile, ...] = ()
    add_delete_files: tuple[AddedDeleteFile, ...] = ()
    remove_data_files: tuple[RemovedDataFile, ...] = ()
    remove_delete_files: tuple[RemovedDeleteFile, ...] = ()
    delete_row_filter_json: Raw = field(name="delete-row-filter", default=NULL)
    replace_partitions: bool = False

    @property
    def delete_row_filter(self) -> Raw | None:
        return given(self.delete_row_filter_json)


class Replace(_FileUpdate, frozen=True, kw_only=True, tag="replace"):
    """The same rows in other files, as Java's RewriteFiles."""

    add_data_files: tuple[AddedDataFile, ...] = ()
    add_delete_files: tuple[AddedDeleteFile, ...] = ()
    remove_data_files: tuple[RemovedDataFile, ...] = ()
    remove_delete_files: tuple[RemovedDeleteFile, ...] = ()
    data_sequence_number: Count | None = None
    """Given to the added data files, so that newer equality deletes still apply to them."""


class Delete(_FileUpdate, frozen=True, kw_only=True, tag="delete"):
    remove_data_files: tuple[RemovedDataFile, ...] = ()
    remove_delete_files: tuple[RemovedDeleteFile, ...] = ()
    delete_row_filter_json: Raw = field(name="delete-row-filter", default=NULL)

    @property
    def delete_row_filter(self) -> Raw | None:
        return given(self.delete_row_filter_json)


class CherryPick(Update, frozen=True, kw_only=True, omit_defaults=True, tag="cherry-pick"):
    """Publishes a staged snapshot on a branch, as Java's CherryPickOperation."""

    snapshot_id: Int64
    branch: BranchName = MAIN


FileUpdate: TypeAlias = Append | Overwrite | Replace | Delete
FineGrainedUpdate: TypeAlias = FileUpdate | CherryPick

CommitUpdate: TypeAlias = TableUpdate | FineGrainedUpdate
"""What a table's commit carries: Iceberg's own updates and ours, in any order."""


class Once(Struct, frozen=True, forbid_unknown_fields=True):
    """A stream's name and the epoch that this commit carries: applied once, however often sent."""

    id: Annotated[str, Meta(min_length=1)]
    epoch: Count
    """Java takes -1 for 'none committed yet', so that a negative epoch would never be applied."""


# --- what the text alone shows to be wrong ------------------------------------------------------

MAX_STREAM_BYTES: Final = 1024
"""Of a stream's id, and of the name of the branch it writes to."""

STREAM_KEYS: Final = frozenset({"spark.sql.streaming.queryId", "spark.sql.streaming.epochId"})
"""Set by the server for a request with `once`; without it they are the client's own."""

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
"""Java's SnapshotSummary; beside these every key that begins with `partitions.`."""


def check_request(
    updates: Sequence[CommitUpdate], once: Once | None = None, place: str = ""
) -> None:
    """Refuses a table's updates that are wrong by their own text.

    `place` says where the table's change stands, such as `table-changes[1].` in a transaction.
    """
    fine_grained = False
    for index, update in enumerate(updates):
        if isinstance(update, FineGrainedUpdate):
            fine_grained = True
            check_update(update, f"{place}updates[{index}]")
    if fine_grained:
        _refuse_add_snapshot(updates, place)
    if once is not None:
        _check_once(once, updates, place)


def check_update(update: FineGrainedUpdate, place: str) -> None:
    """Refuses an action that is wrong by its own text; `place` is such as `updates[0]`."""
    if isinstance(update, CherryPick):
        return
    _check_summary(update.summary, place)
    for index, validation in enumerate(update.validations):
        _check_validation(validation, f"{place}.{_validation_place(update, index)}")
    match update:
        case Append():
            _check_append(update, place)
        case Overwrite():
            _check_overwrite(update, place)
        case Replace():
            _check_replace(update, place)
        case Delete():
            _check_delete(update, place)


def _check_append(update: Append, place: str) -> None:
    if not update.add_data_files:
        raise _changes_nothing(place, "append", "add-data-files")
    _check_once_each(update.add_data_files, data_file_path, f"{place}.add-data-files")


def _check_delete(update: Delete, place: str) -> None:
    names = "remove-data-files, remove-delete-files or delete-row-filter"
    removes_files = update.remove_data_files or update.remove_delete_files
    if not removes_files and update.delete_row_filter is None:
        raise _changes_nothing(place, "delete", names)
    _check_removals(update, place)


def _check_overwrite(update: Overwrite, place: str) -> None:
    if update.replace_partitions:
        _check_replace_partitions(update, place)
    elif not (
        update.add_data_files
        or update.add_delete_files
        or update.remove_data_files
        or update.remove_delete_files
        or update.delete_row_filter is not None
    ):
        raise _changes_nothing(
            place, "overwrite", "files to add, files to remove or delete-row-filter"
        )
    _check_file_lists(update, place)


def _check_replace_partitions(update: Overwrite, place: str) -> None:
    for name, sent in (
        ("delete-row-filter", update.delete_row_filter is not None),
        ("remove-data-files", bool(update.remove_data_files)),
        ("remove-delete-files", bool(update.remove_delete_files)),
    ):
        if sent:
            raise BadRequest(
                f"{place}.{name}: not allowed with replace-partitions, which itself removes the "
                "partitions of the added files"
            )
    if not update.add_data_files:
        raise BadRequest(
            f"{place}.add-data-files: required with replace-partitions, the added files say "
            "which partitions are replaced"
        )
    spec_ids = {file.spec_id for file in (*update.add_data_files, *update.add_delete_files)}
    if len(spec_ids) > 1:
        raise BadRequest(
            f"{place}.add-data-files: with replace-partitions all added files must be of one "
            f"partition spec, but there are spec-id {', '.join(map(str, sorted(spec_ids)))}"
        )


def _check_replace(update: Replace, place: str) -> None:
    """As Java's BaseRewriteFiles, which cannot make rows out of nothing."""
    if not (update.remove_data_files or update.remove_delete_files):
        raise BadRequest(
            f"{place}.remove-data-files: a replace must name the files it replaces, here or in "
            "remove-delete-files"
        )
    if update.add_data_files and not update.remove_data_files:
        raise BadRequest(
            f"{place}.add-data-files: a replace that adds data files must remove data files"
        )
    if update.add_delete_files and not update.remove_delete_files:
        raise BadRequest(
            f"{place}.add-delete-files: a replace that adds delete files must remove delete files"
        )
    if update.data_sequence_number is not None and update.base_snapshot_id is None:
        raise BadRequest(
            f"{place}.data-sequence-number: needs base-snapshot-id, the snapshot that the "
            "replaced files were read from"
        )
    _check_file_lists(update, place)


def _changes_nothing(place: str, action: str, names: str) -> BadRequest:
    return BadRequest(f"{place}: this {action} would change nothing, send {names}")


# --- files twice --------------------------------------------------------------------------------


def _check_file_lists(update: Overwrite | Replace, place: str) -> None:
    added_data = _check_once_each(update.add_data_files, data_file_path, f"{place}.add-data-files")
    added_deletes = _check_once_each(
        update.add_delete_files, delete_file_key, f"{place}.add-delete-files"
    )
    _check_one_vector_each(update.add_delete_files, f"{place}.add-delete-files")
    removed_data, removed_deletes = _check_removals(update, place)
    for path in added_data & removed_data:
        raise _both(f"{place}.remove-data-files", path)
    whole = {path for path, offset in removed_deletes if offset is None}
    for key in added_deletes:
        if key in removed_deletes or key[0] in whole:
            raise _both(f"{place}.remove-delete-files", key)


def _check_one_vector_each(files: Sequence[AddedDeleteFile], place: str) -> None:
    """Readers refuse a data file with two deletion vectors."""
    seen: set[str] = set()
    for file in files:
        if not isinstance(file, PositionDeleteFile) or not file.is_deletion_vector:
            continue
        named = file.referenced_data_file
        if named is not None and named in seen:
            raise BadRequest(
                f"{place}: there are two deletion vectors for {named}, and a data file has at "
                "most one: merge them"
            )
        seen.add(named or "")


def _check_removals(
    update: Overwrite | Replace | Delete, place: str
) -> tuple[set[str], set[tuple[str, int | None]]]:
    data = _check_once_each(update.remove_data_files, data_file_path, f"{place}.remove-data-files")
    name = f"{place}.remove-delete-files"
    deletes = _check_once_each(update.remove_delete_files, delete_file_key, name)
    whole = {path for path, offset in deletes if offset is None}
    for path, offset in deletes:
        if offset is not None and path in whole:
            raise BadRequest(
                f"{name}: {path} stands there both whole and with content-offset {offset}"
            )
    return data, deletes


def _check_once_each(files: Sequence[Any], key: Callable[[Any], Any], place: str) -> set[Any]:
    """What identifies the files of a list, each of which may stand there only once."""
    keys = [key(file) for file in files]
    distinct = set(keys)
    if len(distinct) != len(keys):
        twice = next(item for item, count in Counter(keys).items() if count > 1)
        raise BadRequest(
            f"{place}: {_shown(twice)} stands there more than once, send each file once"
        )
    return distinct


def _both(place: str, key: Any) -> BadRequest:
    return BadRequest(f"{place}: {_shown(key)} is added and removed in the same update")


def _shown(key: str | tuple[str, int | None]) -> str:
    if isinstance(key, str):
        return key
    path, offset = key
    return path if offset is None else f"{path} with content-offset {offset}"


# --- summary, clauses, once ---------------------------------------------------------------------


def _check_summary(summary: dict[str, str], place: str) -> None:
    for name in summary:
        if name in SERVER_SUMMARY_KEYS or name.startswith("partitions."):
            raise BadRequest(f"{place}.summary: {name} is computed by the server, remove it")


def _validation_place(update: FileUpdate, index: int) -> str:
    listed = isinstance(update.commit_validations, tuple)
    return f"commit-validations[{index}]" if listed else "commit-validations"


def _check_validation(validation: CommitValidation, place: str) -> None:
    """A clause about named files that names none would silently check nothing."""
    by_path = RequiredDeleteFiles | NotAllowedNewDeletesForDataFiles
    if (
        isinstance(validation, by_path)
        and validation.file_paths is None
        and validation.filter is None
    ):
        raise BadRequest(f"{place}.file-paths: required in {validation.clause} without a filter")


def _refuse_add_snapshot(updates: Sequence[Update], place: str) -> None:
    for index, update in enumerate(updates):
        if isinstance(update, AddSnapshot):
            raise BadRequest(
                f"{place}updates[{index}].action: add-snapshot cannot stand beside an action that "
                "lets the server build the snapshot, send them in two requests"
            )


def _check_once(once: Once, updates: Sequence[Update], place: str) -> None:
    branch = None
    for index, update in enumerate(updates):
        named = _branch_of(update)
        if named is None:
            continue
        name = "ref-name" if isinstance(update, SetSnapshotRef) else "branch"
        if branch is not None and named != branch:
            raise BadRequest(
                f"{place}updates[{index}].{name}: under once all updates must name one branch, "
                f"but there are {branch!r} and {named!r}"
            )
        branch = named
        if isinstance(update, FileUpdate):
            _refuse_stream_keys(update.summary, f"{place}updates[{index}]")
    if not any(isinstance(update, FineGrainedUpdate) for update in updates):
        raise BadRequest(
            f"{place}once: needs an update with the action append, overwrite, replace, delete or "
            "cherry-pick"
        )
    # What the epoch is remembered under is an index of the database.
    for name, text in (("id", once.id), ("branch", branch or "")):
        if "\0" in text or len(text.encode()) > MAX_STREAM_BYTES:
            raise BadRequest(
                f"{place}once: the {name} must be at most {MAX_STREAM_BYTES} bytes of UTF-8, "
                "without the NUL character"
            )


def _branch_of(update: Update) -> str | None:
    if isinstance(update, FineGrainedUpdate):
        return update.branch
    if isinstance(update, SetSnapshotRef) and update.type == "branch":
        return update.ref_name
    return None


def _refuse_stream_keys(summary: dict[str, str], place: str) -> None:
    for name in sorted(STREAM_KEYS & summary.keys()):
        raise BadRequest(f"{place}.summary: {name} is set by the server under once, remove it")
