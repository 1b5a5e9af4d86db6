"""The address of the server: loopback only, unless tokens or `--insecure` are configured."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from collections.abc import Mapping

from frazil.settings import Settings, Token

_log = logging.getLogger("frazil.server")


class StartRefused(Exception):
    """The server cannot start; the message says why and how to fix it.

    `usage` is true if the settings alone are wrong.
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


_BACKLOG = 2048


def check_exposure(settings: Settings, has_tokens: bool) -> None:
    """Refuse an address that other machines can reach if the server requires no token."""
    if has_tokens or settings.insecure or is_loopback(settings.host, settings.port):
        return
    raise StartRefused(
        f"host {settings.host} can be reached by other machines, and no tokens are configured: "
        "make one with `frazil token new NAME` and set FRAZIL_TOKENS or FRAZIL_TOKENS_FILE, "
        "or listen on 127.0.0.1, or pass --insecure if everybody on this network may read and "
        "change every table",
        usage=True,
    )


def check_tokens(settings: Settings, tokens: Mapping[str, Token]) -> None:
    """Refuse to start without tokens if a file for tokens is configured."""
    if settings.tokens_file is not None and not tokens:
        raise StartRefused(
            f"tokens_file {settings.tokens_file} has no entry, so nobody could use the server: add "
            "one with `frazil token new NAME`, or leave tokens_file out",
            usage=True,
        )


def warn_of_plain_tokens(settings: Settings, has_tokens: bool) -> None:
    """Warn if tokens cross the network without encryption."""
    encrypted = settings.tls_cert is not None or (settings.public_url or "").startswith("https://")
    if not has_tokens or encrypted or is_loopback(settings.host, settings.port):
        return
    _log.warning(
        "tokens are sent to %s over plain http, where others can read them: set --tls-cert and "
        "--tls-key, or put a proxy with https before the server and name it with --public-url",
        settings.host,
    )


def is_loopback(host: str, port: int) -> bool:
    """Check whether every address of the host is a loopback address."""
    return all(ipaddress.ip_address(address).is_loopback for _, address in _addresses(host, port))


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. For port 0 its name contains the chosen port."""
    family, address = _addresses(host, port)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Without this a restart would have to wait until old connections time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartRefused(_bind_failure(host, port, error)) from error
    listener.set_inheritable(False)
    return listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return a URL that clients on this machine can use, also for a wildcard address."""
    address, port = listener.getsockname()[:2]
    ip = ipaddress.ip_address(address)
    if ip.is_unspecified:
        ip = ipaddress.ip_address("::1" if ip.version == 6 else "127.0.0.1")
    return f"{scheme}://[{ip}]:{port}" if ip.version == 6 else f"{scheme}://{ip}:{port}"


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """Resolve the host, IPv4 first, because most clients resolve `localhost` to 127.0.0.1."""
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return _resolve(host, port)
    return [(socket.AF_INET6 if literal.version == 6 else socket.AF_INET, str(literal))]


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise StartRefused(
            f"host {host!r} is not an address of this machine ({error}): use 127.0.0.1, or 0.0.0.0 "
            "for all addresses",
            usage=True,
        ) from error
    ordered = sorted(entries, key=lambda entry: entry[0] != socket.AF_INET)
    return [(entry[0], str(entry[4][0]).partition("%")[0]) for entry in ordered]


def _bind_failure(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use, perhaps by another `frazil serve`: stop that one, "
            "or choose another with --port (0 picks a free one)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges this process does not have: choose one above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host {host} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for all"
    return f"cannot listen on {host} port {port}: {error}"
