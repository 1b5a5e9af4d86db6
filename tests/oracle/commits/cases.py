"""A history as data: a table and the steps that run on it, in terms that both sides understand.

Each side assigns its own snapshot ids, so a snapshot is named by the number of the step that
created it. Files use the JSON of the REST specification, which both Iceberg's Java library and
our catalog read. The files are synthetic: nothing exists at their paths.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Doc: TypeAlias = Mapping[str, Any]
"""A content file as JSON. Bounds are hexadecimal, as in Java."""

Key: TypeAlias = tuple[str, int | None]
"""The identity of a delete file: its path and, for a deletion vector, its content offset."""

Kind: TypeAlias = Literal[
    "append",
    "delete",
    "overwrite",
    "row-delta",
    "rewrite",
    "replace-partitions",
    "cherry-pick",
    "metadata",
    "transaction",
]

MAIN: Final = "main"

LATER: Final = 1000
"""The second snapshot of step n has the number n + 1000, the third n + 2000."""

SCHEMA: Final[dict[str, Any]] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "name", "required": False, "type": "string"},
        {"id": 3, "name": "ts", "required": False, "type": "timestamp"},
        {"id": 4, "name": "score", "required": False, "type": "double"},
    ],
}


@dataclass(frozen=True)
class SpecField:
    source_id: int
    field_id: int
    name: str
    transform: str

    def json(self) -> dict[str, Any]:
        return {
            "source-id": self.source_id,
            "field-id": self.field_id,
            "name": self.name,
            "transform": self.transform,
        }


@dataclass(frozen=True)
class Table:
    """The settings that a table is created with."""

    format_version: int = 2
    spec: tuple[SpecField, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def spec_json(self) -> dict[str, Any]:
        return {"spec-id": 0, "fields": [part.json() for part in self.spec]}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One operation. Its kind determines which fields it uses."""

    kind: Kind
    branch: str = MAIN
    base: int | None = None
    """The step whose snapshot the operation was planned on; `validateFromSnapshot` in Java."""
    add_data: tuple[Doc, ...] = ()
    add_deletes: tuple[Doc, ...] = ()
    remove_data: tuple[str, ...] = ()
    remove_deletes: tuple[Key, ...] = ()
    row_filter: Any = None
    conflict_filter: Any = None
    calls: frozenset[str] = frozenset()
    """The requested validations, by the names of Java's methods."""
    referenced: tuple[str, ...] = ()
    """The arguments of `validateDataFilesExist`."""
    data_sequence_number: int | None = None
    stage_only: bool = False
    summary: Mapping[str, str] = field(default_factory=dict)
    case_sensitive: bool = True
    snapshot: int | None = None
    """The step whose snapshot is cherry-picked."""
    together: tuple[Step, ...] = ()
    """The steps of a `transaction`: one request for our catalog, one transaction in Java."""
    updates: tuple[Doc, ...] = ()
    """Plain metadata updates; {"step": n} stands for the snapshot id of step n."""

    def shown(self) -> str:
        """Return the step as one line, without fields that have their default value."""
        given = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.name == "kind" or getattr(self, item.name) != _default(item)
        }
        if "together" in given:
            given["together"] = [json.loads(step.shown()) for step in self.together]
        for name in ("add_data", "add_deletes"):
            if name in given:
                given[name] = [_brief(doc) for doc in given[name]]
        return json.dumps(given, default=sorted)


_BRIEF: Final = (
    "spec-id",
    "partition",
    "record-count",
    "referenced-data-file",
    "content-offset",
    "equality-ids",
)


def _brief(doc: Doc) -> dict[str, Any]:
    """Return a file without its metrics."""
    return {"path": doc["file-path"]} | {key: doc[key] for key in _BRIEF if key in doc}


def _default(item: dataclasses.Field[Any]) -> Any:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


def delete_key(doc: Doc) -> Key:
    return doc["file-path"], doc.get("content-offset")


def with_ids(value: Any, ids: Mapping[int, int]) -> Any:
    """Replace each {"step": n} in the JSON by the id of that step's snapshot."""
    if isinstance(value, Mapping):
        if value.keys() == {"step"}:
            return ids[value["step"]]
        return {key: with_ids(item, ids) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_ids(item, ids) for item in value]
    return value
