"""The server is killed and restarted in the middle of a call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.client.catalog_client import Client
from frazil.client.send.error_answers import CatalogUnreachable
from frazil.client.send.http_transport import Answer, HttpTransport, NotSent, Request
from frazil.client.send.retry_policy import RetryPolicy
from tests.client.faulty import (
    OPERATIONS,
    Append,
    Operation,
    Overwrite,
    Truth,
    TwoTables,
    call,
    check_keys,
    check_word,
    hasty_client,
    quick_client,
)
from tests.support.machine import Machine
from tests.support.proxy import (
    Abandon,
    DropAnswer,
    DropRequest,
    Fault,
    Pass,
    running_proxy,
)
from tests.support.readme import free_port
from tests.support.server import ServerFactory


@pytest.fixture
def machine(server: ServerFactory, tmp_path: Path) -> Machine:
    return Machine(server, tmp_path / "machine")


def play(machine: Machine, faults: tuple[Fault, ...], kind: type[Operation]) -> None:
    operation = kind(Truth(machine.server.url))
    with running_proxy(machine.server.url, faults) as proxy, quick_client(proxy.url) as client:
        machine.proxy = proxy
        outcome = call(operation, client)
        proxy.settle()
        assert proxy.unplayed == 0
        check_keys(proxy.changes)
    assert outcome.error is None
    operation.truth = Truth(machine.server.url)
    check_word(operation, outcome)


def moments(machine: Machine) -> dict[str, tuple[Fault, ...]]:
    return {
        "before-it-came": (DropRequest(action=machine.restart),),
        "while-it-works": (Abandon(action=machine.restart),),
        "after-it-answered": (DropAnswer(action=machine.restart),),
        "while-the-client-waits": (Pass(action=machine.restart),),
        "and-is-away-for-a-while": (
            DropAnswer(action=machine.kill),
            Pass(),
            Pass(),
            Pass(action=machine.start),
        ),
        "again-and-again": (
            Abandon(action=machine.restart),
            Abandon(action=machine.restart),
            DropAnswer(action=machine.restart),
        ),
    }


USUAL = {
    ("before-it-came", Append),
    ("while-it-works", TwoTables),
    ("after-it-answered", Overwrite),
    ("and-is-away-for-a-while", Append),
}
NAMES = (
    "before-it-came",
    "while-it-works",
    "after-it-answered",
    "while-the-client-waits",
    "and-is-away-for-a-while",
    "again-and-again",
)


@pytest.mark.parametrize(
    ("moment", "kind"),
    [
        pytest.param(
            moment,
            kind,
            id=f"{moment}-{kind.__name__}",
            marks=() if (moment, kind) in USUAL else pytest.mark.full,
        )
        for moment in NAMES
        for kind in OPERATIONS
    ],
)
def test_a_server_killed_in_between(moment: str, kind: type[Operation], machine: Machine) -> None:
    play(machine, moments(machine)[moment], kind)


@pytest.mark.parametrize(
    "moment", ["after-it-answered", pytest.param("while-it-works", marks=pytest.mark.full)]
)
def test_a_server_killed_on_postgresql(
    moment: str, server: ServerFactory, postgres_database: str, tmp_path: Path
) -> None:
    machine = Machine(server, tmp_path / "machine", "--database", postgres_database)
    play(machine, moments(machine)[moment], TwoTables)


# --- without anything in between -------------------------------------------------------------


class Watched:
    """The real transport; it calls `unsent` whenever a connection is refused."""

    def __init__(self, uri: str, unsent: Callable[[], object]) -> None:
        self._real = HttpTransport(uri)
        self._unsent = unsent
        self.refused = 0

    def send(self, request: Request) -> Answer:
        try:
            return self._real.send(request)
        except NotSent:
            self.refused += 1
            self._unsent()
            raise


def test_a_refused_connection_is_tried_again(server: ServerFactory, tmp_path: Path) -> None:
    machine = Machine(server, tmp_path / "machine", "--port", str(free_port()))
    truth = Truth(machine.server.url)
    operation = Append(truth)

    def start_at_the_second() -> None:
        if transport.refused == 2:
            machine.start()

    transport = Watched(machine.server.url, start_at_the_second)
    client = Client(transport=transport, retry=RetryPolicy(4, 1, 20, 60_000))
    table = client.load_table(operation.name)
    machine.kill()
    commit = table.append_files([operation.new], summary={"marked-by": operation.mark})
    assert transport.refused == 2
    assert commit.attempts == 3
    assert operation.times() == 1


def test_nobody_there(server: ServerFactory, tmp_path: Path) -> None:
    """The outcome is not unknown, because nothing was sent."""
    machine = Machine(server, tmp_path / "machine", "--port", str(free_port()))
    operation = Append(Truth(machine.server.url))
    client = hasty_client(machine.server.url)
    table = client.load_table(operation.name)
    machine.kill()
    with pytest.raises(CatalogUnreachable):
        table.append_files([operation.new])
    with pytest.raises(CatalogUnreachable):
        client.load_table(operation.name)
    machine.start()
    assert operation.times() == 0
