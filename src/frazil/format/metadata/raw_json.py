"""Parts of metadata as raw JSON: kept as they came, so that fields we do not know survive.

A part (a snapshot, a ref, a log entry, ...) is immutable once it is in a table's metadata. Each is
held as the compact JSON that will be written again, beside the fields the engine reads.
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
    """Metadata that a reader of the Iceberg specification has to refuse; `field` says where."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class Part(Struct, frozen=True, kw_only=True, gc=False):
    """A part of metadata: its known fields are attributes, `raw` is all of it.

    `raw` is filled in after decoding. No document can set it: its JSON name is ours, and the only
    value that decodes is the empty one.
    """

    raw: Annotated[bytes, Meta(max_length=0)] = msgspec.field(default=b"", name="frazil:raw")


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | Raw | memoryview, field: str) -> T:
    """Decode JSON, naming the field in whatever goes wrong."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        found = _ERROR_PATH.match(str(error))
        if found is None:
            raise InvalidMetadata(field, str(error)) from None
        raise InvalidMetadata(_join(field, found["path"]), found["problem"]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMetadata(field, f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidMetadata(field, "nested too deeply") from None


def _join(field: str, path: str) -> str:
    return field + path if field else path.lstrip(".")


def compact(raw: bytes | Raw | memoryview, field: str) -> bytes:
    """The same JSON without white space, proven to be valid UTF-8."""
    try:
        squeezed = msgspec.json.format(bytes(raw), indent=-1)
        squeezed.decode("utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMetadata(field, f"not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidMetadata(field, "nested too deeply") from None
    return squeezed


def json_object(raw: bytes | Raw | memoryview, field: str) -> dict[str, Raw]:
    """The members of a JSON object, each still raw."""
    return decode(_OBJECT, raw, field)


def patch_object(raw: bytes, changes: Mapping[str, Any]) -> bytes:
    """A JSON object with some members replaced; None takes a member out."""
    members: dict[str, Any] = dict(json_object(raw, ""))
    for name, value in changes.items():
        if value is None:
            members.pop(name, None)
        else:
            members[name] = value
    return msgspec.json.encode(members)


def without_nulls(raw: bytes, names: frozenset[str], field: str) -> bytes:
    """The object without the named members that are null, and with no member twice.

    Java's parsers take an absent optional field but fail on one that is null, so a null is never
    written on.
    """
    members = json_object(raw, field)
    kept = {
        name: value
        for name, value in members.items()
        if name not in names or bytes(value) != b"null"
    }
    return msgspec.json.encode(kept)


def json_names(part: type[Struct]) -> frozenset[str]:
    """The JSON names of a part's known fields."""
    return frozenset(part.__struct_encode_fields__)
