"""The operations of maintenance: who runs each, what excludes what, and the options.

The names are those of Iceberg. Options are texts, as in the map `options` of its procedures. A job
is checked against this table before it is stored, so that a mistake is found at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from frazil.wire.errors import BadRequest
from frazil.wire.expressions import Expression
from frazil.wire.filter_text import parse_filter
from frazil.wire.near_names import name_hint

_TWO_63: Final = 2**63
_MAX_DIGITS: Final = 19

Check: TypeAlias = Callable[[str], object]
"""Parses the text of an option. Raises ValueError with what it must be."""


class RunBy(StrEnum):
    """Who runs the jobs of an operation."""

    SERVER = "server"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class MaintenanceOperation:
    name: str
    run_by: RunBy
    exclusion: str
    """Of the jobs of one table with the same text, one runs at a time."""
    options: Mapping[str, Check] = field(default_factory=dict)


# --- kinds of options -----------------------------------------------------------------------------


def any_text(text: str) -> str:
    return text


def flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def count(least: int) -> Check:
    def parse(text: str) -> int:
        value = _whole_number(text)
        if value is None or value < least:
            raise ValueError(f"must be a whole number of at least {least}, and below 2^63")
        return value

    return parse


def _whole_number(text: str) -> int | None:
    """Return a number that fits in 64 bits, or None."""
    digits = text.strip()
    if not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        return None
    return int(digits) if int(digits) < _TWO_63 else None


def where_filter(text: str) -> Expression:
    """Parse a filter. Its columns are looked up when the job runs."""
    try:
        return parse_filter(text)
    except BadRequest as error:
        raise ValueError(f"is not a filter: {error.message}") from None


def ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError("must be a number from 0 to 1")
    return value


def factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise ValueError("must be a number above 0")
    return value


def one_of(*choices: str) -> Check:
    """Return the check of a choice, in any case."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(f"must be one of {', '.join(choices)}")

    return parse


def snapshot_ids(text: str) -> tuple[int, ...]:
    """Parse ids with commas between them."""
    ids = [_whole_number(part) for part in text.split(",")]
    if None in ids:
        raise ValueError("must be snapshot ids with commas between them")
    return tuple(own for own in ids if own is not None)


def equal_names(text: str) -> dict[str, str]:
    """Parse `s3n,s3a=s3; old=new`: the names on the left are equal to the one on the right."""
    equal: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        others, _, name = (piece.strip() for piece in part.partition("="))
        if not others or not name:
            raise ValueError("must be names and the name they are equal to, such as s3n,s3a=s3")
        equal.update((other.strip(), name) for other in others.split(","))
    return equal


def time_ms(text: str) -> int:
    """Parse milliseconds since 1970, or a time in ISO 8601, which is in UTC unless it says else."""
    number = _whole_number(text)
    if number is not None:
        return number
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            "must be a time such as 2026-05-01T12:00:00Z, or milliseconds since 1970"
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


# --- the operations -------------------------------------------------------------------------------

EXPIRE_SNAPSHOTS: Final = "expire_snapshots"
REMOVE_ORPHAN_FILES: Final = "remove_orphan_files"
DELETE_UNREACHABLE_FILES: Final = "delete_unreachable_files"
REWRITE_MANIFESTS: Final = "rewrite_manifests"
REMOVE_DANGLING_DELETES: Final = "remove_dangling_deletes"
UNDO: Final = "undo"
REWRITE_DATA_FILES: Final = "rewrite_data_files"
REWRITE_POSITION_DELETE_FILES: Final = "rewrite_position_delete_files"
CONVERT_EQUALITY_DELETES: Final = "convert_equality_deletes"
MAINTAIN: Final = "maintain"
"""A run of everything that pays on a table. It starts jobs of the other operations."""

_REWRITE: Final = "rewrite"

_SIZES: Final[Mapping[str, Check]] = {
    "target-file-size-bytes": count(1),
    "min-file-size-bytes": count(0),
    "max-file-size-bytes": count(1),
    "min-input-files": count(1),
    "max-file-group-size-bytes": count(1),
    "max-concurrent-file-group-rewrites": count(1),
    "partial-progress.enabled": flag,
    "partial-progress.max-commits": count(1),
    "partial-progress.max-failed-commits": count(0),
    "rewrite-job-order": one_of("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc"),
    "rewrite-all": flag,
    "max-files-to-rewrite": count(1),
}

