"""`frazil maintain expire-snapshots`, `undo`, `jobs` and others: work that the server does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, add_commands, progress
from frazil.cli.shared.printing import print_json, print_table, time_text
from frazil.cli.shared.typed_names import key_values, table_name
from frazil.cli.tables.table_commands import TableArgument

OlderThanOption = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="TIME", help="Such as 2026-05-01T12:00:00Z, or milliseconds."
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Another option of the operation."),
]


def register(group: typer.Typer) -> None:
    """Add the commands to `frazil maintain`."""
    add_commands(
        group,
        {
            "expire-snapshots": expire_snapshots,
            "remove-orphan-files": remove_orphan_files,
            "delete-unreachable-files": delete_unreachable_files,
            "rewrite-manifests": rewrite_manifests,
            "remove-dangling-deletes": remove_dangling_deletes,
            "undo": undo,
        },
        dry_run="Print what would be done, and change nothing.",
    )
    add_commands(group, {"jobs": jobs, "cancel": cancel})


def expire_snapshots(
    choice: CatalogChoice,
    table: TableArgument,
    older_than: OlderThanOption = None,
    retain_last: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Always keep N snapshots.")
    ] = None,
    snapshot_id: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Expire this snapshot.")
    ] = None,
    clean_expired_metadata: Annotated[
        bool,
        typer.Option("--clean-expired-metadata", help="Also remove unused schemas and specs."),
    ] = False,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Delete no file, now or later.")
    ] = False,
) -> None:
    """Expire old snapshots. Their files are deleted when their quarantine is over."""
    options = {
        "older_than": older_than,
        "retain_last": retain_last,
        "snapshot_ids": ",".join(map(str, snapshot_id or ())) or None,
        "clean_expired_metadata": "true" if clean_expired_metadata else None,
        "delete_files": "false" if keep_files else None,
    }
    _run(choice, table, "expire_snapshots", options)


def remove_orphan_files(
    choice: CatalogChoice,
    table: TableArgument,
    older_than: OlderThanOption = None,
    location: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Look only here, below the location of the table."),
    ] = None,
    option: OptionsOption = None,
) -> None:
    """Find files below the table's location that nothing names, and delete them."""
    options: dict[str, Any] = {**key_values("--option", option or ())}
    options |= {"older_than": older_than, "location": location}
    _run(choice, table, "remove_orphan_files", options)


def delete_unreachable_files(choice: CatalogChoice, table: TableArgument) -> None:
    """Delete the files whose quarantine is over, and what dead writers have left."""
    _run(choice, table, "delete_unreachable_files", {})


def rewrite_manifests(
    choice: CatalogChoice,
    table: TableArgument,
    spec_id: Annotated[
        int | None, typer.Option(metavar="ID", help="Only manifests of this partition spec.")
    ] = None,
    option: OptionsOption = None,
) -> None:
    """Rewrite manifests so that each has the files of few partitions."""
    options: dict[str, Any] = {**key_values("--option", option or ()), "spec_id": spec_id}
    _run(choice, table, "rewrite_manifests", options)


def remove_dangling_deletes(choice: CatalogChoice, table: TableArgument) -> None:
    """Remove delete files and vectors that apply to no data file any more."""
    _run(choice, table, "remove_dangling_deletes", {})


def undo(
    choice: CatalogChoice,
    table: TableArgument,
    snapshot_id: Annotated[
        int | None,
        typer.Option("--snapshot-id", metavar="ID", help="The expired snapshot to bring back."),
    ] = None,
    tag: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tag. [default: undo-<snapshot id>]")
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--as", metavar="TABLE", help="The new name of a purged table.")
    ] = None,
) -> None:
    """Bring back an expired snapshot, or a purged table, as long as its files are there."""
    _run(choice, table, "undo", {"snapshot_id": snapshot_id, "tag": tag, "as": new_name})


def _run(choice: CatalogChoice, table: str, operation: str, options: Mapping[str, Any]) -> None:
    """Run a job of the server, wait for it, and print its result."""
    from frazil.cli.maintenance.job_results import result_lines
    from frazil.maintenance.server_jobs import run_job

    name = table_name(table)
    given = {key: str(value) for key, value in options.items() if value is not None}
    # The job itself is the dry run, and starting it is a change of the catalog.
    with replace(choice, dry_run=False).connect() as client, progress(operation) as shown:
        result = run_job(
            client.jobs, name, operation, given, dry_run=choice.dry_run, progress=shown
        )
    if choice.as_json:
        print_json({"job-id": result.job.job_id, **(result.job.result or {})})
        return
    for line in result_lines(result.job):
        typer.echo(line)


def jobs(
    choice: CatalogChoice,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A table; by default all tables.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show the newest N.")
    ] = 20,
) -> None:
    """List the jobs of maintenance, newest first."""
    from itertools import islice

    from msgspec import to_builtins

    with choice.connect() as client:
        name = None if table is None else table_name(table)
        found = list(islice(client.jobs.list(name), limit))
    if choice.as_json:
        print_json([to_builtins(job) for job in found])
        return
    rows = [
        (
            time_text(job.created_at_ms),
            job.identifier,
            job.operation + (" (dry run)" if job.dry_run else ""),
            job.state.value,
            job.started_by,
            None if job.error is None else job.error.message,
            job.job_id,
        )
        for job in found
    ]
    print_table(("time", "table", "operation", "state", "started by", "error", "job"), rows)


def cancel(
    choice: CatalogChoice,
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job.")],
) -> None:
    """Cancel a job that waits, and ask one that runs to stop."""
    from msgspec import to_builtins

    with choice.connect() as client:
        job = client.jobs.find(job_id)
        if job is None:
            choice.fail(f"there is no job {job_id}: `frazil maintain jobs` lists them")
        job = client.jobs.cancel(job)
    if choice.as_json:
        print_json(to_builtins(job))
        return
    how = job.state.value if job.state.is_final else "asked to stop"
    typer.echo(f"job {job.job_id} ({job.operation} of {job.identifier}): {how}")
