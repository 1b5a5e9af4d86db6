"""PyIceberg as its users write with it: one call with Arrow data, on the configured catalog.

Retries are counted where they leave the client: as commit requests, or as calls of
`commit_table` if the catalog is a database.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from typing import Any, Final

# Imported before the writers are forked, so that they do not each import it.
import pyiceberg.catalog.rest
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow  # noqa: F401
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from requests import PreparedRequest, Response, Session

import frazil.pyiceberg.frazil_catalog  # noqa: F401
from benchmarks.client.operations import APPEND, DELETE
from benchmarks.client.rows import UPDATED_NAME, keyed_table, keys_by_bucket, small_table
from benchmarks.commit.bursts import Task
from benchmarks.histories import NAMESPACE, PROPERTIES
from frazil.pyiceberg import retrying

_BUCKET_FIELD_ID: Final = 1000


def open_writer(settings: dict[str, Any], tables: tuple[str, ...], index: int) -> PyIcebergWriter:
    return PyIcebergWriter(settings, tables[0], index)


class PyIcebergWriter:
    """Writes to one table, loaded once. The client itself must handle later commits of others."""

    def __init__(self, settings: dict[str, Any], table: str, index: int) -> None:
        catalog = _catalog(settings["properties"])
        self._rows = small_table()
        self._warm_up(catalog)
        found = catalog.load_table((NAMESPACE, table))
        self._table = retrying(found) if settings["retrying"] else found
        self._attempts = _Attempts(catalog, f"/tables/{table}")
        self._index = index
        self._keys: list[int] = []
        self.retries = 0

    def _warm_up(self, catalog: Catalog) -> None:
        """Write once to a private table, so that the new process has connected and started its
        threads."""
        table = catalog.create_table((NAMESPACE, f"warm_{uuid.uuid4().hex}"), self._rows.schema)
        table.append(self._rows)

    def prepare(self, task: Task, at: int) -> Callable[[], object]:
        table, rows = self._table, self._rows
        if task.operation == APPEND:
            return lambda: self._counted(lambda: table.append(rows))
        if not self._keys:
            # The first half of a bucket's keys is in the table, the second half is not.
            self._keys = _keys(task.writers, 2 * task.most)[self._index]
        known, new = self._keys[at], self._keys[at + task.most]
        if task.operation == DELETE:
            return lambda: self._counted(lambda: table.delete(f"id = {known}"))
        changed = keyed_table([known, new], UPDATED_NAME)
        return lambda: self._counted(lambda: table.upsert(changed, join_cols=["id"]))

    def recover(self) -> None:
        self._table.refresh()

    def _counted(self, call: Callable[[], object]) -> None:
        before = self._attempts.count
        try:
            call()
        finally:
            self.retries += max(0, self._attempts.count - before - 1)


class _Attempts:
    """Counts the commit attempts that a catalog receives."""

    def __init__(self, catalog: Catalog, path: str) -> None:
        self.count = 0
        if isinstance(catalog, RestCatalog):
            self._watch_requests(catalog._session, path)
        else:
            self._watch_calls(catalog)

    def _watch_requests(self, session: Session, path: str) -> None:
        send = session.send

        def counting(request: PreparedRequest, **options: Any) -> Response:
            self.count += request.method == "POST" and request.path_url.endswith(path)
            return send(request, **options)

        session.send = counting  # type: ignore[method-assign]

    def _watch_calls(self, catalog: Catalog) -> None:
        commit_table = catalog.commit_table

        def counting(*arguments: Any, **named: Any) -> CommitTableResponse:
            self.count += 1
            return commit_table(*arguments, **named)

        catalog.commit_table = counting  # type: ignore[method-assign]


# --- before and after a measurement -------------------------------------------------------------


def administer(settings: dict[str, Any], question: dict[str, Any]) -> Any:
    """Prepare or inspect tables with stock PyIceberg, whichever client the writers use."""
    catalog = _catalog(settings["administrator"])
    if question["do"] == "start":
        catalog.create_namespace_if_not_exists(NAMESPACE)
        return None
    if question["do"] == "register":
        catalog.register_table((NAMESPACE, question["table"]), question["metadata_location"])
        return None
    if question["do"] == "seed":
        return _seed(catalog)
    if question["do"] == "create buckets":
        return _create_buckets(catalog, question)
    table = catalog.load_table((NAMESPACE, question["table"]))
    return _counts(table)


def _seed(catalog: Catalog) -> dict[str, Any]:
    """Return the metadata of a table with one append, whose files are the head of every history."""
    rows = small_table()
    table = catalog.create_table((NAMESPACE, "seed"), rows.schema, properties=PROPERTIES)
    table.append(rows)
    found: dict[str, Any] = json.loads(table.metadata.model_dump_json())
    return found


def _create_buckets(catalog: Catalog, question: dict[str, Any]) -> None:
    """Create a bucket for each writer, with one file and with rows that this writer may change."""
    writers, keys = question["writers"], question["keys"]
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "name", StringType(), required=False),
    )
    bucket = PartitionField(1, _BUCKET_FIELD_ID, BucketTransform(writers), "id_bucket")
    table = catalog.create_table(
        (NAMESPACE, question["table"]), schema, partition_spec=PartitionSpec(bucket)
    )
    first = [key for keys_of_one in _keys(writers, keys) for key in keys_of_one]
    table.append(keyed_table(first, "first"))


def _counts(table: Table) -> dict[str, int]:
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    return {
        "snapshots": len(table.metadata.snapshots),
        "records": int(head.summary["total-records"] or 0),
        "rows": table.scan().count(),
    }


def _keys(buckets: int, count: int) -> list[list[int]]:
    bucket_of = BucketTransform(buckets).transform(LongType())
    return keys_by_bucket(bucket_of, buckets, count)


def _catalog(properties: dict[str, str]) -> Catalog:
    # PyIceberg logs each retry, and each superseded metadata file that is already gone.
    logging.getLogger("pyiceberg").setLevel(logging.CRITICAL)
    return load_catalog("bench", **properties)
