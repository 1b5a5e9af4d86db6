"""`frazil.Client` in a service without an Iceberg library: Parquet by pyarrow, one request.

Requests are counted as they leave the client.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

# Imported before the writers are forked, so that they do not each import it.
import urllib3  # noqa: F401
from msgspec.structs import replace

import frazil.datafiles.footers.footer_reader  # noqa: F401
from benchmarks.client.operations import APPEND
from benchmarks.client.rows import small_table
from benchmarks.commit.bursts import Task
from benchmarks.histories import NAMESPACE
from frazil import Client, DataFile, Table
from frazil.client.send.http_transport import Answer, HttpTransport, Request

_CODEC: Final = "zstd"


def open_writer(settings: dict[str, Any], tables: tuple[str, ...], index: int) -> ThinWriter:
    return ThinWriter(settings["uri"], tables[0])


class ThinWriter:
    def __init__(self, uri: str, table: str) -> None:
        self._sent = _CountingTransport(uri)
        self._client = Client(transport=self._sent)
        self._rows = small_table()
        self._table = self._client.load_table((NAMESPACE, table), snapshots="refs")
        self._warm_up()
        self._folder = _data_folder(self._table)
        self._declared: DataFile | None = None
        self.retries = 0

    def _warm_up(self) -> None:
        """Write once to a private table, because a new process connects with its first write."""
        schema = self._table.metadata["schemas"][0]
        table = self._client.create_table((NAMESPACE, f"warm_{uuid.uuid4().hex}"), schema)
        path = f"{_data_folder(table)}/warm.parquet"
        self._write(path)
        table.append_files([path])

    def prepare(self, task: Task, at: int) -> Callable[[], object]:
        path = f"{self._folder}/{uuid.uuid4()}.parquet"
        if task.operation == APPEND:
            return lambda: self._counted(lambda: self._write_and_append(path))
        if self._declared is None:
            self._write(path)
            self._declared = DataFile.from_parquet(path, self._table)
        file = replace(self._declared, file_path=path)
        return lambda: self._counted(lambda: self._table.append_files([file]))

    def recover(self) -> None:
        """Do nothing: the appends do not depend on anything that was read before."""

    def _write(self, path: str) -> None:
        pq.write_table(self._rows, path.removeprefix("file://"), compression=_CODEC)

    def _write_and_append(self, path: str) -> None:
        self._write(path)
        self._table.append_files([path])

    def _counted(self, call: Callable[[], object]) -> None:
        before = self._sent.posts
        try:
            call()
        finally:
            self.retries += max(0, self._sent.posts - before - 1)


def _data_folder(table: Table) -> str:
    folder = f"{table.location}/data"
    Path(folder.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
    return folder


class _CountingTransport:
    def __init__(self, uri: str) -> None:
        self._transport = HttpTransport(uri)
        self.posts = 0

    def send(self, request: Request) -> Answer:
        self.posts += request.method == "POST"
        return self._transport.send(request)


def administer(settings: dict[str, Any], question: dict[str, Any]) -> Any:
    raise RuntimeError("tables are made and read back by PyIceberg")
