"""A job that is killed loses nothing, and the next run finishes it or cleans up.

`python -m tests.housekeeping.torture kills` kills at every operation; here some are chosen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.housekeeping.killable_jobs import JOBS
from tests.housekeeping.killed import KillableJob, KilledCatalog, Kills
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.process
POINTS_OF_A_JOB = 2
ON_POSTGRES = ("rewrite_data_files-server", "delete_unreachable_files-server")
"""The rest runs there in the long form."""
ONLY_LONG = ("convert_equality_deletes-client",)


CASES = [
    pytest.param(
        job, kind, id=f"{job.id}-{kind}", marks=pytest.mark.full if job.id in ONLY_LONG else ()
    )
    for job in JOBS
    for kind in ("sqlite", "postgres")
    if kind == "sqlite" or job.id in ON_POSTGRES
]


@pytest.mark.parametrize(("job", "kind"), CASES)
def test_some_kills_lose_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, job: KillableJob, kind: str
) -> None:
    postgres: PostgresServer | None = None
    if kind == "postgres":
        postgres = request.getfixturevalue("postgres_server")
    kills = Kills(KilledCatalog(tmp_path, job.victim, postgres), job)
    assert kills.points > POINTS_OF_A_JOB
    step = kills.points // POINTS_OF_A_JOB
    for point in range(1 + step // 2, kills.points + 1, step):
        assert kills.kill_at(point)
    kills.catalog.drop()
