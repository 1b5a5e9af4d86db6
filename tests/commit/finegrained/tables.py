"""A table behind the catalog's HTTP interface, with one method for each action.

`Table.append`, `.delete`, `.overwrite`, ... commit and return the new snapshot. `.conflicts`
expects a refusal and returns its conflicts. Every committed snapshot is read back from disk and
must satisfy the general invariants (`trees.check_tree`). Every refusal must leave the table and
the files in its folder unchanged.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.requests import Json
from tests.commit.finegrained.trees import DELETED, Entry, Tree, check_tree, local, read_tree

SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "data", "required": False, "type": "string"},
        {"id": 3, "name": "date", "required": False, "type": "string"},
    ],
}
BUCKETS: Json = {
    "fields": [{"source-id": 2, "field-id": 1000, "name": "data_bucket", "transform": "bucket[16]"}]
}
DATES: Json = {
    "fields": [{"source-id": 3, "field-id": 1000, "name": "date", "transform": "identity"}]
}
UNPARTITIONED: Json = {"fields": []}

_names = (f"t{number}" for number in itertools.count(1))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any


class Transport(Protocol):
    """Sends a request to a catalog, in this process or over a socket."""

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer: ...


@dataclass(frozen=True)
class Refusal:
    """An error as the client receives it."""

    status: int
    type: str
    message: str
    conflicts: list[Json]

    @classmethod
    def of(cls, answer: Answer) -> Refusal:
        error = answer.body["error"]
        assert error["code"] == answer.status
        return cls(answer.status, error["type"], error["message"], error.get("conflicts", []))


@dataclass(frozen=True)
class Conflict:
    """A conflict whose files have short names."""

    clause: str
    files: set[str]
    snapshots: list[int]
    update: int
    validation: int | None
    message: str
    file_count: int


@dataclass
class Table:
    call: Transport
    version: int = 2
    branch: str = "main"
    spec: Json = field(default_factory=lambda: BUCKETS)
    properties: Mapping[str, str] = field(default_factory=dict)
    schema: Json = field(default_factory=lambda: SCHEMA)
    namespace: str = "finegrained"
    name: str = field(default_factory=lambda: next(_names))
    metadata: Json = field(default_factory=dict)
    metadata_location: str = ""
    totals: bool = True
    """Whether the totals of summaries count from the beginning of the table."""
    last: Any = None
    """The body of the last response to a commit."""

    @property
    def path(self) -> str:
        return f"/v1/namespaces/{self.namespace}/tables/{self.name}"

    def create(self) -> Table:
        properties = {"format-version": str(self.version), **self.properties}
        body = {
            "name": self.name,
            "schema": self.schema,
            "partition-spec": self.spec,
            "properties": properties,
        }
        answer = self.call("POST", f"/v1/namespaces/{self.namespace}/tables", body)
        assert answer.status == 200, answer.body
        return self._keep(answer.body)

    def load(self) -> Table:
        answer = self.call("GET", self.path)
        assert answer.status == 200, answer.body
        return self._keep(answer.body)

    def _keep(self, body: Any) -> Table:
        self.metadata = body["metadata"]
        self.metadata_location = body["metadata-location"]
        return self

    # --- declaring files --------------------------------------------------------------------------

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    def data_path(self, name: str) -> str:
        return f"{self.location}/data/{name}.parquet"

    def data(self, name: str, *partition: Any, rows: int = 1, size: int = 10, **more: Any) -> Json:
        """Return a data file; `ids=(5, 9)` are the bounds of the column `id`."""
        return {
            "content": "data",
            "file-path": self.data_path(name),
            "file-format": "parquet",
            "spec-id": more.pop("spec_id", 0),
            "partition": list(partition),
            "record-count": rows,
            "file-size-in-bytes": size,
        } | _metrics(more, rows)

    def position_deletes(
        self, name: str, target: Json | None = None, partition: Sequence[Any] = (), **more: Any
    ) -> Json:
        """Return a file of position deletes in the partition of its target; `refer=True` names
        the target."""
        refer = more.pop("refer", False)
        file = self.data(name, *(target["partition"] if target else partition), **more)
        if target is not None:
            file["spec-id"] = target["spec-id"]
        if refer and target is not None:
            file["referenced-data-file"] = target["file-path"]
        return file | {"content": "position-deletes"}

    def vector(self, name: str, target: Json, offset: int = 4, size: int = 6, **more: Any) -> Json:
        """Return a deletion vector for a data file."""
        file = self.data(name, *target["partition"], **more)
        return file | {
            "content": "position-deletes",
            "spec-id": target["spec-id"],
            "file-path": f"{self.location}/data/{name}.puffin",
            "file-format": "puffin",
            "content-offset": offset,
            "content-size-in-bytes": size,
            "file-size-in-bytes": 200,
            "referenced-data-file": target["file-path"],
        }

    def deletes(self, name: str, target: Json, **more: Any) -> Json:
        """Return a delete file by position in the form of this format version."""
        if self.version >= 3:
            return self.vector(name, target, **more)
        return self.position_deletes(name, target, **more)

    def equality_deletes(
        self, name: str, *partition: Any, on: Sequence[int] = (1,), **more: Any
    ) -> Json:
        file = self.data(name, *partition, **more)
        return file | {"content": "equality-deletes", "equality-ids": list(on)}

    # --- committing -------------------------------------------------------------------------------

    def append(self, *files: Json, **more: Any) -> Json:
        return self.commit(send.append(*files, **self._on_branch(more)))

    def delete(self, *files: Any, **more: Any) -> Json:
        return self.commit(send.delete(*files, **self._on_branch(more)))

    def overwrite(self, **more: Any) -> Json:
        return self.commit(send.overwrite(**self._on_branch(more)))

    def replace(self, **more: Any) -> Json:
        return self.commit(send.replace(**self._on_branch(more)))

    def replace_partitions(self, *files: Json, **more: Any) -> Json:
        return self.commit(send.replace_partitions(*files, **self._on_branch(more)))

    def cherry_pick(self, snapshot: Json, **more: Any) -> Json:
        return self.commit(send.cherry_pick(snapshot["snapshot-id"], **self._on_branch(more)))

    def _on_branch(self, more: dict[str, Any]) -> dict[str, Any]:
        return more if self.branch == "main" else {"branch": self.branch, **more}

    def commit(self, *updates: Json, **request: Any) -> Json:
        """Commit, check the committed snapshots and return the last one."""
        answer = self.post(*updates, **request)
        assert answer.status == 200, answer.body
        return self.accept(answer)

    def accept(self, answer: Answer) -> Json:
        self._keep(answer.body)
        self.last = answer.body
        committed = answer.body.get("committed", [])
        for made in committed:
            tree = check_tree(self.metadata, made["snapshot-id"], totals=self.totals)
            summary = tree.snapshot["summary"]
            assert made["operation"] == summary["operation"]
            assert made["sequence-number"] == tree.snapshot.get("sequence-number", 0)
        return self.snapshot(committed[-1]["snapshot-id"]) if committed else {}

    def post(
        self,
        *updates: Json,
        requirements: Sequence[Json] = (),
        once: Json | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        body: Json = {"requirements": list(requirements), "updates": list(updates)}
        if once is not None:
            body["once"] = once
        sent = dict(headers or {})
        if key is not None:
            sent["Idempotency-Key"] = key
        return self.call("POST", self.path, body, sent)

    def refused(self, *updates: Json, status: int, **request: Any) -> Refusal:
        """Return the refusal of a commit after checking that nothing has changed."""
        before = self.state()
        answer = self.post(*(self._update(update) for update in updates), **request)
        assert answer.status == status, answer.body
        assert self.state() == before
        refusal = Refusal.of(answer)
        if status == 400:
            assert refusal.type == "BadRequestException"
            assert not refusal.conflicts
        return refusal

    def _update(self, update: Json) -> Json:
        known = {"append", "delete", "overwrite", "replace", "cherry-pick"}
        if self.branch != "main" and update["action"] in known:
            return {"branch": self.branch, **update}
        return update

    def bad(self, *updates: Json, **request: Any) -> str:
        """Return the message of a 400 response."""
        return self.refused(*updates, status=400, **request).message

    def conflicts(self, *updates: Json, **request: Any) -> list[Conflict]:
        """Return the conflicts of a commit that the server refuses."""
        refusal = self.refused(*updates, status=409, **request)
        assert refusal.type == "ValidationException", refusal
        assert refusal.conflicts
        return [self._conflict(found) for found in refusal.conflicts]

    def conflict(self, *updates: Json, **request: Any) -> Conflict:
        (only,) = self.conflicts(*updates, **request)
        return only

    def _conflict(self, found: Json) -> Conflict:
        known = {s["snapshot-id"]: s["summary"]["operation"] for s in self.metadata["snapshots"]}
        for snapshot in found["snapshots"]:
            assert known[snapshot["snapshot-id"]] == snapshot["operation"]
        assert found["file-count"] >= len(found["files"])
        assert found["message"]
        return Conflict(
            clause=found["clause"],
            files={self.short(f["file-path"], f.get("content-offset")) for f in found["files"]},
            snapshots=[snapshot["snapshot-id"] for snapshot in found["snapshots"]],
            update=found["update"],
            validation=found["validation"],
            message=found["message"],
            file_count=found["file-count"],
        )

    def state(self) -> tuple[str, set[str]]:
        """Return what a refusal must not change: the pointer and the files in the metadata
        folder."""
        self.load()
        folder = local(self.location) / "metadata"
        return self.metadata_location, {path.name for path in folder.iterdir()}

    # --- looking ----------------------------------------------------------------------------------

    def snapshot(self, snapshot_id: int) -> Json:
        (found,) = [s for s in self.metadata["snapshots"] if s["snapshot-id"] == snapshot_id]
        assert isinstance(found, dict)
        return found

    def head(self, branch: str | None = None) -> Json | None:
        ref = self.metadata.get("refs", {}).get(branch or self.branch)
        return None if ref is None else self.snapshot(ref["snapshot-id"])

    @property
    def head_id(self) -> int:
        head = self.head()
        assert head is not None
        return int(head["snapshot-id"])

    @property
    def operation(self) -> str:
        return str(self.summary()["operation"])

    def summary(self) -> dict[str, str]:
        head = self.head()
        assert head is not None
        summary: dict[str, str] = head["summary"]
        return summary

    def tree(self, snapshot: Json | None = None) -> Tree:
        chosen = snapshot or self.head()
        assert chosen is not None
        return read_tree(self.metadata, chosen["snapshot-id"])

    def live(self, snapshot: Json | None = None) -> set[str]:
        """Return the short names of all live files, data and deletes."""
        if snapshot is None and self.head() is None:
            return set()
        return {self.short(*key) for key in self.tree(snapshot).live}

    def entries(self, snapshot: Json | None = None) -> dict[str, Entry]:
        """Return live files by their short names."""
        return {self.short(*key): entry for key, entry in self.tree(snapshot).live.items()}

    def removed(self, snapshot: Json | None = None) -> set[str]:
        """Return the files that the snapshot itself removed."""
        tree = self.tree(snapshot)
        return {
            self.short(*entry.key)
            for entry in tree.entries
            if entry.status == DELETED and entry.snapshot_id == tree.snapshot["snapshot-id"]
        }

    def sequence_numbers(self) -> dict[str, int]:
        """Return the data sequence numbers of live files; 0 in format version 1."""
        return {name: entry.sequence_number or 0 for name, entry in self.entries().items()}

    def short(self, path: str, offset: int | None = None) -> str:
        """Shorten a path: `data/a.parquet` is `a`, and the vector at 4 of `data/v.puffin` is
        `v@4`."""
        name = path.removeprefix(f"{self.location}/data/").rsplit(".", 1)[0]
        return name if offset is None else f"{name}@{offset}"


def _metrics(more: dict[str, Any], rows: int) -> Json:
    """Convert `ids=(lowest, highest)` to the counts and bounds of column 1."""
    found: Json = {}
    bounds = more.pop("ids", None)
    if bounds is not None:
        found = {
            "value-counts": {"keys": [1], "values": [rows]},
            "null-value-counts": {"keys": [1], "values": [0]},
            "lower-bounds": {"keys": [1], "values": [bounds[0]]},
            "upper-bounds": {"keys": [1], "values": [bounds[1]]},
        }
    return found | {name.replace("_", "-"): value for name, value in more.items()}


def new_key() -> str:
    return str(uuid.uuid4())
