"""Parse names on the command line: `ns.table`, `ns.table@ref`, and pairs `key=value`.

A name with dots is written as a JSON array.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier, check_identifier, check_namespace


class BadName(ValueError):
    """The text is not a valid name; the message shows the right form."""


def table_name(text: str) -> Identifier:
    """Parse `a.b.t`, the table t of the namespace a.b, or `["a.b","t"]`."""
    return _table(_levels(text), text)


def table_and_ref(text: str) -> tuple[Identifier, str | None]:
    """Parse `ns.table@ref`; the first @ outside of a JSON array ends the name."""
    if text.startswith("["):
        levels, rest = _array(text)
    else:
        name, sign, ref = text.partition("@")
        levels, rest = name.split("."), sign + ref
    if rest and not rest.startswith("@"):
        raise BadName(f"{text!r}: after the JSON array only @ and a ref may follow")
    if rest == "@":
        raise BadName(f"{text!r} ends with @: name a branch, a tag or a snapshot id after it")
    return _table(levels, text), rest[1:] or None


def namespace_name(text: str) -> tuple[str, ...]:
    """Parse `a.b`, or `a.b.` as completion writes it, or a JSON array."""
    try:
        return check_namespace(_levels(text.removesuffix(".")))
    except BadRequest as error:
        raise BadName(f"{text!r}: {error.message}") from None


def key_values(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse the values of an option of the form `key=value`."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise BadName(f"{flag} {text}: write it as key=value")
        if key in pairs:
            raise BadName(f"{flag} {text}: {key} appears twice")
        pairs[key] = value
    return pairs


def _table(levels: list[str], text: str) -> Identifier:
    if len(levels) < 2:
        raise BadName(
            f"{text!r} is not a table name: write namespace.table, or a JSON array such as "
            '\'["a.b","t"]\' for names with dots'
        )
    try:
        return check_identifier(levels[:-1], levels[-1], "table")
    except BadRequest as error:
        raise BadName(f"{text!r}: {error.message}") from None


def _levels(text: str) -> list[str]:
    if not text.startswith("["):
        return text.split(".")
    levels, rest = _array(text)
    if rest:
        raise BadName(f"{text!r}: nothing may follow the JSON array")
    return levels


def _array(text: str) -> tuple[list[str], str]:
    """Return the JSON array at the start of a name, and the rest of the text."""
    try:
        levels, end = json.JSONDecoder().raw_decode(text)
    except ValueError as error:
        raise BadName(f"{text!r} begins like a JSON array, but is not one: {error}") from None
    if not all(isinstance(level, str) for level in levels):
        raise BadName(f"{text!r} must be a JSON array of texts")
    return levels, text[end:]
