"""How far a row-level command is kept apart from what others commit meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

from frazil.wire.errors import BadRequest

Command: TypeAlias = Literal["delete", "update", "merge"]
"""The SQL command that an operation carries out; each has an isolation property of its own."""


class Isolation(StrEnum):
    SERIALIZABLE = "serializable"
    """As if the command had run alone: no file that may hold its rows was added meanwhile."""
    SNAPSHOT = "snapshot"
    """Rows that others added meanwhile are not seen, rows that they changed are not lost."""


def isolation_of(
    properties: Mapping[str, str], command: Command, given: Isolation | str | None = None
) -> Isolation:
    """What the caller asks for, or else the table's `write.<command>.isolation-level`."""
    name = f"write.{command}.isolation-level"
    text = properties.get(name, Isolation.SERIALIZABLE) if given is None else given
    try:
        return Isolation(text.lower())
    except ValueError:
        where = name if given is None else "isolation"
        raise BadRequest(f"{where}: {text!r} must be serializable or snapshot") from None
