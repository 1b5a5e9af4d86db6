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
SHORT = {
    "rewrite_data_files-client-sqlite",
    "expire_and_delete-server-sqlite",
    "delete_unreachable_files-server-postgres",
    "delete_purged_table-server-sqlite",
}
"""The others take too long for each run of the tests."""

CASES = [
    pytest.param(job, kind, id=id, marks=() if id in SHORT else pytest.mark.full)
    for job in JOBS
    for kind in ("sqlite", "postgres")
    for id in [f"{job.id}-{kind}"]
]


@pytest.mark.parametrize(("job", "kind"), CASES)
def test_some_kills_lose_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, job: KillableJob, kind: str
) -> None:
    postgres: PostgresServer | None = None
    if kind == "postgres":
        postgres = request.getfixturevalue("postgres_server")
    kills = Kills(KilledCatalog(tmp_path, job.victim, postgres), job)
    assert kills.points >= POINTS_OF_A_JOB
    step = kills.points // POINTS_OF_A_JOB
    for point in range(1 + step // 2, kills.points + 1, step):
        assert kills.kill_at(point)
    kills.catalog.drop()
