"""Runs our catalog in process: sends each step as the request that a client would send.

The table "How Java's calls become clauses" of the commit semantics defines how calls of
Iceberg's Java API become clauses. The clauses ask for exactly what Java's method checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from frazil.values.single_value import from_binary, to_json
from frazil.wire.errors import BadRequest, FrazilError, ValidationError
from tests.commit.requests import Driver
from tests.oracle.commits.cases import MAIN, SCHEMA, Doc, Key, Step, Table, with_ids
from tests.oracle.commits.java_side import Java, TreeReader
from tests.oracle.commits.states import State
from tests.oracle.commits.synthetic import TYPES

BAD_REQUEST: Final = "bad-request"


@dataclass(frozen=True)
class Rejection:
    """The reason why our catalog rejected a step."""

    clauses: frozenset[str]
    """The clauses of its conflicts, or `bad-request` if the request or its files are invalid."""
    message: str


class OwnTable:
    """One table of our catalog and the operations on it."""

    def __init__(self, java: Java, driver: Driver, name: str, table: Table) -> None:
        self._java = java
        self._driver = driver
        self._name = name
        properties = {**table.properties, "format-version": str(table.format_version)}
        driver.create_table(
            name, schema=SCHEMA, partition_spec=table.spec_json(), properties=properties
        )
        self.location = driver.load(name).metadata.location
        self._reader = TreeReader(java, java.local_io)

    def state(self, step: int) -> State:
        location = self._driver.load(self._name).metadata_location
        metadata = self._java.metadata_json.read(self._java.local_io, location)
        return self._reader.state(metadata, step)

    @property
    def steps(self) -> dict[int, int]:
        return self._reader.steps

    def hand_over(self) -> tuple[str, dict[str, bytes]]:
        """Return the metadata file and the content of every file of the tree."""
        location = self._driver.load(self._name).metadata_location
        assert location is not None
        metadata = self._java.metadata_json.read(self._java.local_io, location)
        paths = (*self._reader.paths(metadata), location)
        return location, {path: Path(path.removeprefix("file://")).read_bytes() for path in paths}

    def take_over(self, metadata: str, steps: dict[int, int]) -> None:
        """Continue with a tree of the other side."""
        self._driver.unregister(self._name)
        self._name = f"{self._name}_crossed"
        self._driver.register(self._name, metadata)
        self._reader = TreeReader(self._java, self._java.local_io)
        self._reader.steps.update(steps)

    def attempt(self, step: Step) -> Rejection | None:
        """Commit a step."""
        updates = with_ids(updates_of(step), self._reader.ids())
        try:
            self._driver.commit(self._name, updates)
        except ValidationError as error:
            clauses = frozenset(str(conflict["clause"]) for conflict in error.conflicts)
            return Rejection(clauses, error.message)
        except BadRequest as error:
            return Rejection(frozenset({BAD_REQUEST}), error.message)
        except FrazilError as error:
            return Rejection(frozenset({error.type}), error.message)
        return None


def updates_of(step: Step) -> list[dict[str, Any]]:
    """Return the updates of the request, with step numbers in place of snapshot ids."""
    if step.kind == "metadata":
        return [dict(update) for update in step.updates]
    if step.kind == "transaction":
        return [update for part in step.together for update in updates_of(part)]
    if step.kind == "cherry-pick":
        return [_given({"action": "cherry-pick", "snapshot-id": {"step": step.snapshot}})]
    action = _ACTIONS[step.kind]
    return [
        _given(
            {
                "action": action,
                "branch": None if step.branch == MAIN else step.branch,
                "stage-only": step.stage_only or None,
                "summary": dict(step.summary),
                "base-snapshot-id": None if step.base is None else {"step": step.base},
                "add-data-files": [own_file(doc) for doc in step.add_data],
                "add-delete-files": [own_file(doc) for doc in step.add_deletes],
                "remove-data-files": list(step.remove_data),
                "remove-delete-files": [removed_delete_file(key) for key in step.remove_deletes],
                "delete-row-filter": step.row_filter,
                "replace-partitions": step.kind == "replace-partitions" or None,
                "data-sequence-number": step.data_sequence_number,
                "commit-validations": clauses_of(step),
                "case-sensitive": None if step.case_sensitive else False,
            }
        )
    ]


_ACTIONS: Final = {
    "append": "append",
    "delete": "delete",
    "overwrite": "overwrite",
    "row-delta": "overwrite",
    "rewrite": "replace",
    "replace-partitions": "overwrite",
}


def _given(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None and value != []}


def removed_delete_file(key: Key) -> Any:
    path, offset = key
    return path if offset is None else {"file-path": path, "content-offset": offset}


def own_file(doc: Doc) -> dict[str, Any]:
    """Return the file as a client sends it, with bounds in hexadecimal or, for some, typed."""
    bounds = {name: doc[name] for name in ("lower-bounds", "upper-bounds") if name in doc}
    if not bounds:
        return dict(doc)
    ids = {field_id for item in bounds.values() for field_id in item["keys"]}
    if doc["file-size-in-bytes"] % 2 or not ids <= TYPES.keys():
        return {**doc, "bounds-encoding": "hex"}
    return {**doc, **{name: _typed(item) for name, item in bounds.items()}}


def _typed(bounds: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {
        "keys": list(bounds["keys"]),
        "values": [
            to_json(TYPES[field_id], from_binary(TYPES[field_id], bytes.fromhex(value)))
            for field_id, value in zip(bounds["keys"], bounds["values"], strict=True)
        ],
    }


# --- clauses ------------------------------------------------------------------------------------


def clauses_of(step: Step) -> list[dict[str, Any]]:
    """Return the clauses that ask for what Java checks in this step."""
    make = _CLAUSES.get(step.kind)
    return [] if make is None else [_given(clause) for clause in make(step)]


def _clause(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind} | {key.replace("_", "-"): value for key, value in fields.items()}


def _required(paths: Sequence[str], **fields: Any) -> dict[str, Any]:
    return _clause("required-data-files", file_paths=list(paths), **fields)


def _required_deletes(keys: Sequence[Key]) -> dict[str, Any]:
    return _clause("required-delete-files", file_paths=[removed_delete_file(key) for key in keys])


def _delete_clauses(step: Step) -> list[dict[str, Any]]:
    """Return the clauses of DeleteFiles: `validateFilesExist` checks the files removed by name."""
    if "validateFilesExist" in step.calls and step.remove_data:
        return [_required(step.remove_data)]
    return []


def _overwrite_clauses(step: Step) -> list[dict[str, Any]]:
    clauses = []
    by_filter = None if step.remove_data else step.row_filter
    if "validateNoConflictingData" in step.calls:
        conflict = step.conflict_filter if step.conflict_filter is not None else by_filter
        clauses.append(_clause("not-allowed-added-data-files", filter=conflict))
    if "validateNoConflictingDeletes" in step.calls:
        if step.row_filter is not None:
            conflict = step.conflict_filter
            conflict = step.row_filter if conflict is None else conflict
            clauses.append(_clause("not-allowed-added-delete-files", filter=conflict))
            clauses.append(_clause("required-data-files", filter=conflict))
        if step.remove_data:
            clauses.append(
                _clause(
                    "not-allowed-new-deletes-for-data-files",
                    file_paths=list(step.remove_data),
                    filter=step.conflict_filter,
                )
            )
    if step.calls and step.remove_data:
        clauses.append(_required(step.remove_data))
    if step.calls and step.remove_deletes:
        clauses.append(_required_deletes(step.remove_deletes))
    return clauses


def _row_delta_clauses(step: Step) -> list[dict[str, Any]]:
    clauses = []
    if step.referenced:
        allowed = [] if "validateDeletedFiles" in step.calls else ["DELETE"]
        clauses.append(
            _required(
                step.referenced, filter=step.conflict_filter, allowed_remove_operations=allowed
            )
        )
    if "validateDeletedFiles" in step.calls:
        if step.remove_data:
            clauses.append(_required(step.remove_data))
        if step.remove_deletes:
            clauses.append(_required_deletes(step.remove_deletes))
    if "validateNoConflictingDataFiles" in step.calls:
        clauses.append(_clause("not-allowed-added-data-files", filter=step.conflict_filter))
    if "validateNoConflictingDeleteFiles" in step.calls:
        if step.remove_data:
            clauses.append(
                _clause(
                    "not-allowed-new-deletes-for-data-files",
                    file_paths=list(step.remove_data),
                    filter=step.conflict_filter,
                )
            )
        clauses.append(_clause("not-allowed-added-delete-files", filter=step.conflict_filter))
    return clauses


def _rewrite_clauses(step: Step) -> list[dict[str, Any]]:
    """Return the clauses of RewriteFiles, which always makes these checks."""
    clauses = []
    if step.remove_data:
        paths = list(step.remove_data)
        clauses.append(_required(paths))
        clauses.append(_clause("not-allowed-new-deletes-for-data-files", file_paths=paths))
    if step.remove_deletes:
        clauses.append(_required_deletes(step.remove_deletes))
    return clauses


def _replace_partitions_clauses(step: Step) -> list[dict[str, Any]]:
    """Return the clauses of ReplacePartitions; unfiltered, they check replaced partitions only."""
    clauses = []
    if "validateNoConflictingData" in step.calls:
        clauses.append(_clause("not-allowed-added-data-files"))
    if "validateNoConflictingDeletes" in step.calls:
        clauses.append(_clause("required-data-files"))
        clauses.append(_clause("not-allowed-added-delete-files"))
    return clauses


_CLAUSES: Final[Mapping[str, Callable[[Step], list[dict[str, Any]]]]] = {
    "delete": _delete_clauses,
    "overwrite": _overwrite_clauses,
    "row-delta": _row_delta_clauses,
    "rewrite": _rewrite_clauses,
    "replace-partitions": _replace_partitions_clauses,
}
