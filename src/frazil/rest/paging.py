"""Pages of a list.

A page token contains the last entry of the previous page and is valid only for the same list.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from frazil.rest.reply import Reply, json_reply
from frazil.wire.errors import BadRequest
from frazil.wire.json_bodies import encode

if TYPE_CHECKING:
    from frazil.rest.call import Call
    from frazil.rest.rest_app import AppSettings, RestApp

E = TypeVar("E")

_CHECKSUM_BYTES: Final = 6
_NUMBER: Final = re.compile(r"\+?0*([0-9]+)")


@dataclass(frozen=True, slots=True)
class Page:
    """The requested part of a list; the whole list if both fields are None."""

    after: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """One list of the catalog, which accepts only its own page tokens."""

    operation: str
    namespace: Sequence[str]

    def page(self, token: str | None, size: str | None, settings: AppSettings) -> Page:
        """Return the requested page.

        Without `pageToken` the specification asks for the whole list. A client that sends only
        `pageSize` states how much it can handle, so it gets pages too.
        """
        if token is None and size is None:
            return Page(None, None)
        limit = settings.default_page_size if size is None else _size(size, settings.max_page_size)
        return Page(self.read_token(token) if token else None, limit)

    def token(self, after: str | None) -> str | None:
        """Return the token of the page that begins after this entry."""
        if after is None:
            return None
        name = after.encode()
        return base64.urlsafe_b64encode(self._checksum(name) + name).rstrip(b"=").decode()

    def read_token(self, token: str) -> str:
        """Return the entry that a token contains; refuse tokens of other lists."""
        try:
            padded = token.encode("ascii") + b"=" * (-len(token) % 4)
            data = base64.b64decode(padded, altchars=b"-_", validate=True)
            checksum, name = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
            if checksum == self._checksum(name):
                return name.decode()
        except (ValueError, binascii.Error):
            pass
        raise BadRequest(
            "pageToken: not a token of this list; send the `next-page-token` of its page before, "
            "or an empty one for its first page"
        )

    def _checksum(self, name: bytes) -> bytes:
        scope = encode([self.operation, list(self.namespace)])
        return hashlib.sha256(scope + b"\0" + name).digest()[:_CHECKSUM_BYTES]


async def list_reply(
    app: RestApp,
    call: Call,
    namespace: tuple[str, ...],
    read: Callable[[tuple[str, ...], str | None, int | None], tuple[Sequence[E], str | None]],
    response: Callable[[Sequence[E], str | None], object],
) -> Reply:
    """Read the requested page of a list and reply with it."""
    listing = Listing(call.route.operation, namespace)
    page = listing.page(call.query("pageToken"), call.query("pageSize"), app.settings)
    entries, last = await app.blocking(read, namespace, page.after, page.size)
    return json_reply(response(entries, listing.token(last)))


def _size(text: str, largest: int) -> int:
    match = _NUMBER.fullmatch(text)
    digits = match.group(1) if match else ""
    if digits in ("", "0"):
        raise BadRequest(f"pageSize: {text[:32]!r} is not a whole number of at least 1")
    # The size is an upper bound, so a smaller page is a valid answer to a larger size.
    return largest if len(digits) > len(str(largest)) else min(int(digits), largest)