OPERATIONS: Final[Mapping[str, MaintenanceOperation]] = {
    operation.name: operation
    for operation in (
        MaintenanceOperation(
            EXPIRE_SNAPSHOTS,
            RunBy.SERVER,
            "expire",
            {
                "older_than": time_ms,
                "retain_last": count(1),
                "snapshot_ids": snapshot_ids,
                "clean_expired_metadata": flag,
                "delete_files": flag,
            },
        ),
        MaintenanceOperation(
            REMOVE_ORPHAN_FILES,
            RunBy.SERVER,
            "delete",
            {
                "older_than": time_ms,
                "location": any_text,
                "equal_schemes": equal_names,
                "equal_authorities": equal_names,
                "prefix_mismatch_mode": one_of("ERROR", "IGNORE", "DELETE"),
                "file_list": any_text,
                "max_orphan_share": ratio,
                "allow_recent_files": flag,
            },
        ),
        MaintenanceOperation(DELETE_UNREACHABLE_FILES, RunBy.SERVER, "delete"),
        MaintenanceOperation(
            REWRITE_MANIFESTS,
            RunBy.SERVER,
            "manifests",
            {
                "spec_id": count(0),
                "sort_by": any_text,
                "use_caching": flag,
                "branch": any_text,
            },
        ),
        MaintenanceOperation(
            REMOVE_DANGLING_DELETES, RunBy.SERVER, "manifests", {"branch": any_text}
        ),
        MaintenanceOperation(
            UNDO, RunBy.SERVER, "undo", {"snapshot_id": count(0), "tag": any_text, "as": any_text}
        ),
        MaintenanceOperation(
            REWRITE_DATA_FILES,
            RunBy.WORKER,
            _REWRITE,
            {
                "strategy": one_of("binpack", "sort"),
                "sort_order": any_text,
                "where": where_filter,
                "branch": any_text,
                "delete-ratio-threshold": ratio,
                "delete-file-threshold": count(1),
                "output-spec-id": count(0),
                "use-starting-sequence-number": flag,
                "remove-dangling-deletes": flag,
                "max-file-group-input-files": count(1),
                "compression-factor": factor,
                "shuffle-partitions-per-file": count(1),
                "frazil.engine": one_of("auto", "local", "spark"),
                "frazil.local-engine-max-bytes": count(0),
                **_SIZES,
            },
        ),
        MaintenanceOperation(
            REWRITE_POSITION_DELETE_FILES,
            RunBy.WORKER,
            _REWRITE,
            {"where": where_filter, "branch": any_text, **_SIZES},
        ),
        MaintenanceOperation(
            CONVERT_EQUALITY_DELETES,
            RunBy.WORKER,
            _REWRITE,
            {"where": where_filter, "branch": any_text},
        ),
        MaintenanceOperation(MAINTAIN, RunBy.WORKER, "maintain"),
    )
}


def operation_of(name: str) -> MaintenanceOperation:
    """Return the operation of this name. Raises BadRequest."""
    operation = OPERATIONS.get(name)
    if operation is None:
        hint = name_hint(name, OPERATIONS, "operations")
        raise BadRequest(f"operation: {name[:100]!r} is not an operation: {hint}")
    return operation


def check_options(operation: MaintenanceOperation, options: Mapping[str, str]) -> None:
    """Raise a BadRequest that names the first option that is wrong."""
    for name, text in options.items():
        parse = operation.options.get(name)
        if parse is None:
            raise BadRequest(f"options.{name[:100]}: {_no_option(operation, name)}")
        try:
            parse(text)
        except ValueError as error:
            raise BadRequest(f"options.{name}: {text[:100]!r} {error}") from None


def parsed_options(name: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the options of an operation, after checking them."""
    operation = operation_of(name)
    check_options(operation, options)
    return {option: operation.options[option](text) for option, text in options.items()}


def _no_option(operation: MaintenanceOperation, name: str) -> str:
    if not operation.options:
        return f"{operation.name} has no options"
    hint = name_hint(name, operation.options, "options")
    return f"it is not an option of {operation.name}: {hint}"
