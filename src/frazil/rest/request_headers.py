"""Request headers: authorization, preconditions, preferences, keys and ids."""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Iterable, Mapping

from frazil.wire.errors import BadRequest, NotAuthorized

_ENTITY_TAG = re.compile(r'(?:W/)?"([^"]*)"|([^\s,"]+)')
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
EXPLAIN_HEADER = "x-frazil-explain"
SEQUENCE_NUMBERS_HEADER = "x-frazil-sequence-numbers"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Headers:
    """The headers by lower-case name; values of one name are joined with commas."""

    __slots__ = ("_values",)

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        values: dict[str, str] = {}
        for name, value in raw:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            values[key] = f"{values[key]}, {text}" if key in values else text
        self._values = values

    def get(self, name: str) -> str | None:
        return self._values.get(name)


def request_id(sent: str | None) -> str:
    """Return the client's request id if it is safe to log, else a new one."""
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent
    return str(uuid.uuid4())


def idempotency_key(sent: str | None) -> str | None:
    """Return the key, a UUID, in lower case: upper and lower case are the same key."""
    if sent is None:
        return None
    key = sent.lower()
    if not _UUID.fullmatch(key):
        raise BadRequest(
            f"Idempotency-Key: {sent[:64]!r} is not a UUID such as "
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
        )
    return key


def matches_etag(if_none_match: str | None, etag: str) -> bool:
    """Check whether the client has the version of this tag (RFC 9110, 13.1.2, weak comparison)."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    tag = etag.strip('"')
    return any(tag in match.groups() for match in _ENTITY_TAG.finditer(if_none_match))


def prefers_minimal(prefer: str | None) -> bool:
    """Check whether the client prefers `return=minimal` (RFC 7240)."""
    if prefer is None:
        return False
    for preference in prefer.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "return":
            # If a preference is repeated, the RFC uses the first.
            return value.strip().strip('"').lower() == "minimal"
    return False


def explains(sent: str | None) -> bool:
    """Check whether the client wants counts of what planning read and skipped."""
    return _is_true(sent, "X-Frazil-Explain")


def wants_sequence_numbers(sent: str | None) -> bool:
    """Check whether the client wants the data sequence numbers of planned data files."""
    return _is_true(sent, "X-Frazil-Sequence-Numbers")


def _is_true(sent: str | None, name: str) -> bool:
    if sent is None or sent.lower() == "false":
        return False
    if sent.lower() == "true":
        return True
    raise BadRequest(f"{name}: {sent[:32]!r} is neither true nor false")


ANONYMOUS = "anonymous"


def principal_of(authorization: str | None, tokens: Mapping[str, str]) -> str:
    """Return the name of the token in an Authorization header.

    `tokens` maps names to SHA-256 digests; without any, everyone is anonymous. Every digest is
    compared, in constant time, so that the duration reveals nothing about them.
    """
    if not tokens:
        return ANONYMOUS
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthorized("send a token as `Authorization: Bearer <token>`")
    # Header values were decoded as latin-1, so this restores the bytes that were sent.
    digest = hashlib.sha256(token.strip().encode("latin-1")).hexdigest()
    principal: str | None = None
    for name, known_digest in tokens.items():
        if hmac.compare_digest(digest, known_digest):
            principal = name
    if principal is None:
        raise NotAuthorized("the token is not known to this server")
    return principal
