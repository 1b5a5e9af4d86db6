"""Leases and intents that a client holds in `with` blocks, against a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from frazil import Client, LeaseLost, Table
from frazil.client.send.http_transport import Answer, HttpTransport, NotSent, Request
from frazil.client.send.lease_calls import this_process
from frazil.wire.errors import BadRequest, NotFound
from tests.client.conftest import NewTable, declared
from tests.support.patience import wait_until
from tests.support.server import RunningServer


@pytest.fixture
def table(new_table: NewTable, client: Client) -> Table:
    """Return a table with one snapshot."""
    made = new_table()
    made.append_files([declared(made, "first")])
    return client.load_table(made.identifier)


def ends_ms(client: Client, table: Table) -> int:
    (lease,) = client.leases.list(table.identifier)
    return lease.expires_at_ms


# --- leases ---------------------------------------------------------------------------------------


def test_a_block_holds_a_lease(client: Client, table: Table) -> None:
    with client.lease(table.identifier, ttl_s=60) as lease:
        (listed,) = client.leases.list(table.identifier)
        assert (listed.lease_id, listed.snapshot_id) == (lease.lease_id, table.head())
        assert lease.snapshot_id == table.head()
        assert listed.holder == this_process()
        assert listed.expires_at_ms - listed.created_at_ms == 60_000
        lease.check()
    assert client.leases.list(table.identifier) == ()


def test_a_block_that_fails_releases_its_lease(client: Client, table: Table) -> None:
    with pytest.raises(ZeroDivisionError), table.lease(holder="mine"):
        assert client.leases.list(table.identifier)[0].holder == "mine"
        _ = 1 / 0
    assert client.leases.list(table.identifier) == ()


def test_a_loaded_table_leases_what_was_loaded(client: Client, table: Table) -> None:
    table.append_files([declared(table, "second")])
    now = client.load_table(table.identifier)
    assert now.head() != table.head()
    with table.lease() as lease, client.lease(table) as same, client.lease(str(table)) as newest:
        assert lease.snapshot_id == same.snapshot_id == table.head()
        assert newest.snapshot_id == now.head()
    with (
        client.lease(str(table), table.head()) as by_id,
        client.lease(str(table), "main") as by_ref,
    ):
        assert (by_id.snapshot_id, by_ref.snapshot_id) == (table.head(), now.head())
    with now.lease("main") as lease:
        assert lease.snapshot_id == now.head()


def test_what_cannot_be_leased(client: Client, table: Table, new_table: NewTable) -> None:
    with pytest.raises(NotFound, match="has no snapshot 1"), client.lease(str(table), 1):
        pass
    with pytest.raises(NotFound, match="no branch or tag 'nope'"), client.lease(str(table), "nope"):
        pass
    with pytest.raises(NotFound, match="no snapshot yet"):
        new_table().lease()
    with pytest.raises(NotFound, match="did you mean"), client.lease(f"{table}x"):
        pass
    with pytest.raises(BadRequest, match="use it in `with`"):
        _ = table.lease().lease_id


def test_leases_without_a_block(client: Client, table: Table) -> None:
    taken = client.leases.take(table.identifier, "main", ttl_s=10)
    renewed = client.leases.renew(table.identifier, taken.lease_id, ttl_s=100)
    assert renewed.expires_at_ms > taken.expires_at_ms + 80_000
    client.leases.release(table.identifier, taken.lease_id)
    client.leases.release(table.identifier, taken.lease_id)
    with pytest.raises(NotFound):
        client.leases.renew(table.identifier, taken.lease_id)


def renewing_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "frazil-leases"]


def test_a_lease_is_renewed_by_one_thread(client: Client, table: Table) -> None:
    before = len(renewing_threads())
    with table.lease(ttl_s=5) as lease:
        with table.lease(ttl_s=1000), table.lease(ttl_s=1000):
            assert len(renewing_threads()) == before + 1
        first_ms = ends_ms(client, table)
        wait_until(lambda: ends_ms(client, table) > first_ms, "not renewed")
        lease.check()


def test_the_thread_ends_with_the_client(catalog: RunningServer, table: Table) -> None:
    before = renewing_threads()
    with Client(catalog.url) as client, client.lease(str(table)):
        (own,) = set(renewing_threads()) - set(before)
    wait_until(lambda: not own.is_alive(), "the thread did not end")


@dataclass
class Switch:
    """A transport to a server that can be away."""

    real: HttpTransport
    is_away: bool = False
    refused: int = 0

    def send(self, request: Request) -> Answer:
        if self.is_away:
            self.refused += 1
            raise NotSent("away")
        return self.real.send(request)


@pytest.fixture
def switch(catalog: RunningServer) -> Iterator[Switch]:
    transport = HttpTransport(catalog.url)
    yield Switch(transport)
    transport.close()


def test_a_lease_survives_an_outage(switch: Switch, client: Client, table: Table) -> None:
    with Client(transport=switch) as mine, mine.lease(str(table), ttl_s=6) as lease:
        first_ms = ends_ms(client, table)
        switch.is_away = True
        wait_until(lambda: switch.refused >= 2, "nothing was sent")
        assert not lease.is_lost
        switch.is_away = False
        wait_until(lambda: ends_ms(client, table) > first_ms, "not renewed")
        lease.check()


def test_a_lease_is_lost_if_the_server_is_away_too_long(switch: Switch, table: Table) -> None:
    lease = Client(transport=switch).lease(str(table), ttl_s=1)
    with pytest.raises(FileNotFoundError) as failed, lease:
        switch.is_away = True
        wait_until(lambda: lease.is_lost, "never lost")
        raise FileNotFoundError("a.parquet")
    (note,) = failed.value.__notes__
    assert f"the lease on snapshot {table.head()} of {table} was not renewed in time" in note


def test_a_lease_that_was_released_by_somebody_else_is_lost(client: Client, table: Table) -> None:
    with table.lease(ttl_s=4) as lease:
        client.leases.release(table.identifier, lease.lease_id)
        wait_until(lambda: lease.is_lost, "never lost")
        with pytest.raises(LeaseLost, match="has ended before it was released"):
            lease.check()


# --- intents --------------------------------------------------------------------------------------


def folder(table: Table, name: str) -> str:
    return f"{table.location}/data/{name}"


def test_a_block_holds_an_intent(client: Client, table: Table) -> None:
    with table.intent(folder(table, "w1"), ttl_s=60) as intent:
        (listed,) = client.intents.list(table.identifier)
        assert (listed.intent_id, listed.prefix) == (intent.intent_id, folder(table, "w1"))
        assert listed.expires_at_ms - listed.created_at_ms == 60_000
    assert client.intents.list(table.identifier) == ()


def test_an_intent_is_renewed(client: Client, table: Table) -> None:
    with client.intent(table, folder(table, "w1"), ttl_s=5) as intent:
        first_ms = client.intents.list(table.identifier)[0].expires_at_ms

        def is_renewed() -> bool:
            return client.intents.list(table.identifier)[0].expires_at_ms > first_ms

        wait_until(is_renewed, "not renewed")
        intent.check()


def test_intents_without_a_block(client: Client, table: Table) -> None:
    intent = client.intents.declare(table.identifier, folder(table, "w1"), ttl_s=10)
    renewed = client.intents.renew(table.identifier, intent.intent_id, ttl_s=100)
    assert renewed.expires_at_ms > intent.expires_at_ms + 80_000
    client.intents.end(table.identifier, intent.intent_id)
    client.intents.end(table.identifier, intent.intent_id)
    with pytest.raises(NotFound):
        client.intents.renew(table.identifier, intent.intent_id)


def test_a_folder_outside_is_refused(client: Client, table: Table) -> None:
    with pytest.raises(BadRequest, match="prefix"), table.intent(f"{table.location}/metadata/x"):
        pass


# --- leases of plans ------------------------------------------------------------------------------


def test_a_statement_releases_what_it_has_planned(client: Client, new_table: NewTable) -> None:
    table = new_table()
    client.append(table.identifier, [{"id": id} for id in range(10)])
    client.delete(table.identifier, "id = 3")
    client.upsert(table.identifier, [{"id": 4, "day": None, "item": "x"}], keys=["id"])
    assert client.scan(table.identifier).to_arrow().num_rows == 9
    assert client.scan(table.identifier, "id > 4").count() == 5
    assert not client.leases.list(table.identifier)


def test_a_scan_holds_its_snapshot_until_it_is_read(client: Client, new_table: NewTable) -> None:
    table = new_table()
    client.append(table.identifier, [{"id": 1}])
    head = client.load_table(table.identifier).head()
    reader = client.scan(table.identifier).to_batches()
    assert reader.read_next_batch().num_rows == 1
    (lease,) = client.leases.list(table.identifier)
    assert lease.snapshot_id == head
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    assert not client.leases.list(table.identifier)


def test_a_plan_of_the_caller_is_leased_for_a_day(client: Client, table: Table) -> None:
    client.append(table.identifier, [{"id": 1}])
    loaded = client.load_table(table.identifier)
    loaded.plan()
    (lease,) = client.leases.list(table.identifier)
    assert lease.lease_id.startswith("plan:")
    with loaded.leased_plans() as leased:
        leased.refreshed().plan()
        assert len(client.leases.list(table.identifier)) == 2
    assert client.leases.list(table.identifier) == (lease,)
