"""Scan planning: what a client asks for, as the REST specification has it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Raw, field

from frazil.wire.content_files import NULL, Count, given
from frazil.wire.errors import BadRequest
from frazil.wire.requests import Request
from frazil.wire.updates import Int64

SCAN_PLANNING_MODE: Final = "scan-planning-mode"
"""In a table's `config`: who must plan its scans."""
SCAN_PLANNING_PROPERTY: Final = f"frazil.{SCAN_PLANNING_MODE}"
"""The table property by which a table's owner says so."""


class ScanPlanningMode(StrEnum):
    CLIENT = "client"
    SERVER = "server"


class PlanTableScanRequest(Request, frozen=True, omit_defaults=True):
    """A scan of one snapshot, or of what was appended between two.

    Without any snapshot it is the head of main.
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
    """Inclusive; needed with a start."""
    stats_fields: tuple[str, ...] | None = None
    """Columns whose statistics are wanted in the answer; without it, none are."""

    @property
    def filter(self) -> Raw | None:
        return given(self.filter_json)

    @property
    def is_case_sensitive(self) -> bool:
        return self.case_sensitive is not False

    @property
    def is_incremental(self) -> bool:
        return self.start_snapshot_id is not None or self.end_snapshot_id is not None


class FetchScanTasksRequest(Request, frozen=True):
    plan_task: Annotated[str, Meta(min_length=1)]


def check_plan_request(request: PlanTableScanRequest) -> None:
    """Refuses a scan that is wrong by its own text."""
    if request.snapshot_id is not None and request.is_incremental:
        raise BadRequest(
            "snapshot-id: cannot stand beside start-snapshot-id and end-snapshot-id: it scans one "
            "snapshot, they scan what was appended between two"
        )
    if request.start_snapshot_id is not None and request.end_snapshot_id is None:
        raise BadRequest("end-snapshot-id: required with start-snapshot-id")
