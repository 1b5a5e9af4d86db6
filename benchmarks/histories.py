"""Tables with long histories, and the classic commits that are sent to them.

Stock PyIceberg creates a seed table with one append, and then one more for each commit that is
needed. The seed's first snapshot, with its real manifest list and manifest, is the head of every
generated history. The snapshots of the later appends are the commits. All systems get the same
ones: their manifest lists, manifests and data files are on disk before the measurement.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

NAMESPACE = "bench"
SECONDS_BETWEEN_SNAPSHOTS = 300
"""As in a table that is written every five minutes."""
OLDEST_AGE_MS = 60 * 60 * 1000
"""The age of a history's head. Commits must be newer than the head."""

PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    # With ten thousand snapshots a metadata file has megabytes. Old files are deleted so that they
    # do not fill the disk.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "2",
}
GZIP = {"write.metadata.compression-codec": "gzip"}


@dataclass(frozen=True, slots=True)
class Seed:
    """What stock PyIceberg wrote: the head of every history, and the snapshots to commit."""

    metadata: dict[str, Any]
    head: dict[str, Any]
    commits: tuple[dict[str, Any], ...]
    rows_an_append: int


def seed_of(metadata: dict[str, Any], rows_an_append: int) -> Seed:
    """Build the seed from the metadata of a table with several appends by PyIceberg."""
    head, *rest = sorted(metadata["snapshots"], key=lambda one: int(one["sequence-number"]))
    return Seed(metadata, head, tuple(rest), rows_an_append)


def file_url(path: Path) -> str:
    """Return the URL as Iceberg's clients write it: they do not percent-encode paths."""
    return f"file://{path}"


@dataclass(frozen=True, slots=True)
class History:
    """A number of snapshots that end with the seed's head, without a table."""

    seed: Seed
    snapshots: tuple[dict[str, Any], ...]
    snapshot_log: tuple[dict[str, Any], ...]

    @property
    def length(self) -> int:
        return len(self.snapshots)

    @property
    def bytes_a_snapshot(self) -> float:
        return len(_json(list(self.snapshots))) / len(self.snapshots)

    def commits_a_table(self) -> int:
        """Return how many commits a table takes without changing the length of its history much."""
        return min(len(self.seed.commits), commits_for(self.length))


def commits_for(length: int) -> int:
    return max(5, length // 100)


def make_history(seed: Seed, length: int) -> History:
    """Make a history. The same length always gives the same one, except for the seed's ids."""
    draw = random.Random(length)
    newest_ms = time.time_ns() // 1_000_000 - OLDEST_AGE_MS
    step_ms = SECONDS_BETWEEN_SNAPSHOTS * 1000
    folder = str(seed.head["manifest-list"]).rsplit("/", 1)[0]
    ids = [*(draw.getrandbits(62) for _ in range(length - 1)), int(seed.head["snapshot-id"])]
    snapshots = [
        _snapshot(draw, number, snapshot_id, newest_ms - (length - number) * step_ms, folder)
        for number, snapshot_id in enumerate(ids, start=1)
    ]
    snapshots[-1] |= {
        "manifest-list": seed.head["manifest-list"],
        "summary": seed.head["summary"],
    }
    for before, after in pairwise(snapshots):
        after["parent-snapshot-id"] = before["snapshot-id"]
    log = tuple(
        {"timestamp-ms": one["timestamp-ms"], "snapshot-id": one["snapshot-id"]}
        for one in snapshots
    )
    return History(seed, tuple(snapshots), log)


def _snapshot(
    draw: random.Random, number: int, snapshot_id: int, at_ms: int, folder: str
) -> dict[str, Any]:
    """Return a snapshot as Spark writes it for an added file. Its manifest list is already
    expired."""
    commit_uuid = uuid.UUID(int=draw.getrandbits(128))
    added_bytes, records = draw.randrange(10**6, 10**8), draw.randrange(10**4, 10**6)
    return {
        "sequence-number": number,
        "snapshot-id": snapshot_id,
        "timestamp-ms": at_ms,
        "summary": {
            "operation": "append",
            "spark.app.id": "application_1718000000000_0042",
            "added-data-files": "1",
            "added-records": str(records),
            "added-files-size": str(added_bytes),
            "changed-partition-count": "1",
            "total-records": str(number * 500_000),
            "total-files-size": str(number * 50_000_000),
            "total-data-files": str(number),
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
            "engine-version": "4.1.0",
            "app-id": "application_1718000000000_0042",
            "engine-name": "spark",
            "iceberg-version": "Apache Iceberg 1.12.0",
        },
        "manifest-list": f"{folder}/snap-{snapshot_id}-1-{commit_uuid}.avro",
        "schema-id": 0,
    }


@dataclass(frozen=True, slots=True)
class Prepared:
    """A table whose metadata file with a history is on disk, ready to be registered."""

    name: str
    table_uuid: str
    location: str
    metadata_location: str
    metadata_bytes: int
    history: History

    def commits(self) -> Iterator[Commit]:
        parent = self.history.snapshots[-1]
        for snapshot in self.history.seed.commits[: self.history.commits_a_table()]:
            commit = Commit(self.table_uuid, parent, snapshot)
            parent = commit.snapshot
            yield commit


def prepare(history: History, folder: Path, location: str, properties: dict[str, str]) -> Prepared:
    """Write the metadata file of a new table. `folder` and `location` are the same folder, but
    systems write a location differently."""
    table_uuid = str(uuid.uuid4())
    metadata = {
        **history.seed.metadata,
        "table-uuid": table_uuid,
        "location": location,
        "properties": properties,
        "last-updated-ms": history.snapshots[-1]["timestamp-ms"],
        "last-sequence-number": history.length,
        "current-snapshot-id": history.snapshots[-1]["snapshot-id"],
        "refs": {
            "main": {"snapshot-id": history.snapshots[-1]["snapshot-id"], "type": "branch"},
        },
        "snapshots": list(history.snapshots),
        "snapshot-log": list(history.snapshot_log),
        "metadata-log": [],
    }
    name = f"00000-{uuid.uuid4()}.metadata.json"
    (folder / "metadata").mkdir(parents=True)
    content = _json(metadata)
    (folder / "metadata" / name).write_bytes(content)
    metadata_location = f"{location}/metadata/{name}"
    return Prepared(folder.name, table_uuid, location, metadata_location, len(content), history)


class Commit:
    """One fast append as a stock client sends it."""

    def __init__(self, table_uuid: str, parent: dict[str, Any], snapshot: dict[str, Any]) -> None:
        self._table_uuid = table_uuid
        self._parent_id = parent["snapshot-id"]
        self.snapshot = {
            **snapshot,
            "sequence-number": int(parent["sequence-number"]) + 1,
            "parent-snapshot-id": self._parent_id,
        }

    def body(self) -> bytes:
        return _json({"requirements": self.requirements(), "updates": self.updates()})

    def requirements(self) -> list[dict[str, Any]]:
        return [
            {"type": "assert-table-uuid", "uuid": self._table_uuid},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": self._parent_id},
        ]

    def updates(self) -> list[dict[str, Any]]:
        snapshot_id = self.snapshot["snapshot-id"]
        now_ms = time.time_ns() // 1_000_000
        return [
            {"action": "add-snapshot", "snapshot": {**self.snapshot, "timestamp-ms": now_ms}},
            {
                "action": "set-snapshot-ref",
                "ref-name": "main",
                "type": "branch",
                "snapshot-id": snapshot_id,
            },
        ]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
