"""Names as they are typed: `ns.table`, `ns.table@ref`, and a JSON array where a name has dots;
and pairs `key=value`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.wire.identifiers import Identifier


class BadName(ValueError):
    """What was typed is no name; the message says how one looks."""


def table_name(text: str) -> Identifier:
    """`a.b.t` is the table t of the namespace a.b; `["a.b","t"]` is t of the namespace `a.b`."""
    return _table(_levels(text), text)


def table_and_ref(text: str) -> tuple[Identifier, str | None]:
    """`ns.table@ref`: the first @ ends the table's name, and a JSON array may hold others."""
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
    from frazil.wire.errors import BadRequest
    from frazil.wire.identifiers import check_namespace

    try:
        return check_namespace(_levels(text))
    except BadRequest as error:
        raise BadName(f"{text!r}: {error.message}") from None


def key_values(flag: str, given: Sequence[str]) -> dict[str, str]:
    """What an option that is given several times as `key=value` says."""
    pairs: dict[str, str] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise BadName(f"{flag} {text}: write it as key=value")
        if key in pairs:
            raise BadName(f"{flag} {text}: {key} is given twice")
        pairs[key] = value
    return pairs


def _table(levels: list[str], text: str) -> Identifier:
    from frazil.wire.errors import BadRequest
    from frazil.wire.identifiers import check_identifier

    if len(levels) < 2:
        raise BadName(
            f"{text!r} names no table: write namespace.table, or a JSON array such as "
            '\'["a.b","t"]\' where a name has dots'
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
    """The array that a name begins with, and what follows it."""
    try:
        levels, end = json.JSONDecoder().raw_decode(text)
    except ValueError as error:
        raise BadName(f"{text!r} begins as a JSON array, but is none: {error}") from None
    if not all(isinstance(level, str) for level in levels):
        raise BadName(f"{text!r} must be a JSON array of texts")
    return levels, text[end:]
