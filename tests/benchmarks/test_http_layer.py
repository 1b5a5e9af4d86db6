"""The comparison of HTTP layers measures every request on every application."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.http_layer import APPLICATIONS, measure_all, opened


def test_every_application_answers_every_request(tmp_path: Path) -> None:
    with opened(tmp_path) as app:
        rows = asyncio.run(measure_all(app, requests=4, commits=1, rounds=1))
    assert {(row.request, row.application, row.requests) for row in rows} == {
        (request, application, count)
        for application in APPLICATIONS
        for request, count in (("GET /healthz", 4), ("HEAD a table", 1), ("append of one file", 1))
    }
    assert all(row.p50_us > 0 for row in rows)
