"""Write Python values as SQL literals and put them in place of parameters.

Spark binds the parameters of queries itself. In all other statements they become literals, because
the parts of such a statement reach Spark separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from frazil.client.declare.text_cursor import string_literal
from frazil.spark.parse.sql_tokens import Edit, Token, apply_edits, tokens_of
from frazil.spark.schema.spark_types import spark_type
from frazil.values.single_value import to_json
from frazil.values.types import NestedField, TypeId
from frazil.wire.errors import BadRequest

Arguments = Mapping[str, Any] | Sequence[Any] | None


def bind(text: str, args: Arguments) -> str:
    """Return the statement with literals in place of `:name` and `?`."""
    if not args:
        return text
    edits = _named(text, args) if isinstance(args, Mapping) else _positional(text, args)
    return apply_edits(text, edits)


def _named(text: str, args: Mapping[str, Any]) -> list[Edit]:
    edits = []
    tokens = tokens_of(text)
    for position, token in enumerate(tokens[:-1]):
        name = tokens[position + 1]
        if token.word != ":" or not name.is_name or not _begins_parameter(tokens, position):
            continue
        if name.value not in args:
            raise BadRequest(f"there is no value for :{name.value}")
        edits.append((token.start, name.end, literal_of(args[name.value], f":{name.value}")))
    return edits


def _begins_parameter(tokens: Sequence[Token], position: int) -> bool:
    """Return False for the colons of `struct<a: int>` and `variant:path`."""
    colon = tokens[position]
    if colon.end != tokens[position + 1].start:
        return False
    before = tokens[position - 1] if position else None
    return before is None or before.end != colon.start or not before.is_name


def _positional(text: str, args: Sequence[Any]) -> list[Edit]:
    markers = [token for token in tokens_of(text) if token.word == "?"]
    if len(markers) != len(args):
        raise BadRequest(f"the statement has {len(markers)} parameters, but {len(args)} values")
    return [
        (token.start, token.end, literal_of(value, f"value {number}"))
        for number, (token, value) in enumerate(zip(markers, args, strict=True), start=1)
    ]


def literal_of(value: Any, name: str) -> str:
    """Return a Python value as a SQL literal. `name` is for the error message."""
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


def default_literal(field: NestedField) -> str:
    """Return a column's write default as SQL. Like Spark, return NULL if it has none."""
    if field.type.is_nested or field.type.type_id is TypeId.UNKNOWN:
        return "NULL"
    type_name = spark_type(field.type).simpleString()
    if field.write_default is None:
        return f"CAST(NULL AS {type_name})"
    if field.type.type_id in (TypeId.BINARY, TypeId.FIXED):
        return f"X'{field.write_default.hex()}'"
    value = to_json(field.type, field.write_default)
    return f"CAST({string_literal(str(value))} AS {type_name})"
