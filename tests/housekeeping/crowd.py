"""Writers, readers, compaction and garbage collection at once, on one table.

Each writer has rows of its own, so that the rows at the end are known. Readers hold a lease, so
that they may read a snapshot that is expired and swept meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

from frazil import Client
from frazil.maintenance import convert_equality_deletes, rewrite_data_files
from tests.housekeeping.maintainers import columns_of
from tests.housekeeping.rest_calls import Refused, Routes
from tests.housekeeping.world import (
    HOUR_MS,
    ORPHAN_AGE_MS,
    TableModel,
    World,
    now_ms,
    sent,
    without,
)
from tests.housekeeping.writers import declared, equality_delete_of, one_of, write_parquet

WRITERS = 3
PAUSE_S = 0.02
"""Between the works of each one who is no writer, so that writers are not crowded out."""
_IDS_OF_A_WRITER = 1_000_000


class Crowd:
    """The members of a crowd. Everyone but the writers works until the writers have finished."""

    def __init__(self, world: World, table: TableModel, steps: int) -> None:
        self.world = world
        self.table = table
        self.steps = steps
        self.routes = Routes(world.url, table.identifier)
        self.ended = threading.Event()
        self.counts: dict[str, int] = {}

    def run(self) -> dict[str, int]:
        """Let everyone work, then update the model; return how often each one has worked."""
        others = [self._compact, self._collect, self._read, self._intend]
        with ThreadPoolExecutor(WRITERS + len(others)) as threads:
            working = [threads.submit(self._until_ended, other) for other in others]
            writing = [threads.submit(self._write, number) for number in range(WRITERS)]
            rows: dict[int, str] = dict(self.table.heads["main"])
            try:
                for writer in writing:
                    rows |= writer.result()
            finally:
                self.ended.set()
            for worker in working:
                rows |= worker.result()
        self.table.heads["main"] = rows
        self.routes.wait_for_jobs()
        self.world.observe()
        return self.counts

    def _until_ended(self, work: Callable[[Client, Random], dict[int, str]]) -> dict[int, str]:
        """Repeat some work; return the rows that it has added."""
        random = Random(f"{self.world.seed} {work.__name__}")
        rows: dict[int, str] = {}
        with Client(self.world.url) as client:
            while not self.ended.wait(PAUSE_S):
                try:
                    rows |= work(client, random)
                except (*self.world.refusals, Refused) as refused:
                    self._count(f"{work.__name__} refused {type(refused).__name__}")
                else:
                    self._count(work.__name__)
        return rows

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # --- the members ------------------------------------------------------------------------------

    def _write(self, number: int) -> dict[int, str]:
        """Append, delete and update rows with ids of its own."""
        random = Random(f"{self.world.seed} writer {number}")
        next_id = (number + 1) * _IDS_OF_A_WRITER + 1_000 * self.world.number()
        rows: dict[int, str] = {}
        name = self.table.identifier
        with Client(self.world.url) as client:
            for _ in range(self.steps):
                chosen = random.sample(sorted(rows), min(len(rows), 2))
                step = random.random()
                if step < 0.15 and chosen:
                    equality_delete_of(self.table, chosen, client)
                    rows = without(rows, chosen)
                elif step < 0.4 or not chosen:
                    new = {next_id + offset: self.world.new_item() for offset in range(3)}
                    next_id += 3
                    client.append(name, sent(new))
                    rows |= new
                elif step < 0.7:
                    client.delete(name, one_of(chosen))
                    rows = without(rows, chosen)
                else:
                    new = {id: self.world.new_item() for id in chosen}
                    client.upsert(name, sent(new))
                    rows |= new
                self._count("write")
        return rows

    def _compact(self, client: Client, random: Random) -> dict[int, str]:
        options = {"rewrite-all": "true"} if random.random() < 0.3 else {"min-input-files": "3"}
        table = client.load_table(self.table.identifier)
        if random.random() < 0.3:
            convert_equality_deletes(table)
        else:
            rewrite_data_files(table, options=options)
        return {}

    def _collect(self, client: Client, random: Random) -> dict[int, str]:
        """Expire all that may be expired, and delete what that leaves."""
        everything = {"older_than": str(now_ms()), "retain_last": "1"}
        aged = {"older_than": str(now_ms() - ORPHAN_AGE_MS), "max_orphan_share": "1"}
        operation, options = random.choice(
            [
                ("expire_snapshots", everything),
                ("delete_unreachable_files", {}),
                ("remove_orphan_files", aged),
                ("rewrite_manifests", {}),
                ("remove_dangling_deletes", {}),
            ]
        )
        self.routes.run_job(operation, options)
        self._count(operation)
        return {}

    def _read(self, client: Client, random: Random) -> dict[int, str]:
        """Read a leased snapshot twice: it is the same, whatever is deleted meanwhile."""
        table = client.load_table(self.table.identifier)
        snapshot_id = table.head()
        if snapshot_id is None:
            return {}
        lease_id = self.routes.take_lease(snapshot_id, HOUR_MS)
        found = [
            sorted(row["id"] for row in table.scan(snapshot=snapshot_id).to_pylist())
            for _ in range(2)
        ]
        self.routes.release_lease(lease_id)
        assert found[0] == found[1], "a leased snapshot has changed"
        return {}

    def _intend(self, client: Client, random: Random) -> dict[int, str]:
        """Commit a file of an intent, and leave another one behind."""
        folder = f"{self.table.location}/data/intent-{self.world.number()}"
        intent_id = self.routes.declare_intent(f"file://{folder}", HOUR_MS)
        id = 10 * _IDS_OF_A_WRITER + 2 * self.world.number()
        rows = {id: self.world.new_item()}
        for name in ("kept", "left"):
            write_parquet(f"{folder}/{name}.parquet", columns_of(rows))
        file = declared(self.table, f"{folder}/kept.parquet", rows)
        client.append_files(self.table.identifier, [file])
        self.routes.end_intent(intent_id)
        return rows
