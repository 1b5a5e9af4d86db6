"""One request as a handler sees it: names, query and body, checked where they are read."""

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

T = TypeVar("T")

_LEVEL_SEPARATOR = "\x1f"
_MAX_QUERY_FIELDS = 100
_BOOLEANS = {"true": True, "false": False}


@dataclass(slots=True)
class Call:
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
    """What the log says the request was about."""
    _query: dict[str, str] | None = field(default=None, repr=False)

    def request_as(self, kind: type[T]) -> T:
        """The body, as the type that the route declares."""
        if not isinstance(self.request, kind):
            raise TypeError(f"{self.route.operation} declares another body than {kind}")
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
        """The identifier of a table or view that a body names inside the path's namespace."""
        return self._about(check_identifier(self.namespace(), name, what))

    def _relation(self, what: str) -> Identifier:
        name = decoded(self.segments[what], f"{what} name")
        if not self.segments["namespace"]:
            # Java's RESTSessionCatalog asks so: where `db.files` is not found, it looks for the
            # metadata table `files` of a table `db` in no namespace, and counts on a 404.
            missing = NoSuchView if what == "view" else NoSuchTable
            raise missing(f"{what.capitalize()} does not exist: {name}")
        return self._about(check_identifier(self.namespace(), name, what))

    def _about(self, identifier: Identifier) -> Identifier:
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
        """The namespace in `parent`; an empty one counts as absent, as the specification says."""
        text = self.query("parent")
        if not text:
            return ()
        parent = check_namespace(text.split(_LEVEL_SEPARATOR))
        self.subject = ".".join(parent)
        return parent


def key_of(
    route: Route, headers: Headers, raw_path: bytes, query_string: bytes, body: bytes
) -> IdempotencyKey | None:
    """The client's key with a fingerprint of the request that it stands for."""
    key = idempotency_key(headers.get("idempotency-key")) if route.changes else None
    if key is None:
        return None
    # Lengths keep one part from running into the next.
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
            raise BadRequest(f"{name[:64]}: given twice in the query, with two values")
    return query
