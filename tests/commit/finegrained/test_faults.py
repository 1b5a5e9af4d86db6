"""Faults between the pipeline, the database and the store, and the files that remain.

No unreferenced file remains after a certain rejection. No file is deleted while the outcome is
unknown. A request is never committed in part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from frazil.db.connect import connect
from frazil.db.rows import Database
from tests.commit.finegrained.conftest import fast_folder
from tests.commit.finegrained.requests import TRUE, append, delete, overwrite
from tests.commit.finegrained.tables import Answer, Table, new_key
from tests.commit.finegrained.trees import check_tree, local, read_tree
from tests.commit.finegrained.world import World, opened_world
from tests.commit.pipeline.test_faults import FaultyDatabase, FaultyStore
from tests.commit.requests import name

NAMESPACE = "faults"


class Place:
    """A catalog whose database and store fail as configured."""

    def __init__(self, stack: ExitStack) -> None:
        folder = stack.enter_context(fast_folder())
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir()
        self.real: Database = connect(f"sqlite:///{folder}/catalog.db")
        self.real.migrate()
        stack.callback(self.real.close)
        self.database = FaultyDatabase(self.real)
        self.store = FaultyStore(lambda location: False)
        self.stack = stack
        self.world = self.replica(cast(Database, self.database))
        made = self.world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
        assert made.status == 200

    def replica(self, database: Database | None = None) -> World:
        world = opened_world(database or self.real, self.warehouse, self.store)
        return self.stack.enter_context(world)

    def table(self, **fields: Any) -> Table:
        return Table(self.world, namespace=NAMESPACE, **fields).create()

    def as_group(self, table: Table, *updates: Any) -> list[Answer]:
        """Send requests that wait for each other, so that they form one group."""
        catalog = self.world.catalog
        identifier = name(f"{NAMESPACE}.{table.name}")
        with ThreadPoolExecutor(len(updates)) as pool:
            with catalog._queues.holding([identifier]):
                futures = [pool.submit(table.post, update) for update in updates]
                waiting = catalog._queues._queues[identifier].jobs
                while len(waiting) < len(updates):
                    time.sleep(0.002)
            return [future.result() for future in futures]


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def strangers(table: Table) -> set[str]:
    """Return files in the metadata folder that nothing references."""
    table.load()
    known = {table.metadata_location}
    known |= {entry["metadata-file"] for entry in table.metadata.get("metadata-log", [])}
    for snapshot in table.metadata["snapshots"]:
        known.add(snapshot["manifest-list"])
        tree = read_tree(table.metadata, snapshot["snapshot-id"])
        known |= {manifest["manifest_path"] for manifest in tree.manifests}
    folder = local(table.location) / "metadata"
    return {path.name for path in folder.iterdir()} - {Path(path).name for path in known}


def settled(place: Place, table: Table) -> set[str]:
    """Return stray files after the cleanup, which runs after the response while the table is
    locked."""
    with place.world.catalog._queues.holding([name(f"{NAMESPACE}.{table.name}")]):
        return strangers(table)


# --- the store ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["manifest", "manifest list"])
def test_a_file_that_cannot_be_written_takes_its_request_out(place: Place, what: str) -> None:
    table = place.table()
    table.append(table.data("start", 0))
    refused: list[str] = []

    def refuse(location: str) -> bool:
        """Refuse the first file of this kind."""
        is_list = "/snap-" in location
        if location.endswith(".avro") and is_list == (what == "manifest list") and not refused:
            refused.append(location)
        return location in refused

    place.store.refuse = refuse
    answers = place.as_group(table, *(append(table.data(f"f{n}", 0)) for n in range(4)))
    place.store.refuse = lambda location: False
    statuses = sorted(answer.status for answer in answers)
    assert statuses == [200, 200, 200, 429], [answer.body for answer in answers]
    (left_out,) = [n for n, answer in enumerate(answers) if answer.status == 429]
    assert "retry-after" in answers[left_out].headers
    table.load()
    assert table.live() == {"start"} | {f"f{n}" for n in range(4) if n != left_out}
    check_tree(table.metadata, table.head_id)
    assert settled(place, table) == set()
    table.append(table.data(f"f{left_out}", 0))


def test_a_metadata_file_that_cannot_be_written_fails_the_whole_group(place: Place) -> None:
    table = place.table()
    table.append(table.data("start", 0))
    before = table.state()
    place.store.refuse = lambda location: location.endswith(".metadata.json")
    answers = place.as_group(table, *(append(table.data(f"f{n}", 0)) for n in range(3)))
    place.store.refuse = lambda location: False
    assert [answer.status for answer in answers] == [429, 429, 429]
    assert table.state() == before


@pytest.mark.parametrize("what", ["manifest", "manifest list"])
@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_a_harmed_tree_is_refused_and_never_in_doubt(place: Place, what: str, how: str) -> None:
    """It is certain that nothing was written, so the status is not 500, which means unknown."""
    table = place.table()
    a = table.data("a", 0)
    table.append(a)
    head = table.head()
    assert head is not None
    location = head["manifest-list"]
    if what == "manifest":
        location = table.tree().manifests[0]["manifest_path"]
    if how == "gone":
        local(location).unlink()
    else:
        local(location).write_bytes(b"Obj\x01 and nothing more")
    before = table.state()
    cold = Table(place.replica(), namespace=NAMESPACE, name=table.name).load()
    for update in (delete(a), append(cold.data("b", 0)), delete(row_filter=TRUE)):
        answer = cold.post(update)
        assert answer.status in (400, 404, 409, 429), answer.body
        assert local(location).name in answer.body["error"]["message"]
    assert table.state() == before


# --- the database ---------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [1, 2, 3])
def test_lost_swaps_are_applied_again(place: Place, faults: int) -> None:
    table = place.table(version=3)
    a = table.data("a", 0, rows=3)
    table.append(a)
    place.database.faults = [place.database.lose] * faults
    answers = place.as_group(
        table, append(table.data("b", 0, rows=2)), delete(a), append(table.data("c", 0))
    )
    assert [answer.status for answer in answers] == [200, 200, 200]
    table.load()
    assert table.live() == {"b", "c"}
    for snapshot in table.metadata["snapshots"]:
        check_tree(table.metadata, snapshot["snapshot-id"])
    assert settled(place, table) == set()


def test_a_lost_answer_to_a_commit_that_happened(place: Place) -> None:
    table = place.table()
    place.database.faults = [place.database.lost_after]
    table.append(table.data("a", 0))
    assert table.live() == {"a"}
    assert settled(place, table) == set()


def test_a_lost_answer_to_a_commit_that_did_not_happen(place: Place) -> None:
    table = place.table()
    place.database.faults = [place.database.lost_before]
    table.append(table.data("a", 0))
    assert table.live() == {"a"}
    assert settled(place, table) == set()


@pytest.mark.parametrize("happened", [True, False])
def test_no_file_is_deleted_while_the_outcome_is_unknown(place: Place, happened: bool) -> None:
    table = place.table()
    before = table.state()[1]
    database = place.database
    database.resolvable = False
    database.faults = [database.lost_after if happened else database.lost_before]
    answer = table.post(append(table.data("a", 0)))
    assert answer.status == 500
    assert answer.body["error"]["type"] == "CommitStateUnknownException"
    assert "retry-after" not in answer.headers
    written = table.state()[1] - before
    assert sorted(file.rsplit(".", 1)[-1] for file in written) == ["avro", "avro", "json"]
    database.resolvable = True
    if happened:
        assert table.live() == {"a"}
        # Without a key, the repeated request is refused as a duplicate and names the existing file.
        assert table.conflict(append(table.data("a", 0))).clause == "duplicate-file"
    else:
        table.append(table.data("a", 0))
    assert table.live() == {"a"}


def test_a_key_makes_an_unknown_outcome_safe_to_repeat(place: Place) -> None:
    table = place.table()
    database, key = place.database, new_key()
    database.resolvable = False
    database.faults = [database.lost_after]
    update = append(table.data("a", 0))
    assert table.post(update, key=key).status == 500
    database.resolvable = True
    again = table.post(update, key=key)
    assert again.status == 200
    assert [made["operation"] for made in again.body["committed"]] == ["append"]
    assert table.load().live() == {"a"}


def test_a_database_that_is_down_leaves_nothing(place: Place) -> None:
    table = place.table()
    before = table.state()
    place.database.faults = [place.database.unreachable]
    answer = table.post(append(table.data("a", 0)))
    assert answer.status == 429
    assert table.state() == before


# --- two replicas ---------------------------------------------------------------------------------


def test_a_replica_judges_by_the_head_and_not_by_what_it_remembers(place: Place) -> None:
    table = place.table()
    a, b = table.data("a", 0), table.data("b", 0)
    base = table.append(a, b)["snapshot-id"]
    there = Table(place.replica(), namespace=NAMESPACE, name=table.name).load()
    there.append(there.data("c", 0))
    table.delete(a)
    assert there.conflict(delete(a)).clause == "removed-file-not-live"
    update = overwrite(
        remove=[b],
        add=[table.data("b2", 0)],
        base=base,
        validations=[{"type": "required-data-files", "filter": {"type": "true"}}],
    )
    assert there.conflict(update).files == {"a"}
    there.overwrite(remove=[b], add=[table.data("b2", 0)])
    assert table.load().live() == {"b2", "c"}


def test_two_replicas_append_in_turn_and_at_once(place: Place) -> None:
    table = place.table(version=3)
    other = place.replica()

    def write(number: int) -> int:
        call = (place.world, other)[number % 2]
        own = Table(call, namespace=NAMESPACE, name=table.name, metadata=table.metadata)
        return own.post(append(own.data(f"f{number}", 0, rows=number + 1))).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(write, range(40))) == {200}
    table.load()
    assert table.live() == {f"f{number}" for number in range(40)}
    for snapshot in table.metadata["snapshots"]:
        check_tree(table.metadata, snapshot["snapshot-id"])
    assert len(table.metadata["snapshots"]) == 40
    assert settled(place, table) == set()


def test_transactions_and_commits_of_two_replicas_at_once(place: Place) -> None:
    tables = [place.table(version=3), place.table(version=2)]
    worlds = (place.world, place.replica())

    def write(number: int) -> int:
        call = worlds[number % 2]
        if number % 3:
            table = tables[number % len(tables)]
            body: Any = {"requirements": [], "updates": [append(table.data(f"f{number}", 0))]}
            return call("POST", table.path, body).status
        changes = [
            {
                "identifier": {"namespace": [NAMESPACE], "name": table.name},
                "requirements": [],
                "updates": [append(table.data(f"f{number}", 0))],
            }
            for table in tables
        ]
        return call("POST", "/v1/transactions/commit", {"table-changes": changes}).status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(write, range(36)))
    assert statuses == [200 if number % 3 else 204 for number in range(36)]
    for at, table in enumerate(tables):
        table.load()
        wanted = {f"f{n}" for n in range(36) if n % 3 == 0 or n % 2 == at}
        assert table.live() == wanted
        for snapshot in table.metadata["snapshots"]:
            check_tree(table.metadata, snapshot["snapshot-id"])
        assert settled(place, table) == set()
