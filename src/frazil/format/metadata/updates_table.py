"""Updates of a table's identity, format version, location and properties."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from frazil.format.metadata.table_metadata import (
    MAX_FORMAT_VERSION,
    RESERVED_PROPERTIES,
    strip_trailing_slash,
)
from frazil.format.metadata.table_state import TableState
from frazil.wire.errors import BadRequest
from frazil.wire.planning import SCAN_PLANNING_PROPERTY, ScanPlanningMode
from frazil.wire.updates import (
    AssignUUID,
    RemoveProperties,
    SetLocation,
    SetProperties,
    UpgradeFormatVersion,
)

FORMAT_VERSION_PROPERTY = "format-version"
METADATA_COMPRESSION = "write.metadata.compression-codec"
METADATA_PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
METADATA_CODECS = ("none", "gzip")

_INTEGER_PROPERTIES = (METADATA_PREVIOUS_VERSIONS_MAX,)


def assign_uuid(state: TableState, update: AssignUUID) -> None:
    """Java lets a UUID be reassigned; here a table keeps the one it was born with."""
    if not _is_uuid(update.uuid):
        raise BadRequest(f"assign-uuid.uuid: {update.uuid!r} is not a UUID")
    if state.table_uuid is None:
        state.table_uuid = update.uuid
    elif state.table_uuid.lower() != update.uuid.lower():
        raise BadRequest(
            f"assign-uuid.uuid: cannot reassign the table's UUID {state.table_uuid} "
            f"to {update.uuid}"
        )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def upgrade_format_version(state: TableState, update: UpgradeFormatVersion) -> None:
    _upgrade(state, update.format_version, "upgrade-format-version.format-version")


def _upgrade(state: TableState, version: int, field: str) -> None:
    if version > MAX_FORMAT_VERSION:
        raise BadRequest(
            f"{field}: Cannot upgrade table to unsupported format version: v{version} "
            f"(supported: v{MAX_FORMAT_VERSION})"
        )
    if version < state.format_version:
        raise BadRequest(f"{field}: Cannot downgrade v{state.format_version} table to v{version}")
    state.format_version = version


def set_location(state: TableState, update: SetLocation) -> None:
    location = strip_trailing_slash(update.location)
    if not location:
        raise BadRequest("set-location.location: must not be empty")
    state.location = location


def set_properties(state: TableState, update: SetProperties) -> None:
    """Reserved names are not stored; `format-version` upgrades the table.

    That is what Java's replaceProperties does on the client's side, so stock Java clients never
    send them.
    """
    check_property_values(update.updates)
    version = update.updates.get(FORMAT_VERSION_PROPERTY)
    if version is not None:
        field = f"set-properties.updates.{FORMAT_VERSION_PROPERTY}"
        _upgrade(state, parse_format_version(version, field), field)
    state.properties |= unreserved(update.updates)


def remove_properties(state: TableState, update: RemoveProperties) -> None:
    for name in update.removals:
        state.properties.pop(name, None)


def unreserved(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}


def parse_format_version(text: str, field: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f"{field}: {text!r} is not a format version (1, 2 or 3)") from None


def check_property_values(properties: Mapping[str, str]) -> None:
    """Refuse values that would stop every later write of a metadata file, or that clients would
    be told to obey and could not."""
    codec = properties.get(METADATA_COMPRESSION)
    if codec is not None and codec.lower() not in METADATA_CODECS:
        raise BadRequest(
            f"properties.{METADATA_COMPRESSION}: {codec!r} is not one of "
            f"{', '.join(METADATA_CODECS)}"
        )
    for name in _INTEGER_PROPERTIES:
        value = properties.get(name)
        if value is not None and parse_int(value) is None:
            raise BadRequest(f"properties.{name}: {value!r} is not an integer")
    mode = properties.get(SCAN_PLANNING_PROPERTY)
    if mode is not None and mode not in tuple(ScanPlanningMode):
        raise BadRequest(
            f"properties.{SCAN_PLANNING_PROPERTY}: {mode!r} is not one of "
            f"{', '.join(ScanPlanningMode)}"
        )


def parse_int(text: str) -> int | None:
    """An integer as Java's Integer.parseInt takes it: digits and a sign, 32 bits."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    value = int(text)
    return value if -(2**31) <= value < 2**31 else None
