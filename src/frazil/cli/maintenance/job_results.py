"""Says in sentences what a job has done, or would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from frazil.cli.shared.printing import count_text, plain, size_text, time_text
from frazil.values.durations import duration_text
from frazil.wire.job_messages import Job
from frazil.wire.maintenance_operations import (
    CONVERT_EQUALITY_DELETES,
    DELETE_UNREACHABLE_FILES,
    EXPIRE_SNAPSHOTS,
    REMOVE_DANGLING_DELETES,
    REMOVE_ORPHAN_FILES,
    REWRITE_DATA_FILES,
    REWRITE_MANIFESTS,
    REWRITE_POSITION_DELETE_FILES,
    UNDO,
)

_SHOWN_PATHS: Final = 20

_EXPIRED_KINDS: Final = {
    "data file": "deleted-data-files-count",
    "position-delete file": "deleted-position-delete-files-count",
    "equality-delete file": "deleted-equality-delete-files-count",
    "manifest": "deleted-manifest-files-count",
    "manifest list": "deleted-manifest-lists-count",
    "statistics file": "deleted-statistics-files-count",
}
_SWEPT_KINDS: Final = {
    "data file": "data",
    "position-delete file": "position-deletes",
    "equality-delete file": "equality-deletes",
    "manifest": "manifest",
    "manifest list": "manifest-list",
    "statistics file": "statistics",
    "metadata file": "metadata",
    "orphan or leftover file": "unknown",
}


def result_lines(job: Job) -> Iterator[str]:
    """Yield what a job that has succeeded has done: a headline, then more lines."""
    headline, *more = sentences(job)
    prefix = "dry run, nothing was changed: " if job.dry_run else ""
    yield f"{job.identifier}: {prefix}{headline}"
    for line in more:
        yield f"  {line}"


def sentences(job: Job) -> Iterator[str]:
    """Yield what a job that has succeeded has done, without the name of its table."""
    for line in _SENTENCES[job.operation](job, job.result or {}):
        yield plain(line)


# --- garbage collection ---------------------------------------------------------------------------


def _expired(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    count = result["expired-snapshots-count"]
    refs, leased = result["removed-refs"], result["leased-snapshots-count"]
    if count:
        yield f"{_would(job, 'expire', 'expired')} {count_text(count, 'snapshot')}"
    elif leased:
        yield "no snapshot expires"
    elif job.options.get("snapshot_ids"):
        yield "no snapshot expires: the table has none with these ids"
    else:
        yield "no snapshot expires: none is old enough"
    if refs:
        yield f"{_would(job, 'remove', 'removed')} branches and tags that are too old: " + _list(
            refs
        )
    if leased:
        stay = "stays" if leased == 1 else "stay"
        yield (
            f"{count_text(leased, 'snapshot')} {stay} because of leases: "
            f"`frazil maintain leases {job.identifier}` lists them"
        )
    if count:
        yield from _files_of_expired(job, result)


def _files_of_expired(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    if job.options.get("delete_files", "true").lower() == "false":
        yield "no file is deleted, now or later, and the snapshots cannot come back"
        return
    files = _counts(result, _EXPIRED_KINDS) or "no file (other snapshots need them all)"
    quarantine_ms = result["quarantine-ms"]
    if not quarantine_ms:
        yield f"{_would(job, 'delete', 'deleted')} {files}"
        return
    wait = duration_text(quarantine_ms / 1000)
    if job.dry_run:
        yield f"would delete, after a quarantine of {wait}: {files}"
        return
    until = time_text((job.finished_at_ms or job.created_at_ms) + quarantine_ms)
    yield f"will be deleted after {until}, the end of a quarantine of {wait}: {files}"
    yield (
        f"until then, `frazil maintain undo {job.identifier} --snapshot-id ID` brings a snapshot "
        "back; without an id, the command names those that can come back"
    )


def _orphans(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    count, listed = result["orphan-files-count"], count_text(result["listed-files-count"], "file")
    if count:
        size = size_text(result["orphan-bytes"])
        yield f"found {count_text(count, 'orphan file')} ({size}) among {listed}"
        yield from _fate_of_orphans(job, result)
    else:
        yield f"found no new orphan file among {listed}"
    yield from _kept_beside_orphans(job, result)
    paths = result["orphan-file-locations"]
    yield from paths[:_SHOWN_PATHS]
    if len(paths) > _SHOWN_PATHS:
        yield f"and {count - _SHOWN_PATHS:,} more: `--output json` has up to {len(paths):,} paths"


def _fate_of_orphans(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    if result.get("refusal"):
        yield f"without --dry-run this is refused: {result['refusal']}"
    elif job.dry_run:
        yield "without --dry-run, they are recorded, and deleted at the end of their quarantine"
    elif result.get("deleted-files-count"):
        yield f"deleted {count_text(result['deleted-files-count'], 'file')}"
    if result.get("delete-after-ms") and not job.dry_run:
        yield (
            f"they are deleted after {time_text(result['delete-after-ms'])}, unless a commit names "
            "them before; `frazil why PATH` explains each"
        )


def _kept_beside_orphans(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    """Say which files are neither needed nor new orphans."""
    younger = time_text(result["older-than-ms"])
    for name, text in (
        ("recorded-files-count", "recorded before, to be deleted later"),
        ("recent-files-count", f"kept, because modified after {younger} or at an unknown time"),
        (
            "intended-files-count",
            f"kept for writers at work: `frazil maintain intents {job.identifier}` lists them",
        ),
        ("skipped-files-count", "kept, because hidden or outside the table"),
    ):
        if result[name]:
            yield f"{count_text(result[name], 'file')} {text}"


def _swept(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    files = _counts(result["deleted"], _SWEPT_KINDS)
    snapshots, writers = result["expired-snapshots-count"], result["ended-intents-count"]
    yield f"{_would(job, 'delete', 'deleted')} {files}" if files else "no file is due for deletion"
    if snapshots:
        yield f"{count_text(snapshots, 'expired snapshot')} cannot come back any more"
    if writers:
        yield f"{count_text(writers, 'writer')} had ended without a commit of all files"
    for problem in result["problems"]:
        yield f"files that stay: {problem}"


def _undone(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    is_back = _would(job, "come back", "is back")
    if "snapshot-id" not in result:
        yield f"the purged table {is_back} as {result['table']}"
        return
    yield f"snapshot {result['snapshot-id']} {is_back}, with the tag {result['tag']}"
    for kind in ("schemas", "specs"):
        ids = result.get(f"restored-{kind}")
        if ids:
            yield f"with it: {kind} {_list(ids)}"
    yield (
        "the tag keeps the snapshot; when you need it no longer: "
        f"`frazil tag {job.identifier} {result['tag']} --delete`"
    )


# --- rewrites -------------------------------------------------------------------------------------


def _data_files(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    files = count_text(result["rewritten-data-files-count"], "data file")
    added = count_text(result["added-data-files-count"], "data file")
    size = size_text(result["rewritten-bytes-count"])
    yield f"rewrote {files} ({size}) into {added}"
    if result["removed-delete-files-count"]:
        yield f"removed {count_text(result['removed-delete-files-count'], 'delete file')}"


def _position_deletes(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    files = count_text(result["rewritten-delete-files-count"], "delete file")
    yield f"rewrote {files} into {count_text(result['added-delete-files-count'], 'delete file')}"


def _converted(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    files = count_text(result["converted-equality-delete-files-count"], "equality-delete file")
    rows = count_text(result["deleted-rows-count"], "row")
    yield f"converted {files} to deletes by position, of {rows}"


def _manifests(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    count = result["rewritten-manifests-count"]
    if not count:
        yield "no manifest needs to be rewritten"
        return
    added = count_text(result["added-manifests-count"], "manifest")
    yield f"{_would(job, 'rewrite', 'rewrote')} {count_text(count, 'manifest')} into {added}"


def _dangling(job: Job, result: Mapping[str, Any]) -> Iterator[str]:
    count = result["removed-delete-files-count"]
    if not count:
        yield "every delete file and vector applies to a data file"
        return
    size = size_text(result["removed-bytes-count"])
    files = count_text(count, "delete file")
    yield f"{_would(job, 'remove', 'removed')} {files} ({size}) that apply to no data file"


# --- words ----------------------------------------------------------------------------------------

_SENTENCES: Final[Mapping[str, Callable[[Job, Mapping[str, Any]], Iterator[str]]]] = {
    EXPIRE_SNAPSHOTS: _expired,
    REMOVE_ORPHAN_FILES: _orphans,
    DELETE_UNREACHABLE_FILES: _swept,
    UNDO: _undone,
    REWRITE_MANIFESTS: _manifests,
    REWRITE_DATA_FILES: _data_files,
    REWRITE_POSITION_DELETE_FILES: _position_deletes,
    CONVERT_EQUALITY_DELETES: _converted,
    REMOVE_DANGLING_DELETES: _dangling,
}


def _would(job: Job, do: str, done: str) -> str:
    return f"would {do}" if job.dry_run else done


def _counts(result: Mapping[str, int], fields: Mapping[str, str]) -> str:
    """Write `2 data files, 1 manifest`: the counts that are not zero."""
    return ", ".join(
        count_text(result[name], noun) for noun, name in fields.items() if result.get(name)
    )


def _list(items: Sequence[Any]) -> str:
    return ", ".join(map(str, items))
