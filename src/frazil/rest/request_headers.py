"""Headers that change what a request means: preconditions, preferences, keys and ids."""

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
    """A request's headers by lower-case name; several of one name are joined by commas."""

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
    """The client's own id where it is harmless, else a new one."""
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent
    return str(uuid.uuid4())


def idempotency_key(sent: str | None) -> str | None:
    """A UUID in lower case. One UUID is one key, however its letters are written."""
    if sent is None:
        return None
    key = sent.lower()
    if not _UUID.fullmatch(key):
        raise BadRequest(
            f"Idempotency-Key: {sent[:64]!r} is not a UUID such as "
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
        )
    return key


def none_match_holds(if_none_match: str | None, etag: str) -> bool:
    """Whether the client already has what this tag names (RFC 9110, 13.1.2: weak comparison)."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    mine = etag.strip('"')
    return any(mine in found.groups() for found in _ENTITY_TAG.finditer(if_none_match))


def prefers_minimal(prefer: str | None) -> bool:
    """Whether `return=minimal` is among the preferences (RFC 7240)."""
    if prefer is None:
        return False
    for preference in prefer.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "return":
            # The first of several counts, as the RFC has it.
            return value.strip().strip('"').lower() == "minimal"
    return False


def explains(sent: str | None) -> bool:
    """Whether a plan's answer is to say what the walk has seen and left out."""
    return _is_true(sent, "X-Frazil-Explain")


def wants_sequence_numbers(sent: str | None) -> bool:
    """Whether a plan's data files are to carry their data sequence numbers."""
    return _is_true(sent, "X-Frazil-Sequence-Numbers")


def _is_true(sent: str | None, name: str) -> bool:
    if sent is None or sent.lower() == "false":
        return False
    if sent.lower() == "true":
        return True
    raise BadRequest(f"{name}: {sent[:32]!r} is neither true nor false")


ANONYMOUS = "anonymous"


def principal_of(authorization: str | None, tokens: Mapping[str, str]) -> str:
    """The name of the token in an Authorization header; anonymous where no tokens are known.

    Every entry is compared, in constant time, so that the time taken tells nothing about them.
    """
    if not tokens:
        return ANONYMOUS
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthorized("send a token as `Authorization: Bearer <token>`")
    # Header values are bytes that HTTP reads as latin-1, so this gives back what was sent.
    digest = hashlib.sha256(token.strip().encode("latin-1")).hexdigest()
    principal: str | None = None
    for name, known in tokens.items():
        if hmac.compare_digest(digest, known):
            principal = name
    if principal is None:
        raise NotAuthorized("the token is not known to this server")
    return principal
