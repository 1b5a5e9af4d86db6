"""Prometheus metrics, collected at each scrape.

The packages count with plain integers, so that commits do not depend on Prometheus. Only the
handler of `/metrics` imports this module, at the first scrape.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from frazil.db.base import DatabaseUnavailable
from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.commit.pipeline.commit_metrics import CommitCounts
    from frazil.housekeeping.services import Housekeeping
    from frazil.plan.plan_metrics import PlanCounts
    from frazil.plan.scan_walk import Counts
    from frazil.read.counters import CacheCounts, HistogramCounts
    from frazil.rest.rest_app import RestApp

Values = Mapping[tuple[str, ...], float]
"""The values of a metric by the values of its labels."""

_KIND_LABEL: Final = ("kind",)


def metrics_text(app: RestApp, accept: str) -> tuple[bytes, str]:
    """Return the metrics and their content type, OpenMetrics if the client accepts it."""
    registry = CollectorRegistry()
    registry.register(_FrazilCollector(app))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _FrazilCollector(Collector):
    def __init__(self, app: RestApp) -> None:
        self._app = app

    def collect(self) -> Iterator[Metric]:
        cache = self._app.catalog.manifest_counts()
        yield from _cache_metrics(cache)
        yield from _read_metrics(cache)
        yield from _plan_metrics(self._app.planner.metrics.read())
        yield from _http_metrics(self._app)
        yield from _commit_metrics(self._app.catalog.commit_counts())
        if self._app.has_housekeeping:
            yield from _housekeeping_metrics(self._app.housekeeping)
        yield from _process_metrics(self._app.settings.local_files)
        expiry_s = self._app.certificate_expiry()
        yield _gauge(
            "frazil_certificate_expiry_timestamp_seconds",
            "When the server's certificate expires",
            {} if expiry_s is None else {(): expiry_s},
        )


def _cache_metrics(counts: CacheCounts) -> Iterator[Metric]:
    def by_kind(name: str) -> Values:
        return {(kind,): getattr(cache, name) for kind, cache in counts.kinds.items()}

    prefix = "frazil_manifest_cache"
    yield _counter(f"{prefix}_hits", "Lookups answered from memory", by_kind("hits"), _KIND_LABEL)
    yield _counter(
        f"{prefix}_misses",
        "Lookups that had to read or build the entry",
        by_kind("misses"),
        _KIND_LABEL,
    )
    yield _counter(
        f"{prefix}_evictions",
        "Entries dropped because the byte budget was used up",
        by_kind("evictions"),
        _KIND_LABEL,
    )
    yield _gauge(f"{prefix}_entries", "Entries in memory", by_kind("entries"), _KIND_LABEL)
    yield _gauge(f"{prefix}_bytes", "Bytes in memory", by_kind("size_bytes"), _KIND_LABEL)
    yield _gauge(f"{prefix}_max_bytes", "The byte budget", {(): counts.max_bytes})


def _read_metrics(counts: CacheCounts) -> Iterator[Metric]:
    files: Values = {(kind,): reads.files for kind, reads in counts.reads.items()}
    sizes: Values = {(kind,): reads.size_bytes for kind, reads in counts.reads.items()}
    yield _counter("frazil_manifest_reads", "Files read from the object store", files, _KIND_LABEL)
    yield _counter(
        "frazil_manifest_read_bytes", "Bytes read from the object store", sizes, _KIND_LABEL
    )
    if counts.folder is not None:
        yield _counter(
            "frazil_manifest_folder_lookups",
            "Lookups of columns and statistics in the local folder",
            {("hit",): counts.folder.hits, ("miss",): counts.folder.misses},
            ("result",),
        )


def _plan_metrics(counts: PlanCounts) -> Iterator[Metric]:
    by_result = ("content", "result")
    outcomes: Values = {(outcome,): number for outcome, number in counts.outcomes.items()}
    yield _counter("frazil_plans", "Scan plans by outcome", outcomes, ("outcome",))
    yield _counter(
        "frazil_plans_submitted",
        "Plans that a client had to poll for",
        {(): counts.submitted},
    )
    yield _histogram("frazil_plan_seconds", "Duration of plans", {(): counts.seconds})
    yield _counter(
        "frazil_plan_manifests",
        "Manifests considered by plans",
        _manifests(counts.walked),
        by_result,
    )
    yield _counter(
        "frazil_plan_files",
        "Files in the manifests that plans read",
        _files(counts.walked),
        by_result,
    )
    yield _counter(
        "frazil_plan_task_pages",
        "Pages of scan tasks fetched",
        {(): counts.task_pages},
    )
    yield _counter("frazil_plan_task_files", "Data files in those pages", {(): counts.task_files})


def _manifests(walked: Counts) -> Values:
    data_skipped = walked.data_manifests_skipped_by_partition
    data_empty = walked.data_manifests_without_live_files
    deletes_skipped = walked.delete_manifests_skipped_by_partition
    deletes_empty = walked.delete_manifests_without_live_files
    return {
        ("data", "read"): walked.data_manifests - data_skipped - data_empty,
        ("data", "skipped-by-partition"): data_skipped,
        ("data", "without-live-files"): data_empty,
        ("deletes", "read"): walked.delete_manifests - deletes_skipped - deletes_empty,
        ("deletes", "skipped-by-partition"): deletes_skipped,
        ("deletes", "without-live-files"): deletes_empty,
    }


def _files(walked: Counts) -> Values:
    return {
        ("data", "planned"): walked.data_files_planned,
        ("data", "skipped-by-partition"): walked.data_files_skipped_by_partition,
        ("data", "skipped-by-statistics"): walked.data_files_skipped_by_statistics,
        ("deletes", "kept"): walked.delete_files - walked.delete_files_skipped,
        ("deletes", "skipped"): walked.delete_files_skipped,
    }


def _http_metrics(app: RestApp) -> Iterator[Metric]:
    requests: Values = {
        (operation, str(status)): number
        for (operation, status), number in app.request_counts.requests().items()
    }
    yield _counter(
        "frazil_http_requests",
        "Requests by operation and status; 499 means that the client disconnected",
        requests,
        ("operation", "status"),
    )
    yield _histogram(
        "frazil_http_request_seconds",
        "Duration of requests, up to the last byte of the response",
        {(operation,): durations for operation, durations in app.request_counts.seconds().items()},
        ("operation",),
    )
    yield _gauge(
        "frazil_http_requests_in_flight",
        "Requests in progress, including this one",
        {(): app.in_flight},
    )


def _commit_metrics(counts: CommitCounts) -> Iterator[Metric]:
    yield _counter(
        "frazil_commits",
        "Commits to tables and views by what they do and how they ended",
        counts.outcomes,
        ("operation", "outcome"),
    )
    yield _counter(
        "frazil_commit_conflicts",
        "Refused commits by the clause or rule that failed",
        {(clause,): number for clause, number in counts.conflicts.items()},
        ("clause",),
    )
    yield _counter(
        "frazil_commit_lost_swaps",
        "Rounds that ran again because another process changed the table first",
        {(): counts.lost_swaps},
    )
    yield _gauge(
        "frazil_commit_queued_requests", "Requests that wait in queues", {(): counts.queued}
    )
    yield _histogram(
        "frazil_commit_group_requests",
        "Commits that shared one metadata file and one swap",
        {(): counts.group_requests},
    )
    yield _histogram(
        "frazil_commit_queue_seconds",
        "How long commits waited for the group before them",
        {(): counts.queue_seconds},
    )
    yield _histogram(
        "frazil_commit_phase_seconds",
        "Duration of the phases of a round: build, write, swap",
        {(phase,): seconds for phase, seconds in counts.phase_seconds.items()},
        ("phase",),
    )


def _housekeeping_metrics(housekeeping: Housekeeping) -> Iterator[Metric]:
    outcomes: Values = {**housekeeping.runner.outcomes}
    yield _counter(
        "frazil_jobs",
        "Jobs of maintenance that this server has ended",
        outcomes,
        ("operation", "outcome"),
    )
    yield _counter(
        "frazil_swept_files",
        "Files that the regular sweeps of this server have deleted",
        {(): housekeeping.sweeper.deleted_files},
    )
    # These come from the database, so all servers of a catalog show the same. A database that is
    # away must not hide the other metrics.
    with suppress(DatabaseUnavailable):
        open_jobs: Values = {**housekeeping.jobs.open_counts()}
        quarantine = housekeeping.quarantine()
        yield _gauge("frazil_jobs_open", "Jobs that wait or run", open_jobs, ("operation", "state"))
        yield _gauge(
            "frazil_quarantine_snapshots",
            "Expired snapshots that can be brought back",
            {(): quarantine.snapshot_count},
        )
        yield _gauge(
            "frazil_quarantine_files",
            "Files that are recorded for deletion",
            {(): quarantine.file_count},
        )
        yield _gauge(
            "frazil_quarantine_bytes",
            "Their bytes, as far as the sizes are known",
            {(): quarantine.size_bytes},
        )


def _process_metrics(local_files: Mapping[str, str]) -> Iterator[Metric]:
    yield _gauge(
        "frazil_build_info", "The version of the server", {(__version__,): 1}, ("version",)
    )
    total: dict[tuple[str, ...], float] = {}
    free: dict[tuple[str, ...], float] = {}
    for content, path in local_files.items():
        # A missing disk must not hide the other metrics.
        with suppress(OSError):
            disk = os.statvfs(path)
            total[(content,)] = disk.f_blocks * disk.f_frsize
            # Not `f_bfree`, which includes blocks that only root may use.
            free[(content,)] = disk.f_bavail * disk.f_frsize
    yield _gauge("frazil_disk_bytes", "Size of the disk", total, ("content",))
    yield _gauge("frazil_disk_free_bytes", "Space left on the disk", free, ("content",))


# --- families -------------------------------------------------------------------------------------


def _counter(name: str, text: str, values: Values, labels: tuple[str, ...] = ()) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _gauge(name: str, text: str, values: Values, labels: tuple[str, ...] = ()) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(
    name: str,
    text: str,
    values: Mapping[tuple[str, ...], HistogramCounts],
    labels: tuple[str, ...] = (),
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, counts in values.items():
        family.add_metric(key, _buckets(counts), counts.total)
    return family


def _buckets(counts: HistogramCounts) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus expects; the last has no upper bound."""
    bounds = [*(str(float(bound)) for bound in counts.bounds), "+Inf"]
    return list(zip(bounds, accumulate(counts.counts), strict=True))
