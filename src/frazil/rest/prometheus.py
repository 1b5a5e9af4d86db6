"""The counters of the rooms under Prometheus' names, read when they are asked for.

The rooms count with plain integers of their own, so that nothing on the way of a commit knows of
Prometheus. Only the handler of `/metrics` imports this module, at the first scrape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

if TYPE_CHECKING:
    from frazil.plan.metrics import Durations, PlanCounts
    from frazil.plan.walk import Counts
    from frazil.read.lru import CacheCounts
    from frazil.rest.edge import Edge

Values = Mapping[tuple[str, ...], float]
"""By the values of a metric's labels."""

_BY_KIND: Final = ("kind",)


def exposed(edge: Edge, accept: str) -> tuple[bytes, str]:
    """The text and its content type: OpenMetrics for who accepts it, else Prometheus' own."""
    registry = CollectorRegistry()
    registry.register(_Rooms(edge))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Rooms(Collector):
    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def collect(self) -> Iterator[Metric]:
        cache = self._edge.catalog.manifest_counts()
        yield from _cache_metrics(cache)
        yield from _read_metrics(cache)
        yield from _plan_metrics(self._edge.planner.metrics.read())
        yield from _http_metrics(self._edge)


def _cache_metrics(counts: CacheCounts) -> Iterator[Metric]:
    def by_kind(name: str) -> Values:
        return {(kind,): getattr(found, name) for kind, found in counts.kinds.items()}

    cache = "frazil_manifest_cache"
    yield _counter(f"{cache}_hits", "Answers from memory", by_kind("hits"), _BY_KIND)
    yield _counter(
        f"{cache}_misses", "What had to be read or made anew", by_kind("misses"), _BY_KIND
    )
    yield _counter(
        f"{cache}_evictions",
        "What was let go of because the byte budget was used up",
        by_kind("evictions"),
        _BY_KIND,
    )
    yield _gauge(f"{cache}_entries", "What is in memory", by_kind("entries"), _BY_KIND)
    yield _gauge(f"{cache}_bytes", "Bytes in memory", by_kind("size_bytes"), _BY_KIND)
    yield _gauge(f"{cache}_max_bytes", "The byte budget", {(): counts.max_bytes})


def _read_metrics(counts: CacheCounts) -> Iterator[Metric]:
    files: Values = {(kind,): found.files for kind, found in counts.reads.items()}
    sizes: Values = {(kind,): found.size_bytes for kind, found in counts.reads.items()}
    yield _counter("frazil_manifest_reads", "Files read from the object store", files, _BY_KIND)
    yield _counter(
        "frazil_manifest_read_bytes", "Bytes read from the object store", sizes, _BY_KIND
    )
    if counts.folder is not None:
        yield _counter(
            "frazil_manifest_folder_lookups",
            "Columns and statistics that were looked for in the local folder",
            {("hit",): counts.folder.hits, ("miss",): counts.folder.misses},
            ("result",),
        )


def _plan_metrics(counts: PlanCounts) -> Iterator[Metric]:
    by_result = ("content", "result")
    outcomes: Values = {(outcome,): number for outcome, number in counts.outcomes.items()}
    yield _counter("frazil_plans", "Scan plans by how they ended", outcomes, ("outcome",))
    yield _counter(
        "frazil_plans_submitted",
        "Answers that told a client to come back for its plan",
        {(): counts.submitted},
    )
    yield _histogram("frazil_plan_seconds", "How long plans took", {(): counts.seconds})
    yield _counter(
        "frazil_plan_manifests", "Manifests that plans met", _manifests(counts.walked), by_result
    )
    yield _counter(
        "frazil_plan_files", "Files in the manifests read", _files(counts.walked), by_result
    )
    yield _counter("frazil_plan_task_pages", "Pages of scan tasks fetched", {(): counts.task_pages})
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


def _http_metrics(edge: Edge) -> Iterator[Metric]:
    requests: Values = {
        (operation, str(status)): number
        for (operation, status), number in edge.http.requests().items()
    }
    yield _counter(
        "frazil_http_requests",
        "Requests by operation and the status of their answers; 499: the client was gone",
        requests,
        ("operation", "status"),
    )
    yield _histogram(
        "frazil_http_request_seconds",
        "How long they took, to the last byte of the answer",
        {(operation,): one for operation, one in edge.http.seconds().items()},
        ("operation",),
    )
    yield _gauge(
        "frazil_http_requests_in_flight",
        "Requests that are being answered, this one among them",
        {(): edge.in_flight},
    )


# --- families -------------------------------------------------------------------------------------


def _counter(name: str, text: str, values: Values, labels: tuple[str, ...] = ()) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, values: Values, labels: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(
    name: str,
    text: str,
    values: Mapping[tuple[str, ...], Durations],
    labels: tuple[str, ...] = (),
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, durations in values.items():
        family.add_metric(key, _buckets(durations), durations.total_s)
    return family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Prometheus' buckets hold everything up to their bound; the last is without one."""
    bounds = [*(str(float(bound)) for bound in durations.bounds_s), "+Inf"]
    return list(zip(bounds, accumulate(durations.counts), strict=True))
