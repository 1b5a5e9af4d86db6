"""Reading a request's body: capped in size and time, inflated where it is compressed."""

from __future__ import annotations

import asyncio
import re
import zlib
from dataclasses import dataclass, field

from starlette.types import Message, Receive

from frazil.rest.request_headers import Headers
from frazil.wire.errors import (
    BadRequest,
    PayloadTooLarge,
    TooManyRequests,
    UnsupportedMediaType,
)

_JSON_TYPE = re.compile(r"application/(json|[a-z0-9!#$&^_.+-]+\+json)")
_UTF8_NAMES = frozenset({"utf-8", "utf8", "us-ascii"})
_GZIP = 16 + zlib.MAX_WBITS
# One is usual. Empty ones hold nothing that any other limit counts, and each costs its time.
_MAX_MEMBERS = 100


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(slots=True)
class BodyBudget:
    """The bytes that all running requests hold together. Used from the event loop only."""

    limit: int
    held: int = field(default=0)

    def take(self, count: int) -> None:
        if self.held + count > self.limit:
            raise TooManyRequests("the server holds as many request bytes as it may: try again")
        self.held += count

    def give_back(self, count: int) -> None:
        self.held -= count


class Lease:
    """What one request holds of the budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._held = 0

    def take(self, count: int) -> None:
        self._budget.take(count)
        self._held += count

    def end(self) -> None:
        self._budget.give_back(self._held)
        self._held = 0


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    timeout_s: float


async def read_body(receive: Receive, headers: Headers, limits: BodyLimits, lease: Lease) -> bytes:
    """The decoded body of a request that must carry JSON."""
    _check_content_type(headers.get("content-type"))
    compressed = _is_gzip(headers.get("content-encoding"))
    _check_content_length(headers.get("content-length"), limits.max_bytes)
    sink = _Inflated(limits.max_bytes, lease) if compressed else _Plain(limits.max_bytes, lease)
    more = True
    try:
        # From the first byte on: who sends a head and then nothing holds a place among the
        # requests in flight as much as who stops half way.
        async with asyncio.timeout(limits.timeout_s):
            while more:
                message = await receive()
                sink.add(_part(message))
                more = message.get("more_body", False)
    except TimeoutError:
        raise BadRequest(
            f"the request body did not arrive within {limits.timeout_s:g} seconds"
        ) from None
    return sink.done()


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone
    part: bytes = message.get("body", b"")
    return part


def _check_content_type(content_type: str | None) -> None:
    if content_type is None:
        return
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if not _JSON_TYPE.fullmatch(media_type):
        raise UnsupportedMediaType(
            f"Content-Type {media_type[:100]!r} is not supported: send application/json"
        )
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in _UTF8_NAMES:
            raise UnsupportedMediaType("JSON must be sent in UTF-8: leave the charset out")


def _is_gzip(content_encoding: str | None) -> bool:
    coding = (content_encoding or "identity").strip().lower()
    if coding in ("gzip", "x-gzip"):
        return True
    if coding in ("identity", ""):
        return False
    raise UnsupportedMediaType(
        f"Content-Encoding {coding[:100]!r} is not supported: send gzip or plain JSON"
    )


def _check_content_length(content_length: str | None, max_bytes: int) -> None:
    # A server that speaks HTTP has already refused one that is no number.
    if content_length is not None and content_length.isdigit() and int(content_length) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the request body is larger than {max_bytes} bytes (decoded)")


class _Plain:
    """Parts of a body that is sent as it is."""

    def __init__(self, max_bytes: int, lease: Lease) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._max_bytes = max_bytes
        self._lease = lease

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes:
            raise _too_large(self._max_bytes)
        self._lease.take(len(part))
        self._parts.append(part)

    def done(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class _Inflated(_Plain):
    """Parts of a gzip body: one or more members, never inflated beyond the limit."""

    def __init__(self, max_bytes: int, lease: Lease) -> None:
        super().__init__(max_bytes, lease)
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False
        self._members = 1

    def add(self, part: bytes) -> None:
        while part:
            if self._member.eof:
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise BadRequest(f"the gzip request body has more than {_MAX_MEMBERS} members")
                self._member = zlib.decompressobj(_GZIP)
            self._begun = True
            try:
                # One byte above the limit is enough to know, and all that is ever inflated.
                super().add(self._member.decompress(part, self._max_bytes - self._size + 1))
            except zlib.error as error:
                raise BadRequest(f"the request body is not valid gzip: {error}") from None
            part = self._member.unused_data

    def done(self) -> bytes:
        if self._begun and not self._member.eof:
            raise BadRequest("the gzip request body is cut short")
        return super().done()
