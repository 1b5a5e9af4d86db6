"""Reads a request: its headers, its body, and the names and query parameters that a handler asks
for."""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from frazil.commit.pipeline.pending_requests import Context, IdempotencyKey
from frazil.rest.routing import Route, decoded
from frazil.wire.errors import (
    BadRequest,
    NoSuchTable,
    NoSuchView,
    PayloadTooLarge,
    TooManyRequests,
    UnsupportedMediaType,
)
from frazil.wire.identifiers import Identifier, Namespace, check_name, check_namespace
from frazil.wire.rest_messages import RenameTableRequest, TableIdentifier

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

_ENTITY_TAG = re.compile(r'(?:W/)?"([^"]*)"|([^\s,"]+)')
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
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


T = TypeVar("T")

LEVEL_SEPARATOR = "\x1f"
_MAX_QUERY_FIELDS = 100


@dataclass(slots=True)
class Call:
    """A routed and authenticated request."""

    route: Route
    raw_path: bytes
    query_string: bytes
    segments: dict[str, bytes]
    headers: Headers
    principal: str
    request_id: str
    read_only: bool = False
    """Whether the principal may change nothing."""
    request: Any = None
    """The decoded body."""
    body_bytes: int = 0
    key: IdempotencyKey | None = None
    subject: str | None = None
    """The table, view or namespace of the request, for the log."""
    _query: dict[str, str] | None = field(default=None, repr=False)

    def request_as(self, kind: type[T]) -> T:
        """Return the body as the type that the route declares."""
        if not isinstance(self.request, kind):
            raise TypeError(f"{self.route.operation} declares a body of another type than {kind}")
        return self.request

    def context(self) -> Context:
        return Context(self.principal, self.request_id, self.key, self.body_bytes, self.read_only)

    # --- the path -------------------------------------------------------------------------------

    def namespace(self) -> Namespace:
        text = decoded(self.segments["namespace"], "namespace")
        namespace = check_namespace(text.split(LEVEL_SEPARATOR))
        if self.subject is None:
            self.subject = ".".join(namespace)
        return namespace

    def table(self) -> Identifier:
        return self._relation_of_path("table")

    def view(self) -> Identifier:
        return self._relation_of_path("view")

    def plan_id(self) -> str:
        return decoded(self.segments["plan-id"], "plan id")

    def text_of_path(self, name: str) -> str:
        """Return the parameter of the path with this name."""
        return decoded(self.segments[name], name)

    def relation(self, name: str, kind: str) -> Identifier:
        """Return the identifier of a table or view in the path's namespace."""
        identifier = Identifier(self.namespace(), check_name(name, f"{kind} name"))
        self.subject = str(identifier)
        return identifier

    def rename(self, kind: str) -> tuple[Identifier, Identifier]:
        """Return the old and the new identifier of a request to rename."""
        request = self.request_as(RenameTableRequest)
        source = request.source.identifier(kind)
        destination = request.destination.identifier(kind)
        self.subject = str(source)
        return source, destination

    def _relation_of_path(self, kind: str) -> Identifier:
        name = decoded(self.segments[kind], f"{kind} name")
        if not self.segments["namespace"]:
            # If Java's RESTSessionCatalog does not find `db.files`, it tries the metadata table
            # `files` of a table `db` without a namespace, and expects a 404.
            missing = NoSuchView if kind == "view" else NoSuchTable
            raise missing(f"{kind.capitalize()} does not exist: {name}")
        return self.relation(name, kind)

    # --- the query ------------------------------------------------------------------------------

    def query(self, name: str) -> str | None:
        if self._query is None:
            self._query = _parse_query(self.query_string)
        return self._query.get(name)

    def query_boolean(self, name: str) -> bool:
        return _boolean(name, self.query(name))

    def header_boolean(self, name: str) -> bool:
        return _boolean(name, self.headers.get(name.lower()))

    def parent(self) -> Namespace:
        """Return the namespace in `parent`; an empty one is the root, as in the specification."""
        text = self.query("parent")
        if not text:
            return ()
        parent = check_namespace(text.split(LEVEL_SEPARATOR))
        self.subject = ".".join(parent)
        return parent


def _boolean(name: str, value: str | None) -> bool:
    if value is None or value.lower() == "false":
        return False
    if value.lower() == "true":
        return True
    raise BadRequest(f"{name}: {value[:32]!r} is neither true nor false")


def check_same_identifier(sent: TableIdentifier | None, identifier: Identifier, kind: str) -> None:
    """Refuse a body that names another table or view than its path."""
    if sent is not None and sent.identifier(kind) != identifier:
        raise BadRequest(f"identifier: names another {kind} than the path does; leave it out")


def key_of(
    route: Route, headers: Headers, raw_path: bytes, query_string: bytes, body: bytes
) -> IdempotencyKey | None:
    """Return the client's idempotency key with a fingerprint of the whole request."""
    key = idempotency_key(headers.get("idempotency-key")) if route.changes else None
    if key is None:
        return None
    # The lengths separate the parts unambiguously.
    head = b"%s %d %s?%d %s\n" % (
        route.method.encode(),
        len(raw_path),
        raw_path,
        len(query_string),
        query_string,
    )
    fingerprint = hashlib.sha256(head)
    fingerprint.update(body)
    return IdempotencyKey(key, fingerprint.hexdigest())


def _parse_query(query_string: bytes) -> dict[str, str]:
    if not query_string:
        return {}
    try:
        pairs = parse_qsl(
            query_string.decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_QUERY_FIELDS,
        )
    except UnicodeDecodeError:
        raise BadRequest("the query is not valid UTF-8") from None
    except ValueError:
        raise BadRequest(f"the query has more than {_MAX_QUERY_FIELDS} fields") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        if query.setdefault(name, value) != value:
            raise BadRequest(f"{name[:64]}: appears twice in the query, with two values")
    return query
