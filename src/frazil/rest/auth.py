"""Who is asking: bearer tokens, of which the server knows only hashes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from frazil.wire.errors import NotAuthorized

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
