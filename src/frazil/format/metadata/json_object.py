"""JSON objects that must be written again as they came: decoded without loss, encoded compactly.

Numbers with a fraction or an exponent become `Decimal`, because a float could not give back the
text of one that we do not understand. A key that occurs twice keeps its last value, as Java reads
it, so that no two readers of what we write can disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from frazil.wire.errors import BadRequest

MAX_DEPTH: Final = 256
"""Deeper JSON is refused: what one thread can just read, another must be able to write again."""

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


def decode(raw: bytes | msgspec.Raw, what: str) -> Any:
    """The JSON value of `raw`; `what` names it in the message when it is none."""
    try:
        value = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"{what} is not valid JSON: {error}") from None
    except InvalidOperation:
        raise BadRequest(f"{what} has a number whose exponent nothing can hold") from None
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
    value = decode(raw, what)
    if not isinstance(value, dict):
        raise BadRequest(f"{what} must be a JSON object")
    return value


def encode(value: object) -> bytes:
    return _encoder.encode(value)


def with_field(raw: bytes, key: str, value: object) -> bytes:
    """The same object with one top-level field set, everything else untouched."""
    fields: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    fields[key] = value
    return _encoder.encode(fields)


def get_int(value: Mapping[str, Any], key: str, what: str, default: int | None = None) -> int:
    """A 32-bit integer field; required unless there is a default for a missing or null one."""
    return _get_int(value, key, what, default, 32)


def get_long(value: Mapping[str, Any], key: str, what: str) -> int:
    """A required 64-bit integer field."""
    return _get_int(value, key, what, None, 64)


def _get_int(value: Mapping[str, Any], key: str, what: str, default: int | None, bits: int) -> int:
    found = value.get(key)
    if found is None:
        if default is None:
            raise BadRequest(f"{what}: '{key}' is missing: give an integer")
        return default
    if isinstance(found, bool) or not isinstance(found, int):
        raise BadRequest(f"{what}: '{key}' must be an integer")
    if not -(1 << (bits - 1)) <= found < 1 << (bits - 1):
        raise BadRequest(f"{what}: '{key}' {found} does not fit in {bits} bits")
    return found


def get_str(value: Mapping[str, Any], key: str, what: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        problem = "is missing: give a string" if found is None else "must be a string"
        raise BadRequest(f"{what}: '{key}' {problem}")
    return found


def get_list(value: Mapping[str, Any], key: str, what: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list):
        problem = "is missing: give a list" if found is None else "must be a list"
        raise BadRequest(f"{what}: '{key}' {problem}")
    return found


def get_ints(value: Mapping[str, Any], key: str, what: str) -> tuple[int, ...]:
    """A list of 32-bit integers; a missing or null one is empty."""
    found = value.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or any(
        isinstance(item, bool) or not isinstance(item, int) or not -(2**31) <= item < 2**31
        for item in found
    ):
        raise BadRequest(f"{what}: '{key}' must be a list of 32-bit integers")
    return tuple(found)


def get_strings(value: Mapping[str, Any], key: str, what: str) -> dict[str, str]:
    """An object of strings; a missing or null one is empty."""
    found = value.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(item, str) for item in found.values()):
        raise BadRequest(f"{what}: '{key}' must be an object whose values are strings")
    return found
