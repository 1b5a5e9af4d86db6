"""Read a request body within limits of size and time; decompress it if needed."""

from __future__ import annotations

import asyncio
import re
import zlib
from dataclasses import dataclass, field

from frazil.rest.asgi import Message, Receive
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
# One member is usual. Empty members pass every other limit, but each takes time to process.
_MAX_GZIP_MEMBERS = 100


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(slots=True)
class BodyBudget:
    """The bytes in memory for all running requests. Used only on the event loop."""

    limit: int
    used: int = field(default=0)

    def take(self, count: int) -> None:
        if self.used + count > self.limit:
            raise TooManyRequests("the server holds as many request bytes as it may: try again")
        self.used += count

    def give_back(self, count: int) -> None:
        self.used -= count


class Lease:
    """The part of the budget that one request uses."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._used = 0

    def take(self, count: int) -> None:
        self._budget.take(count)
        self._used += count

    def end(self) -> None:
        self._budget.give_back(self._used)
        self._used = 0


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of one body."""

    max_bytes: int
    timeout_s: float


async def read_body(receive: Receive, headers: Headers, limits: BodyLimits, lease: Lease) -> bytes:
    """Return the decompressed body of a request that must be JSON."""
    _check_content_type(headers.get("content-type"))
    compressed = _is_gzip(headers.get("content-encoding"))
    _check_content_length(headers.get("content-length"), limits.max_bytes)
    sink = _GzipBody(limits.max_bytes, lease) if compressed else _PlainBody(limits.max_bytes, lease)
    more = True
    try:
        # The time limit starts here, not at the first byte of the body: a client that sends only
        # headers occupies one of the requests in flight too.
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
    # uvicorn has already refused a length that is not a number.
    if content_length is not None and content_length.isdigit() and int(content_length) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the request body is larger than {max_bytes} bytes (decoded)")


class _PlainBody:
    """Collects the parts of an uncompressed body."""

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


class _GzipBody(_PlainBody):
    """Collects the parts of a gzip body, and never decompresses more than the limit."""

    def __init__(self, max_bytes: int, lease: Lease) -> None:
        super().__init__(max_bytes, lease)
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False
        self._members = 1

    def add(self, part: bytes) -> None:
        while part:
            if self._member.eof:
                self._members += 1
                if self._members > _MAX_GZIP_MEMBERS:
                    raise BadRequest(
                        f"the gzip request body has more than {_MAX_GZIP_MEMBERS} members"
                    )
                self._member = zlib.decompressobj(_GZIP)
            self._begun = True
            try:
                # Decompress at most one byte above the limit, which is enough to detect it.
                super().add(self._member.decompress(part, self._max_bytes - self._size + 1))
            except zlib.error as error:
                raise BadRequest(f"the request body is not valid gzip: {error}") from None
            part = self._member.unused_data

    def done(self) -> bytes:
        if self._begun and not self._member.eof:
            raise BadRequest("the gzip request body is cut short")
        return super().done()
