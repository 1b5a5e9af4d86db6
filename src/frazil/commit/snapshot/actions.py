"""Builds the snapshots of fine-grained actions, with one function for each action, like Java's
producers.

Every action checks its files against the table, its clauses against the history since its base,
and its removals against the head of its branch. Then it builds the manifests and the summary. It
changes and writes nothing, so after a lost swap the same snapshot id is built again on the new
head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from frazil.commit.snapshot.cherry_pick import cherry_pick
from frazil.commit.snapshot.commit_environment import Environment
from frazil.commit.snapshot.dangling_deletes import DanglingRemoval, NothingDangling
from frazil.commit.snapshot.head_changes import HeadChanges
from frazil.commit.snapshot.manifest_rewrite import ManifestSwap, swap
from frazil.commit.snapshot.manifest_tree import AddedFiles, grouped_by_spec
from frazil.commit.snapshot.snapshot_builder import (
    Action,
    NewSnapshot,
    branch_of_table,
    build_snapshot,
)
from frazil.commit.snapshot.vector_rebase import vector_rebase
from frazil.commit.validate.clauses import check_deletion_vectors, check_validations
from frazil.commit.validate.conflict_reports import Scope, check_base
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.declared.declared_files import DeclaredFiles
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.metadata.content_files import DeleteFile
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.history import APPEND, DELETE, OVERWRITE, REPLACE
from frazil.store.object_store import StoreError
from frazil.wire import declared_content as wire
from frazil.wire.declared_content import data_file_path
from frazil.wire.errors import BadRequest, TooManyRequests, ValidationError
from frazil.wire.expressions import ALWAYS_FALSE, parse_expression
from frazil.wire.file_actions import (
    Append,
    CherryPick,
    Delete,
    FileUpdate,
    FineGrainedUpdate,
    Overwrite,
    Replace,
)

_ENCRYPTION_KEY: Final = "encryption.key-id"

_Partitions: TypeAlias = frozenset[tuple[int, tuple[Any, ...]]]


def snapshot_of_action(
    before: TableMetadata,
    metadata: TableMetadata,
    update: FineGrainedUpdate,
    index: int,
    environment: Environment,
) -> NewSnapshot:
    """Build the snapshot of one update. `metadata` is `before` with the earlier updates of the
    request. Clauses check the history without those updates, and removals check the state
    after them."""
    _refuse_encrypted(metadata)
    json_path = f"{environment.json_prefix}updates[{index}]"
    action = Action(
        metadata=metadata,
        branch=branch_of_table(metadata, update.branch, json_path),
        head_before=branch_of_table(before, update.branch, json_path).head,
        index=index,
        json_path=json_path,
        environment=environment,
    )
    build: Callable[[Action, Any], NewSnapshot] = _BUILDERS[type(update)]
    try:
        return build(action, update)
    except StoreError as error:
        raise TooManyRequests(f"a file of the table could not be read: {error}") from error
    except UnreadableAvro as error:
        raise ValidationError(f"a manifest of the table cannot be read: {error}") from error


def append(action: Action, update: Append) -> NewSnapshot:
    added = _declared(action, update.add_data_files)
    _check_clauses(action, _scope(action, update), added)
    changes = HeadChanges(action, added)
    changes.look_up_data_files()
    return _snapshot(action, update, changes, APPEND)


def delete(action: Action, update: Delete) -> NewSnapshot:
    _check_clauses(action, _scope(action, update))
    changes = HeadChanges(action)
    changes.look_up_data_files(_paths(update), may_be_missing=True)
    changes.look_up_delete_files(update.remove_delete_files, may_be_missing=True)
    changes.remove_matching(update.delete_row_filter, update.case_sensitive)
    return _snapshot(action, update, changes, DELETE)


def overwrite(action: Action, update: Overwrite) -> NewSnapshot:
    added = _declared(action, update.add_data_files, update.add_delete_files)
    partitions = None
    if update.replace_partitions:
        partitions = _partitions_to_replace(action.metadata, added)
    rebase = vector_rebase(action, _scope(action, update, partitions), added)
    _check_clauses(action, rebase.scope, added)
    vectors = rebase.merged()
    changes = HeadChanges(action, vectors.added)
    changes.look_up_data_files(_paths(update), may_be_missing=True)
    changes.look_up_delete_files(rebase.other_removals, may_be_missing=True)
    changes.remove_rows(vectors.replaced)
    changes.remove_matching(update.delete_row_filter, update.case_sensitive)
    if update.replace_partitions:
        changes.remove_partitions(partitions)
    changes.refuse_deletes_of_removed()
    properties = (("replace-partitions", "true"),) if update.replace_partitions else ()
    operation = _operation_of_overwrite(update)
    return vectors.complete(_snapshot(action, update, changes, operation, properties))


def replace(action: Action, update: Replace) -> NewSnapshot:
    _check_data_sequence_number(action, update)
    added = _declared(
        action, update.add_data_files, update.add_delete_files, update.data_sequence_number
    )
    rebase = vector_rebase(action, _scope(action, update), added)
    _check_clauses(action, rebase.scope, added)
    vectors = rebase.merged()
    changes = HeadChanges(action, vectors.added)
    changes.look_up_data_files(_paths(update))
    changes.look_up_delete_files(rebase.other_removals)
    changes.remove_rows(vectors.replaced)
    changes.refuse_deletes_of_removed()
    changes.refuse_added_rows()
    return vectors.complete(_snapshot(action, update, changes, REPLACE))


def remove_dangling(action: Action, update: DanglingRemoval) -> NewSnapshot:
    changes = HeadChanges(action)
    rows = update.dangling.rows(action.metadata, changes.head, action.environment.reader)
    if not rows:
        raise NothingDangling("no delete file is dangling any more")
    changes.remove_rows(rows)
    return _snapshot(action, update, changes, REPLACE)


_BUILDERS: Final[dict[type, Callable[[Action, Any], NewSnapshot]]] = {
    Append: append,
    Delete: delete,
    Overwrite: overwrite,
    Replace: replace,
    CherryPick: cherry_pick,
    ManifestSwap: swap,
    DanglingRemoval: remove_dangling,
}


def _snapshot(
    action: Action,
    update: FileUpdate,
    changes: HeadChanges,
    operation: str,
    properties: Sequence[tuple[str, str]] = (),
) -> NewSnapshot:
    return build_snapshot(
        action,
        changes.head,
        changes.finish(),
        operation=operation,
        properties=(*update.summary.items(), *properties),
        stage_only=update.stage_only,
    )


def _paths(update: Delete | Overwrite | Replace) -> list[str]:
    return [data_file_path(file) for file in update.remove_data_files]


def _refuse_encrypted(metadata: TableMetadata) -> None:
    """Refuse encrypted tables. Their manifests must be encrypted with keys that only clients
    have."""
    if _ENCRYPTION_KEY in metadata.properties:
        raise BadRequest(
            f"the table is encrypted ({_ENCRYPTION_KEY}): the server cannot build its manifests, "
            "commit with a client that builds the snapshot itself"
        )


# --- checks ----------------------------------------------------------------------------------


def _declared(
    action: Action,
    data: Sequence[wire.DeclaredDataFile],
    deletes: Sequence[wire.AddedDeleteFile] = (),
    data_sequence_number: int | None = None,
) -> tuple[AddedFiles, ...]:
    """Check the files that an action adds against the table, and group them by spec."""
    if not data and not deletes:
        return ()
    metadata, environment = action.metadata, action.environment
    declared = DeclaredFiles(metadata)
    data_path, deletes_path = (
        f"{action.json_path}.add-data-files",
        f"{action.json_path}.add-delete-files",
    )
    added_data = declared.data_files(data, data_path)
    added_deletes = declared.delete_files(deletes, deletes_path)
    if data:
        environment.check_paths(metadata, [file.file_path for file in data], data_path)
    if deletes:
        environment.check_paths(metadata, [file.file_path for file in deletes], deletes_path)
    data_specs = [file.spec_id for file in data]
    delete_specs = [file.spec_id for file in deletes]
    prefix, specs = f"{action.json_path}.", [*data_specs, *delete_specs]
    environment.verify_files(metadata, added_data, added_deletes, prefix, specs)
    return (
        *grouped_by_spec(added_data, data_specs, DATA, data_sequence_number),
        *grouped_by_spec(added_deletes, delete_specs, DELETES),
    )


def _scope(
    action: Action, update: FileUpdate, replaced_partitions: _Partitions | None = None
) -> Scope:
    return Scope(
        metadata=action.metadata,
        head=action.head_before,
        update=update,
        index=action.index,
        replaced_partitions=replaced_partitions,
        json_prefix=action.environment.json_prefix,
    )


def _check_clauses(action: Action, scope: Scope, added: Sequence[AddedFiles] = ()) -> None:
    update = scope.update
    added_deletes = [
        file for group in added for file in group.files if isinstance(file, DeleteFile)
    ]
    if not update.validations and update.base_snapshot_id is None and not added_deletes:
        return
    reader = action.environment.reader
    check_base(scope)
    check_validations(scope, reader)
    check_deletion_vectors(scope, added_deletes, reader)


def _partitions_to_replace(
    metadata: TableMetadata, added: Sequence[AddedFiles]
) -> _Partitions | None:
    """Return the partitions that `replace-partitions` replaces, or None for the whole table."""
    spec = metadata.spec(added[0].spec_id)
    if spec is None or spec.is_unpartitioned:
        return None
    return frozenset((group.spec_id, file.partition) for group in added for file in group.files)


def _check_data_sequence_number(action: Action, update: Replace) -> None:
    number, field = update.data_sequence_number, f"{action.json_path}.data-sequence-number"
    if number is None:
        return
    if action.metadata.format_version < 2:
        raise BadRequest(f"{field}: format version 1 has no sequence numbers, leave it out")
    base = None
    if update.base_snapshot_id is not None:
        base = action.metadata.snapshot(update.base_snapshot_id)
    if base is not None and number > base.sequence_number:
        raise BadRequest(
            f"{field}: {number} is above the sequence number {base.sequence_number} of the base "
            f"snapshot {base.snapshot_id}: deletes between the two would be lost"
        )


# --- the operation of an overwrite -----------------------------------------------------------


def _operation_of_overwrite(update: Overwrite) -> str:
    """Derive the operation from the request, like Java's producers. The checks of other writers
    depend on it."""
    removes_data = bool(update.remove_data_files) or _filters_rows(update)
    if update.replace_partitions:
        return OVERWRITE
    if update.add_data_files:
        return OVERWRITE if removes_data or update.add_delete_files else APPEND
    return DELETE if removes_data or update.add_delete_files else OVERWRITE


def _filters_rows(update: Overwrite) -> bool:
    """Return whether the update removes rows by a filter. As in Java, a filter that currently
    matches nothing counts, but a filter that can never match does not."""
    raw = update.delete_row_filter
    if raw is None:
        return False
    try:
        return parse_expression(msgspec.json.decode(raw)) != ALWAYS_FALSE
    except (BadRequest, msgspec.DecodeError):
        # Binding the filter later refuses it with its JSON path.
        return True
