"""Decodes JSON objects without loss and encodes them compactly, to write them again later.

Numbers with a fraction or an exponent become `Decimal`, because a float would change the text of
numbers in unknown fields. A repeated key keeps its last value, as in Java, so that all readers of
the written JSON agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from frazil.wire.errors import BadRequest

MAX_DEPTH: Final = 256
"""Deeper JSON is refused, because encoding it may need more stack than decoding it did."""

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


def decode(raw: bytes | msgspec.Raw, what: str) -> Any:
    """Decode JSON; `what` names it in messages."""
    try:
        value = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"{what} is not valid JSON: {error}") from None
    except InvalidOperation:
        raise BadRequest(f"{what} has a number with an exponent that is too large") from None
    except RecursionError:
        raise _too_deep(what) from None
    text = bytes(raw)
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _too_deep(what)
    return value


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _too_deep(what: str) -> BadRequest:
    return BadRequest(f"{what} is nested too deeply: at most {MAX_DEPTH} levels are allowed")


def decode_object(raw: bytes | msgspec.Raw, what: str) -> dict[str, Any]:
    """Decode a JSON object; `what` names it in messages."""
    value = decode(raw, what)
    if not isinstance(value, dict):
        raise BadRequest(f"{what} must be a JSON object")
    return value


def encode(value: object) -> bytes:
    return _encoder.encode(value)


def with_field(raw: bytes, key: str, value: object) -> bytes:
    """Return the same object with one top-level field set."""
    fields: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    fields[key] = value
    return _encoder.encode(fields)


def get_int(value: Mapping[str, Any], key: str, what: str, default: int | None = None) -> int:
    """Return a 32-bit integer field. It is required unless there is a default for null."""
    return _get_int(value, key, what, default, 32)


def get_long(value: Mapping[str, Any], key: str, what: str) -> int:
    """Return a required 64-bit integer field."""
    return _get_int(value, key, what, None, 64)


def _get_int(value: Mapping[str, Any], key: str, what: str, default: int | None, bits: int) -> int:
    field = value.get(key)
    if field is None:
        if default is None:
            raise BadRequest(f"{what}: '{key}' is missing: give an integer")
        return default
    if isinstance(field, bool) or not isinstance(field, int):
        raise BadRequest(f"{what}: '{key}' must be an integer")
    if not -(1 << (bits - 1)) <= field < 1 << (bits - 1):
        raise BadRequest(f"{what}: '{key}' {field} does not fit in {bits} bits")
    return field


def get_str(value: Mapping[str, Any], key: str, what: str) -> str:
    field = value.get(key)
    if not isinstance(field, str):
        problem = "is missing: give a string" if field is None else "must be a string"
        raise BadRequest(f"{what}: '{key}' {problem}")
    return field


def get_list(value: Mapping[str, Any], key: str, what: str) -> list[Any]:
    field = value.get(key)
    if not isinstance(field, list):
        problem = "is missing: give a list" if field is None else "must be a list"
        raise BadRequest(f"{what}: '{key}' {problem}")
    return field


def get_ints(value: Mapping[str, Any], key: str, what: str) -> tuple[int, ...]:
    """Return a list of 32-bit integers. A missing or null list is empty."""
    field = value.get(key)
    if field is None:
        return ()
    if not isinstance(field, list) or any(
        isinstance(item, bool) or not isinstance(item, int) or not -(2**31) <= item < 2**31
        for item in field
    ):
        raise BadRequest(f"{what}: '{key}' must be a list of 32-bit integers")
    return tuple(field)


def get_strings(value: Mapping[str, Any], key: str, what: str) -> dict[str, str]:
    """Return an object of strings. A missing or null object is empty."""
    field = value.get(key)
    if field is None:
        return {}
    if not isinstance(field, dict) or not all(isinstance(item, str) for item in field.values()):
        raise BadRequest(f"{what}: '{key}' must be an object whose values are strings")
    return field
