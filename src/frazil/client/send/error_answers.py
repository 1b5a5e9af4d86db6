"""Convert error responses to exceptions.

FrazilError
├── … errors of the server: see `frazil.wire.errors`
├── CommitStateUnknown     the request was sent and its outcome is unknown: delete nothing
├── CatalogUnreachable     the request was never sent, so nothing has happened
└── LeaseLost              a lease or intent has ended although it was still needed
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from frazil.client.send.http_transport import Answer
from frazil.client.send.outages import retry_after_s
from frazil.wire import errors
from frazil.wire.errors import FrazilError, NotFound, ServiceUnavailable, ValidationError

_MAX_MESSAGE_BYTES: Final = 300


class CatalogUnreachable(FrazilError):
    """No connection to the catalog was possible, so the request was not sent."""

    status = 503
    type = "ServiceUnavailableException"
    retryable = True


class LeaseLost(NotFound):
    """A lease or an intent has ended although it was still needed."""


def error_of(answer: Answer) -> FrazilError:
    """Return the exception for an error response.

    The server names the type. A response of something in between, such as a load balancer, has no
    type; then the status decides.
    """
    error = _error_object(answer.body)
    message = error.get("message")
    if not isinstance(message, str) or not message:
        message = f"HTTP status {answer.status}: {_shown(answer.body)}"
    conflicts = error.get("conflicts")
    failure = error_of_type(str(error.get("type")), answer.status, message, conflicts)
    failure.retry_after_s = retry_after_s(answer)
    return failure


def error_of_type(name: str, status: int, message: str, conflicts: Any = None) -> FrazilError:
    """Return the exception for the error model of the REST specification."""
    kind = _kinds().get(name)
    if kind is None or kind.status != status:
        kind = _by_status(status)
    if kind is ValidationError:
        return ValidationError(message, conflicts if isinstance(conflicts, list) else ())
    return kind(message)


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, dict) else {}


@cache
def _kinds() -> dict[str, type[FrazilError]]:
    """Return the error classes by Java's exception name; the more general of two with one name."""
    kinds: dict[str, type[FrazilError]] = {}
    for kind in _tree(FrazilError):
        if kind.__module__ == errors.__name__:
            kinds.setdefault(kind.type, kind)
    return kinds


def _by_status(status: int) -> type[FrazilError]:
    """Return the class for a status below 500; above, its meaning depends on the request."""
    for kind in _tree(FrazilError):
        if kind.status == status < 500 and kind.__module__ == errors.__name__:
            return kind
    return ServiceUnavailable if status == ServiceUnavailable.status else FrazilError


def _tree(kind: type[FrazilError]) -> Iterator[type[FrazilError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


def _shown(body: bytes) -> str:
    text = " ".join(body[:_MAX_MESSAGE_BYTES].decode(errors="replace").split())
    return text or "no message"
