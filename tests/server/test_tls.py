"""The server with a certificate, replaced certificates, and clients with the wrong scheme."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from frazil import Client
from frazil.client.send.error_answers import CatalogUnreachable
from frazil.server.listen import StartRefused
from frazil.server.tls import certificate_of
from frazil.settings import Settings
from tests.client.test_restarts import Watched
from tests.support.certificates import Pair, make_pair
from tests.support.patience import HANG_S, wait_until
from tests.support.server import RunningServer, running_server


@dataclass(frozen=True)
class TlsServer:
    server: RunningServer
    cert_path: Path
    key_path: Path
    trusted: Path

    def serial(self) -> int:
        """Return the serial number of the certificate that a new connection gets."""
        return _serial(self.server.port)

    def replace(self, pair: Pair) -> None:
        pair.write(self.cert_path, self.key_path)
        with open(self.trusted, "ab") as trusted:
            trusted.write(pair.certificate)


def _serial(port: int) -> int:
    from cryptography import x509

    pem = ssl.get_server_certificate(("127.0.0.1", port), timeout=HANG_S)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


@pytest.fixture(scope="module")
def first() -> Pair:
    return make_pair()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory, first: Pair) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("tls")
    cert_path, key_path, trusted = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
    first.write(cert_path, key_path)
    trusted.write_bytes(first.certificate)
    flags = ("--tls-cert", str(cert_path), "--tls-key", str(key_path))
    with running_server(folder, *flags, ca_file=trusted) as server:
        yield TlsServer(server, cert_path, key_path, trusted)


@pytest.mark.process
def test_clients_use_https(tls: TlsServer) -> None:
    url = tls.server.url
    assert url.startswith("https://127.0.0.1:")
    assert (
        requests.get(f"{url}/v1/config", verify=str(tls.trusted), timeout=HANG_S).status_code == 200
    )
    with Client(url, ca_file=str(tls.trusted)) as client:
        client.create_namespace("safe")
        assert client.namespace_exists("safe")
    curl = subprocess.run(
        ["curl", "-sSf", "--cacert", tls.trusted, f"{url}/healthz"], capture_output=True, text=True
    )
    assert curl.stdout == '{"status":"ok"}', curl.stderr
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{url}/v1/config", timeout=HANG_S)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused(tls: TlsServer) -> None:
    def version(newest: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=tls.trusted)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = newest
        address = ("127.0.0.1", tls.server.port)
        with (
            socket.create_connection(address, timeout=HANG_S) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as wrapped,
        ):
            return wrapped.version()

    assert version(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert version(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        version(ssl.TLSVersion.TLSv1_1)


@pytest.mark.process
def test_a_changed_certificate_is_served_to_new_connections(tls: TlsServer) -> None:
    context = ssl.create_default_context(cafile=tls.trusted)
    held = http.client.HTTPSConnection("127.0.0.1", tls.server.port, context=context)

    def status() -> int:
        held.request("GET", "/healthz")
        answer = held.getresponse()
        answer.read()
        return answer.status

    assert status() == 200
    own_socket = held.sock
    old = tls.serial()

    # A broken pair keeps the old one: first a key of another certificate, then no certificate.
    third = make_pair()
    tls.cert_path.write_bytes(third.certificate)
    wait_until(lambda: "is not the key of" in tls.server.log, "the broken pair is not logged")
    assert tls.serial() == old
    tls.cert_path.write_bytes(b"junk")
    wait_until(lambda: "are not a certificate chain" in tls.server.log, "junk is not logged")
    assert tls.serial() == old
    assert "the old one stays in use" in tls.server.log

    second = make_pair(days=5)
    tls.replace(second)
    wait_until(lambda: tls.serial() == second.serial, "the new certificate is not served")
    metrics = requests.get(f"{tls.server.url}/metrics", verify=str(tls.trusted), timeout=HANG_S)
    expiry = re.findall(r"^frazil_certificate_expiry_timestamp_seconds (.+)$", metrics.text, re.M)
    assert [float(value) for value in expiry] == [second.expiry_s]
    assert status() == 200
    assert held.sock is own_socket
    held.close()

    # SIGHUP reads the files again even if they have not changed.
    reloads = tls.server.log.count("tls_cert and tls_key reloaded")
    tls.server.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: tls.server.log.count("tls_cert and tls_key reloaded") == reloads + 1,
        "SIGHUP did not reload the certificate",
    )
    assert tls.serial() == second.serial


@pytest.mark.process
def test_plain_http_on_the_port_of_https_ends_at_once(tls: TlsServer) -> None:
    with socket.create_connection(("127.0.0.1", tls.server.port), timeout=HANG_S) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = connection.recv(1000)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000) == b"", "the server must not answer a second request"
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == {
        "message": "this port speaks https, not http: use https:// in the URI",
        "type": "BadRequestException",
        "code": 400,
    }
    assert tls.server.log.count("a client sent http to this port, which speaks https") == 1
    uri = f"http://127.0.0.1:{tls.server.port}"
    message = f"the server speaks https, use https://127.0.0.1:{tls.server.port}$"
    with Client(uri) as client, pytest.raises(CatalogUnreachable, match=message):
        client.namespace_exists("safe")


@pytest.mark.process
def test_an_untrusted_certificate_is_an_error_at_once(tls: TlsServer) -> None:
    """Waiting or repeating does not help."""
    transport = Watched(f"https://127.0.0.1:{tls.server.port}", lambda: None)
    with pytest.raises(
        CatalogUnreachable, match=r"is not trusted \(.*\): name the certificate of its issuer"
    ):
        Client(transport=transport).namespace_exists("safe")
    assert transport.refused == 1


@pytest.mark.process
def test_https_on_the_port_of_http_ends_at_once(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        uri = f"https://127.0.0.1:{server.port}"
        message = f"the server speaks http, use http://127.0.0.1:{server.port}$"
        with Client(uri) as client, pytest.raises(CatalogUnreachable, match=message):
            client.namespace_exists("n")
        curl = subprocess.run(["curl", "-sS", "-m", "60", uri], capture_output=True, text=True)
        assert curl.returncode == 35, "28 would be curl's time limit"
        assert server.log.count("127.0.0.1 sent https to this port, which speaks http") == 1


def _refusal(cert: Path | None, key: Path | None) -> StartRefused:
    settings = Settings(
        tls_cert=None if cert is None else str(cert), tls_key=None if key is None else str(key)
    )
    with pytest.raises(StartRefused) as caught:
        certificate_of(settings)
    assert caught.value.usage
    return caught.value


def test_an_unusable_certificate_is_refused(tmp_path: Path, first: Pair) -> None:
    cert, key, other = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "other.pem"
    first.write(cert, key)
    certificate = certificate_of(Settings(tls_cert=str(cert), tls_key=str(key)))
    assert certificate is not None
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert certificate.expiry_s() == first.expiry_s
    expired = make_pair(days=-1)
    expired.write(cert, key)
    certificate.reload()
    assert certificate.expiry_s() == expired.expiry_s
    first.write(cert, key)
    assert certificate_of(Settings()) is None

    assert str(_refusal(cert, None)).startswith("tls_key is missing")
    assert str(_refusal(None, key)).startswith("tls_cert is missing")
    assert f"tls_key {other} cannot be read" in str(_refusal(cert, other))
    assert f"tls_cert {other} cannot be read" in str(_refusal(other, key))
    other.write_bytes(make_pair().key)
    assert f"tls_key {other} is not the key of tls_cert {cert}" in str(_refusal(cert, other))
    other.write_bytes(first.encrypted_key)
    assert "tls_key is encrypted" in str(_refusal(cert, other))
    assert "are not a certificate chain" in str(_refusal(key, cert))
