"""PyIceberg processes that follow instructions: `python -m tests.pyiceberg.worker URL FD...`.

The modules are loaded once; then a process is forked for each file descriptor, which is a
socket. One line of JSON names a table and a list of writes. The worker loads the table with its
own catalog, sends `ready`, waits for a line, does the writes and reports the outcome of each.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import pyarrow as pa
from pyiceberg.table import Table

from tests.pyiceberg.conftest import frazil_catalog
from tests.pyiceberg.tables import ARROW


def from_json(given: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table; times are microseconds in JSON."""
    fields = [f.with_type(pa.int64()) if f.name == "at" else f for f in ARROW]
    plain = pa.schema(fields)
    return pa.Table.from_pylist(list(given), schema=plain).cast(ARROW)


def do(table: Table, write: Mapping[str, Any]) -> None:
    match write["do"]:
        case "append":
            table.append(from_json(write["rows"]))
        case "delete":
            table.delete(write["filter"])
        case "upsert":
            table.upsert(from_json(write["rows"]), join_cols=write["keys"])
        case "overwrite":
            table.overwrite(from_json(write["rows"]), overwrite_filter=write["filter"])
        case "replace partitions":
            table.dynamic_partition_overwrite(from_json(write["rows"]))
        case other:
            raise ValueError(f"unknown write {other!r}")


def outcome(table: Table, write: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        do(table, write)
    except Exception as error:
        return {
            "error": type(error).__name__,
            "bases": [kind.__name__ for kind in type(error).__mro__],
            "message": str(error),
            "conflicts": len(getattr(error, "conflicts", ())),
        }
    return {}


def serve(url: str, wire: TextIO) -> None:
    for line in wire:
        order = json.loads(line)
        catalog = frazil_catalog(url)
        table = catalog.load_table(order["table"])
        _say(wire, "ready")
        wire.readline()
        _say(wire, json.dumps([outcome(table, write) for write in order["writes"]]))
        catalog.close()


def _say(wire: TextIO, text: str) -> None:
    wire.write(f"{text}\n")
    wire.flush()


def main(url: str, *descriptors: str) -> None:
    warnings.simplefilter("ignore")
    children = [_fork(url, int(descriptor)) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(int(descriptor))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


def _fork(url: str, descriptor: int) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with socket.socket(fileno=descriptor) as end:
                serve(url, end.makefile("rw"))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


if __name__ == "__main__":
    main(*sys.argv[1:])
