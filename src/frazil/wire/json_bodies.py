"""Decodes and encodes the JSON of requests. Every error names the field and what it expects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from itertools import accumulate
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from frazil.wire.errors import BadRequest

T = TypeVar("T")

MAX_DEPTH = 500
"""Levels of `{` and `[`. Real requests have about twenty; a long nested filter has more."""

_SCAN_BYTES = 1 << 20
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STEP = {ord("["): 1, ord("]"): -1}
_LEAF_ROUNDS = 8

# One for each type of request, because creating a decoder costs more than most decodes.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

_JSON_PATH = re.compile(r" - at (`key` in )?`\$?\.?(.*)`$")
_QUOTED = re.compile(r"`([^`]*)`")
_OWN_FIELD = re.compile(r"([a-z][a-z-]*): ")
_TAG_FIELDS = {"action": "update", "type": "requirement", "report-type": "report"}
_CLAUSES = "commit-validations"


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def decode(kind: type[T], body: bytes) -> T:
    """Decode a body. Raise a BadRequest that names the field and the problem."""
    check_text(body)
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(_explain(kind, body, str(error))) from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"the request body is not valid JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None


def check_text(body: bytes) -> None:
    """Refuse bodies that are empty, not UTF-8, or nested too deeply.

    Decoding a request skips objects that stay raw. Without this check, invalid UTF-8 or deep
    nesting inside them would be found much later, or be written to a file.
    """
    if not body or body.isspace():
        raise BadRequest("the request body is empty: send a JSON object")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(
                f"the request body is not valid UTF-8 at byte {error.start}: send JSON in UTF-8"
            ) from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_depth(body)


def _check_depth(body: bytes) -> None:
    """Check the nesting outside of strings, one chunk at a time, with fast methods of bytes."""
    if b"\\" in body:
        # After this, every quote begins or ends a string.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = quotes = 0
    for start in range(0, len(body), _SCAN_BYTES):
        structure = body[start : start + _SCAN_BYTES].translate(_TO_SQUARE, _NOT_STRUCTURE)
        # Dropping two adjacent quotes does not change what is inside or outside of strings.
        parts = structure.replace(b'""', b"").split(b'"')
        brackets = b"".join(parts[quotes % 2 :: 2])
        quotes += len(parts) - 1
        if (
            depth + _deepest_at_most(brackets) > MAX_DEPTH
            and depth + _deepest(brackets) > MAX_DEPTH
        ):
            raise _too_deep()
        depth += 2 * brackets.count(b"[") - len(brackets)


def _deepest(brackets: bytes) -> int:
    return max(accumulate(map(_STEP.__getitem__, brackets), initial=0))


def _deepest_at_most(brackets: bytes) -> int:
    """Return a cheap upper bound. Removing the innermost pairs lowers the depth by one level."""
    for round_number in range(_LEAF_ROUNDS):
        if len(brackets) <= MAX_DEPTH:
            return round_number + len(brackets)
        brackets = brackets.replace(b"[]", b"")
    return _LEAF_ROUNDS + _deepest(brackets)


def _too_deep() -> BadRequest:
    return BadRequest(f"the request body is nested more than {MAX_DEPTH} levels deep: flatten it")


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    decoder: msgspec.json.Decoder[T] | None = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder


# --- error messages -----------------------------------------------------------------------------


def _explain(kind: type[Any], body: bytes, text: str) -> str:
    """Rewrite a message of msgspec for people, with the field first.

    A message in an unexpected form is shown unchanged.
    """
    matched = _JSON_PATH.search(text)
    json_path = matched.group(2) if matched else ""
    problem = text[: matched.start()] if matched else text
    if problem.startswith(("Invalid value", "Invalid enum value")):
        return f"{json_path}: {_unknown_value(kind, body, json_path)}"
    if problem.startswith(("Object missing", "Object contains")):
        name = _QUOTED.search(problem)
        missing = problem.startswith("Object missing")
        return f"{_joined(json_path, name.group(1) if name else '')}: " + (
            "required, but missing" if missing else "unknown field, remove it"
        )
    if own := _OWN_FIELD.match(problem):
        # The checks of our own objects name the field.
        return f"{_joined(json_path, own.group(1))}: {problem[own.end() :]}"
    problem = _QUOTED.sub(r"\1", problem)
    problem = problem[:1].lower() + problem[1:]
    if matched and matched.group(1):
        return f"{json_path}: wrong key, {problem}"
    return (
        f"{_with_key(body, json_path)}: {problem}" if json_path else f"the request body: {problem}"
    )


def _joined(json_path: str, name: str) -> str:
    return f"{json_path}.{name}" if json_path and name else json_path or name


def _unknown_value(kind: type[Any], body: bytes, json_path: str) -> str:
    """Describe an unknown tag, or a value that is not in its list."""
    owner, _, field = json_path.rpartition(".")
    tags = known_tags(kind, field, owner)
    known = tags or known_values(kind, json_path)
    if not tags:
        what = "value"
    elif _CLAUSES in owner:
        what = "clause"
    else:
        what = _TAG_FIELDS.get(field, field)
    return f"unknown {what} {str(_at(body, json_path))[:100]!r}; known are {', '.join(known)}"


def known_tags(kind: Any, field: str, json_path: str = "") -> tuple[str, ...]:
    """Return the values that the tag `field` may have in an object at a JSON path inside `kind`."""
    configs = (item.__struct_config__ for item in _kinds_at(kind, json_path) if _is_struct(item))
    return tuple(
        sorted({str(c.tag) for c in configs if c.tag is not None and c.tag_field == field})
    )


def known_values(kind: Any, json_path: str) -> tuple[str, ...]:
    """Return the values that the enumerations at a JSON path allow."""
    found = (_allowed(item) for item in _kinds_at(kind, json_path))
    return tuple(sorted({str(value) for values in found for value in values}))


def _allowed(kind: Any) -> Iterable[Any]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return kind if _is_enum(kind) else ()


def _kinds_at(kind: Any, json_path: str) -> list[Any]:
    """Return the objects and enumerations that `kind` allows at a path like `updates[0].action`."""
    kinds = list(_kinds_in(kind))
    for name in re.findall(r"(?:^|\.)([^.\[\]]+)", json_path):
        owners = [item for item in kinds if _is_struct(item)]
        fields = (item for owner in owners for item in _fields(owner) if item.encode_name == name)
        kinds = [inner for item in fields for inner in _kinds_in(item.type)]
    return kinds


def _kinds_in(kind: Any) -> Iterator[Any]:
    """Iterate over the parts of a union, a list or an annotated type."""
    if _is_struct(kind) or _is_enum(kind) or get_origin(kind) is Literal:
        yield kind
    else:
        for item in get_args(kind):
            yield from _kinds_in(item)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


@cache
def _fields(kind: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _with_key(body: bytes, json_path: str) -> str:
    """Add the key where msgspec writes `[...]`. The maps of requests have only string values."""
    head, dots, rest = json_path.partition("[...]")
    if not dots or rest:
        return json_path
    holder = _at(body, head)
    if isinstance(holder, dict):
        for key, value in holder.items():
            if not isinstance(value, str):
                return f"{head}[{key[:100]!r}]"
    return json_path


def _at(body: bytes, json_path: str) -> Any:
    """Return the value at a JSON path such as `updates[0].action`, or None if there is none."""
    try:
        value = msgspec.json.decode(body)
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", json_path):
            value = value[name] if name else value[int(index)]
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError):
        return None
    return value
