"""The settings of the autopilot: properties of tables, and of namespaces as their defaults.

Each setting is a property `frazil.maintenance.…`. A table takes it from its own properties, else
from those of its namespace, else from the namespaces above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from frazil.wire.errors import BadRequest
from frazil.wire.maintenance_operations import MAINTAIN, OPERATIONS, UNDO, Check, count, flag

PREFIX: Final = "frazil.maintenance."
_DAY_MS: Final = 24 * 3_600_000
_GIB: Final = 1 << 30

AUTOMATIC: Final = tuple(name for name in OPERATIONS if name not in (MAINTAIN, UNDO))
"""The operations that the autopilot runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """What to keep, and how much work is allowed."""

    enabled: bool = True
    """Whether the autopilot works on the table."""
    operations: tuple[str, ...] = AUTOMATIC
    """The operations that are on."""
    max_snapshot_age_ms: int | None = None
    """Expire older snapshots. By default `history.expire.max-snapshot-age-ms`, or 5 days."""
    min_snapshots_to_keep: int | None = None
    """Always keep so many. By default `history.expire.min-snapshots-to-keep`, or 1."""
    target_file_size_bytes: int | None = None
    """The size of rewritten files. By default `write.target-file-size-bytes`, or 512 MiB."""
    min_input_files: int = 5
    """Rewrite files of a partition if there are so many that should be larger or smaller."""
    max_bytes_per_run: int = 50 * _GIB
    """How much data one run may rewrite."""
    max_bytes_per_day: int = 500 * _GIB
    """How much data the runs of 24 hours may rewrite."""
    max_seconds_per_run: int = 3600
    """After so long a run begins no other operation."""
    orphan_interval_ms: int = 7 * _DAY_MS
    """How often to look for orphan files, which lists the whole table."""
    orphan_age_ms: int = 3 * _DAY_MS
    """Younger files are no orphans."""


def _operations(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in AUTOMATIC:
            raise ValueError(f"must be names out of {', '.join(AUTOMATIC)}, with commas between")
    return names


_CHECKS: Final[Mapping[str, Check]] = {
    "enabled": flag,
    "operations": _operations,
    "max_snapshot_age_ms": count(0),
    "min_snapshots_to_keep": count(1),
    "target_file_size_bytes": count(1),
    "min_input_files": count(2),
    "max_bytes_per_run": count(0),
    "max_bytes_per_day": count(0),
    "max_seconds_per_run": count(0),
    "orphan_interval_ms": count(0),
    "orphan_age_ms": count(24 * 3_600_000),
}
assert set(_CHECKS) == {own.name for own in fields(MaintenanceSettings)}

MAINTENANCE_PROPERTIES: Final = {
    f"{PREFIX}{member.replace('_', '-')}": member for member in _CHECKS
}
"""The member of `MaintenanceSettings` of each property."""


def check_setting(name: str, text: str) -> None:
    """Refuse a bad value of one of the properties."""
    try:
        _CHECKS[MAINTENANCE_PROPERTIES[name]](text)
    except ValueError as error:
        raise BadRequest(f"properties.{name}: {text[:100]!r} {error}") from None


def maintenance_settings(properties: Mapping[str, str]) -> MaintenanceSettings:
    """Return the settings. A registered table may have bad values, which count as not set."""
    values: dict[str, Any] = {}
    for name, member in MAINTENANCE_PROPERTIES.items():
        text = properties.get(name)
        if text is not None:
            try:
                values[member] = _CHECKS[member](text)
            except ValueError:
                continue
    return MaintenanceSettings(**values)
