"""`--partition name=value`: values as people write them, made what the client takes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from frazil.cli.shared.names import BadName

if TYPE_CHECKING:
    from frazil.client.declare.tables import Table
    from frazil.values.transforms import Transform
    from frazil.values.types import Type

_EPOCH_YEAR: Final = 1970
_MONTH: Final = re.compile(r"(\d{4,})-(\d{2})")
_HOUR: Final = re.compile(r"(\d{4,}-\d{2}-\d{2})-(\d{2})")


def partition_of(table: Table, given: Sequence[str]) -> dict[str, Any] | None:
    """What `--partition` says, by the names of the default spec's fields; None without any."""
    if not given:
        return None
    kinds = _kinds(table)
    values: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise BadName(f"--partition {text}: write it as name=value")
        if name not in kinds:
            known = ", ".join(kinds) or "none, it is unpartitioned"
            raise BadName(f"--partition {text}: {name!r} is no partition field; there are {known}")
        if name in values:
            raise BadName(f"--partition {text}: {name} is given twice")
        try:
            values[name] = _value(*kinds[name], value)
        except ValueError as error:
            raise BadName(f"--partition {text}: {error}") from None
    return values


def _kinds(table: Table) -> dict[str, tuple[Transform, Type | None]]:
    """Transform and source type of each field of the default spec."""
    from frazil.cli.tables.show import columns
    from frazil.values.transforms import parse_transform

    types = {field.field_id: field.type for _, field in columns(table.schema)}
    return {
        part["name"]: (parse_transform(part["transform"]), types.get(part.get("source-id")))
        for part in table.spec()["fields"]
    }


def _value(transform: Transform, source: Type | None, text: str) -> Any:
    """What Java's partitionToPath writes, unescaped; `null` is null, and `"null"` the text."""
    from frazil.values.transforms import Hour, Month, Year

    if text == "null":
        return None
    if len(text) > 1 and text[0] == text[-1] == '"':
        return json.loads(text)
    if isinstance(transform, Year):
        return int(text) - _EPOCH_YEAR
    if isinstance(transform, Month):
        return _months(text)
    if isinstance(transform, Hour):
        return _hours(text)
    return text if source is None else _plain(transform.result_type(source), text)


def _months(text: str) -> int:
    match = _MONTH.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 12:
        raise ValueError("write a month as 2026-05")
    return (int(match[1]) - _EPOCH_YEAR) * 12 + int(match[2]) - 1


def _hours(text: str) -> int:
    from frazil.values.temporal import days_from_date

    match = _HOUR.fullmatch(text)
    if match is None or int(match[2]) > 23:
        raise ValueError("write an hour as 2026-05-01-12")
    return days_from_date(match[1]) * 24 + int(match[2])


def _plain(type_: Type, text: str) -> Any:
    from frazil.values.types import TypeId

    match type_.type_id:
        case TypeId.BOOLEAN:
            if text not in ("true", "false"):
                raise ValueError("write true or false")
            return text == "true"
        case TypeId.INT | TypeId.LONG:
            return int(text)
        case TypeId.FLOAT | TypeId.DOUBLE:
            return float(text)
    return text
