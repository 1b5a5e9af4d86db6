"""A server that is away: every step of the client waits for it, and says so."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest
from urllib3.exceptions import NameResolutionError

from frazil import Client, CommitStateUnknown
from frazil.client.catalog_config import ConfigError, client_arguments
from frazil.client.send.catalog_calls import Calls
from frazil.client.send.error_answers import CatalogUnreachable
from frazil.client.send.http_transport import HttpTransport, NotSent, Request, Unusable, failure_of
from frazil.client.send.outages import Outages
from frazil.client.send.retry_policy import RetryPolicy
from frazil.client.send.submit import SubmitPolicy, submit
from frazil.wire.errors import BadRequest, FrazilError
from tests.client.faulty import Append, Truth
from tests.client.test_waits import POLICY, HeldClock, chosen
from tests.client.test_waits import append as append_request
from tests.db.cutting_proxy import Cut, CuttingProxy
from tests.support.machine import Machine, machine_on_one_port
from tests.support.patience import HANG_S, wait_until
from tests.support.proxy import DropAnswer, DropRequest, running_proxy
from tests.support.server import clean_environment

T = TypeVar("T")
ONCE = RetryPolicy(0, 50, 200, 0)
"""Retries nothing, so that only the wait for the server helps."""
NO_RETRIES = {"commit.retry.num-retries": "0", "commit.status-check.num-retries": "0"}

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine_on_one_port(tmp_path_factory.mktemp("outages")) as machine:
        yield machine


@pytest.fixture
def truth(machine: Machine) -> Truth:
    return Truth(machine.url)


def patient(uri: str, **options: Any) -> Client:
    return Client(uri, retry=ONCE, outage_timeout_s=HANG_S, **options)


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [line for line in caplog.messages if text in line]


class Unretried(Append):
    """An append to a table whose properties allow no retries."""

    def prepare(self) -> str:
        return self.truth.new_table(first_file=True, properties=NO_RETRIES)


# --- every step ----------------------------------------------------------------------------------


def test_every_step_waits_for_a_server_that_was_killed(
    machine: Machine, truth: Truth, caplog: pytest.LogCaptureFixture
) -> None:
    append = Unretried(truth)
    name = append.name

    table, planned = (patient(machine.url).load_table(name) for _ in range(2))
    client = patient(machine.url)
    client.list_namespaces()
    steps: list[Callable[[], object]] = [
        lambda: table.append_files([append.new], summary={"marked-by": append.mark}),
        lambda: planned.plan().tasks,
        lambda: client.load_table(name),
        lambda: patient(machine.url).list_namespaces(),
        lambda: patient(machine.url).create_namespace(append.mark),
    ]
    machine.kill()
    with ThreadPoolExecutor(len(steps)) as threads:
        running = [threads.submit(step) for step in steps]
        wait_until(
            lambda: len(lines(caplog, "does not answer")) + _ended(running) == len(steps),
            "not every step waited",
        )
        machine.start()
        for step in running:
            step.result()
    assert append.times() == 1
    assert truth.client.namespace_exists(append.mark)
    (first_line, *others) = lines(caplog, "does not answer")
    assert len(others) == len(steps) - 1
    assert first_line.startswith(
        f"catalog at {machine.url} does not answer (connection refused); waiting up to {HANG_S:.0f}"
    )
    assert len(lines(caplog, f"catalog at {machine.url} answered after")) == len(steps)


def _ended(running: list[Future[object]]) -> int:
    return sum(step.done() for step in running)


def test_every_step_waits_for_a_server_that_hangs(
    machine: Machine, truth: Truth, caplog: pytest.LogCaptureFixture
) -> None:
    append = Unretried(truth)
    table = patient(machine.url, timeout_s=0.3).load_table(append.name)
    machine.freeze()
    try:
        with ThreadPoolExecutor(2) as threads:
            running: list[Future[object]] = [
                threads.submit(
                    table.append_files, [append.new], summary={"marked-by": append.mark}
                ),
                threads.submit(patient(machine.url, timeout_s=0.3).load_table, append.name),
            ]
            wait_until(
                lambda: len(lines(caplog, "(no answer in time)")) + _ended(running) == len(running),
                "not every step waited",
            )
            machine.thaw()
            for step in running:
                step.result()
    finally:
        machine.thaw()
    assert append.times() == 1


def test_a_killed_server_answers_a_commit_that_it_has_done(machine: Machine, truth: Truth) -> None:
    """The answer is lost, the server is killed, and the repeated request commits nothing more."""
    append = Unretried(truth)
    with running_proxy(machine.url, [DropAnswer(action=machine.kill)]) as proxy:
        table = patient(proxy.url).load_table(append.name)
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(
                table.append_files, [append.new], summary={"marked-by": append.mark}
            )
            wait_until(lambda: len(proxy.changes) > 4 or running.done(), "nothing was sent again")
            machine.start()
            commit = running.result()
    assert commit.attempts == len(proxy.changes) > 4
    assert len({change.key for change in proxy.changes}) == 1
    assert append.times() == 1


# --- what is known -------------------------------------------------------------------------------


def test_a_body_that_was_cut_was_not_sent(machine: Machine, truth: Truth) -> None:
    """The connection ends while the body is sent, and then nobody is there."""
    append = Unretried(truth)
    proxy = CuttingProxy(machine.server.port)
    proxy.start()
    uri = f"http://127.0.0.1:{proxy.port}"
    client = Client(uri, retry=ONCE, outage_timeout_s=0.1)
    table = client.load_table(append.name)
    proxy.stop()  # no new connections; the one of the client stays
    proxy.cut_at(b"POST ", Cut.BEFORE)
    more_than_the_buffers = "x" * (32 << 20)
    with pytest.raises(CatalogUnreachable, match=r"refused.*; waited 0\.[0-9] s"):
        table.append_files([append.new], summary={"long": more_than_the_buffers})
    assert not proxy.armed
    assert append.times() == 0


def test_a_request_that_was_sent_stays_unknown(machine: Machine, truth: Truth) -> None:
    append = Unretried(truth)
    proxy = CuttingProxy(machine.server.port)
    proxy.start()
    client = Client(f"http://127.0.0.1:{proxy.port}", retry=ONCE, outage_timeout_s=0.1)
    table = client.load_table(append.name)
    proxy.stop()
    proxy.cut_at(b"POST ", Cut.AFTER_ANSWER)
    with pytest.raises(CommitStateUnknown):
        table.append_files([append.new], summary={"marked-by": append.mark})
    assert append.times() == 1


def test_an_unknown_outcome_is_asked_for_as_long_as_the_key_lives(
    machine: Machine, truth: Truth
) -> None:
    """The default of 30 s does not end the wait for an outcome; a time that is chosen does."""
    with running_proxy(machine.url) as proxy:
        transport = HttpTransport(proxy.url)
        transport.send(Request("GET", "config"))
        for outages, longest_s in ((Outages(), 100.0), (chosen(7), 7.0)):
            held, operation = HeldClock(), Append(truth)
            policy = SubmitPolicy(POLICY, key_lifetime_s=100.0, clock=held.clock(), outages=outages)
            proxy.script(DropAnswer(), *[DropRequest()] * 200)
            with pytest.raises(CommitStateUnknown):
                submit(transport, partial(append_request, operation), policy)
            assert longest_s - 3 <= sum(held.slept) <= longest_s
            assert operation.times() == 1


def test_a_server_that_stays_away_is_unreachable(truth: Truth) -> None:
    """Nothing was sent, so that the wait ends with the default of the client."""
    held = HeldClock()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(CatalogUnreachable, match="refused; waited 30 s") as raised:
            Calls(HttpTransport(uri), clock=held.clock()).get("namespaces")
    assert round(sum(held.slept), 6) == 30.0
    assert max(held.slept) == 3.0
    assert raised.value.__suppress_context__, "tracebacks of urllib3 would hide the message"


def test_retries_without_a_pause_do_not_become_a_flood(truth: Truth) -> None:
    held = HeldClock()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(CatalogUnreachable):
            Calls(HttpTransport(uri), retry=RetryPolicy(0, 0, 0, 0), clock=held.clock()).get("x")
    assert len(held.slept) < 30


# --- what no wait helps --------------------------------------------------------------------------


def test_an_unknown_host_is_an_error_at_once() -> None:
    """Only a failure of the name service itself may pass."""

    def failure(number: int) -> object:
        reason = socket.gaierror(number, "as the resolver says")
        error = NameResolutionError("nowhere.invalid", None, reason)  # type: ignore[arg-type]
        error.__cause__ = reason
        return failure_of(error, "nowhere")

    assert isinstance(failure(socket.EAI_NONAME), Unusable)
    temporary = failure(socket.EAI_AGAIN)
    assert isinstance(temporary, NotSent)
    assert not isinstance(temporary, Unusable)
    with pytest.raises(CatalogUnreachable, match="Failed to parse"):
        Client(f"http://{'long' * 20}.invalid").list_namespaces()


# --- the user ------------------------------------------------------------------------------------

WAITING = """
import sys
from frazil import Client
Client(sys.argv[1], outage_timeout_s=36_000).list_namespaces()
"""


def test_an_interrupt_ends_the_wait() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{closed.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-c", WAITING, uri],
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == (
            f"catalog at {uri} does not answer (connection refused); waiting up to 36000 s\n"
        )
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=HANG_S)
    assert rest.rstrip().endswith("KeyboardInterrupt")


def test_the_time_can_be_set() -> None:
    assert client_arguments({"frazil.outage-timeout-s": "2.5"})["outage_timeout_s"] == 2.5
    for text in ("soon", "-1", "inf"):
        with pytest.raises(ConfigError, match=f"frazil.outage-timeout-s: '{text}'"):
            client_arguments({"frazil.outage-timeout-s": text})
    with pytest.raises(BadRequest, match="outage_timeout_s: -1 must be"):
        Client(outage_timeout_s=-1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{closed.getsockname()[1]}"
        properties = {"frazil.outage-timeout-s": "0"}
        with pytest.raises(FrazilError, match=r"refused$"):
            Client(uri, properties=properties).list_namespaces()
