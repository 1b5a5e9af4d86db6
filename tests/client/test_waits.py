"""How often and how long the client retries, with real requests and a simulated clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import msgspec
import pytest

from frazil.client.catalog_client import Client
from frazil.client.send.http_transport import HttpTransport, Request
from frazil.client.send.outages import OutagePolicy, Outages
from frazil.client.send.retry_policy import Clock, RetryPolicy
from frazil.client.send.submit import Accepted, SubmitPolicy, submit
from frazil.wire.errors import (
    BadRequest,
    CommitFailed,
    CommitStateUnknown,
    FrazilError,
    TooManyRequests,
)
from tests.client.faulty import NAMESPACE, Append, Truth, data_file
from tests.support.proxy import DropAnswer, DropRequest, Fault, Pass, Proxy, Respond, running_proxy
from tests.support.server import RunningServer, running_server

pytestmark = pytest.mark.process


@dataclass
class HeldClock:
    """A clock that advances only by sleeping, with jitter that always gives the longest wait."""

    now: float = 1_000.0
    limits: list[tuple[float, float]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    jitter: float = 1.0

    def clock(self) -> Clock:
        return Clock(now_s=lambda: self.now, sleep_s=self._sleep, uniform=self._uniform)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def _uniform(self, lowest: float, highest: float) -> float:
        self.limits.append((lowest, highest))
        return lowest + (highest - lowest) * self.jitter


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("waits")) as server:
        yield server


@pytest.fixture
def truth(one_server: RunningServer) -> Truth:
    return Truth(one_server.url)


@pytest.fixture
def proxy(one_server: RunningServer) -> Iterator[Proxy]:
    with running_proxy(one_server.url) as proxy:
        yield proxy


@pytest.fixture
def held() -> HeldClock:
    return HeldClock()


def chosen(timeout_s: float) -> Outages:
    return Outages(policy=OutagePolicy.of(timeout_s))


def append(operation: Append) -> Request:
    file = msgspec.to_builtins(operation.new)
    update = {
        "action": "append",
        "summary": {"marked-by": operation.mark},
        "add-data-files": [file],
    }
    name = operation.name.split(".")[1]
    path = f"namespaces/{NAMESPACE}/tables/{name}"
    body = msgspec.json.encode({"requirements": [], "updates": [update]})
    return Request("POST", path, body, {"Prefer": "return=minimal"})


def send(proxy: Proxy, operation: Append, persistence: SubmitPolicy, *faults: Fault) -> Accepted:
    proxy.script(*faults)
    return submit(HttpTransport(proxy.url), lambda: append(operation), persistence)


POLICY = RetryPolicy(num_retries=6, min_wait_ms=100, max_wait_ms=1_000, total_timeout_ms=60_000)


def test_full_jitter_between_nothing_and_a_limit_that_doubles(
    truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    operation = Append(truth)
    accepted = send(
        proxy, operation, SubmitPolicy(POLICY, clock=held.clock()), *[Respond(429, 0)] * 6
    )
    assert accepted.attempts == 7
    assert held.limits == [(0, 0.1), (0, 0.2), (0, 0.4), (0, 0.8), (0, 1.0), (0, 1.0)]
    assert held.slept == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert operation.times() == 1


def test_chance_may_be_kind(truth: Truth, proxy: Proxy, held: HeldClock) -> None:
    held.jitter = 0.0
    send(proxy, Append(truth), SubmitPolicy(POLICY, clock=held.clock()), *[DropRequest()] * 3)
    assert held.slept == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("status", [429, 503])
def test_what_the_server_asks_for_is_waited(
    status: int, truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    operation = Append(truth)
    send(proxy, operation, SubmitPolicy(POLICY, clock=held.clock()), Respond(status, 7))
    assert held.slept == [7.1]
    assert operation.times() == 1


def test_a_wait_of_seconds_is_logged(
    truth: Truth, proxy: Proxy, held: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    policy = SubmitPolicy(POLICY, clock=held.clock())
    send(proxy, Append(truth), policy, Respond(429, 1), Respond(429, 5))
    (line,) = [each.getMessage() for each in caplog.records if each.name == "frazil.client"]
    assert line.endswith(f"; the catalog asks to wait 5 s (retry 2 of {POLICY.num_retries})")


def test_no_wait_goes_beyond_the_total(truth: Truth, proxy: Proxy, held: HeldClock) -> None:
    operation = Append(truth)
    persistence = SubmitPolicy(changed(POLICY, total_timeout_ms=6_000), clock=held.clock())
    with pytest.raises(TooManyRequests) as refused:
        send(proxy, operation, persistence, Respond(429, 7))
    assert refused.value.retry_after_s == 7
    assert held.slept == []
    assert operation.times() == 0


def test_no_retry_beyond_the_number(truth: Truth, proxy: Proxy, held: HeldClock) -> None:
    operation = Append(truth)
    persistence = SubmitPolicy(changed(POLICY, num_retries=2), clock=held.clock())
    with pytest.raises(TooManyRequests):
        send(proxy, operation, persistence, *[Respond(429, 0)] * 9)
    assert len(proxy.changes) == 3
    assert operation.times() == 0


def test_an_unknown_outcome_is_asked_after_when_the_retries_are_used_up(
    truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    operation = Append(truth)
    checks = RetryPolicy(num_retries=3, min_wait_ms=2_000, max_wait_ms=60_000)
    persistence = SubmitPolicy(changed(POLICY, num_retries=1), checks, clock=held.clock())
    accepted = send(proxy, operation, persistence, *[Respond(500, forwarded=True)] * 4)
    assert accepted.attempts == 5
    assert held.slept == [0.1, 2.0, 4.0, 8.0]
    assert len({change.key for change in proxy.changes}) == 1
    assert operation.times() == 1

    with pytest.raises(CommitStateUnknown):
        send(proxy, Append(truth), persistence, *[Respond(500, forwarded=True)] * 9)
    assert len(proxy.changes) == 5 + 5


def test_a_key_that_may_be_forgotten_is_not_sent_again(
    truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    operation = Append(truth)
    persistence = SubmitPolicy(POLICY, key_lifetime_s=0.25, clock=held.clock())
    with pytest.raises(CommitStateUnknown):
        send(proxy, operation, persistence, *[DropAnswer()] * 9)
    # The condition was still true after 0.1 s, and no longer true after 0.3 s.
    assert len(proxy.changes) == 2
    assert operation.times() == 1


def test_a_catalog_that_knows_no_keys_is_asked_once(
    truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    """Without keys, sending the same request again could apply the change twice."""
    operation = Append(truth)
    persistence = SubmitPolicy(POLICY, key_lifetime_s=None, clock=held.clock())
    with pytest.raises(CommitStateUnknown):
        send(proxy, operation, persistence, DropAnswer())
    (change,) = proxy.changes
    assert change.key is None
    assert operation.times() == 1
    # A change that certainly was not applied may be sent again even without a key.
    accepted = send(proxy, Append(truth), persistence, Respond(429, 0))
    assert accepted.attempts == 2


def test_a_success_that_is_not_the_catalogs_proves_nothing(
    truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    operation = Append(truth)
    accepted = send(proxy, operation, SubmitPolicy(POLICY, clock=held.clock()), Respond(200))
    assert accepted.attempts == 2
    assert operation.times() == 1
    with pytest.raises(CommitStateUnknown):
        persistence = SubmitPolicy(POLICY, clock=held.clock())
        send(proxy, Append(truth), persistence, *[Respond(200)] * 20)


def test_a_gateway_that_asks_for_patience_proves_nothing(
    truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    operation = Append(truth)
    with pytest.raises(CommitStateUnknown):
        persistence = SubmitPolicy(POLICY, clock=held.clock(), outages=chosen(10))
        send(proxy, operation, persistence, *[Respond(503, 1, forwarded=True)] * 20)
    assert operation.times() == 1


# --- failed requirements ---------------------------------------------------------------------


def test_rebuilding_counts_as_a_retry(truth: Truth, proxy: Proxy, held: HeldClock) -> None:
    """Another commit overtakes each attempt until the client gives up."""
    name = truth.new_table(first_file=True)
    table = truth.client.load_table(name)
    overtaken = 0

    def overtake() -> None:
        nonlocal overtaken
        overtaken += 1
        truth.client.append_files(name, [data_file(table.location, 1_000_000 + overtaken)])

    def build() -> Request:
        head = truth.client.load_table(name).head()
        body = {
            "requirements": [
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head}
            ],
            "updates": [{"action": "set-properties", "updates": {"built-on": str(head)}}],
        }
        path = f"namespaces/{NAMESPACE}/tables/{name.split('.')[1]}"
        return Request("POST", path, msgspec.json.encode(body))

    persistence = SubmitPolicy(changed(POLICY, num_retries=3), clock=held.clock())
    proxy.script(*[Pass(action=overtake)] * 4)
    with pytest.raises(CommitFailed):
        submit(HttpTransport(proxy.url), build, persistence)
    assert len({change.key for change in proxy.changes}) == 4
    assert held.slept == [0.1, 0.2, 0.4]
    assert "built-on" not in truth.client.load_table(name).properties

    proxy.script(*[Pass(action=overtake)] * 3)
    accepted = submit(HttpTransport(proxy.url), build, persistence)
    assert accepted.attempts == 4
    assert len({change.key for change in proxy.changes[-4:]}) == 4


def test_without_rebuilding_a_failed_requirement_is_the_last_word(
    truth: Truth, proxy: Proxy, held: HeldClock
) -> None:
    name = truth.new_table(first_file=True)
    body = {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}],
        "updates": [{"action": "set-properties", "updates": {"a": "b"}}],
    }
    path = f"namespaces/{NAMESPACE}/tables/{name.split('.')[1]}"
    request = Request("POST", path, msgspec.json.encode(body))
    persistence = SubmitPolicy(POLICY, clock=held.clock())
    with pytest.raises(CommitFailed):
        submit(HttpTransport(proxy.url), lambda: request, persistence, rebuilds=False)
    assert len(proxy.changes) == 1


# --- a table's own properties ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "sent"),
    [
        ({"commit.retry.num-retries": "0", "commit.status-check.num-retries": "0"}, 1),
        ({"commit.retry.num-retries": "3", "commit.status-check.num-retries": "0"}, 4),
        ({"commit.retry.num-retries": "1", "commit.status-check.num-retries": "2"}, 4),
        (
            {"commit.retry.total-timeout-ms": "0", "commit.status-check.total-timeout-ms": "0"},
            1,
        ),
    ],
)
def test_a_table_says_how_often(
    properties: dict[str, str], sent: int, truth: Truth, proxy: Proxy
) -> None:
    waits = {"commit.retry.min-wait-ms": "1", "commit.status-check.min-wait-ms": "1"}
    name = truth.new_table(properties={**waits, **properties})
    proxy.script(*[Respond(500)] * 30)
    table = Client(proxy.url).load_table(name)
    with pytest.raises(CommitStateUnknown):
        table.append_files([data_file(table.location, 1)])
    assert len(proxy.changes) == sent


def test_a_policy_of_the_client_wins(truth: Truth, proxy: Proxy) -> None:
    name = truth.new_table(properties={"commit.retry.num-retries": "9"})
    proxy.script(*[Respond(429, 0)] * 30)
    client = Client(proxy.url, retry=RetryPolicy(2, 1, 1, 60_000))
    with pytest.raises(TooManyRequests):
        client.append_files(name, [data_file("s3://not-looked-at", 1)])
    assert len(proxy.changes) == 3


def test_a_property_that_is_no_number_is_named(truth: Truth, proxy: Proxy) -> None:
    name = truth.new_table(properties={"commit.status-check.num-retries": "many"})
    client = Client(proxy.url)
    table = client.load_table(name)
    with pytest.raises(BadRequest, match=r"commit\.status-check\.num-retries: 'many'"):
        table.append_files([data_file(table.location, 1)])
    assert proxy.changes == []


# --- reads -----------------------------------------------------------------------------------


def test_reads_are_repeated_without_more_ado(truth: Truth, proxy: Proxy) -> None:
    name = truth.new_table()
    proxy.script(
        DropRequest(), DropAnswer(), Respond(503, 0), only=lambda method, path: "/t" in path
    )
    client = Client(proxy.url, retry=RetryPolicy(3, 1, 1, 60_000))
    assert client.load_table(name).format_version == 2
    assert proxy.unplayed == 0
    proxy.script(*[Respond(500)] * 20)
    with pytest.raises(FrazilError):
        client.load_table(name)
    proxy.script(Respond(404))
    assert client.table_exists(name) is False


@pytest.mark.parametrize("retry", [RetryPolicy(0, 0, 0, 0), RetryPolicy(40, 1, 5, 60_000)])
def test_longest_waits_never_overflow(retry: RetryPolicy) -> None:
    waits: list[Any] = [retry.longest_wait_ms(number) for number in range(2_000)]
    assert max(waits) <= retry.max_wait_ms
    assert waits == sorted(waits)
