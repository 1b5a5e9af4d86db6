"""`frazil maintain run`, `auto` and `status`: everything that pays, on one table or on all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, add_commands, progress
from frazil.cli.shared.printing import (
    count_text,
    heading,
    plain,
    print_json,
    print_pairs,
    print_table,
    size_text,
    time_text,
)
from frazil.cli.shared.typed_names import table_name
from frazil.cli.tables.table_commands import TableArgument
from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.maintenance.autopilot import TableStatus
    from frazil.maintenance.maintenance_policy import PlannedAction
    from frazil.wire.job_messages import Job
    from frazil.wire.table_health import TableHealth

_INTERVAL: Final = re.compile(r"([0-9]+)(s|m|h)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_SHOWN_RUNS: Final = 10


def register(group: typer.Typer) -> None:
    """Add the commands to `frazil maintain`."""
    add_commands(group, {"run": run}, dry_run="Print the plan, and change nothing.")
    add_commands(group, {"auto": auto, "status": status})


def run(choice: CatalogChoice, table: TableArgument) -> None:
    """Do everything that pays on a table, in the right order."""
    from frazil.cli.maintenance.job_results import sentences
    from frazil.maintenance.autopilot import Autopilot
    from frazil.wire.job_messages import StartedBy

    name = table_name(table)
    with choice.connect() as client, progress(f"maintain {name}") as shown:
        autopilot = Autopilot(client, started_by=StartedBy.RUN)
        found = autopilot.status(name)
        if choice.dry_run:
            _print_plan(choice, found)
            return
        job = autopilot.maintain(name, lambda operation: shown)
        actions = [] if job is None else (job.result or {}).get("actions", [])
        done = _done_jobs(client, name, actions)
    if choice.as_json:
        print_json({"table": str(name), "job-id": job and job.job_id, "actions": actions})
    elif not actions:
        typer.echo(f"{name}: nothing to do")
    for action in () if choice.as_json else actions:
        message = f": {action['message']}" if "message" in action else ""
        typer.echo(f"{name}: {action['operation']} {action['state']}{message}")
        typer.echo(f"  why: {action['reason']}")
        for line in sentences(done[action["job-id"]]) if action.get("job-id") in done else ():
            typer.echo(f"  {line}")
    if any(action["state"] == "failed" for action in actions):
        choice.fail("an operation has failed: `frazil maintain jobs` shows the errors")
    if job is not None and job.error is not None:
        choice.fail(job.error.message)


def _done_jobs(
    client: Client, table: Identifier, actions: list[Mapping[str, Any]]
) -> dict[str, Job]:
    """Return the jobs of the actions that have succeeded, by id."""
    wanted = {action["job-id"] for action in actions if action["state"] == "succeeded"}
    # They are among the newest, unless many others have come since.
    newest = islice(client.jobs.list(table), 100) if wanted else ()
    return {job.job_id: job for job in newest if job.job_id in wanted}


def auto(
    choice: CatalogChoice,
    once: Annotated[
        bool, typer.Option("--once", help="Maintain all tables once, then end.")
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait between two rounds.")
    ] = "10m",
    attached: Annotated[bool, typer.Option("--attached", hidden=True)] = False,
) -> None:
    """Maintain all tables, again and again. Several of these processes share the work."""
    from frazil.maintenance.autopilot_loop import end_by_signal, run_attached, run_rounds

    interval_s = _seconds(choice, every)
    if attached:
        from frazil.server.log_lines import configure_logging

        run_attached(interval_s, configure_logging)
        return
    end_by_signal()
    with choice.connect(wait_s=interval_s) as client:
        for jobs in run_rounds(client, None if once else interval_s):
            _print_round(choice, jobs)


def _seconds(choice: CatalogChoice, text: str) -> float:
    match = _INTERVAL.fullmatch(text)
    if match is None or not int(match[1]):
        choice.usage(f"--every {text}: write a time such as 30s, 10m or 1h")
    return int(match[1]) * _SECONDS[match[2]]


def _print_round(choice: CatalogChoice, jobs: list[Job]) -> None:
    if choice.as_json:
        from msgspec import to_builtins

        print_json([to_builtins(job) for job in jobs])
        return
    for job in jobs:
        actions = (job.result or {}).get("actions", [])
        done = ", ".join(f"{action['operation']} {action['state']}" for action in actions)
        typer.echo(f"{job.identifier}: {done or f'{job.operation} {job.state.value}'}")
    if not jobs:
        typer.echo("nothing to do")


def status(
    choice: CatalogChoice,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A table; by default all tables.")
    ] = None,
) -> None:
    """Show the health of tables, what would be done, what it saves, and the last runs."""
    from frazil.maintenance.autopilot import Autopilot

    with choice.connect() as client:
        autopilot = Autopilot(client)
        if table is None:
            _print_statuses(choice, dict(autopilot.statuses()))
            return
        found = autopilot.status(table_name(table))
    if choice.as_json:
        print_json(_document(found))
    else:
        _print_status(found)


def _document(found: TableStatus) -> dict[str, Any]:
    from msgspec import to_builtins

    actions = [_action_document(action) for action in found.plan.actions]
    return {"health": to_builtins(found.health), "actions": actions}


def _action_document(action: PlannedAction) -> dict[str, Any]:
    return {
        "operation": action.operation,
        "options": dict(action.options),
        "reason": action.reason,
        "saved-files": action.saved_files,
        "saved-bytes": action.saved_bytes,
        "work-bytes": action.work_bytes,
        "held-back": action.held_back,
    }


def _print_statuses(
    choice: CatalogChoice, found: Mapping[Identifier, TableStatus | FrazilError]
) -> None:
    """Print a line for each table, also for one that cannot be measured."""
    measured = {table: each for table, each in found.items() if not isinstance(each, FrazilError)}
    failed = {table: each for table, each in found.items() if isinstance(each, FrazilError)}
    if choice.as_json:
        documents = [_document(each) for each in measured.values()]
        print_json(documents + [{"table": str(table), **failed[table].body()} for table in failed])
        return
    rows = [
        (
            table,
            f"{each.health.data_files.count:,}",
            size_text(each.health.data_files.size_bytes),
            f"{each.health.snapshots.count:,}",
            ", ".join(action.operation for action in each.plan.runnable) or "nothing",
            f"{each.plan.saved_files:,}",
            size_text(each.plan.saved_bytes),
        )
        for table, each in measured.items()
    ]
    headings = ("table", "files", "size", "snapshots", "to do", "saves files", "saves bytes")
    print_table(headings, rows, right=("files", "size", "snapshots", "saves files", "saves bytes"))
    for table, error in failed.items():
        typer.echo(f"{table}: {plain(error.message)}", err=True)


def _name(health: TableHealth) -> str:
    return ".".join((*health.table.namespace, health.table.name))


def _print_status(found: TableStatus) -> None:
    health = found.health
    files, deletes, manifests = health.data_files, health.deletes, health.manifests
    quarantine = health.quarantine
    typer.echo(_name(health))
    print_pairs(
        {
            "data files": f"{files.count:,} ({size_text(files.size_bytes)}), "
            f"{files.small_count:,} small, target {size_text(health.target_file_size_bytes)}",
            "deletes": f"{deletes.position_delete_count:,} position-delete files, "
            f"{deletes.vector_count:,} vectors, "
            f"{deletes.equality_delete_count:,} equality-delete files",
            "manifests": f"{manifests.count:,} ({size_text(manifests.size_bytes)})",
            "snapshots": f"{health.snapshots.count:,}, {health.snapshots.expirable_count:,} "
            "too old",
            "quarantine": f"{count_text(quarantine.snapshot_count, 'expired snapshot')} with their "
            f"files; {count_text(quarantine.file_count, 'other file')} "
            f"({size_text(quarantine.size_bytes)})",
            "reads per day": f"{health.scans_per_day:,}",
        }
        | ({} if health.gc_enabled else {"deletion": "none: gc.enabled is false, all files stay"}),
        "  ",
    )
    _print_actions(found)
    if health.runs:
        heading("last runs")
        print_table(
            ("time", "operation", "state", "started by", "error"),
            [
                (
                    time_text(job.created_at_ms),
                    job.operation + (" (dry run)" if job.dry_run else ""),
                    job.state.value,
                    job.started_by,
                    None if job.error is None else job.error.message,
                )
                for job in health.runs[:_SHOWN_RUNS]
            ],
        )


def _print_plan(choice: CatalogChoice, found: TableStatus) -> None:
    if choice.as_json:
        print_json([_action_document(action) for action in found.plan.actions])
        return
    typer.echo(_name(found.health))
    _print_actions(found)


def _print_actions(found: TableStatus) -> None:
    heading("to do")
    if not found.plan.actions:
        typer.echo("nothing")
        return
    print_table(
        ("operation", "why", "saves files", "saves bytes", "held back"),
        [
            (
                action.operation,
                action.reason,
                f"{action.saved_files:,}",
                size_text(action.saved_bytes),
                action.held_back,
            )
            for action in found.plan.actions
        ],
        right=("saves files", "saves bytes"),
    )
