"""Pages of a list. A page token names the last entry of the page before, and only that list."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from frazil.rest.app_settings import AppSettings
from frazil.wire.errors import BadRequest
from frazil.wire.json import encode

_CHECK_BYTES = 6
_NUMBER = re.compile(r"\+?0*([0-9]+)")


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for; both None: all of it."""

    after: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """One list of the catalog; the tokens of another are not its own."""

    operation: str
    namespace: Sequence[str]

    def page(self, token: str | None, size: str | None, settings: AppSettings) -> Page:
        """The specification answers everything where no `pageToken` is sent. A client that sends
        only `pageSize` says how much it can take, so it gets pages too."""
        if token is None and size is None:
            return Page(None, None)
        limit = settings.default_page_size if size is None else _size(size, settings.max_page_size)
        return Page(self.read_token(token) if token else None, limit)

    def token(self, after: str | None) -> str | None:
        """The opaque text for the page that begins after this entry."""
        if after is None:
            return None
        name = after.encode()
        return base64.urlsafe_b64encode(self._check(name) + name).rstrip(b"=").decode()

    def read_token(self, token: str) -> str:
        try:
            padded = token.encode("ascii") + b"=" * (-len(token) % 4)
            data = base64.b64decode(padded, altchars=b"-_", validate=True)
            check, name = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
            if check == self._check(name):
                return name.decode()
        except (ValueError, binascii.Error):
            pass
        raise BadRequest(
            "pageToken: not a token of this list; send the `next-page-token` of its page before, "
            "or an empty one for its first page"
        )

    def _check(self, name: bytes) -> bytes:
        scope = encode([self.operation, list(self.namespace)])
        return hashlib.sha256(scope + b"\0" + name).digest()[:_CHECK_BYTES]


def _size(text: str, largest: int) -> int:
    found = _NUMBER.fullmatch(text)
    digits = found.group(1) if found else ""
    if digits in ("", "0"):
        raise BadRequest(f"pageSize: {text[:32]!r} is not a whole number of at least 1")
    # The size is an upper bound for the answer, so a smaller page answers a larger one.
    return largest if len(digits) > len(str(largest)) else min(int(digits), largest)
