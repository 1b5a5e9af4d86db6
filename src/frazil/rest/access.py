"""Who may use the server, and who may only read."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from frazil.wire.errors import NotAuthorized


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a request."""

    name: str
    read_only: bool = False


ANONYMOUS: Final = Principal("anonymous")
"""Everyone, on a server without tokens."""


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens of all principals."""

    tokens: Mapping[str, str]
    """Names of principals and the SHA-256 of their tokens in hex."""
    read_only: frozenset[str] = frozenset()
    """The principals that may change nothing."""
    required: bool = True
    """Whether a request needs a token. If not, everyone is ANONYMOUS and may do everything."""

    def principal_of(self, authorization: str | None) -> Principal:
        """Return the principal of an Authorization header.

        Every digest is compared, in constant time, so that the duration reveals nothing about them.
        """
        scheme, _, token = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise NotAuthorized("send a token as `Authorization: Bearer <token>`")
        # Header values were decoded as latin-1, so this restores the bytes that were sent.
        digest = hashlib.sha256(token.strip().encode("latin-1")).hexdigest()
        principal: str | None = None
        for name, known_digest in self.tokens.items():
            if hmac.compare_digest(digest, known_digest):
                principal = name
        if principal is None:
            raise NotAuthorized("the token is not known to this server")
        return Principal(principal, principal in self.read_only)
