"""Run the long forms of the tests of maintenance, and record what was run.

    python -m tests.housekeeping.torture machine [--seeds 0-99] [--steps 500] [--postgres]
    python -m tests.housekeeping.torture crowd [--seeds 0-9] [--steps 500]
    python -m tests.housekeeping.torture kills [--jobs expire_snapshots-server] [--points 3 8-20]

Each run appends a line of JSON with its seeds and counts to `.cache/torture.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.housekeeping.crowd import Crowd
from tests.housekeeping.killable_jobs import JOBS
from tests.housekeeping.killed import KillableJob, KilledCatalog, Kills
from tests.housekeeping.machine import new_world, run_seed, shown, sqlite_url
from tests.housekeeping.maintainers import settle
from tests.housekeeping.world import HOUR_MS
from tests.oracle.seeds import seeds_of
from tests.support.postgres import PostgresServer, start_postgres
from tests.support.server import running_server

RECORD = Path(".cache/torture.jsonl")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=sorted(PARTS), nargs="*", default=sorted(PARTS))
    parser.add_argument("--seeds", nargs="*", default=[], help="numbers and ranges such as 0-99")
    parser.add_argument("--steps", type=int, default=500, help="steps for each seed")
    parser.add_argument("--jobs", nargs="*", help="jobs to kill, by default all")
    parser.add_argument("--points", nargs="*", default=[], help="by default all operations")
    parser.add_argument("--postgres", action="store_true", help="only on PostgreSQL")
    parser.add_argument("--sqlite", action="store_true", help="only on SQLite")
    options = parser.parse_args(arguments)
    # Clients warn of every server that is killed.
    logging.disable(logging.WARNING)
    failed = 0
    for part in options.part:
        for kind in ("sqlite", "postgres"):
            if not (options.postgres or options.sqlite) or getattr(options, kind):
                failed += PARTS[part](kind, options)
    return min(failed, 1)


def machine(kind: str, options: argparse.Namespace) -> int:
    """Run random steps for each seed; return how many seeds have failed."""
    seeds = seeds_of(options.seeds) or [secrets.randbelow(1_000_000) for _ in range(10)]
    done: Counter[str] = Counter()
    failed: list[int] = []
    started = time.monotonic()
    with _catalog(kind) as (url, database):
        for seed in seeds:
            print(f"machine on {kind}, seed {seed}, {options.steps} steps", flush=True)
            try:
                done += run_seed(url, database, seed, options.steps)
            except Exception as error:
                print(f"seed {seed} failed: {error}", flush=True)
                failed.append(seed)
    record("machine", kind, started, seeds=seeds, failed=failed, steps=dict(sorted(done.items())))
    return len(failed)


def crowd(kind: str, options: argparse.Namespace) -> int:
    """Let everyone work at once on each table of a world; return how many seeds have failed."""
    seeds = seeds_of(options.seeds) or [secrets.randbelow(1_000_000) for _ in range(3)]
    done: Counter[str] = Counter()
    failed: list[int] = []
    started = time.monotonic()
    with _catalog(kind) as (url, database):
        for seed in seeds:
            print(f"crowd on {kind}, seed {seed}", flush=True)
            try:
                done += run_crowd(url, database, seed, options.steps // 10)
            except Exception as error:
                print(f"seed {seed} failed: {error}", flush=True)
                failed.append(seed)
    record("crowd", kind, started, seeds=seeds, failed=failed, steps=dict(sorted(done.items())))
    return len(failed)


def run_crowd(url: str, database: str, seed: int, steps: int) -> Counter[str]:
    world = new_world(url, database, seed, f"crowd{seed}")
    done: Counter[str] = Counter()
    with shown(world), world.client:
        world.observe()
        for table in world.tables:
            done += Counter(Crowd(world, table, steps).run())
            world.pass_time(world.random.choice([HOUR_MS, 7 * HOUR_MS]))
        settle(world)
    return done


def kills(kind: str, options: argparse.Namespace) -> int:
    """Kill each job at each of its operations; return at how many something was wrong."""
    postgres = start_postgres() if kind == "postgres" else None
    try:
        jobs = [job for job in JOBS if not options.jobs or job.id in options.jobs]
        return sum(_kills_of(job, kind, postgres, options) for job in jobs)
    finally:
        if postgres is not None:
            postgres.stop()


def _kills_of(
    job: KillableJob, kind: str, postgres: PostgresServer | None, options: argparse.Namespace
) -> int:
    started = time.monotonic()
    failed: list[int] = []
    reached = 0
    with tempfile.TemporaryDirectory() as folder:
        kills = Kills(KilledCatalog(Path(folder), job.victim, postgres), job)
        points = seeds_of(options.points) or range(1, kills.points + 1)
        print(f"{job.id} on {kind}: {kills.points} operations", flush=True)
        for point in points:
            try:
                reached += kills.kill_at(point)
            except Exception as error:
                print(f"{job.id} killed at {point} of {kills.points}: {error}", flush=True)
                failed.append(point)
        kills.catalog.drop()
    record(
        "kills",
        kind,
        started,
        job=job.id,
        operations=kills.points,
        killed=reached,
        failed=failed,
    )
    return len(failed)


@contextmanager
def _catalog(kind: str) -> Iterator[tuple[str, str]]:
    """Run a server; yield its address and the URL of its database."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sqlite":
            with running_server(Path(folder)) as server:
                yield server.url, sqlite_url(server)
            return
        postgres = start_postgres()
        try:
            database = postgres.create_database()
            with running_server(Path(folder), "--database", database) as server:
                yield server.url, database
        finally:
            postgres.stop()


def record(part: str, kind: str, started: float, **fields: Any) -> None:
    line = {
        "part": part,
        "database": kind,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - started, 1),
        "cpus": os.cpu_count(),
        **fields,
    }
    print(json.dumps(line), flush=True)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    with open(RECORD, "a") as file:
        file.write(json.dumps(line) + "\n")


PARTS = {"crowd": crowd, "kills": kills, "machine": machine}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
