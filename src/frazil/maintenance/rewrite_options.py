"""The options of `rewrite_data_files`, with the names and defaults of Iceberg's procedure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frazil.datafiles.writing.write_properties import (
    TARGET_SIZE,
    TARGET_SIZE_DEFAULT_BYTES,
    positive_property,
)
from frazil.wire.errors import BadRequest
from frazil.wire.maintenance_operations import count, factor, flag, one_of, ratio
from frazil.wire.near_names import name_hint

_MIN_SIZE_FRACTION: Final = 0.75
_MAX_SIZE_FRACTION: Final = 1.8
_DEFAULT_GROUP_BYTES: Final = 100 << 30
_DEFAULT_LOCAL_BYTES: Final = 4 << 30
_UNLIMITED: Final = (1 << 63) - 1

ENGINE_OPTION: Final = "frazil.engine"
LOCAL_MAX_BYTES_OPTION: Final = "frazil.local-engine-max-bytes"
ENGINES: Final = ("auto", "local", "spark")
_PARTIAL_PROGRESS: Final = "partial-progress.enabled"
_OF_PARTIAL_PROGRESS: Final = frozenset(
    {"partial-progress.max-commits", "partial-progress.max-failed-commits"}
)
_OF_SORT: Final = frozenset({"compression-factor", "shuffle-partitions-per-file"})
_REFUSED: Final[Mapping[str, str]] = {
    "max-output-size": "Z-orders have 16 bits for each column",
    "var-length-contribution": "Z-orders have 16 bits for each column, also for texts",
}
"""Options of Iceberg that have no meaning here, with the reason."""
_JOB_ORDERS: Final = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")


@dataclass(frozen=True, kw_only=True)
class RewriteOptions:
    """How to choose and group files. Sizes are in bytes."""

    target_file_size: int
    min_file_size: int
    max_file_size: int
    min_input_files: int = 5
    delete_ratio_threshold: float = 0.3
    delete_file_threshold: int = _UNLIMITED
    max_file_group_size: int = _DEFAULT_GROUP_BYTES
    max_file_group_files: int = _UNLIMITED
    max_concurrent_rewrites: int = 5
    partial_progress: bool = True
    """Whether groups are committed before all are rewritten. If not, all are in one commit."""
    max_commits: int | None = None
    """The most commits with partial progress. None for one commit of each group."""
    max_failed_commits: int | None = None
    """The rewrite is an error if more commits fail. None for no limit."""
    job_order: str = "none"
    rewrite_all: bool = False
    output_spec_id: int | None = None
    max_files: int | None = None
    use_starting_sequence_number: bool = True
    engine: str = "auto"
    local_engine_max_bytes: int = _DEFAULT_LOCAL_BYTES
    """With the engine `auto`, Spark rewrites more than that."""
    remove_dangling_deletes: bool = True
    compression_factor: float = 1.0
    """How much larger sorted rows are expected to be than their files, where sizes are estimated
    before rows are written."""
    shuffle_partitions_per_file: int = 1
    """How many tasks sort the rows of one new file, where tasks sort."""

    def commit_count(self, groups: int) -> int:
        """Return the number of commits for so many groups."""
        if not self.partial_progress:
            return min(1, groups)
        return groups if self.max_commits is None else min(groups, self.max_commits)


def parse_options(options: Mapping[str, str], properties: Mapping[str, str]) -> RewriteOptions:
    """Parse options as texts. `properties` are those of the table."""
    values = dict(_parsed(name, text) for name, text in options.items())
    target = values.pop("target_file_size", None) or positive_property(
        properties, TARGET_SIZE, TARGET_SIZE_DEFAULT_BYTES
    )
    values.setdefault("min_file_size", int(target * _MIN_SIZE_FRACTION))
    values.setdefault("max_file_size", int(target * _MAX_SIZE_FRACTION))
    chosen = RewriteOptions(target_file_size=target, **values)
    if not chosen.min_file_size < chosen.target_file_size < chosen.max_file_size:
        raise BadRequest(
            f"target-file-size-bytes: {target} must be above min-file-size-bytes "
            f"({chosen.min_file_size}) and below max-file-size-bytes ({chosen.max_file_size})"
        )
    if not chosen.partial_progress:
        for name in options:
            if name in _OF_PARTIAL_PROGRESS:
                raise BadRequest(f"{name}: only with {_PARTIAL_PROGRESS}=true")
    return chosen


def check_order_options(options: Mapping[str, str], is_sorted: bool) -> None:
    """Refuse options of the strategy sort for a rewrite that does not sort."""
    for name in options:
        if name in _OF_SORT and not is_sorted:
            raise BadRequest(f"{name}: only for the strategy sort")


def _parsed(name: str, text: str) -> tuple[str, Any]:
    known = _OPTIONS.get(name)
    if name in _REFUSED:
        raise BadRequest(f"{name}: {_REFUSED[name]}: leave it out")
    if known is None:
        raise BadRequest(f"{name} is not an option: {name_hint(name, _OPTIONS, 'options')}")
    try:
        return known[0], known[1](str(text))
    except ValueError as error:
        raise BadRequest(f"{name}: {text!r} {error}") from None


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "target-file-size-bytes": ("target_file_size", count(1)),
    "min-file-size-bytes": ("min_file_size", count(0)),
    "max-file-size-bytes": ("max_file_size", count(1)),
    "min-input-files": ("min_input_files", count(1)),
    "delete-ratio-threshold": ("delete_ratio_threshold", ratio),
    "delete-file-threshold": ("delete_file_threshold", count(1)),
    "max-file-group-size-bytes": ("max_file_group_size", count(1)),
    "max-file-group-input-files": ("max_file_group_files", count(1)),
    "max-concurrent-file-group-rewrites": ("max_concurrent_rewrites", count(1)),
    _PARTIAL_PROGRESS: ("partial_progress", flag),
    "partial-progress.max-commits": ("max_commits", count(1)),
    "partial-progress.max-failed-commits": ("max_failed_commits", count(0)),
    "rewrite-job-order": ("job_order", one_of(*_JOB_ORDERS)),
    "rewrite-all": ("rewrite_all", flag),
    "output-spec-id": ("output_spec_id", count(0)),
    "max-files-to-rewrite": ("max_files", count(1)),
    "use-starting-sequence-number": ("use_starting_sequence_number", flag),
    ENGINE_OPTION: ("engine", one_of(*ENGINES)),
    LOCAL_MAX_BYTES_OPTION: ("local_engine_max_bytes", count(0)),
    "remove-dangling-deletes": ("remove_dangling_deletes", flag),
    "compression-factor": ("compression_factor", factor),
    "shuffle-partitions-per-file": ("shuffle_partitions_per_file", count(1)),
}
"""The member and the parser of each option."""
