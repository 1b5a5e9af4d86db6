"""Values for the `:name` and `?` of a statement.

Spark puts them into queries itself; in every other statement they become literals, because the
parts of such a statement reach Spark one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from frazil.spark.parse.sql_tokens import Token, tokens_of
from frazil.wire.errors import BadRequest

Arguments = Mapping[str, Any] | Sequence[Any] | None


def bound(text: str, args: Arguments) -> str:
    """The statement with literals in place of its parameters."""
    if not args:
        return text
    edits = _named(text, args) if isinstance(args, Mapping) else _positional(text, args)
    for start, end, literal in reversed(edits):
        text = text[:start] + literal + text[end:]
    return text


def _named(text: str, args: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    edits = []
    tokens = tokens_of(text)
    for place, token in enumerate(tokens[:-1]):
        name = tokens[place + 1]
        if token.word != ":" or not name.is_name or not _begins_value(tokens, place):
            continue
        if name.value not in args:
            raise BadRequest(f"there is no value for :{name.value}")
        edits.append((token.start, name.end, literal_of(args[name.value], f":{name.value}")))
    return edits


def _begins_value(tokens: Sequence[Token], place: int) -> bool:
    """Not that of `struct<a: int>` nor of `variant:path`, which stand behind a name."""
    if tokens[place].end != tokens[place + 1].start:
        return False
    before = tokens[place - 1] if place else None
    return before is None or before.end != tokens[place].start or not before.is_name


def _positional(text: str, args: Sequence[Any]) -> list[tuple[int, int, str]]:
    places = [token for token in tokens_of(text) if token.word == "?"]
    if len(places) != len(args):
        raise BadRequest(f"the statement has {len(places)} places for values, given: {len(args)}")
    return [
        (token.start, token.end, literal_of(value, f"value {number}"))
        for number, (token, value) in enumerate(zip(places, args, strict=True), start=1)
    ]


def literal_of(value: Any, name: str) -> str:
    """A value of Python's as a literal of Spark's SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"{value}L" if not -(2**31) <= value < 2**31 else str(value)
    if isinstance(value, float):
        return f"DOUBLE('{value}')"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP_LTZ"
        return f"{kind}'{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, bytes | bytearray):
        return f"X'{value.hex()}'"
    if isinstance(value, list | tuple):
        return f"array({', '.join(literal_of(item, name) for item in value)})"
    raise BadRequest(f"{name}: a {type(value).__name__} cannot be a parameter")


def string_literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
