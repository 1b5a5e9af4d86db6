"""Names of namespaces and tables, and their URL paths."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import quote

from frazil.wire.identifiers import Identifier, Namespace, check_identifier, check_namespace

NamespaceName: TypeAlias = "str | tuple[str, ...]"

_SEPARATOR = "\x1f"


def namespace_of(name: NamespaceName) -> Namespace:
    """Parse `a.b` or `("a", "b")`; levels with dots need the second form."""
    return check_namespace(tuple(name.split(".")) if isinstance(name, str) else tuple(name))


def identifier_of(name: str | tuple[str, ...] | Identifier) -> Identifier:
    """Parse `a.b.t` or `("a", "b", "t")`, whose last part is the table."""
    if isinstance(name, Identifier):
        return name
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    return check_identifier(parts[:-1], parts[-1] if parts else "", "table")


def namespace_path(namespace: Namespace) -> str:
    return f"namespaces/{quote(_SEPARATOR.join(namespace), safe='')}"


def tables_path(namespace: Namespace) -> str:
    return f"{namespace_path(namespace)}/tables"


def table_path(identifier: Identifier) -> str:
    return f"{tables_path(identifier.namespace)}/{quote(identifier.name, safe='')}"
