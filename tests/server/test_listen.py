"""The addresses that a server may listen on, and the errors for others."""

from __future__ import annotations

import socket

import pytest

from frazil.server.listen import StartRefused, bind, check_exposure, is_loopback, url_of
from frazil.settings import Settings
from tests.support.patience import HANG_S


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "::1"])
def test_loopback_needs_no_tokens(host: str) -> None:
    assert is_loopback(host, 0)
    check_exposure(Settings(host=host), has_tokens=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1"])
def test_other_addresses_need_tokens_or_insecure(host: str) -> None:
    with pytest.raises(StartRefused, match="frazil token new") as caught:
        check_exposure(Settings(host=host), has_tokens=False)
    assert caught.value.usage
    check_exposure(Settings(host=host), has_tokens=True)
    check_exposure(Settings(host=host, insecure=True), has_tokens=False)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartRefused, match="is not an address of this machine"):
        bind("192.0.2.1", 0)


def test_the_url_has_the_real_port_and_an_address_to_connect_to() -> None:
    with bind("0.0.0.0", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        socket.create_connection(("127.0.0.1", port), timeout=HANG_S).close()


def test_a_port_in_use_is_told_with_the_fix() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StartRefused, match=f"port {port} on 127.0.0.1 is in use.*--port"):
            bind("127.0.0.1", port)
