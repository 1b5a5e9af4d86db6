"""Find the route of a request by its raw path.

A `%2F` inside a name is part of the name, so a path is split at its slashes before it is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from frazil.wire.errors import BadRequest, MethodNotAllowed, NotFound

if TYPE_CHECKING:
    from frazil.rest.call import Call
    from frazil.rest.reply import Reply
    from frazil.rest.rest_app import RestApp

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

Handler = Callable[["RestApp", "Call"], Awaitable["Reply"]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, with its handler."""

    method: str
    path: str
    operation: str
    """The `operationId`; that of the REST specification if the route is part of it."""
    handler: Handler
    request: type[Any] | UnionType | None = None
    """The type of the body; None if the body is not read."""
    changes: bool = False
    """Changes the catalog: accepts an Idempotency-Key and is refused while the server drains."""
    commits: bool = False
    """Commits through a queue: after an unexpected failure the outcome is unknown."""
    open: bool = False
    """Needs no token."""

    @property
    def endpoint(self) -> str:
        """Return the name in `/v1/config`, where every path contains a prefix."""
        return f"{self.method} {self.path.replace('/v1/', '/v1/{prefix}/', 1)}"


class WrongMethod(MethodNotAllowed):
    """The path exists, but not with this method."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        super().__init__(f"{method[:32]} is not allowed here: use {self.allowed}")

    def headers(self) -> dict[str, str]:
        return {"Allow": self.allowed}


@dataclass(slots=True)
class _Node:
    literals: dict[bytes, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    name: str = ""
    routes: dict[str, Route] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """The routes of a path, and the values of its parameters."""

    routes: dict[str, Route]
    """By method."""
    segments: dict[str, bytes]
    """The parameters of the path, still percent-encoded."""

    def route(self, method: str) -> Route:
        route = self.routes.get(method)
        if route is None:
            raise WrongMethod(method, tuple(self.routes))
        return route


class Router:
    """A tree of path segments, in which literal segments win over parameters."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.path.split("/")[1:]:
                node = _child(node, segment)
            if route.method in node.routes:
                raise ValueError(f"{route.method} {route.path} is listed twice")
            node.routes[route.method] = route

    def find(self, raw_path: bytes) -> Match | None:
        node = self._root
        segments: dict[str, bytes] = {}
        for segment in raw_path.split(b"/")[1:]:
            literal = node.literals.get(segment)
            if literal is not None:
                node = literal
            elif node.parameter is not None:
                segments[node.parameter.name] = segment
                node = node.parameter
            else:
                return None
        return Match(node.routes, segments) if node.routes else None


def no_such_route(raw_path: bytes) -> NotFound:
    """Return the error for a path without a route."""
    shown = raw_path[:200].decode("ascii", "backslashreplace")
    return NotFound(f"there is no route {shown}: GET /openapi.json lists them all")


def decoded(segment: bytes, name: str) -> str:
    """Decode one segment of a path. `name` is its name in error messages.

    Iceberg's Java client encodes names like HTML forms (RESTUtil.encodeString): a space becomes
    `+` and a plus becomes `%2B`. Other clients write `%20` and `%2B`, which decode to the same.
    """
    if _BROKEN_ESCAPE.search(segment):
        raise BadRequest(f"{name} in the path has a broken escape: write % itself as %25")
    try:
        return unquote_to_bytes(segment.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{name} in the path is not valid UTF-8") from None


def _child(node: _Node, segment: str) -> _Node:
    if not segment.startswith("{"):
        return node.literals.setdefault(segment.encode(), _Node())
    name = segment.strip("{}")
    if node.parameter is None:
        node.parameter = _Node(name=name)
    if node.parameter.name != name:
        raise ValueError(
            f"one path segment has two parameter names: {node.parameter.name} and {name}"
        )
    return node.parameter
