"""One request as a handler sees it: names, query and body, each checked when it is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from frazil.commit.pipeline.pending_requests import Context, IdempotencyKey
from frazil.rest.request_headers import Headers, idempotency_key
from frazil.rest.routing import Route, decoded
from frazil.wire.errors import BadRequest, NoSuchTable, NoSuchView
from frazil.wire.identifiers import Identifier, Namespace, check_identifier, check_namespace
from frazil.wire.rest_messages import RenameTableRequest, TableIdentifier

T = TypeVar("T")

_LEVEL_SEPARATOR = "\x1f"
_MAX_QUERY_FIELDS = 100
_BOOLEANS = {"true": True, "false": False}


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
        return Context(self.principal, self.request_id, self.key, self.body_bytes)

    # --- the path -------------------------------------------------------------------------------

    def namespace(self) -> Namespace:
        text = decoded(self.segments["namespace"], "namespace")
        namespace = check_namespace(text.split(_LEVEL_SEPARATOR))
        if self.subject is None:
            self.subject = ".".join(namespace)
        return namespace

    def table(self) -> Identifier:
        return self._relation("table")

    def view(self) -> Identifier:
        return self._relation("view")

    def plan_id(self) -> str:
        return decoded(self.segments["plan-id"], "plan id")

    def new_relation(self, name: str, what: str) -> Identifier:
        """Return the identifier of a table or view named by the body, in the path's namespace."""
        return self._identify(check_identifier(self.namespace(), name, what))

    def rename(self, what: str) -> tuple[Identifier, Identifier]:
        """Return the old and the new identifier of a request to rename."""
        request = self.request_as(RenameTableRequest)
        source = request.source.identifier(what)
        destination = request.destination.identifier(what)
        return self._identify(source), destination

    def _relation(self, what: str) -> Identifier:
        name = decoded(self.segments[what], f"{what} name")
        if not self.segments["namespace"]:
            # If Java's RESTSessionCatalog does not find `db.files`, it tries the metadata table
            # `files` of a table `db` without a namespace, and expects a 404.
            missing = NoSuchView if what == "view" else NoSuchTable
            raise missing(f"{what.capitalize()} does not exist: {name}")
        return self._identify(check_identifier(self.namespace(), name, what))

    def _identify(self, identifier: Identifier) -> Identifier:
        self.subject = str(identifier)
        return identifier

    # --- the query ------------------------------------------------------------------------------

    def query(self, name: str) -> str | None:
        if self._query is None:
            self._query = _parse_query(self.query_string)
        return self._query.get(name)

    def query_boolean(self, name: str) -> bool:
        value = self.query(name)
        if value is None:
            return False
        flag = _BOOLEANS.get(value.lower())
        if flag is None:
            raise BadRequest(f"{name}: {value[:32]!r} is neither true nor false")
        return flag

    def parent(self) -> Namespace:
        """Return the namespace in `parent`; an empty one is the root, as in the specification."""
        text = self.query("parent")
        if not text:
            return ()
        parent = check_namespace(text.split(_LEVEL_SEPARATOR))
        self.subject = ".".join(parent)
        return parent


def check_same_identifier(sent: TableIdentifier | None, identifier: Identifier, what: str) -> None:
    """Refuse a body that names another table or view than its path."""
    if sent is not None and sent.identifier(what) != identifier:
        raise BadRequest(f"identifier: names another {what} than the path does; leave it out")


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
