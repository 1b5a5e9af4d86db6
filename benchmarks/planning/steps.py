"""The steps of a cold plan: each is timed alone, for all manifests, in one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.planning.engine import request_for
from benchmarks.planning.filters import LONG_RANGE, filter_for
from benchmarks.planning.results import Step, step_of
from benchmarks.planning.trees import Tree
from frazil.format.avro.avro_files import MANIFEST_LIMITS, open_avro
from frazil.format.manifest.manifest_columns import decode_columns
from frazil.format.metadata.metadata_files import decode_metadata_file
from frazil.format.pruning.column_evaluators import inclusive_mask
from frazil.format.pruning.metric_decoder import decode_manifest, decode_metrics
from frazil.plan.scan_requests import resolve_scan
from frazil.store.local_store import LocalStore

READ: Final = "read the files"
DECOMPRESS: Final = "decompress"
COLUMNS: Final = "decode the columns, with decompressing"
STATISTICS: Final = "decode the statistics, with decompressing"
BOTH: Final = "decode both, decompressed once"
EVALUATE: Final = "evaluate a long range"
STEPS: Final = (READ, DECOMPRESS, COLUMNS, STATISTICS, BOTH, EVALUATE)
_MAX_METADATA_BYTES: Final = 1 << 30

T = TypeVar("T")


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def time(self, step: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        done = work()
        self.seconds.setdefault(step, []).append(time.perf_counter() - started)
        return done


def measure_steps(tree: Tree, rounds: int) -> Iterator[Step]:
    clock, kind = _Clock(), tree.kind
    for _ in range(rounds):
        _all_steps(tree, clock)
    for step, seconds in clock.seconds.items():
        yield step_of(kind.files, kind.layout, step, seconds)


def _all_steps(tree: Tree, clock: _Clock) -> None:
    store = LocalStore()
    location = Path(tree.metadata_location.removeprefix("file://"))
    metadata = decode_metadata_file(location.read_bytes(), _MAX_METADATA_BYTES)
    wanted = request_for(filter_for(LONG_RANGE, tree.kind.files))
    expression = resolve_scan(metadata, wanted).where.expression
    max_bytes = MANIFEST_LIMITS.file_bytes

    contents = clock.time(READ, lambda: [store.get(path, max_bytes) for path in tree.manifests])
    clock.time(DECOMPRESS, lambda: [_decompressed(content) for content in contents])
    columns = clock.time(COLUMNS, lambda: [decode_columns(content) for content in contents])
    pairs = list(zip(contents, columns, strict=True))
    metrics = clock.time(STATISTICS, lambda: [decode_metrics(*pair) for pair in pairs])
    clock.time(BOTH, lambda: [decode_manifest(content) for content in contents])
    clock.time(EVALUATE, lambda: [inclusive_mask(expression, one) for one in metrics])


def _decompressed(content: bytes) -> int:
    return sum(len(block) for _, block in open_avro(content, MANIFEST_LIMITS).blocks())
