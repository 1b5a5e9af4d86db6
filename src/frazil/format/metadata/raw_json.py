"""Parts of metadata with their raw JSON, so that unknown fields are kept.

A part (a snapshot, a ref, a log entry, ...) does not change once it is in the metadata of a table.
Each part has its known fields and the compact JSON to write again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
NonNegativeInt64: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]

T = TypeVar("T")

_OBJECT: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_ERROR_PATH = re.compile(r"^(?P<problem>.*) - at `\$(?P<path>.*)`$", re.DOTALL)


class InvalidMetadata(ValueError):
    """Metadata that violates the Iceberg specification; `field` says where."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class Part(Struct, frozen=True, kw_only=True, gc=False):
    """A part of metadata. Its known fields are attributes, and `raw` is its whole JSON.

    `raw` is set after decoding. A document cannot set it: its JSON name is our own, and only an
    empty value can be decoded.
    """

    raw: Annotated[bytes, Meta(max_length=0)] = msgspec.field(default=b"", name="frazil:raw")


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | Raw | memoryview, field: str) -> T:
    """Decode JSON. Errors name the field."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        matched = _ERROR_PATH.match(str(error))
        if matched is None:
            raise InvalidMetadata(field, str(error)) from None
        raise InvalidMetadata(_join(field, matched["path"]), matched["problem"]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMetadata(field, f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidMetadata(field, "nested too deeply") from None


def _join(field: str, path: str) -> str:
    return field + path if field else path.lstrip(".")


def compact(raw: bytes | Raw | memoryview, field: str) -> bytes:
    """Return the same JSON without white space, after checking that it is UTF-8."""
    try:
        squeezed = msgspec.json.format(bytes(raw), indent=-1)
        squeezed.decode("utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMetadata(field, f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidMetadata(field, "nested too deeply") from None
    return squeezed


def json_object(raw: bytes | Raw | memoryview, field: str) -> dict[str, Raw]:
    """Return the members of a JSON object as raw JSON."""
    return decode(_OBJECT, raw, field)


def patch_object(raw: bytes, changes: Mapping[str, Any]) -> bytes:
    """Return a JSON object with some members replaced. None removes a member."""
    members: dict[str, Any] = dict(json_object(raw, ""))
    for name, value in changes.items():
        if value is None:
            members.pop(name, None)
        else:
            members[name] = value
    return msgspec.json.encode(members)


def without_nulls(raw: bytes, names: frozenset[str], field: str) -> bytes:
    """Return the object without repeated members, and without the named members that are null.

    Java's parsers accept a missing optional field but not null, so null is never written.
    """
    members = json_object(raw, field)
    kept = {
        name: value
        for name, value in members.items()
        if name not in names or bytes(value) != b"null"
    }
    return msgspec.json.encode(kept)


def json_names(part: type[Struct]) -> frozenset[str]:
    """Return the JSON names of a part's known fields."""
    return frozenset(part.__struct_encode_fields__)
