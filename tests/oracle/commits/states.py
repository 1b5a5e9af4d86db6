"""The state of a table as Iceberg's Java library reads it, without values that always differ.

Snapshot ids become step numbers. Paths of manifests, timestamps and the table's uuid are left
out. The same code reads both sides, ours through its metadata file. So the comparison also shows
that Java can read every tree that we write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.oracle.commits.cases import Key

_ENTRY = re.compile(
    r"GenericManifestEntry\{status=(?P<status>\w+), snapshot_id=(?P<snapshot_id>-?\d+|null), "
    r"data_sequence_number=(?P<sequence>-?\d+|null), "
    r"file_sequence_number=(?P<file_sequence>-?\d+|null), "
    r"file=(?P<file>.*?)\}\}(?=, GenericManifestEntry\{|$)"
)
_MANIFEST = re.compile(
    r"GenericManifestFile\{(?P<fields>.*?)\}(?=, GenericManifestFile\{|$)", re.DOTALL
)
_SUMMARIES = re.compile(r"partitions=(?P<text>\[.*\]|null), key_metadata=")
_POSITIONS = re.compile(
    r"data_sequence_number=[^,]*, file_sequence_number=[^,]*, first_row_id=[^,]*, "
)


def _value(text: str, name: str) -> str | None:
    found = re.search(rf"\b{name}=([^,}}]*)", text)
    assert found is not None, f"{name} is not in {text}"
    return None if found[1] == "null" else found[1]


def _number(text: str, name: str) -> int | None:
    value = _value(text, name)
    return None if value is None else int(value)


class Entry(NamedTuple):
    """A manifest entry, including inherited values."""

    status: str
    snapshot_id: int
    sequence_number: int | None
    file_sequence_number: int | None
    first_row_id: int | None
    content: str
    path: str
    content_offset: int | None
    spec_id: int
    record_count: int
    file: str
    """The file as Java prints it, including metrics and partition."""

    @property
    def key(self) -> Key:
        return self.path, self.content_offset

    @property
    def is_data(self) -> bool:
        return self.content == "data"


def entries_of(text: str) -> list[Entry]:
    """Parse the entries of a manifest from Java's text."""
    found = [_entry(match) for match in _ENTRY.finditer(text)]
    assert len(found) == text.count("GenericManifestEntry{"), text
    return found


def _entry(match: re.Match[str]) -> Entry:
    file = match["file"]
    own = _value(file, "file_path")
    assert own is not None
    return Entry(
        status=match["status"],
        snapshot_id=int(match["snapshot_id"]),
        sequence_number=None if match["sequence"] == "null" else int(match["sequence"]),
        file_sequence_number=(
            None if match["file_sequence"] == "null" else int(match["file_sequence"])
        ),
        first_row_id=_number(file, "first_row_id"),
        content=_value(file, "content") or "",
        path=own,
        content_offset=_number(file, "content_offset"),
        spec_id=_number(file, "spec_id") or 0,
        record_count=_number(file, "record_count") or 0,
        file=_POSITIONS.sub("", file),
    )


class Manifest(NamedTuple):
    """A manifest as described by its manifest list."""

    content: str
    path: str
    spec_id: int
    step: int
    """The step whose snapshot the manifest was written for."""
    sequence_number: int
    min_sequence_number: int
    counts: tuple[int, ...]
    """The numbers of files and rows that are added, existing and deleted."""
    partitions: str
    first_row_id: int | None


def manifests_of(text: str, steps: Mapping[int, int]) -> list[Manifest]:
    """Parse the manifests of a snapshot from Java's text of its manifest list."""
    found = [_manifest(match["fields"], steps) for match in _MANIFEST.finditer(text)]
    assert len(found) == text.count("GenericManifestFile{"), text
    return found


def _manifest(text: str, steps: Mapping[int, int]) -> Manifest:
    summaries = _SUMMARIES.search(text)
    assert summaries is not None, text
    numbers = [
        _number(text, f"{status}_{what}_count")
        for status in ("added", "existing", "deleted")
        for what in ("data_files", "rows")
    ]
    return Manifest(
        content=_value(text, "content") or "",
        path=_value(text, "path") or "",
        spec_id=_number(text, "partition_spec_id") or 0,
        step=steps[_number(text, "added_snapshot_id") or 0],
        sequence_number=_number(text, "sequence_number") or 0,
        min_sequence_number=_number(text, "min_sequence_number") or 0,
        counts=tuple(number or 0 for number in numbers),
        partitions=summaries["text"],
        first_row_id=_number(text, "first_row_id"),
    )


@dataclass(frozen=True)
class Snapshot:
    step: int
    parent: int | None
    operation: str
    summary: Mapping[str, str]
    sequence_number: int
    first_row_id: int | None
    added_rows: int | None
    schema_id: int | None
    manifests: tuple[Manifest, ...]
    entries: tuple[Entry, ...]
    """The entries of all manifests, with step numbers in place of snapshot ids."""

    def live(self) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.status != "DELETED")

    def added(self) -> Iterator[Entry]:
        return (
            entry
            for entry in self.entries
            if entry.status == "ADDED" and entry.snapshot_id == self.step
        )

    def deleted(self) -> Iterator[Entry]:
        return (
            entry
            for entry in self.entries
            if entry.status == "DELETED" and entry.snapshot_id == self.step
        )


@dataclass(frozen=True)
class State:
    format_version: int
    last_sequence_number: int
    next_row_id: int | None
    default_spec_id: int
    refs: Mapping[str, tuple[str, int]]
    log: tuple[int, ...]
    """The snapshots that main has pointed to, in order."""
    snapshots: dict[int, Snapshot] = field(repr=False)
    """The snapshots, in the order of their creation."""

    def newest(self) -> int:
        """Return the step of the latest snapshot on any branch."""
        return next(reversed(self.snapshots))

    def head(self, branch: str) -> int | None:
        """Return the step of a branch's head; a new branch starts at main's head."""
        ref = self.refs.get(branch) or self.refs.get("main")
        return None if ref is None else ref[1]

    def live(self, branch: str) -> list[Entry]:
        """Return the live entries of a branch, sorted."""
        head = self.head(branch)
        if head is None or head not in self.snapshots:
            return []
        return sorted(self.snapshots[head].live(), key=lambda entry: (entry.path, entry[7] or 0))

    def ancestors(self, step: int | None) -> list[int]:
        """Return a snapshot and its known ancestors, newest first."""
        found = []
        while step is not None and step in self.snapshots:
            found.append(step)
            step = self.snapshots[step].parent
        return found


EMPTY = State(0, 0, None, 0, {}, (), {})


def metadata_json(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document
