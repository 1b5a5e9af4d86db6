"""The properties that Frazil defines: their names, their values, and the check of new ones.

A misspelled property has no effect, so the server refuses unknown names that start with `frazil.`
when they are set. Registered tables keep them, and so does a commit that does not change them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from frazil.wire.errors import BadRequest
from frazil.wire.maintenance_settings import MAINTENANCE_PROPERTIES, check_setting

PREFIX: Final = "frazil."

VERIFY_FILES: Final = "frazil.commit.verify-files"
REJECT_DUPLICATES: Final = "frazil.commit.reject-duplicate-files"
IGNORE_MISSING: Final = "frazil.commit.ignore-missing-removals"
REBASE_APPENDS: Final = "frazil.commit.rebase-appends"
SCAN_PLANNING: Final = "frazil.scan-planning-mode"
QUARANTINE: Final = "frazil.gc.quarantine-ms"
REQUEST_TIMEOUT: Final = "frazil.request-timeout-s"
OUTAGE_TIMEOUT: Final = "frazil.outage-timeout-s"


class Verification(StrEnum):
    """The values of VERIFY_FILES."""

    NONE = "none"
    EXISTS = "exists"
    FOOTER = "footer"


class ScanPlanningMode(StrEnum):
    """The values of SCAN_PLANNING."""

    CLIENT = "client"
    SERVER = "server"


_BOOLEAN: Final = ("true", "false")

TABLE_PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    VERIFY_FILES: tuple(Verification),
    REJECT_DUPLICATES: _BOOLEAN,
    IGNORE_MISSING: _BOOLEAN,
    REBASE_APPENDS: _BOOLEAN,
    SCAN_PLANNING: tuple(ScanPlanningMode),
}
"""The values of each property of a table. Booleans may be written in any case."""

WHOLE_NUMBERS: Final[Mapping[str, int]] = {QUARANTINE: 3 * 24 * 3_600_000}
"""The defaults of the properties of a table that are whole numbers and not negative."""

_MAX_DIGITS: Final = 15

CATALOG_PROPERTIES: Final = (REQUEST_TIMEOUT, OUTAGE_TIMEOUT)
"""The properties of a FrazilCatalog in PyIceberg's configuration."""


def check_table_properties(new: Mapping[str, str], old: Mapping[str, str]) -> None:
    """Refuse unknown names and values, unless the table already has the same property."""
    for name, value in _changed(new, old):
        if name in WHOLE_NUMBERS:
            _check_whole_number(name, value)
            continue
        if name in MAINTENANCE_PROPERTIES:
            check_setting(name, value)
            continue
        values = TABLE_PROPERTIES.get(name)
        if values is None:
            raise BadRequest(f"properties.{name}: {_not_a_property('table', name)}")
        comparable = value.lower() if values is _BOOLEAN else value
        if comparable not in values:
            raise BadRequest(f"properties.{name}: {value!r} is not one of {', '.join(values)}")


def _check_whole_number(name: str, value: str) -> None:
    if _whole_number(value) is None:
        raise BadRequest(
            f"properties.{name}: {value!r} is not a whole number of at most {_MAX_DIGITS} digits"
        )


def _whole_number(text: str) -> int | None:
    usual = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if usual else None


def quarantine_ms(properties: Mapping[str, str]) -> int:
    """Return how long the files of removed snapshots stay. A registered table may have any
    text."""
    value = _whole_number(properties.get(QUARANTINE, ""))
    return WHOLE_NUMBERS[QUARANTINE] if value is None else value


def check_properties_of(kind: str, new: Mapping[str, str], old: Mapping[str, str]) -> None:
    """Refuse properties of Frazil on a view or namespace; a namespace may have those of
    maintenance, which are the defaults of its tables."""
    for name, value in _changed(new, old):
        if kind == "namespace" and name in MAINTENANCE_PROPERTIES:
            check_setting(name, value)
            continue
        raise BadRequest(f"properties.{name}: {_not_a_property(kind, name)}")


def check_catalog_properties(properties: Mapping[str, str]) -> None:
    """Refuse unknown names in the configuration of a FrazilCatalog."""
    for name, _ in _changed(properties, {}):
        if name not in CATALOG_PROPERTIES:
            raise ValueError(f"{name}: {_not_a_property('catalog', name)}")


def _changed(new: Mapping[str, str], old: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in new.items()
        if name.lower().startswith(PREFIX) and old.get(name) != value
    ]


def _not_a_property(kind: str, name: str) -> str:
    of_tables = (*TABLE_PROPERTIES, *WHOLE_NUMBERS, *MAINTENANCE_PROPERTIES)
    if name in of_tables:
        return f"it is a property of tables, not of a {kind}: set it on each table"
    if name in CATALOG_PROPERTIES:
        return f"it belongs into the configuration of FrazilCatalog: a {kind} has no such property"
    of_namespaces = tuple(MAINTENANCE_PROPERTIES)
    known = {"table": of_tables, "namespace": of_namespaces, "catalog": CATALOG_PROPERTIES}.get(
        kind, ()
    )
    near = difflib.get_close_matches(name[:100].lower().replace("_", "-"), known, n=1)
    if near:
        return f"Frazil has no such property; did you mean {near[0]!r}?"
    hint = f"a {kind} may have {', '.join(known)}" if known else f"a {kind} has none of its own"
    return f"Frazil has no such property; {hint}"
