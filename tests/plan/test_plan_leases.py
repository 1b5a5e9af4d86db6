"""The snapshots of a plan stay as long as its id and tokens are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from frazil.db.base import DatabaseUnavailable, SwapLost, SwapRelation
from frazil.db.connect import connect
from frazil.db.housekeeping_changes import CheckUnleased
from frazil.db.housekeeping_rows import LeaseRow, database_now_ms, live_leases
from frazil.plan.plan_leases import LIFETIME_MS, PlanLeases
from frazil.plan.planner import PlanLimits
from frazil.wire.identifiers import Identifier
from tests.commit.finegrained.tables import DATES, Answer, Table
from tests.commit.finegrained.world import World, opened_world
from tests.db.conftest import database_url, postgres_url, shared_postgres_database, sqlite_url
from tests.db.helpers import next_version, transaction
from tests.plan.plan_calls import NAMESPACE, asked, cancel_plan, fetch_plan, fetch_tasks, plan
from tests.support.patience import wait_until

__all__ = ["database_url", "postgres_url", "shared_postgres_database", "sqlite_url"]

OneWorld = Callable[..., World]
PAGES = PlanLimits(page_files=1)
SHORT = PlanLimits(page_files=1, lifetime_ms=1000)


@pytest.fixture
def open_world(database_url: str, tmp_path: Path) -> Iterator[OneWorld]:
    """Return a function that opens a world on the test's database."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def make(limits: PlanLimits = PAGES) -> World:
            database = stack.enter_context(_opened(database_url))
            warehouse = tmp_path / "warehouse"
            warehouse.mkdir(exist_ok=True)
            return stack.enter_context(opened_world(database, warehouse, limits=limits))

        yield make


def _opened(url: str) -> Any:
    from contextlib import closing

    database = connect(url)
    database.migrate()
    return closing(database)


def new_table(world: World, files: int = 2) -> Table:
    world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
    table = Table(world, namespace=NAMESPACE, spec=DATES).create()
    for number in range(files):
        table.append(table.data(f"f{number}", "1"))
    return table


def leases(world: World, table: Table) -> list[LeaseRow]:
    database = world.database
    return live_leases(database, table.metadata["table-uuid"], database_now_ms(database))


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.body["error"]["type"]


def test_a_plan_leases_its_snapshot_for_a_day(open_world: OneWorld) -> None:
    world = open_world()
    table = new_table(world)
    before_ms = database_now_ms(world.database)
    plan(table)
    (lease,) = leases(world, table)
    uuid, head = table.metadata["table-uuid"], table.head_id
    assert (lease.lease_id, lease.snapshot_id) == (f"plan:{uuid}:{head}", head)
    assert lease.expires_ms > before_ms + LIFETIME_MS
    # A commit that wants to expire the snapshot is too late.
    row = world.catalog.table_row(Identifier((NAMESPACE,), table.name))
    expiry = transaction(
        SwapRelation(row, next_version(row)), housekeeping=(CheckUnleased(uuid, (head,)),)
    )
    assert isinstance(world.database.commit(expiry), SwapLost)


def test_plans_of_a_snapshot_share_a_row_that_is_written_once_a_minute(
    open_world: OneWorld,
) -> None:
    world = open_world()
    table = new_table(world)
    first = table.load().metadata["snapshots"][0]["snapshot-id"]
    plan(table)
    before = leases(world, table)
    plan(table)
    plan(table, snapshot_id=table.head_id)
    assert leases(world, table) == before
    plan(table, snapshot_id=first)
    assert {lease.snapshot_id for lease in leases(world, table)} == {first, table.head_id}


def test_a_lease_is_renewed_after_a_minute(open_world: OneWorld) -> None:
    world = open_world()
    table = new_table(world)
    now = 1_000_000
    held = PlanLeases(world.catalog, steady_ms=lambda: now)
    loaded = world.catalog.load_table(Identifier((NAMESPACE,), table.name))
    first_ms = held.hold(loaded.identifier, loaded, [table.head_id])
    now += 59_999
    assert held.hold(loaded.identifier, loaded, [table.head_id]) == first_ms
    # Its tokens are still valid for a day.
    assert first_ms >= database_now_ms(world.database) + LIFETIME_MS
    asked_ms = database_now_ms(world.database)
    wait_until(lambda: database_now_ms(world.database) > asked_ms, "the clock stands still")
    now += 1
    assert held.hold(loaded.identifier, loaded, [table.head_id]) > first_ms


def test_an_incremental_plan_leases_each_snapshot_that_it_reads(open_world: OneWorld) -> None:
    world = open_world()
    table = new_table(world, files=4)
    ids = [each["snapshot-id"] for each in table.load().metadata["snapshots"]]
    plan(table, start_snapshot_id=ids[0], end_snapshot_id=ids[2])
    assert {lease.snapshot_id for lease in leases(world, table)} == {ids[1], ids[2]}


def test_a_table_without_snapshots_has_nothing_to_lease(open_world: OneWorld) -> None:
    world = open_world()
    table = new_table(world, files=0)
    body = plan(table).body
    assert leases(world, table) == []
    assert fetch_plan(table, body["plan-id"]).status == 200


