"""Requests to a catalog and its responses in their JSON form."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frazil.commit.catalog.operations import Catalog
from frazil.commit.pipeline.catalog_answers import (
    Answer,
    JsonAnswer,
    LoadedTable,
    TableAnswer,
    TransactionAnswer,
    ViewAnswer,
)
from frazil.commit.pipeline.pending_requests import Context, IdempotencyKey
from frazil.db.base import EventRow
from frazil.db.rows import Database
from frazil.wire.identifiers import Identifier
from frazil.wire.json_bodies import decode
from frazil.wire.rest_messages import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
)
from tests.support.patience import HANG_S

TIMEOUT_S = HANG_S
NOW_MS = time.time_ns() // 1_000_000
SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}


def name(text: str) -> Identifier:
    *levels, last = text.split(".")
    return Identifier(tuple(levels) or ("ns",), last)


def context(key: str | None = None, body: Any = None) -> Context:
    """Return a request context; with a key, its fingerprint is that of the body, as in
    production."""
    fingerprint = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    keyed = None if key is None else IdempotencyKey(key, fingerprint)
    return Context("tester", str(uuid.uuid4()), keyed)


def set_property(key: str, value: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": {key: value}}


def append(
    snapshot_id: int,
    parent: int | None = None,
    *,
    sequence_number: int | None = None,
    branch: str | None = "main",
    **more: Any,
) -> list[dict[str, Any]]:
    """Return the updates of a classic append; the catalog never reads its manifest list."""
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": snapshot_id if sequence_number is None else sequence_number,
        "timestamp-ms": NOW_MS + snapshot_id,
        "manifest-list": f"file:///nowhere/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
        **more,
    }
    updates: list[dict[str, Any]] = [{"action": "add-snapshot", "snapshot": snapshot}]
    if branch is not None:
        updates.append(
            {
                "action": "set-snapshot-ref",
                "ref-name": branch,
                "type": "branch",
                "snapshot-id": snapshot_id,
            }
        )
    return updates


def head_is(snapshot_id: int | None, ref: str = "main") -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}


@dataclass(frozen=True)
class Change:
    """The part of a transaction that changes one table."""

    table: str
    updates: list[dict[str, Any]]
    requirements: list[dict[str, Any]] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        identifier = name(self.table)
        return {
            "identifier": {"namespace": list(identifier.namespace), "name": identifier.name},
            "requirements": self.requirements,
            "updates": self.updates,
        }


@dataclass(frozen=True)
class Driver:
    """Sends requests to a catalog and waits for its responses."""

    catalog: Catalog
    database: Database
    warehouse: Path

    def create_namespace(self, *levels: str, key: str | None = None) -> Answer:
        return self.catalog.create_namespace(context(key, levels), levels, {})

    def create_table(self, table: str = "t", key: str | None = None, **fields: Any) -> TableAnswer:
        identifier = name(table)
        body = {"name": identifier.name, "schema": SCHEMA} | {
            item.replace("_", "-"): value for item, value in fields.items()
        }
        request = decode(CreateTableRequest, json.dumps(body).encode())
        return table_answer(self.catalog.create_table(context(key, body), identifier, request))

    def create_view(self, view: str, **fields: Any) -> ViewAnswer:
        identifier = name(view)
        version = {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": 1,
            "summary": {},
            "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
            "default-namespace": ["ns"],
        }
        body = {"name": identifier.name, "schema": SCHEMA, "view-version": version} | fields
        request = decode(CreateViewRequest, json.dumps(body).encode())
        answer = self.catalog.create_view(context(), identifier, request)
        assert isinstance(answer, ViewAnswer)
        return answer

    def register(
        self, table: str, location: str, overwrite: bool = False, key: str | None = None
    ) -> TableAnswer:
        identifier = name(table)
        request = RegisterTableRequest(identifier.name, location, overwrite)
        body = [table, location, overwrite]
        return table_answer(self.catalog.register_table(context(key, body), identifier, request))

    def submit(
        self,
        table: str,
        updates: list[dict[str, Any]],
        requirements: list[dict[str, Any]] | None = None,
        key: str | None = None,
    ) -> Future[Answer]:
        body = {"requirements": requirements or [], "updates": updates}
        request = decode(CommitTableRequest, json.dumps(body).encode())
        return self.catalog.commit_table(context(key, body), name(table), request)

    def commit(
        self,
        table: str,
        updates: list[dict[str, Any]],
        requirements: list[dict[str, Any]] | None = None,
        key: str | None = None,
    ) -> TableAnswer:
        return table_answer(self.submit(table, updates, requirements, key).result(TIMEOUT_S))

    def commit_view(self, view: str, updates: list[dict[str, Any]]) -> ViewAnswer:
        request = decode(CommitViewRequest, json.dumps({"updates": updates}).encode())
        answer = self.catalog.commit_view(context(), name(view), request).result(TIMEOUT_S)
        assert isinstance(answer, ViewAnswer)
        return answer

    def submit_transaction(self, *changes: Change, key: str | None = None) -> Future[Answer]:
        body = {"table-changes": [change.json() for change in changes]}
        request = decode(CommitTransactionRequest, json.dumps(body).encode())
        return self.catalog.commit_transaction(context(key, body), request)

    def transact(self, *changes: Change, key: str | None = None) -> TransactionAnswer:
        answer = self.submit_transaction(*changes, key=key).result(TIMEOUT_S)
        assert isinstance(answer, TransactionAnswer)
        return answer

    def drop(
        self, table: str, purge: bool = False, key: str | None = None, now: bool = True
    ) -> Answer:
        """Drop a table. A purge deletes its files at once, unless `now` is false."""
        body = ["drop", table, purge]
        future = self.catalog.drop_table(context(key, body), name(table), purge, now)
        return future.result(TIMEOUT_S)

    def rename(self, source: str, destination: str, key: str | None = None) -> Answer:
        body = ["rename", source, destination]
        return self.catalog.rename_table(
            context(key, body), name(source), name(destination)
        ).result(TIMEOUT_S)

    def unregister(self, table: str, key: str | None = None) -> TableAnswer:
        body = ["unregister", table]
        return table_answer(
            self.catalog.unregister_table(context(key, body), name(table)).result(TIMEOUT_S)
        )

    # --- looking -----------------------------------------------------------------------------

    def load(self, table: str = "t") -> LoadedTable:
        return self.catalog.load_table(name(table))

    def properties(self, table: str = "t") -> dict[str, str]:
        return dict(self.load(table).metadata.properties)

    def snapshot_ids(self, table: str = "t") -> list[int]:
        return [snapshot.snapshot_id for snapshot in self.load(table).metadata.snapshots]

    def events(self) -> list[EventRow]:
        while self.database.assign_positions(100):
            pass
        return [event for _, event in self.database.events(0, 1000)]

    def metadata_files(self, table: str = "t") -> set[str]:
        folder = Path(self.load(table).metadata.location.removeprefix("file://")) / "metadata"
        return {path.name for path in folder.iterdir()}


def table_answer(answer: Answer) -> TableAnswer:
    assert isinstance(answer, TableAnswer)
    return answer


def committed(answer: TableAnswer) -> list[dict[str, Any]]:
    assert answer.committed is not None
    decoded: list[dict[str, Any]] = json.loads(answer.committed)
    return decoded


def body(answer: Answer) -> Any:
    assert isinstance(answer, JsonAnswer)
    return json.loads(answer.body)
