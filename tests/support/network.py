"""Refuses sockets to other machines: after setup, no test uses the network.

An audit hook sees every connection that Python makes, from any library. It does not see child
processes and native libraries; tests give those only loopback addresses.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import Any


class NetworkUsed(Exception):
    """A test used the network; the message names the address."""


def is_local(address: Any) -> bool:
    if not isinstance(address, tuple):
        return True  # the path of a Unix socket
    host = str(address[0]).partition("%")[0]
    if host in ("", "localhost"):
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False  # a host name, which would need a lookup
    return ip.is_loopback or ip.is_unspecified


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto") and not is_local(arguments[1]):
        raise NetworkUsed(f"a test connects to {arguments[1]}: tests use loopback only")
    if event == "socket.getaddrinfo" and not is_local((arguments[0] or "",)):
        raise NetworkUsed(f"a test looks up {arguments[0]!r}: tests use loopback only")


def forbid_network() -> None:
    """Forbid the network until the process ends, because an audit hook cannot be removed."""
    sys.addaudithook(_watch)
