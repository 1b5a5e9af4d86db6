"""The options and the result of a search for orphan files. Names and defaults are Iceberg's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from frazil.values.path_keys import EQUAL_SCHEMES
from frazil.wire.errors import BadRequest
from frazil.wire.maintenance_operations import OPERATIONS, REMOVE_ORPHAN_FILES

DEFAULT_AGE_MS: Final = 3 * 24 * 3_600_000
MIN_AGE_MS: Final = 24 * 3_600_000
"""Iceberg's procedure refuses a shorter age too, because a writer may still commit its files."""
DEFAULT_MAX_SHARE: Final = 0.5
MAX_LOCATIONS: Final = 10_000
"""How many orphan files a result names."""


class PrefixMismatchMode(StrEnum):
    """What becomes of a file whose path the table names with another scheme or authority."""

    ERROR = "ERROR"
    """The search fails."""
    IGNORE = "IGNORE"
    """The file is kept."""
    DELETE = "DELETE"
    """The file is an orphan."""


@dataclass(frozen=True, slots=True)
class OrphanOptions:
    older_than_ms: int | None = None
    """Files that were modified later are kept. None means three days ago."""
    allow_recent_files: bool = False
    """Accept an age below MIN_AGE_MS. Only for tables that nobody writes to without intents."""
    location: str | None = None
    """A folder inside the table's location; None means all of it."""
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)
    prefix_mismatch_mode: PrefixMismatchMode = PrefixMismatchMode.ERROR
    file_list: str | None = None
    """A folder inside the table's location with a listing that the caller has stored."""
    max_orphan_share: float = DEFAULT_MAX_SHARE
    """Refuse if more than this share of the files, or of the table's bytes, are orphans."""

    @classmethod
    def from_texts(cls, options: Mapping[str, str]) -> Self:
        """Return the options of a job, whose texts were checked when it was started."""
        parse = OPERATIONS[REMOVE_ORPHAN_FILES].options
        named: dict[str, Any] = {name: parse[name](text) for name, text in options.items()}
        if "older_than" in named:
            named["older_than_ms"] = named.pop("older_than")
        if "prefix_mismatch_mode" in named:
            named["prefix_mismatch_mode"] = PrefixMismatchMode(named["prefix_mismatch_mode"])
        return cls(**named)

    def schemes(self) -> dict[str, str]:
        """Return the canonical scheme for each other one, those of S3 included."""
        return {**EQUAL_SCHEMES, **self.equal_schemes}

    def cutoff_ms(self, now_ms: int, *, dry_run: bool) -> int:
        """Return the time before which a file must have been modified. Raises BadRequest."""
        if self.older_than_ms is None:
            return now_ms - DEFAULT_AGE_MS
        is_recent = self.older_than_ms > now_ms - MIN_AGE_MS
        if is_recent and not self.allow_recent_files and not dry_run:
            raise BadRequest(
                "options.older_than: a file that is younger than 24 hours may belong to a writer "
                "that has not committed yet: choose an older time, or set allow_recent_files=true "
                "if nobody writes to the table"
            )
        return self.older_than_ms


class OrphanFilesResult(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a search has found, and what becomes of it."""

    dry_run: bool
    orphan_files_count: int
    orphan_bytes: int
    orphan_file_locations: Sequence[str]
    """At most MAX_LOCATIONS of them."""
    listed_files_count: int
    reachable_files_count: int
    """Listed files that the table needs, or that are in quarantine with a snapshot."""
    recorded_files_count: int
    """Listed files that an earlier search has found, or whose deletion is recorded otherwise."""
    recent_files_count: int
    """Listed files that are too young, or whose age is unknown."""
    skipped_files_count: int
    """Listed files that are hidden, lie outside the table, or have names that nothing can write."""
    intended_files_count: int
    """Listed files below the prefix of a writer that has not ended."""
    older_than_ms: int
    delete_after_ms: int | None = None
    """When the orphans are deleted, unless something names them before."""
    deleted_files_count: int = 0
    refusal: str | None = None
    """Why the same search without `dry_run` would be refused."""
