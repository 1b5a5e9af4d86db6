"""`frazil maintain leases` and `frazil maintain intents`."""

from __future__ import annotations

from tests.cli.shop import Shop


def test_leases_are_listed_and_released(shop: Shop) -> None:
    snapshot_id = shop.append("a.parquet", [1])
    assert shop.ok("maintain", "leases", shop.name) == f"{shop.name} has no leases\n"
    with shop.client.lease(shop.name, holder="nightly report") as lease:
        shown = shop.ok("maintain", "leases", shop.name)
        for text in (lease.lease_id, str(snapshot_id), "anonymous", "nightly report"):
            assert text in shown
        (listed,) = shop.json("maintain", "leases", shop.name)["leases"]
        assert (listed["lease-id"], listed["snapshot-id"]) == (lease.lease_id, snapshot_id)
        shop.ok("maintain", "leases", shop.name, "--release", lease.lease_id)
        assert shop.json("maintain", "leases", shop.name) == {"leases": []}


def test_intents_are_listed_and_ended(shop: Shop) -> None:
    assert shop.ok("maintain", "intents", shop.name) == f"{shop.name} has no intents\n"
    folder = f"{shop.table.location}/data/load-1"
    with shop.client.intent(shop.name, folder, holder="loader") as intent:
        shown = shop.ok("maintain", "intents", shop.name)
        for text in (intent.intent_id, folder, "anonymous", "loader"):
            assert text in shown
        (listed,) = shop.json("maintain", "intents", shop.name)["intents"]
        assert (listed["intent-id"], listed["prefix"]) == (intent.intent_id, folder)
        shop.ok("maintain", "intents", shop.name, "--end", intent.intent_id)
        assert shop.json("maintain", "intents", shop.name) == {"intents": []}


def test_a_table_that_does_not_exist(shop: Shop) -> None:
    for command in ("leases", "intents"):
        done = shop.run("maintain", command, f"{shop.name}x")
        assert done.exit_code == 1
        assert "Table does not exist" in done.stderr


def test_an_id_that_does_not_exist(shop: Shop) -> None:
    for command, option in (("leases", "--release"), ("intents", "--end")):
        done = shop.run("maintain", command, shop.name, option, "nope")
        assert done.exit_code == 1
        assert "nope" in done.stderr
