"""Every call is committed once or not at all, and the client reports which.

A real client talks to a real server through a proxy that loses, delays, duplicates and cuts
messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from frazil.client.catalog_client import Client
from frazil.client.send.error_answers import CatalogUnreachable
from frazil.client.send.retry_policy import RetryPolicy
from frazil.wire.errors import (
    CommitStateUnknown,
    FrazilError,
    TooManyRequests,
    ValidationError,
)
from tests.client.faulty import (
    MARK,
    NAMESPACE,
    OPERATIONS,
    Append,
    NewBranch,
    NewTable,
    Operation,
    Outcome,
    Overwrite,
    Truth,
    TwoTables,
    call,
    check_keys,
    check_word,
    client_for,
    data_file,
    hasty_client,
    impatient_client,
    quick_client,
    through,
)
from tests.support.postgres import PostgresServer
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
from tests.support.server import RunningServer, running_server

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def sqlite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("faults")) as server:
        yield server


@pytest.fixture(scope="module")
def server_on_postgresql(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    database = postgres_server.create_database()
    with running_server(tmp_path_factory.mktemp("faults"), "--database", database) as server:
        yield server
    postgres_server.drop_database(database)


@pytest.fixture
def truth(sqlite_server: RunningServer) -> Truth:
    return Truth(sqlite_server.url)


@pytest.fixture
def proxy(sqlite_server: RunningServer) -> Iterator[Proxy]:
    with running_proxy(sqlite_server.url) as proxy:
        yield proxy


FAULTS: dict[str, tuple[Fault, ...]] = {
    "nothing": (),
    "request-dropped": (DropRequest(),),
    "request-cut": (CutRequest(),),
    "answer-dropped": (DropAnswer(),),
    "answer-not-awaited": (Abandon(),),
    "answer-cut": (CutAnswer(),),
    "request-late": (HoldRequest("gone"),),
    "request-after-its-retry": (HoldRequest("retried"),),
    "request-after-all": (HoldRequest("released"),),
    "answer-late": (HoldAnswer("gone"),),
    "twice-at-once": (Duplicate(),),
    "twice-second-answers": (Duplicate(together=False, answer_with=1),),
    "bad-gateway": (Respond(502),),
    "unavailable": (Respond(503),),
    "gateway-timeout": (Respond(504),),
    "gateway-timeout-when-done": (Respond(504, forwarded=True),),
    "unavailable-when-done": (Respond(503, 0, forwarded=True),),
    "too-many-requests": (Respond(429, 0),),
    "come-again": (Respond(503, 0),),
    "all-at-once": (DropAnswer(), CutRequest(), Respond(502), CutAnswer()),
}


def chosen(every: int) -> list[Any]:
    """Return cases that combine every fault with some operations, and with all of them under
    --full."""
    found = []
    for (row, fault), (column, kind) in product(enumerate(FAULTS), enumerate(OPERATIONS)):
        marks = () if (row + column) % every == 0 else (pytest.mark.full,)
        found.append(pytest.param(fault, kind, id=f"{fault}-{kind.__name__}", marks=marks))
    return found


def play(proxy: Proxy, fault: str, operation: Operation) -> Outcome:
    proxy.script(*FAULTS[fault])
    outcome = through(proxy, operation, FAULTS[fault])
    assert proxy.unplayed == 0
    return outcome


@pytest.mark.parametrize(("fault", "kind"), chosen(every=3))
def test_a_fault_does_not_change_what_is_done(
    fault: str, kind: type[Operation], truth: Truth, proxy: Proxy
) -> None:
    outcome = play(proxy, fault, kind(truth))
    assert outcome.error is None, "there were retries enough"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("answer-dropped", TwoTables),
        ("request-after-its-retry", Append),
        ("twice-at-once", Overwrite),
        *(
            pytest.param(fault, kind, marks=pytest.mark.full)
            for fault in FAULTS
            for kind in OPERATIONS
        ),
    ],
)
def test_the_same_on_postgresql(
    fault: str, kind: type[Operation], server_on_postgresql: RunningServer
) -> None:
    with running_proxy(server_on_postgresql.url) as proxy:
        outcome = play(proxy, fault, kind(Truth(server_on_postgresql.url)))
    assert outcome.error is None


# --- where it ends ---------------------------------------------------------------------------


def lasting() -> list[Any]:
    """Return a case for every fault and operation. A new table has no properties yet that
    shorten the waits, so it takes seconds; it runs with one fault, and with all under --full."""
    faults = {
        "request-dropped": DropRequest(),
        "answer-dropped": DropAnswer(),
        "gateway-timeout": Respond(504, forwarded=True),
    }
    return [
        pytest.param(
            fault,
            kind,
            id=f"{name}-{kind.__name__}",
            marks=pytest.mark.full if kind is NewTable and name != "answer-dropped" else (),
        )
        for name, fault in faults.items()
        for kind in OPERATIONS
    ]


@pytest.mark.parametrize(("fault", "kind"), lasting())
def test_an_outcome_that_stays_unknown_is_called_unknown(
    fault: Fault, kind: type[Operation], truth: Truth, proxy: Proxy
) -> None:
    proxy.script(*[fault] * 50)
    operation = kind(truth)
    outcome = through(proxy, operation, client=hasty_client(proxy.url))
    assert isinstance(outcome.error, CommitStateUnknown)
    done = {change.forwarded > 0 for change in proxy.changes}
    assert done == {not isinstance(fault, DropRequest)}


def test_an_answer_that_says_nothing_of_the_first_sending_proves_nothing(
    truth: Truth, proxy: Proxy
) -> None:
    for status in (401, 403, 404):
        proxy.script(DropAnswer(), Respond(status))
        operation = Append(truth)
        outcome = call(operation, quick_client(proxy.url))
        assert isinstance(outcome.error, CommitStateUnknown), status
        assert operation.times() == 1


def test_a_refusal_of_the_first_sending_is_the_last_word(truth: Truth, proxy: Proxy) -> None:
    proxy.script(Respond(403))
    outcome = through(proxy, Append(truth))
    assert outcome.error is not None
    assert outcome.error.status == 403
    assert len(proxy.changes) == 1


@pytest.mark.parametrize("fault", [Pass(), DropAnswer(), HoldRequest("retried"), Duplicate()])
def test_a_conflict_is_raised_at_once(fault: Fault, truth: Truth, proxy: Proxy) -> None:
    operation = Overwrite(truth)
    client = client_for([fault], proxy.url)
    table = client.load_table(operation.name)
    rival = data_file(operation.location, 1_000_000)
    truth.client.overwrite_files(operation.name, [rival], [operation.old])
    proxy.script(fault)
    with pytest.raises(ValidationError) as refused:
        table.overwrite_files(add=[operation.new], remove=[operation.old])
    proxy.settle()
    assert refused.value.conflicts
    assert truth.live(operation.name) == [rival.file_path]
    check_keys(proxy.changes)
    # There is one request, and more only if its response was lost.
    if isinstance(fault, Pass | Duplicate):
        assert len(proxy.changes) == 1


# --- requirements that do not hold -----------------------------------------------------------


def test_a_failed_requirement_is_built_again_with_a_new_key(truth: Truth, proxy: Proxy) -> None:
    name = truth.new_table(first_file=True)
    table = truth.client.load_table(name)
    first = table.head()
    table.append_files([data_file(table.location, 1)])
    proxy.script(
        Pass(action=lambda: truth.client.append_files(name, [data_file(table.location, 2)]))
    )
    with quick_client(proxy.url) as client:
        commit = client.rollback(name, first)
    assert truth.client.load_table(name).head() == first
    refused, accepted = proxy.changes
    assert (refused.statuses, accepted.statuses) == ([409], [200])
    assert refused.key != accepted.key
    assert refused.body != accepted.body
    assert commit.attempts == 2


def test_a_late_sending_of_what_was_built_again_does_nothing(truth: Truth, proxy: Proxy) -> None:
    name = truth.new_table(first_file=True)
    table = truth.client.load_table(name)
    first = table.head()
    table.append_files([data_file(table.location, 1)])

    def move() -> None:
        truth.client.append_files(name, [data_file(table.location, 2)])

    proxy.script(HoldRequest("released"), Pass(action=move))
    # The timeout is long enough for a busy machine: exactly one request may time out.
    with Client(proxy.url, timeout_s=3, retry=RetryPolicy(4, 1, 20, 60_000)) as client:
        client.rollback(name, first)
    before = truth.versions(name)
    proxy.settle()
    check_keys(proxy.changes)
    late, resent, rebuilt = proxy.changes
    assert late.key == resent.key != rebuilt.key
    assert late.statuses == [409]
    assert truth.versions(name) == before
    assert truth.client.load_table(name).head() == first


def test_somebody_else_was_first(truth: Truth, proxy: Proxy) -> None:
    """The branch that the call wants to create exists, and the client reports that nothing was
    committed."""
    operation = NewBranch(truth)
    proxy.script(Pass(action=lambda: truth.client.create_branch(operation.name, operation.mark)))
    outcome = call(operation, quick_client(proxy.url))
    assert outcome.error is not None
    assert outcome.error.status == 409
    assert operation.times() == 1
    assert len(proxy.changes) == 1


# --- at random -------------------------------------------------------------------------------

ANY_FAULT = (
    *(Pass() for _ in range(6)),
    DropRequest(),
    CutRequest(),
    DropAnswer(),
    Abandon(),
    CutAnswer(),
    Duplicate(),
    Duplicate(together=False),
    Duplicate(answer_with=1),
    Respond(429, 0),
    Respond(502),
    Respond(503, 0),
    Respond(504, forwarded=True),
    HoldRequest("retried"),
    HoldAnswer("gone"),
)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 30))]
)
def test_a_long_day_with_a_bad_network(seed: int, truth: Truth, proxy: Proxy) -> None:
    chance = Random(seed)
    operations = [chance.choice(OPERATIONS)(truth) for _ in range(25)]
    proxy.script(*chance.choices(ANY_FAULT, k=400))
    with impatient_client(proxy.url) as client:
        outcomes = [call(operation, client) for operation in operations]
    proxy.settle()
    for operation, outcome in zip(operations, outcomes, strict=True):
        check_word(operation, outcome)
    check_keys(proxy.changes)
    assert len(proxy.changes) > len(operations)
    # The client reports an error only if the outcome is unknown or the request was not accepted.
    refused = [outcome.error for outcome in outcomes if outcome.error is not None]
    allowed = CommitStateUnknown | TooManyRequests | CatalogUnreachable
    assert all(isinstance(error, allowed) for error in refused), refused


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 10))]
)
def test_writers_of_one_table_with_a_bad_network(seed: int, truth: Truth, proxy: Proxy) -> None:
    name = truth.new_table()
    location = truth.client.load_table(name).location
    proxy.script(*Random(seed).choices(ANY_FAULT, k=400))
    client = impatient_client(proxy.url)

    def write(number: int) -> tuple[int, FrazilError | None]:
        try:
            mark = f"writer-{number}"
            client.append_files(name, [data_file(location, number)], summary={MARK: mark})
        except FrazilError as error:
            return number, error
        return number, None

    with ThreadPoolExecutor(4) as writers:
        said = list(writers.map(write, range(1, 41)))
    proxy.settle()
    check_keys(proxy.changes)
    live = Counter(truth.live(name))
    for number, error in said:
        times = live[data_file(location, number).file_path]
        assert times == truth.marked(name, f"writer-{number}")
        assert times in Outcome(error=error).possible, (number, error)
    assert set(live.values()) == {1}
    assert truth.versions(name) <= len(live)


# --- changes that make no snapshot -----------------------------------------------------------


def _drop_table(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.new_table()
    client.drop_table(name)
    return lambda: not truth.client.table_exists(name)


def _purge_table(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.new_table()
    client.drop_table(name, purge=True)
    return lambda: not truth.client.table_exists(name)


def _rename_table(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.new_table()
    client.rename_table(name, f"{NAMESPACE}.{tag}")
    return lambda: truth.client.table_exists(f"{NAMESPACE}.{tag}")


def _register_table(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.new_table()
    location = truth.client.load_table(name).metadata_location
    truth.client.drop_table(name)
    client.register_table(f"{NAMESPACE}.{tag}", location)
    return lambda: truth.client.table_exists(f"{NAMESPACE}.{tag}")


def _create_namespace(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    client.create_namespace(tag, {"owner": "docs"})
    return lambda: truth.client.load_namespace(tag)["owner"] == "docs"


def _drop_namespace(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    truth.client.create_namespace(tag)
    client.drop_namespace(tag)
    return lambda: not truth.client.namespace_exists(tag)


def _update_namespace(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    truth.client.create_namespace(tag, {"a": "1"})
    client.update_namespace(tag, {"b": "2"}, ["a"])
    return lambda: truth.client.load_namespace(tag).keys() >= {"b"}


def _set_properties(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.new_table()
    client.set_properties(name, {"tag": tag})
    return lambda: truth.client.load_table(name).properties["tag"] == tag


def _stage_and_pick(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.new_table(first_file=True)
    table = truth.client.load_table(name)
    staged = table.append_files([data_file(table.location, 1)], stage_only=True)
    assert staged.snapshot_id is not None
    client.cherry_pick(name, staged.snapshot_id)
    return lambda: len(truth.live(name)) == 2


QUERY = "SELECT 1 AS id"


def _create_view(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    view = client.create_view(f"{NAMESPACE}.{tag}", "id int", QUERY)
    return lambda: truth.client.load_view(view.identifier).uuid == view.uuid


def _replace_view(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.client.create_view(f"{NAMESPACE}.{tag}", "id int", QUERY).identifier
    client.replace_view(name, "id int", "SELECT 2 AS id")
    return lambda: (
        [each.sql() for each in truth.client.load_view(name).versions]
        == [
            QUERY,
            "SELECT 2 AS id",
        ]
    )


def _rename_view(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.client.create_view(f"{NAMESPACE}.{tag}", "id int", QUERY).identifier
    client.rename_view(name, f"{NAMESPACE}.{tag}_new")
    return lambda: truth.client.view_exists(f"{NAMESPACE}.{tag}_new")


def _drop_view(truth: Truth, client: Client, tag: str) -> Callable[[], bool]:
    name = truth.client.create_view(f"{NAMESPACE}.{tag}", "id int", QUERY).identifier
    client.drop_view(name)
    return lambda: not truth.client.view_exists(name)


OTHERS = (
    _create_view,
    _replace_view,
    _rename_view,
    _drop_view,
    _drop_table,
    _purge_table,
    _rename_table,
    _register_table,
    _create_namespace,
    _drop_namespace,
    _update_namespace,
    _set_properties,
    _stage_and_pick,
)


@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.parametrize(
    "fault",
    [
        "answer-dropped",
        *(
            pytest.param(fault, marks=pytest.mark.full)
            for fault in FAULTS
            if fault != "answer-dropped"
        ),
    ],
)
def test_other_changes_are_made_once_too(
    fault: str,
    change: Callable[[Truth, Client, str], Callable[[], bool]],
    truth: Truth,
    proxy: Proxy,
) -> None:
    proxy.script(*FAULTS[fault])
    tag = f"x{uuid4().hex[:8]}"
    with client_for(FAULTS[fault], proxy.url) as client:
        is_done = change(truth, client, tag)
    proxy.settle()
    assert proxy.unplayed == 0
    assert is_done()
    check_keys(proxy.changes)
