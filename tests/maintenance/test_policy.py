"""What the autopilot decides for a table, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from frazil.maintenance import rewrite_options
from frazil.maintenance.maintenance_policy import (
    FIRST_BACKOFF_MS,
    LAST_BACKOFF_MS,
    PAUSE_MS,
    MaintenancePlan,
    plan_maintenance,
)
from frazil.wire.errors import BadRequest
from frazil.wire.frazil_properties import check_properties_of, check_table_properties
from frazil.wire.job_messages import Job, JobState
from frazil.wire.maintenance_operations import OPERATIONS, REWRITE_DATA_FILES
from frazil.wire.maintenance_settings import (
    MAINTENANCE_PROPERTIES,
    MaintenanceSettings,
    maintenance_settings,
)
from frazil.wire.rest_messages import TableIdentifier
from frazil.wire.table_health import (
    DataFileHealth,
    DeleteHealth,
    ManifestHealth,
    QuarantineHealth,
    SnapshotHealth,
    TableHealth,
)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TABLE = TableIdentifier(("shop",), "orders")

SMALL_FILES = DataFileHealth(
    count=100,
    size_bytes=100 << 20,
    record_count=1000,
    small_count=100,
    rewritable_count=100,
    rewritable_bytes=100 << 20,
    rewritten_count=1,
)
ALL_BAD: dict[str, Any] = {
    "data_files": SMALL_FILES,
    "deletes": DeleteHealth(
        position_delete_count=20, position_delete_bytes=1, equality_delete_count=3
    ),
    "manifests": ManifestHealth(count=50, rewritten_count=2),
    "snapshots": SnapshotHealth(
        count=10, oldest_at_ms=NOW_MS - 30 * DAY_MS, newest_at_ms=NOW_MS - 1, expirable_count=9
    ),
    "quarantine": QuarantineHealth(snapshot_count=4, file_count=5, size_bytes=1 << 30, due_count=6),
}


def health(runs: tuple[Job, ...] = (), **parts: Any) -> TableHealth:
    usual: dict[str, Any] = {
        "data_files": DataFileHealth(),
        "deletes": DeleteHealth(),
        "manifests": ManifestHealth(),
        "snapshots": SnapshotHealth(
            count=1, oldest_at_ms=NOW_MS - HOUR_MS, newest_at_ms=NOW_MS - HOUR_MS
        ),
        "quarantine": QuarantineHealth(),
        "gc_enabled": True,
        "settings": {},
        "scans_per_day": 0,
    }
    return TableHealth(
        table=TABLE,
        table_uuid="uuid",
        metadata_location="s3://b/t/m.json",
        now_ms=NOW_MS,
        target_file_size_bytes=512 << 20,
        commits_per_day=0,
        runs=runs,
        **{**usual, **parts},
    )


def run(operation: str, state: JobState, ago_ms: int, **more: Any) -> Job:
    job = Job(
        job_id=f"job-{ago_ms}",
        table=TABLE,
        table_uuid="uuid",
        operation=operation,
        options={},
        dry_run=False,
        state=state,
        started_by="autopilot",
        principal="p",
        attempts=1,
        cancel_requested=False,
        created_at_ms=NOW_MS - ago_ms,
        finished_at_ms=NOW_MS - ago_ms if state.is_final else None,
    )
    return msgspec.structs.replace(job, **more)


def operations(plan: MaintenancePlan) -> list[str]:
    return [action.operation for action in plan.runnable]


def test_a_healthy_table_needs_nothing() -> None:
    assert plan_maintenance(health()).actions == ()


def test_everything_runs_in_the_order_in_which_it_frees_the_most() -> None:
    assert operations(plan_maintenance(health(**ALL_BAD))) == [
        "convert_equality_deletes",
        "rewrite_position_delete_files",
        "rewrite_data_files",
        "rewrite_manifests",
        "expire_snapshots",
        "remove_orphan_files",
        "delete_unreachable_files",
    ]


def test_the_plan_says_what_it_saves_and_why() -> None:
    (action,) = plan_maintenance(health(data_files=SMALL_FILES)).actions
    assert (action.saved_files, action.work_bytes) == (99, 100 << 20)
    assert "100 of 100 data files" in action.reason


def test_gc_enabled_false_deletes_nothing() -> None:
    plan = plan_maintenance(health(**{**ALL_BAD, "gc_enabled": False}))
    assert operations(plan) == [
        "convert_equality_deletes",
        "rewrite_position_delete_files",
        "rewrite_data_files",
        "rewrite_manifests",
    ]


def test_only_the_operations_that_are_on_run() -> None:
    settings = MaintenanceSettings(operations=("expire_snapshots", "rewrite_manifests"))
    assert operations(plan_maintenance(health(**ALL_BAD), settings)) == [
        "rewrite_manifests",
        "expire_snapshots",
    ]


def test_a_table_may_be_left_to_its_owner() -> None:
    settings = MaintenanceSettings(enabled=False)
    plan = plan_maintenance(health(**ALL_BAD), settings)
    assert plan.runnable == ()
    assert {action.held_back for action in plan.actions} == {"frazil.maintenance.enabled is false"}
    # Somebody who asks for it gets it.
    assert plan_maintenance(health(**ALL_BAD), settings, for_user=True).runnable


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (MaintenanceSettings(), {}),
        (
            MaintenanceSettings(max_snapshot_age_ms=DAY_MS, min_snapshots_to_keep=3),
            {"older_than": str(NOW_MS - DAY_MS), "retain_last": "3"},
        ),
    ],
)
def test_what_to_keep_becomes_options(
    settings: MaintenanceSettings, options: dict[str, str]
) -> None:
    parts = {"snapshots": ALL_BAD["snapshots"]}
    plan = plan_maintenance(health(**parts), settings)
    (expire,) = (each for each in plan.actions if each.operation == "expire_snapshots")
    assert expire.options == options


def test_a_run_stays_within_its_bytes() -> None:
    settings = MaintenanceSettings(max_bytes_per_run=50 << 20)
    (action,) = plan_maintenance(health(data_files=SMALL_FILES), settings).actions
    assert action.options["max-files-to-rewrite"] == "49"
    assert action.work_bytes == 50 << 20


def test_a_day_stays_within_its_bytes() -> None:
    settings = MaintenanceSettings(max_bytes_per_day=120 << 20)
    rewritten = {"rewritten-bytes-count": 119 << 20}
    recent = run("rewrite_data_files", JobState.SUCCEEDED, 2 * HOUR_MS, result=rewritten)
    parts = {"data_files": SMALL_FILES}
    (action,) = plan_maintenance(health((recent,), **parts), settings).actions
    assert action.held_back == "the budget of bytes per day is used up"
    old = run("rewrite_data_files", JobState.SUCCEEDED, 25 * HOUR_MS, result=rewritten)
    assert operations(plan_maintenance(health((old,), **parts), settings)) == ["rewrite_data_files"]


@pytest.mark.parametrize(
    ("failures", "pause_ms"),
    [(1, FIRST_BACKOFF_MS), (2, 2 * FIRST_BACKOFF_MS), (4, 8 * FIRST_BACKOFF_MS)],
)
def test_failures_are_followed_by_longer_and_longer_pauses(failures: int, pause_ms: int) -> None:
    def planned(ago_ms: int) -> MaintenancePlan:
        failed = tuple(
            run("rewrite_data_files", JobState.FAILED, ago_ms + 1000 * number)
            for number in range(failures)
        )
        success = run("rewrite_data_files", JobState.SUCCEEDED, ago_ms + DAY_MS)
        return plan_maintenance(health((*failed, success), data_files=SMALL_FILES))

    (action,) = planned(pause_ms - 1).actions
    assert f"{failures} runs have failed" in (action.held_back or "")
    assert operations(planned(pause_ms + 1)) == ["rewrite_data_files"]


def test_a_pause_is_never_longer_than_a_day() -> None:
    failed = tuple(
        run("rewrite_data_files", JobState.FAILED, LAST_BACKOFF_MS + 1 + number)
        for number in range(60)
    )
    assert plan_maintenance(health(failed, data_files=SMALL_FILES)).runnable


def test_another_operation_does_not_wait_for_the_failures_of_one() -> None:
    failed = run("rewrite_data_files", JobState.FAILED, 1)
    plan = plan_maintenance(health((failed,), **ALL_BAD))
    assert "rewrite_data_files" not in operations(plan)
    assert "expire_snapshots" in operations(plan)


def test_an_operation_that_runs_is_not_begun_again() -> None:
    running = run("rewrite_data_files", JobState.RUNNING, 5)
    for for_user in (False, True):
        plan = plan_maintenance(health((running,), data_files=SMALL_FILES), for_user=for_user)
        assert [action.held_back for action in plan.actions] == ["job job-5 is running"]


def test_a_rewrite_without_a_commit_since_would_be_in_vain() -> None:
    """An estimate that is wrong must not rewrite an idle table again and again."""
    done = run("rewrite_data_files", JobState.SUCCEEDED, 10)
    parts: dict[str, Any] = {"data_files": SMALL_FILES}
    assert not plan_maintenance(health((done,), **parts)).runnable
    newer = SnapshotHealth(count=2, oldest_at_ms=NOW_MS - HOUR_MS, newest_at_ms=NOW_MS - 5)
    assert plan_maintenance(health((done,), snapshots=newer, **parts)).runnable
    partial = run(
        "rewrite_data_files", JobState.SUCCEEDED, 10, options={"max-files-to-rewrite": "9"}
    )
    assert plan_maintenance(health((partial,), **parts)).runnable


def test_the_clock_drives_the_expiry_of_an_idle_table() -> None:
    parts = {"snapshots": ALL_BAD["snapshots"]}
    on = MaintenanceSettings(operations=("expire_snapshots",))
    recent = run("expire_snapshots", JobState.SUCCEEDED, PAUSE_MS - 1)
    assert not plan_maintenance(health((recent,), **parts), on).runnable
    earlier = run("expire_snapshots", JobState.SUCCEEDED, PAUSE_MS + 1)
    assert plan_maintenance(health((earlier,), **parts), on).runnable


def test_orphans_are_looked_for_when_they_are_due() -> None:
    on = MaintenanceSettings(operations=("remove_orphan_files",))
    old = SnapshotHealth(count=1, oldest_at_ms=NOW_MS - 30 * DAY_MS, newest_at_ms=NOW_MS)
    (action,) = plan_maintenance(health(snapshots=old), on).runnable
    assert action.options == {"older_than": str(NOW_MS - 3 * DAY_MS)}
    week = run("remove_orphan_files", JobState.SUCCEEDED, 6 * DAY_MS)
    assert not plan_maintenance(health((week,), snapshots=old), on).runnable
    young = SnapshotHealth(count=1, oldest_at_ms=NOW_MS - DAY_MS, newest_at_ms=NOW_MS)
    assert not plan_maintenance(health(snapshots=young), on).runnable


def test_what_pays_most_and_is_read_most_comes_first() -> None:
    plan = plan_maintenance(health(data_files=SMALL_FILES))
    small = plan_maintenance(
        health(data_files=msgspec.structs.replace(SMALL_FILES, rewritten_count=90))
    )
    assert plan.score(1) > small.score(1)
    assert plan.score(100) > plan.score(1)


def test_every_option_of_a_rewrite_can_be_an_option_of_its_job() -> None:
    assert set(rewrite_options._OPTIONS) <= set(OPERATIONS[REWRITE_DATA_FILES].options)


# --- settings -------------------------------------------------------------------------------------


def test_settings_are_properties() -> None:
    settings = maintenance_settings(
        {
            "frazil.maintenance.enabled": "false",
            "frazil.maintenance.operations": "expire_snapshots, rewrite_manifests",
            "frazil.maintenance.max-bytes-per-day": "7",
            "frazil.maintenance.min-input-files": "x",
            "other": "1",
        }
    )
    assert settings == MaintenanceSettings(
        enabled=False, operations=("expire_snapshots", "rewrite_manifests"), max_bytes_per_day=7
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enabled", "yes"),
        ("operations", "expire"),
        ("max-snapshot-age-ms", "-1"),
        ("min-snapshots-to-keep", "0"),
        ("max-bytes-per-run", "1 GB"),
    ],
)
def test_a_bad_setting_is_refused(name: str, text: str) -> None:
    properties = {f"frazil.maintenance.{name}": text}
    with pytest.raises(BadRequest, match=name):
        check_table_properties(properties, {})
    with pytest.raises(BadRequest, match=name):
        check_properties_of("namespace", properties, {})


def test_settings_belong_to_tables_and_namespaces() -> None:
    properties = {"frazil.maintenance.enabled": "true"}
    check_table_properties(properties, {})
    check_properties_of("namespace", properties, {})
    with pytest.raises(BadRequest):
        check_properties_of("view", properties, {})
    with pytest.raises(BadRequest, match=r"did you mean 'frazil\.maintenance\.enabled'"):
        check_properties_of("namespace", {"frazil.maintenance.enable": "true"}, {})
    assert len(MAINTENANCE_PROPERTIES) == 11
