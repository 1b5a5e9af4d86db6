"""The comparison of manifest paths runs; the tests do not check speed."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.manifest_paths import SMOKE, measure, row, write_results


def test_every_path_is_measured_on_and_off(tmp_path: Path) -> None:
    measured = list(measure(SMOKE))
    assert {"rows in lockstep", "statistics on disk", "copied blocks"} <= {
        one.path for one in measured
    }
    for one in measured:
        assert one.on_ms > 0
        assert one.off_ms > 0
        assert len(one.each_on_ms) == len(one.each_off_ms) == SMOKE.rounds
        assert one.path in row(one)
    write_results(measured, SMOKE, tmp_path / "out" / "paths.json")
    found = json.loads((tmp_path / "out" / "paths.json").read_text())
    assert len(found["measured"]) == len(measured)
