"""PyIceberg through Frazil on a bad network: committed once or not at all, no file lost.

Written files are deleted only if it is certain that nothing was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, ValidationException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from tests.client.faulty import QUICK, check_keys
from tests.pyiceberg.conftest import frazil_catalog
from tests.support.proxy import (
    Abandon,
    CutAnswer,
    CutRequest,
    DropAnswer,
    DropRequest,
    Duplicate,
    Fault,
    HoldAnswer,
    HoldRequest,
    Pass,
    Proxy,
    Respond,
    running_proxy,
)
from tests.support.server import RunningServer

IMPATIENT_S = "3.0"
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "size", LongType()))
Rows = dict[int, int]


def arrow(rows: Rows) -> pa.Table:
    return pa.table({"id": list(rows), "size": list(rows.values())})


def _transaction(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append(arrow({5: 50}))
        transaction.delete("id = 1")
        transaction.set_properties(loaded="yes")


BEFORE: Rows = {1: 10, 2: 20, 3: 30}
CALLS: dict[str, tuple[Callable[[Table], object], Rows]] = {
    "append": (lambda table: table.append(arrow({4: 40})), {**BEFORE, 4: 40}),
    "overwrite": (lambda table: table.overwrite(arrow({4: 40})), {4: 40}),
    "delete": (lambda table: table.delete("id = 1"), {2: 20, 3: 30}),
    "upsert": (
        lambda table: table.upsert(arrow({3: 31, 4: 40}), join_cols=["id"]),
        {1: 10, 2: 20, 3: 31, 4: 40},
    ),
    "transaction": (_transaction, {2: 20, 3: 30, 5: 50}),
}
FAULTS: dict[str, Fault] = {
    "request-dropped": DropRequest(),
    "request-cut": CutRequest(),
    "answer-dropped": DropAnswer(),
    "answer-not-awaited": Abandon(),
    "answer-cut": CutAnswer(),
    "request-after-its-retry": HoldRequest("retried"),
    "answer-late": HoldAnswer("gone"),
    "twice-at-once": Duplicate(),
    "gateway-timeout-when-done": Respond(504, forwarded=True),
    "come-again": Respond(503, 0),
    "too-many-requests": Respond(429, 0),
}


@pytest.fixture
def proxy(catalog_server: RunningServer) -> Iterator[Proxy]:
    with running_proxy(catalog_server.url) as proxy:
        yield proxy


@pytest.fixture
def direct(frazil: Catalog, namespace: str) -> Table:
    """Return the table as loaded from the server, not through the proxy."""
    table = frazil.create_table(f"{namespace}.t", SCHEMA, properties=QUICK)
    table.append(arrow(BEFORE))
    return table


@pytest.fixture
def table(proxy: Proxy, direct: Table) -> Iterator[Table]:
    catalog = frazil_catalog(proxy.url, **{"frazil.request-timeout-s": IMPATIENT_S})
    yield catalog.load_table(direct.name())
    catalog.close()


def rows(direct: Table) -> Rows:
    found = direct.refresh().scan().to_arrow().to_pydict()
    assert len(set(found["id"])) == len(found["id"])
    return dict(zip(found["id"], found["size"], strict=True))


def written(direct: Table) -> set[str]:
    folder = Path(direct.location().removeprefix("file://")) / "data"
    return {path.name for path in folder.rglob("*.parquet")}


def declared(direct: Table) -> set[str]:
    """Return every data file that any snapshot references."""
    files: set[str] = set()
    for snapshot in direct.refresh().snapshots():
        for path in direct.inspect.data_files(snapshot.snapshot_id)["file_path"].to_pylist():
            files.add(Path(path).name)
    return files


@pytest.mark.parametrize(
    ("fault", "call"),
    [
        pytest.param(
            fault,
            call,
            id=f"{fault}-{call}",
            marks=() if (row + column) % len(CALLS) == 0 else pytest.mark.full,
        )
        for row, fault in enumerate(FAULTS)
        for column, call in enumerate(CALLS)
    ],
)
def test_a_fault_does_not_change_what_is_done(
    fault: str, call: str, table: Table, direct: Table, proxy: Proxy
) -> None:
    act, expected = CALLS[call]
    before = len(direct.refresh().metadata.metadata_log)
    proxy.script(FAULTS[fault])
    act(table)
    proxy.settle()
    assert proxy.unplayed == 0
    check_keys(proxy.changes)
    assert rows(direct) == expected
    # All snapshots of the call were committed by one swap, and there was no other swap.
    assert len(direct.refresh().metadata.metadata_log) == before + 1
    assert written(direct) == declared(direct)
    # The client's table has the same rows as the server's.
    assert dict(table.scan().to_arrow().to_pydict()) == dict(direct.scan().to_arrow().to_pydict())


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", [DropRequest(), DropAnswer()])
def test_nothing_is_deleted_while_the_outcome_is_not_known(
    fault: Fault, call: str, direct: Table, proxy: Proxy
) -> None:
    act, expected = CALLS[call]
    catalog = frazil_catalog(proxy.url, **{"frazil.outage-timeout-s": "0.05"})
    table = catalog.load_table(direct.name())
    before = written(direct)
    proxy.script(*[fault] * 50)
    with pytest.raises(CommitStateUnknownException):
        act(table)
    catalog.close()
    done = isinstance(fault, DropAnswer)
    assert rows(direct) == (expected if done else BEFORE)
    assert declared(direct) <= written(direct)
    assert written(direct) > before, "what was written for the call is kept"


@pytest.mark.parametrize("fault", [Pass(), DropAnswer(), HoldRequest("retried")])
def test_a_refusal_takes_what_was_written_with_it(
    fault: Fault, table: Table, direct: Table, proxy: Proxy
) -> None:
    direct.delete("id = 1")
    before = written(direct)
    proxy.script(fault)
    with pytest.raises(ValidationException):
        table.delete("id = 2")
    proxy.settle()
    assert rows(direct) == {2: 20, 3: 30}
    assert written(direct) == before == declared(direct)
    if isinstance(fault, Pass):
        assert len(proxy.changes) == 1


def test_a_server_that_cannot_be_asked_proves_nothing(
    table: Table, direct: Table, proxy: Proxy
) -> None:
    """The response is lost, and then the proxy claims that the table does not exist."""
    before = written(direct)
    proxy.script(DropAnswer(), Respond(404))
    with pytest.raises(CommitStateUnknownException):
        table.append(arrow({4: 40}))
    assert rows(direct) == {**BEFORE, 4: 40}
    assert declared(direct) == written(direct) > before
