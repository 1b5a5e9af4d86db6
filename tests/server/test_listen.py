"""The addresses that a server may listen on, and the errors for others."""

from __future__ import annotations

import socket

import pytest

from frazil.server.listen import (
    StartRefused,
    bind,
    check_exposure,
    check_tokens,
    is_loopback,
    url_of,
    warn_of_plain_tokens,
)
from frazil.settings import Settings, Token
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


def test_tokens_over_plain_http_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    for quiet in (
        Settings(),
        Settings(host="0.0.0.0", tls_cert="c", tls_key="k"),
        Settings(host="0.0.0.0", public_url="https://catalog.example.com"),
    ):
        warn_of_plain_tokens(quiet, has_tokens=True)
    warn_of_plain_tokens(Settings(host="0.0.0.0"), has_tokens=False)
    assert not caplog.records
    for loud in (Settings(host="0.0.0.0"), Settings(host="::", public_url="http://catalog")):
        warn_of_plain_tokens(loud, has_tokens=True)
        assert f"tokens are sent to {loud.host} over plain http" in caplog.records[-1].message
    assert len(caplog.records) == 2


def test_a_file_for_tokens_must_have_one() -> None:
    check_tokens(Settings(), {})
    check_tokens(Settings(tokens_file="t"), {"a": Token("0" * 64)})
    with pytest.raises(StartRefused, match="tokens_file t has no entry") as caught:
        check_tokens(Settings(tokens_file="t"), {})
    assert caught.value.usage


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