def test_cancelling_a_plan_releases_nothing(open_world: OneWorld) -> None:
    world = open_world()
    table = new_table(world)
    body = plan(table).body
    assert cancel_plan(table, body["plan-id"]).status == 204
    assert len(leases(world, table)) == 1


def test_a_token_ends_before_its_lease(open_world: OneWorld) -> None:
    world = open_world(SHORT)
    table = new_table(world)
    body = asked(table).body
    assert fetch_tasks(table, body["plan-tasks"][0]).status == 200
    wait_until(lambda: not leases(world, table), "the lease did not end")
    answer = fetch_tasks(table, body["plan-tasks"][0])
    assert error(answer) == (404, "NoSuchPlanTaskException")
    assert answer.body["error"]["message"] == "the plan has expired: plan the scan again"
    assert error(fetch_plan(table, body["plan-id"])) == (404, "NoSuchPlanIdException")
    assert error(cancel_plan(table, body["plan-id"])) == (404, "NoSuchPlanIdException")
    assert asked(table).status == 200


def test_a_plan_that_is_fetched_again_keeps_its_end(open_world: OneWorld) -> None:
    """Otherwise its tokens would outlive the lease."""
    world = open_world(SHORT)
    table = new_table(world)
    plan_id = asked(table).body["plan-id"]
    again = fetch_plan(table, plan_id).body
    wait_until(lambda: fetch_plan(table, plan_id).status == 404, "the plan did not end")
    assert error(fetch_tasks(table, again["plan-tasks"][0])) == (404, "NoSuchPlanTaskException")


def test_a_replica_answers_tokens_and_renews_the_lease(postgres_url: str, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    with (
        _opened(postgres_url) as one,
        _opened(postgres_url) as two,
        opened_world(one, warehouse, limits=PAGES) as world,
        opened_world(two, warehouse, limits=PAGES) as other,
    ):
        table = new_table(world)
        body = asked(table).body
        (before,) = leases(world, table)
        table.call = other
        assert fetch_tasks(table, body["plan-tasks"][0]).status == 200
        wait_until(lambda: database_now_ms(one) > before.created_ms, "the clock stands still")
        plan(table)
        (after,) = leases(world, table)
        assert after.expires_ms > before.expires_ms


def test_a_database_that_cannot_write_answers_only_plans_that_are_leased(
    postgres_server: Any, tmp_path: Path
) -> None:
    import psycopg

    url = postgres_server.create_database()
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    with _opened(url) as database, opened_world(database, warehouse, limits=PAGES) as world:
        table = new_table(world)
        first = table.load().metadata["snapshots"][0]["snapshot-id"]
        plan(table)
        now = 0
        held = PlanLeases(world.catalog, steady_ms=lambda: now)
        identifier = Identifier((NAMESPACE,), table.name)
        loaded = world.catalog.load_table(identifier)
        first_ms = held.hold(identifier, loaded, [first])
        with psycopg.connect(url, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        plan(table)
        answer = asked(table, snapshot_id=first)
        assert error(answer) == (503, "ServiceUnavailableException")
        # A lease that cannot be renewed is used for some hours.
        assert held.hold(identifier, loaded, [first]) == first_ms
        now += 60_000
        assert held.hold(identifier, loaded, [first]) == first_ms
        with pytest.raises(DatabaseUnavailable):
            held.hold(identifier, loaded, [first, table.head_id])
        now += LIFETIME_MS // 2
        with pytest.raises(DatabaseUnavailable):
            held.hold(identifier, loaded, [first])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        plan(table, snapshot_id=first)
    postgres_server.drop_database(url)


def test_a_plan_may_take_a_lease_that_its_client_has_named(open_world: OneWorld) -> None:
    world = open_world()
    table = new_table(world)
    lease_id = str(uuid4())

    def leased(lease_id: str, snapshot_id: int) -> Answer:
        headers = {"X-Frazil-Lease": lease_id}
        return table.call("POST", f"{table.path}/plan", {"snapshot-id": snapshot_id}, headers)

    answer = leased(lease_id, table.head_id)
    assert (answer.status, answer.headers["x-frazil-lease"]) == (200, lease_id)
    (lease,) = leases(world, table)
    assert (lease.lease_id, lease.snapshot_id) == (lease_id, table.head_id)
    # A retry after a lost answer renews it.
    assert leased(lease_id, table.head_id).status == 200
    assert [each.lease_id for each in leases(world, table)] == [lease_id]

    first = table.load().metadata["snapshots"][0]["snapshot-id"]
    # A plan of several snapshots has no lease of its own.
    headers = {"X-Frazil-Lease": str(uuid4())}
    appended = {"end-snapshot-id": table.head_id}
    answer = table.call("POST", f"{table.path}/plan", appended, headers)
    assert answer.status == 200
    assert "x-frazil-lease" not in answer.headers
    assert error(leased(lease_id, first)) == (400, "BadRequestException")
    assert error(leased("plan:x", first)) == (400, "BadRequestException")
