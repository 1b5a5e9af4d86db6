"""Names of namespaces, tables and views, and the rules for valid names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from frazil.wire.errors import BadRequest

Namespace: TypeAlias = tuple[str, ...]

_MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True, order=True)
class Identifier:
    """The full name of a table or view."""

    namespace: Namespace
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


def namespace_text(namespace: Namespace) -> str:
    """Return a namespace for messages, as Java prints it."""
    return ".".join(namespace)


def check_name(name: str, what: str) -> str:
    """Refuse a level or name that cannot be addressed, listed or stored safely.

    Slashes and dots inside a name are allowed: they are percent-encoded in locations. A `.` or `..`
    segment is refused, because some clients resolve it.
    """
    if not name:
        raise BadRequest(f"{what} is empty: give it at least one character")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise BadRequest(f"{what} is not valid Unicode text") from None
    if length > _MAX_NAME_BYTES:
        raise BadRequest(f"{what} is {length} bytes long: at most {_MAX_NAME_BYTES} are allowed")
    if any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F for char in name):
        raise BadRequest(f"{what} {name!r} has a control character: remove it")
    if any(segment in (".", "..") for segment in name.split("/")):
        raise BadRequest(f"{what} {name!r} has a '.' or '..' segment: choose another name")
    return name


def check_namespace(levels: tuple[str, ...] | list[str]) -> Namespace:
    if not levels:
        raise BadRequest("namespace is empty: give it at least one level")
    return tuple(check_name(level, "namespace level") for level in levels)


def check_identifier(namespace: tuple[str, ...] | list[str], name: str, what: str) -> Identifier:
    return Identifier(check_namespace(namespace), check_name(name, f"{what} name"))
