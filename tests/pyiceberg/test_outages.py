"""PyIceberg through FrazilCatalog waits for a server that is away, at each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, ServiceUnavailableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.client.send.error_answers import CatalogUnreachable
from frazil.wire.errors import CommitStateUnknown
from tests.db.cutting_proxy import Cut, CuttingProxy
from tests.pyiceberg.conftest import frazil_catalog
from tests.support.certificates import make_pair
from tests.support.machine import Machine, machine_on_one_port
from tests.support.patience import HANG_S, wait_until
from tests.support.proxy import DropAnswer, DropRequest, Respond, running_proxy
from tests.support.server import RunningServer, running_server

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
NO_RETRIES = {"commit.retry.num-retries": "0", "commit.status-check.num-retries": "0"}
PATIENT = {"frazil.outage-timeout-s": str(HANG_S)}
ROW = pa.table({"id": pa.array([1], pa.int64())})

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine_on_one_port(tmp_path_factory.mktemp("away")) as machine:
        frazil_catalog(machine.url).create_namespace("ns")
        yield machine


def new_table(catalog: Catalog, name: str) -> str:
    catalog.create_table(f"ns.{name}", SCHEMA, properties=NO_RETRIES)
    return f"ns.{name}"


def test_every_step_waits(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    catalogs = [frazil_catalog(machine.url, **PATIENT) for _ in range(3)]
    name = new_table(catalogs[0], "t")
    table = catalogs[0].load_table(name)
    steps: list[Callable[[], object]] = [
        lambda: table.append(ROW),
        lambda: catalogs[1].load_table(name),
        lambda: catalogs[2].create_namespace("made"),
        lambda: frazil_catalog(machine.url, **PATIENT),
    ]
    machine.kill()
    with ThreadPoolExecutor(len(steps)) as threads:
        running = [threads.submit(step) for step in steps]
        waiting = f"catalog at {machine.url} does not answer (connection refused)"
        wait_until(
            lambda: (
                sum(waiting in line for line in caplog.messages)
                + sum(step.done() for step in running)
                == len(steps)
            ),
            "not every step waited",
        )
        machine.start()
        for step in running:
            step.result()
    after = catalogs[1].load_table(name)
    assert after.scan().to_arrow() == ROW
    assert len(after.snapshots()) == 1
    assert catalogs[1].namespace_exists("made")


def test_a_lost_answer_is_asked_for_again(machine: Machine) -> None:
    """PyIceberg itself would report that the table exists already."""
    with running_proxy(machine.url) as proxy:
        catalog = frazil_catalog(proxy.url, **PATIENT)
        proxy.script(DropAnswer(), Respond(503, 0))
        new_table(catalog, "asked")
        assert [change.fault for change in proxy.changes] == ["DropAnswer", "Respond", "Pass"]
        assert len({change.key for change in proxy.changes}) == 1
        catalog.close()


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER_ANSWER])
def test_what_was_not_sent_is_not_unknown(machine: Machine, cut: Cut) -> None:
    name = new_table(frazil_catalog(machine.url), cut.name.lower())
    proxy = CuttingProxy(machine.server.port)
    proxy.start()
    uri = f"http://127.0.0.1:{proxy.port}"
    table = frazil_catalog(uri, **{"frazil.outage-timeout-s": "0.1"}).load_table(name)
    proxy.stop()  # no new connections; the one of the session stays
    proxy.cut_at(b"POST ", cut)
    if cut is Cut.BEFORE:
        more_than_the_buffers = {"long": "x" * (32 << 20)}
        with pytest.raises(ServiceUnavailableError):
            table.append(ROW, snapshot_properties=more_than_the_buffers)
    else:
        with pytest.raises(CommitStateUnknownException):
            table.append(ROW)
    assert not proxy.armed
    snapshots = frazil_catalog(machine.url).load_table(name).snapshots()
    assert len(snapshots) == (0 if cut is Cut.BEFORE else 1)


def test_the_wait_ends_with_an_error_that_says_so(machine: Machine) -> None:
    """It is an exception of `requests`, of PyIceberg and of Frazil."""
    with running_proxy(machine.url) as proxy:
        catalog = frazil_catalog(proxy.url, **{"frazil.outage-timeout-s": "0.2"})
        unsure = frazil_catalog(proxy.url, **{"frazil.outage-timeout-s": "0.2"})
        proxy.script(*[DropRequest()] * 50)
        with pytest.raises(CommitStateUnknown, match=r"connection was closed; waited 0\.\d s$"):
            unsure.create_namespace("unsure")
    message = rf"^{proxy.url}/v1/\S*: connection refused; waited 0\.\d s$"
    for kind in (requests.ConnectionError, ServiceUnavailableError, CatalogUnreachable):
        with pytest.raises(kind, match=message) as raised:
            catalog.list_tables("ns")
        assert raised.value.__suppress_context__
    with pytest.raises(ValueError, match=r"frazil\.outage-timeout-s: 'soon' must be a number"):
        frazil_catalog(machine.url, **{"frazil.outage-timeout-s": "soon"})


def test_what_may_have_happened_stays_unknown(machine: Machine) -> None:
    """The server goes away after a change was sent: the refused connections prove nothing."""
    proxy = CuttingProxy(machine.server.port)
    proxy.start()
    uri = f"http://127.0.0.1:{proxy.port}"
    catalog = frazil_catalog(uri, **{"frazil.outage-timeout-s": "0.2"})
    catalog.list_namespaces()  # opens the connection of the session
    proxy.stop()
    proxy.cut_at(b"POST ", Cut.AFTER_ANSWER)
    with pytest.raises(CommitStateUnknown, match="refused"):
        catalog.create_namespace("made_in_doubt")
    assert frazil_catalog(machine.url).namespace_exists("made_in_doubt")


# --- https --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """Start a server with a certificate; return it with the file to trust."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    make_pair().write(cert, key)
    options = ["--tls-cert", str(cert), "--tls-key", str(key)]
    with running_server(folder, *options, ca_file=cert) as server:
        yield server, cert


def test_a_wrong_scheme_is_an_error_at_once(
    machine: Machine, tls: tuple[RunningServer, Path]
) -> None:
    for port, wrong, right in (
        (machine.server.port, "https", "http"),
        (tls[0].port, "http", "https"),
    ):
        message = f"the server speaks {right}, use {right}://127.0.0.1:{port}$"
        with pytest.raises(CatalogUnreachable, match=message):
            frazil_catalog(f"{wrong}://127.0.0.1:{port}", **PATIENT)


def test_the_named_authorities_win_over_those_of_requests(
    machine: Machine,
    tls: tuple[RunningServer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, cert = tls
    others, key = tmp_path / "others.pem", tmp_path / "key.pem"
    make_pair().write(others, key)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(others))
    uri = f"https://127.0.0.1:{server.port}"
    with pytest.raises(CatalogUnreachable, match="name the certificate of its issuer"):
        frazil_catalog(uri, **PATIENT)
    monkeypatch.setenv("FRAZIL_URI", uri)
    monkeypatch.setenv("FRAZIL_CA_FILE", str(cert))
    catalog = frazil_catalog(uri)
    catalog.create_namespace("ns")
    catalog.load_table(new_table(catalog, "t")).append(ROW)
    catalog.close()
    monkeypatch.delenv("FRAZIL_CA_FILE")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(cert))
    catalog = frazil_catalog(uri)
    assert catalog.namespace_exists("ns")
    catalog.close()
