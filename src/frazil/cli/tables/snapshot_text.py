"""Find snapshots, and show their refs and summaries; shared by several commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from frazil.cli.shared.printing import count_text, size_text

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table

MAIN: Final = "main"

_COUNTS: Final = (
    ("data-files", "data file"),
    ("delete-files", "delete file"),
    ("records", "row"),
)
_SHOWN_SERVER_KEYS: Final = frozenset(
    {"replace-partitions", "source-snapshot-id", "published-wap-id"}
)
"""Keys that the server sets and that are shown too."""


def find_snapshot(table: Table, text: str) -> Snapshot | None:
    """Find the snapshot of a branch, a tag or an id; each `^` goes back one parent.

    None is the state before the first snapshot.
    """
    from frazil.wire.errors import NotFound

    name = text if text in table.refs else text.rstrip("^")
    steps = len(text) - len(name)
    if name == MAIN and not table.refs:
        return None
    snapshot: Snapshot | None = table.snapshot(name)
    for _ in range(steps):
        if snapshot is None:
            raise NotFound(f"{table}: {text} goes back beyond the first snapshot")
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot(parent)
    return snapshot


def refs_by_snapshot(table: Table) -> dict[int, list[str]]:
    """Return the refs of each snapshot in the style of git, main first."""
    refs: dict[int, list[str]] = {}
    order = sorted(table.refs.items(), key=lambda item: (item[0] != MAIN, item[1].type, item[0]))
    for name, ref in order:
        shown = name if ref.type == "branch" else f"{ref.type}: {name}"
        refs.setdefault(ref.snapshot_id, []).append(shown)
    return refs


def snapshot_document(snapshot: Snapshot, refs: list[str]) -> dict[str, Any]:
    return {
        "snapshot-id": snapshot.snapshot_id,
        "parent-snapshot-id": snapshot.parent_snapshot_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "operation": snapshot.operation,
        "schema-id": snapshot.schema_id,
        "refs": [name.removeprefix("tag: ") for name in refs],
        "summary": dict(snapshot.summary),
    }


def change_text(summary: Mapping[str, str]) -> list[str]:
    """Return lines such as `+ 2 data files, 100 rows, 4.0 KiB` for added and removed files."""
    lines = []
    for sign, word, others in (("+", "added", "added"), ("-", "deleted", "removed")):
        parts = []
        for key, noun in _COUNTS:
            # Java's names: deleted-data-files and deleted-records, but removed-delete-files.
            prefix = others if key == "delete-files" else word
            count = number(summary, f"{prefix}-{key}")
            if count:
                parts.append(count_text(count, noun))
        size = number(summary, f"{others}-files-size")
        if size:
            parts.append(size_text(size))
        if parts:
            lines.append(f"{sign} {', '.join(parts)}")
    return lines


def total_text(summary: Mapping[str, str]) -> str | None:
    parts = [
        count_text(count, noun)
        for key, noun in _COUNTS
        if (count := number(summary, f"total-{key}")) is not None
        and (count or key != "delete-files")
    ]
    size = number(summary, "total-files-size")
    if size is not None:
        parts.append(size_text(size))
    return ", ".join(parts) or None


def writer_keys(summary: Mapping[str, str]) -> dict[str, str]:
    """Return the summary keys of writers, without those that the server computes."""
    from frazil.wire.file_actions import SERVER_SUMMARY_KEYS

    return {
        key: value
        for key, value in summary.items()
        if key in _SHOWN_SERVER_KEYS
        or not (key in SERVER_SUMMARY_KEYS or key.startswith("partitions."))
    }


def number(summary: Mapping[str, str], key: str) -> int | None:
    """Return a count from a summary; other writers may omit it or write anything."""
    text = summary.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else None
