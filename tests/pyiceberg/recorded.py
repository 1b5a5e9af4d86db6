"""Requests that a PyIceberg catalog sends, recorded on its session, and files that it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.commit.finegrained.trees import local


class Commits:
    """The commits that a catalog has sent since this object was created."""

    def __init__(self, catalog: Catalog) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        session = cast("RestCatalog", catalog)._session
        session.hooks["response"].append(self._note)

    def _note(self, answer: requests.Response, *_: Any, **__: Any) -> None:
        request = answer.request
        if request.method == "POST" and "/tables/" in str(request.url):
            self.bodies.append(json.loads(cast("bytes", request.body)))
            headers = request.headers.items()
            self.headers.append({name.lower(): str(value) for name, value in headers})

    @property
    def only(self) -> dict[str, Any]:
        (body,) = self.bodies
        return body

    @property
    def updates(self) -> list[dict[str, Any]]:
        return list(self.only["updates"])

    @property
    def actions(self) -> list[str]:
        return [update["action"] for update in self.updates]


def clauses(update: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the clauses of an update by their names."""
    found = {clause["type"]: clause for clause in update.get("commit-validations", [])}
    assert len(found) == len(update.get("commit-validations", []))
    return found


def data_files_on_disk(table: Table) -> set[Path]:
    return {path for path in local(table.location()).rglob("*.parquet") if path.is_file()}


def metadata_files_on_disk(table: Table) -> set[Path]:
    return {path for path in (local(table.location()) / "metadata").rglob("*") if path.is_file()}
