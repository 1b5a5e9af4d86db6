"""The procedures that are jobs of the server, with the arguments and results of Iceberg's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from frazil.maintenance.server_jobs import JobResult, run_job
from frazil.maintenance.stored_file_list import stored_file_list
from frazil.spark.core.progress import progress
from frazil.spark.maintenance.file_list_view import files_of_view
from frazil.spark.sql.table_names import SqlSession
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier
from frazil.wire.maintenance_operations import (
    EXPIRE_SNAPSHOTS,
    REMOVE_DANGLING_DELETES,
    REMOVE_ORPHAN_FILES,
    UNDO,
)

Row: TypeAlias = tuple[Any, ...]

_DAY_MS: Final = 24 * 3_600_000

EXPIRE_PARAMETERS: Final = {
    "table": "string",
    "older_than": "timestamp",
    "retain_last": "int",
    "max_concurrent_deletes": "int",
    "stream_results": "boolean",
    "snapshot_ids": "array<bigint>",
    "clean_expired_metadata": "boolean",
}
_EXPIRED: Final = (
    "deleted_data_files_count",
    "deleted_position_delete_files_count",
    "deleted_equality_delete_files_count",
    "deleted_manifest_files_count",
    "deleted_manifest_lists_count",
    "deleted_statistics_files_count",
)
EXPIRE_RESULT: Final = ", ".join(f"{name} bigint" for name in _EXPIRED)
ORPHAN_PARAMETERS: Final = {
    "table": "string",
    "older_than": "timestamp",
    "location": "string",
    "dry_run": "boolean",
    "max_concurrent_deletes": "int",
    "file_list_view": "string",
    "equal_schemes": "map<string, string>",
    "equal_authorities": "map<string, string>",
    "prefix_mismatch_mode": "string",
    "prefix_listing": "boolean",
}


def expire_snapshots(
    session: SqlSession,
    table: Identifier,
    older_than: int | None = None,
    retain_last: int | None = None,
    max_concurrent_deletes: int | None = None,
    stream_results: bool | None = None,
    snapshot_ids: Sequence[int] = (),
    clean_expired_metadata: bool = False,
) -> Row:
    """Expire snapshots. How many files are deleted at once is the server's decision."""
    options = {
        "older_than": older_than,
        "retain_last": retain_last,
        "snapshot_ids": ",".join(map(str, snapshot_ids)) or None,
        "clean_expired_metadata": "true" if clean_expired_metadata else None,
    }
    context, loaded = session.context, session.client.load_table(table, "refs")
    # Otherwise frames that this session has read would keep their snapshots for an hour.
    context.leases.release_idle(session.client.leases, context.spark, loaded)
    result = _run(session, table, EXPIRE_SNAPSHOTS, options)
    return tuple(result.values[name] for name in _EXPIRED)


def remove_orphan_files(
    session: SqlSession,
    table: Identifier,
    older_than: int | None = None,
    location: str | None = None,
    dry_run: bool = False,
    max_concurrent_deletes: int | None = None,
    file_list_view: str | None = None,
    equal_schemes: Mapping[str, str] | None = None,
    equal_authorities: Mapping[str, str] | None = None,
    prefix_mismatch_mode: str | None = None,
    prefix_listing: bool | None = None,
) -> list[Row]:
    """Find orphan files and return their locations. How the server lists is its own decision."""
    if older_than is not None and time.time() * 1000 - older_than < _DAY_MS:
        raise BadRequest(
            "older_than: files of the last 24 hours are not removed, because a writer may be about "
            "to commit them; with the option allow_recent_files the job takes any time"
        )
    options: dict[str, Any] = {
        "older_than": older_than,
        "location": location,
        "equal_schemes": _encoded(equal_schemes),
        "equal_authorities": _encoded(equal_authorities),
        "prefix_mismatch_mode": prefix_mismatch_mode,
    }
    with _stored(session, table, file_list_view) as file_list:
        options["file_list"] = file_list
        result = _run(session, table, REMOVE_ORPHAN_FILES, options, dry_run=dry_run)
    return [(path,) for path in result.orphan_file_locations]


@contextmanager
def _stored(session: SqlSession, table: Identifier, view: str | None) -> Iterator[str | None]:
    """Store the listing of a view for the server; yield its location."""
    if view is None:
        yield None
        return
    files = files_of_view(session.context, view)
    loaded = session.client.load_table(table)
    with stored_file_list(loaded, files, session.context.properties) as location:
        yield location


def remove_dangling_deletes(session: SqlSession, table: Identifier) -> Row:
    """Remove deletes that apply to no data file."""
    result = _run(session, table, REMOVE_DANGLING_DELETES, {})
    return result.removed_delete_files_count, result.removed_bytes_count


def undo(
    session: SqlSession, table: Identifier, snapshot_id: int | None = None, tag: str | None = None
) -> Row:
    """Bring an expired snapshot or a purged table back."""
    result = _run(session, table, UNDO, {"snapshot_id": snapshot_id, "tag": tag})
    return result.values.get("snapshot_id"), result.values.get("tag")


def _run(
    session: SqlSession,
    table: Identifier,
    operation: str,
    options: Mapping[str, Any],
    *,
    dry_run: bool = False,
) -> JobResult:
    given = {name: str(value) for name, value in options.items() if value is not None}
    with progress(session.context, f"{operation} of {table}"):
        return run_job(session.client.jobs, table, operation, given, dry_run=dry_run)


def _encoded(names: Mapping[str, str] | None) -> str | None:
    pairs = [f"{others}={name}" for others, name in (names or {}).items()]
    return "; ".join(pairs) or None
