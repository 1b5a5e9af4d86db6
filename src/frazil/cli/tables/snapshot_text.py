"""Find snapshots, and show their refs and summaries; shared by several commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from frazil.cli.shared.printing import count_text, size_text
from frazil.wire.errors import NotFound
from frazil.wire.file_actions import MAIN, is_server_key

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table

CHANGE_KEYS: Final = {
    "added": {
        "data-files": "added-data-files",
        "delete-files": "added-delete-files",
        "records": "added-records",
        "size-in-bytes": "added-files-size",
    },
    "removed": {
        "data-files": "deleted-data-files",
        "delete-files": "removed-delete-files",
        "records": "deleted-records",
        "size-in-bytes": "removed-files-size",
    },
}
"""Java's keys in a snapshot summary, by the names that commands print as JSON."""
TOTAL_KEYS: Final = {
    "data-files": "total-data-files",
    "delete-files": "total-delete-files",
    "records": "total-records",
    "size-in-bytes": "total-files-size",
}
_NOUNS: Final = {"data-files": "data file", "delete-files": "delete file", "records": "row"}
_SHOWN_SERVER_KEYS: Final = frozenset(
    {"replace-partitions", "source-snapshot-id", "published-wap-id"}
)
"""Keys that the server sets and that are shown too."""


def find_snapshot(table: Table, text: str) -> Snapshot | None:
    """Find the snapshot of a branch, a tag or an id; each `^` goes back one parent.

    None is the state before the first snapshot.
    """
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
    for sign, side in (("+", "added"), ("-", "removed")):
        counts = numbers(summary, CHANGE_KEYS[side])
        text = counts_text({name: count for name, count in counts.items() if count})
        if text:
            lines.append(f"{sign} {text}")
    return lines


def total_text(summary: Mapping[str, str]) -> str | None:
    return counts_text(numbers(summary, TOTAL_KEYS)) or None


def counts_text(counts: Mapping[str, int]) -> str:
    """Return text such as `2 data files, 100 rows, 4.0 KiB`, with delete files if there are any."""
    parts = [
        count_text(counts[name], noun)
        for name, noun in _NOUNS.items()
        if name in counts and (counts[name] or name != "delete-files")
    ]
    if "size-in-bytes" in counts:
        parts.append(size_text(counts["size-in-bytes"]))
    return ", ".join(parts)


def writer_keys(summary: Mapping[str, str]) -> dict[str, str]:
    """Return the summary keys of writers, without those that the server computes."""
    return {
        key: value
        for key, value in summary.items()
        if key in _SHOWN_SERVER_KEYS or not is_server_key(key)
    }


def numbers(summary: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, int]:
    """Return the counts of a summary by their names in JSON.

    Other writers may omit a count or write anything.
    """
    texts = ((name, summary.get(key, "")) for name, key in keys.items())
    return {name: int(text) for name, text in texts if text.isascii() and text.isdigit()}
