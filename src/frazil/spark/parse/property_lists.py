"""Parse lists of properties, as in TBLPROPERTIES."""

from __future__ import annotations

from frazil.spark.parse.sql_tokens import Cursor, Kind


def parse_properties(cursor: Cursor) -> dict[str, str]:
    """Parse `('key' = 'value', key.with.dots = 7)`."""

    def item() -> tuple[str, str]:
        key = parse_property_key(cursor)
        cursor.accept("=")
        token = cursor.peek()
        if cursor.at_string:
            return key, cursor.string()
        if token is None or token.kind not in (Kind.NUMBER, Kind.WORD):
            cursor.fail("a value")
        return key, cursor.take().text

    return dict(cursor.parenthesized(item))


def parse_property_keys(cursor: Cursor) -> tuple[str, ...]:
    """Parse `('key', key.with.dots)`."""
    return cursor.parenthesized(lambda: parse_property_key(cursor))


def parse_property_key(cursor: Cursor) -> str:
    """Parse one key, in quotes or as a name."""
    return cursor.string() if cursor.at_string else ".".join(cursor.name("a property"))
