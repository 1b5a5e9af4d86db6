"""Scan planning: the requests of the REST specification, and the files of an answered plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta, Raw, Struct, field

from frazil.wire.declared_content import NULL, Count, CountMap, ValueMap, optional_raw
from frazil.wire.errors import BadRequest
from frazil.wire.rest_messages import Request
from frazil.wire.rest_updates import Int64

SCAN_PLANNING_MODE: Final = "scan-planning-mode"
"""The key in a table's `config` that says who must plan its scans."""


class PlanTableScanRequest(Request, frozen=True, omit_defaults=True):
    """A scan of one snapshot, or of the appends between two snapshots.

    Without a snapshot it scans the head of main.
    """

    snapshot_id: Int64 | None = None
    select: tuple[str, ...] | None = None
    filter_json: Raw = field(name="filter", default=NULL)
    min_rows_requested: Count | None = None
    case_sensitive: bool | None = None
    use_snapshot_schema: bool | None = None
    start_snapshot_id: Int64 | None = None
    """Exclusive."""
    end_snapshot_id: Int64 | None = None
    """Inclusive; required with a start."""
    stats_fields: tuple[str, ...] | None = None
    """The columns whose statistics the response contains; without it, none."""

    @property
    def filter(self) -> Raw | None:
        return optional_raw(self.filter_json)

    @property
    def is_case_sensitive(self) -> bool:
        return self.case_sensitive is not False

    @property
    def is_incremental(self) -> bool:
        return self.start_snapshot_id is not None or self.end_snapshot_id is not None


class FetchScanTasksRequest(Request, frozen=True):
    plan_task: Annotated[str, Meta(min_length=1)]


def check_plan_request(request: PlanTableScanRequest) -> None:
    """Refuse a scan request that is wrong whatever the table is."""
    if request.snapshot_id is not None and request.is_incremental:
        raise BadRequest(
            "snapshot-id: cannot stand beside start-snapshot-id and end-snapshot-id: it scans one "
            "snapshot, they scan what was appended between two"
        )
    if request.start_snapshot_id is not None and request.end_snapshot_id is None:
        raise BadRequest("end-snapshot-id: required with start-snapshot-id")


class _PlannedFile(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The fields that planned data files and delete files share."""

    file_path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...] = ()
    """JSON single values in the order of the spec's fields."""
    file_size_in_bytes: int
    record_count: int
    key_metadata: str | None = None


class PlannedDataFile(_PlannedFile, frozen=True, kw_only=True):
    """A data file to read, with statistics only for the requested columns."""

    split_offsets: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    data_sequence_number: int | None = None
    """Present on request: the sequence number that rows without their own inherit."""
    column_sizes: CountMap | None = None
    value_counts: CountMap | None = None
    null_value_counts: CountMap | None = None
    nan_value_counts: CountMap | None = None
    lower_bounds: ValueMap | None = None
    """Binary single values in hexadecimal."""
    upper_bounds: ValueMap | None = None


class PlannedDeleteFile(_PlannedFile, frozen=True, kw_only=True):
    """A file of position or equality deletes, or one deletion vector."""

    content: str
    equality_ids: tuple[int, ...] | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    data_sequence_number: int | None = None
    """Present on request."""


@dataclass(frozen=True, slots=True)
class FileScanTask:
    """A data file, with the delete files and the filter that its reader must apply."""

    data_file: PlannedDataFile
    delete_files: tuple[PlannedDeleteFile, ...]
    residual: bool | Mapping[str, Any]
    """The rest of the filter for the rows of this file, as JSON. True if all rows match."""
