"""Namespaces, tables, refs, history and transactions, against a real catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from frazil import Client, Identifier, ValidationError
from frazil.client.send.catalog_calls import Calls, tables_path
from frazil.client.send.http_transport import Answer, HttpTransport, Request
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchTable,
    NotFound,
)
from tests.client.conftest import BY_DAY, SCHEMA, NewTable, declared
from tests.support.server import RunningServer


def test_namespaces(client: Client, namespace: str) -> None:
    client.create_namespace(f"{namespace}.inner", {"owner": "me"})
    assert (namespace,) in client.list_namespaces()
    assert client.list_namespaces(namespace) == [(namespace, "inner")]
    assert client.update_namespace(f"{namespace}.inner", {"tier": "gold"}, ["owner", "roof"]) == [
        "roof"
    ]
    properties = client.load_namespace((namespace, "inner"))
    assert properties["tier"] == "gold"
    assert "owner" not in properties
    with pytest.raises(AlreadyExists):
        client.create_namespace(namespace)
    client.create_namespace(namespace, if_not_exists=True)
    with pytest.raises(NamespaceNotEmpty):
        client.drop_namespace(namespace)
    client.drop_namespace(f"{namespace}.inner")
    assert not client.namespace_exists(f"{namespace}.inner")
    with pytest.raises(NoSuchNamespace):
        client.load_namespace(f"{namespace}.inner")
    with pytest.raises(NoSuchNamespace):
        client.drop_namespace(f"{namespace}.inner")
    client.drop_namespace(f"{namespace}.inner", if_exists=True)


def test_lists_are_read_to_their_last_page(catalog: RunningServer, new_table: NewTable) -> None:
    names = [new_table().identifier for _ in range(7)]
    calls = Calls(HttpTransport(catalog.url), page_size=3)
    pages = list(calls.pages(tables_path(names[0].namespace)))
    assert [len(page["identifiers"]) for page in pages] == [3, 3, 1]
    with Client(catalog.url) as client:
        assert client.list_tables(names[0].namespace) == names


def test_tables(client: Client, namespace: str) -> None:
    table = client.create_table(
        f"{namespace}.orders", SCHEMA, partition_spec=BY_DAY, properties={"a": "1"}
    )
    assert table.identifier == Identifier((namespace,), "orders")
    assert table.format_version == 2
    assert table.properties["a"] == "1"
    assert [field.name for field in table.schema.fields] == ["id", "day", "item"]
    assert table.spec()["fields"][0]["transform"] == "identity"
    assert table.sort_order()["fields"] == []
    assert client.list_tables(namespace) == [table.identifier]
    assert client.table_exists(table.identifier)
    client.rename_table(table.identifier, f"{namespace}.bills")
    with pytest.raises(NoSuchTable):
        client.load_table(table.identifier)
    moved = client.load_table((namespace, "bills"))
    assert moved.uuid == table.uuid
    client.drop_table(moved.identifier)
    registered = client.register_table(f"{namespace}.again", moved.metadata_location)
    assert registered.uuid == table.uuid
    with pytest.raises(NotFound, match=r"no spec-id 7; it has 0"):
        registered.spec(7)


def test_names_with_dots_and_slashes_are_given_as_tuples(client: Client) -> None:
    client.create_namespace(("a.b",))
    client.create_namespace(("a.b", "c/d +"))
    table = client.create_table(("a.b", "c/d +", "t.é"), SCHEMA)
    assert client.load_table(("a.b", "c/d +", "t.é")).uuid == table.uuid
    assert client.list_tables(("a.b", "c/d +")) == [table.identifier]
    client.append_files(table, [declared(table, "x")])
    with client.transaction() as tx:
        tx.append_files(table.identifier, [declared(table, "y")])
    assert len(client.history(table.identifier)) == 2


@pytest.mark.parametrize("name", ["", "t", "a..t", ("t",)])
def test_a_name_that_cannot_be_one_is_refused(client: Client, name: str | tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="empty"):
        client.load_table(name)


# --- refs ---------------------------------------------------------------------------------------


def test_branches_and_tags(client: Client, new_table: NewTable) -> None:
    table = new_table()
    with pytest.raises(NotFound, match="no snapshot yet"):
        client.create_branch(table, "dev")
    first = client.append_files(table, [declared(table, "a")]).snapshot_id
    second = client.append_files(table, [declared(table, "b")]).snapshot_id
    client.create_tag(table, "v1", first, max_ref_age_ms=60_000)
    client.create_branch(table, "dev", "v1", min_snapshots_to_keep=3)
    loaded = client.load_table(table.identifier)
    assert loaded.refs["v1"].snapshot_id == first
    assert loaded.refs["v1"].max_ref_age_ms == 60_000
    assert loaded.refs["dev"].min_snapshots_to_keep == 3
    with pytest.raises(AlreadyExists, match="replace=True"):
        client.create_tag(table, "v1", second)
    client.create_tag(table, "v1", second, replace=True)
    with pytest.raises(BadRequest, match="is a tag, not a branch"):
        client.create_branch(table, "v1", replace=True)
    with pytest.raises(BadRequest, match="is a tag, not a branch"):
        client.remove_branch(table, "v1")
    client.fast_forward(table, "dev", "main")
    assert client.load_table(table.identifier).refs["dev"].min_snapshots_to_keep == 3
    client.remove_tag(table, "v1")
    client.remove_branch(table, "dev")
    assert set(client.load_table(table.identifier).refs) == {"main"}
    with pytest.raises(BadRequest, match=r"main of .* cannot be removed"):
        client.remove_branch(table, "main")


def test_rollback(client: Client, new_table: NewTable) -> None:
    table = new_table()
    ids = [
        client.append_files(table, [declared(table, name)]).snapshots[0].snapshot_id
        for name in "abc"
    ]
    elsewhere = client.append_files(table, [declared(table, "d")], branch="dev").snapshot_id
    with pytest.raises(BadRequest, match="not an ancestor"):
        client.rollback(table, elsewhere)
    client.rollback(table, ids[1])
    assert client.load_table(table.identifier).head() == ids[1]
    moments = {found.snapshot_id: found.timestamp_ms for found in client.history(table, "dev")}
    client.rollback(table, timestamp_ms=moments[ids[0]])
    assert client.load_table(table.identifier).head() == ids[0]
    with pytest.raises(NotFound, match="as old as"):
        client.rollback(table, timestamp_ms=1)
    with pytest.raises(BadRequest, match="either a snapshot or timestamp_ms"):
        client.rollback(table)
    with pytest.raises(BadRequest, match="has diverged"):
        client.fast_forward(table, "dev", "main")


def test_a_change_of_a_ref_is_built_again_when_the_ref_has_moved(
    client: Client, new_table: NewTable
) -> None:
    """Eight threads move one tag. Each one requires the position it has read, and no move is
    lost."""
    table = new_table(properties={"commit.retry.num-retries": "40"})
    client.append_files(table, [declared(table, "a")])
    client.create_tag(table, "now")

    def move(number: int) -> int:
        client.append_files(table, [declared(table, f"f{number}")])
        return client.create_tag(table, "now", replace=True).attempts

    with ThreadPoolExecutor(8) as threads:
        attempts = list(threads.map(move, range(16)))
    loaded = client.load_table(table.identifier)
    assert loaded.refs["now"].snapshot_id in {found.snapshot_id for found in loaded.snapshots}
    assert len(loaded.snapshots) == 17
    assert min(attempts) == 1


# --- history ------------------------------------------------------------------------------------


def test_history(client: Client, new_table: NewTable) -> None:
    table = new_table()
    assert client.history(table.identifier) == []
    commits = [client.append_files(table, [declared(table, name)]) for name in "abc"]
    found = client.history(table.identifier)
    assert [s.snapshot_id for s in found] == [c.snapshot_id for c in reversed(commits)]
    assert found[0].operation == "append"
    assert found[0].summary["added-data-files"] == "1"
    by_id = client.load_table(table.identifier).snapshot(str(commits[1].snapshot_id))
    assert by_id.sequence_number == commits[1].sequence_number == 2
    with pytest.raises(NotFound, match="its refs: main"):
        client.load_table(table.identifier).snapshot("nowhere")


# --- transactions -------------------------------------------------------------------------------


def test_a_transaction_over_two_tables(client: Client, new_table: NewTable) -> None:
    one, two = new_table(), new_table()
    with client.transaction() as tx:
        tx.append_files(one, [declared(one, "a")])
        tx.append_files(one, [declared(one, "b")])
        tx.append_files(two, [declared(two, "c")])
        tx.set_properties(two, {"done": "yes"})
    first, second = tx.commits
    assert [snapshot.update for snapshot in first.snapshots] == [0, 1]
    assert second.identifier == two.identifier
    assert client.load_table(two.identifier).properties["done"] == "yes"
    assert len(client.history(one.identifier)) == 2


def test_a_transaction_is_all_or_nothing(client: Client, new_table: NewTable) -> None:
    one, two = new_table(), new_table()
    with pytest.raises(ValidationError), client.transaction() as tx:
        tx.append_files(one, [declared(one, "a")])
        tx.delete_files(two, ["file:///not/live.parquet"])
    assert client.history(one.identifier) == []


def test_an_exception_inside_drops_the_transaction(client: Client, new_table: NewTable) -> None:
    table = new_table()
    with pytest.raises(RuntimeError), client.transaction() as tx:
        tx.append_files(table, [declared(table, "a")])
        raise RuntimeError
    assert client.history(table.identifier) == []
    assert tx.commits == ()
    with pytest.raises(BadRequest, match="has ended"):
        tx.append_files(table, [declared(table, "b")])
    with pytest.raises(BadRequest, match="has ended"):
        tx.commit()


def test_the_base_of_a_transaction_is_where_a_table_was_first_named(
    client: Client, new_table: NewTable
) -> None:
    table = new_table()
    client.append_files(table, [declared(table, "a")])
    tx = client.transaction()
    tx.overwrite_files(table.identifier, [declared(table, "a2")], [declared(table, "a")])
    client.append_files(table, [declared(table, "meanwhile")])
    with pytest.raises(ValidationError) as refused:
        tx.commit()
    assert refused.value.conflicts[0]["clause"] == "not-allowed-added-data-files"


def test_a_ref_beside_files_is_built_again(client: Client, new_table: NewTable) -> None:
    table = new_table()
    client.append_files(table, [declared(table, "a")])
    with client.transaction() as tx:
        tx.append_files(table.identifier, [declared(table, "b")])
        tx.create_tag(table.identifier, "before-b")
        client.append_files(table, [declared(table, "meanwhile")])
    loaded = client.load_table(table.identifier)
    assert len(list(loaded.ancestors())) == 3
    assert loaded.refs["before-b"].snapshot_id == loaded.snapshot("main").parent_snapshot_id


def test_an_empty_transaction_sends_nothing(client: Client) -> None:
    with client.transaction() as tx:
        pass
    assert tx.commits == ()


def test_a_table_that_is_gone(client: Client, new_table: NewTable) -> None:
    table = new_table()
    client.drop_table(table.identifier)
    with pytest.raises(NoSuchTable):
        table.append_files([declared(table, "a")])
    with pytest.raises(NoSuchTable), client.transaction() as tx:
        tx.append_files(table, [declared(table, "a")])


# --- names that are missing -----------------------------------------------------------------------


def test_what_is_missing_may_be_missing(client: Client, namespace: str) -> None:
    client.drop_table(f"{namespace}.t", if_exists=True)
    client.drop_view("nowhere.t", if_exists=True)
    for drop in (client.drop_table, client.drop_view):
        with pytest.raises(NotFound):
            drop(f"{namespace}.t")


def test_the_nearest_name_is_suggested(client: Client, namespace: str) -> None:
    client.create_table(f"{namespace}.orders", "id long")
    client.create_view(f"{namespace}.fruit", "id long", "SELECT 1 AS id")
    client.create_namespace((namespace, "archive"))
    order, archiv, misspelled = f"{namespace}.order", f"{namespace}.archiv", f"{namespace[1:]}"
    orders, archive = f"did you mean '{namespace}.orders'", f"did you mean '{namespace}.archive'"
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: client.load_table(order), orders),
        (lambda: client.append(order, [{"id": 1}]), orders),
        (lambda: client.scan(order), orders),
        (lambda: client.drop_table(order), orders),
        (lambda: client.unregister_table(order), orders),
        (lambda: client.rename_table(order, f"{namespace}.new"), orders),
        (lambda: client.load_view(f"{namespace}.fruits"), f"did you mean '{namespace}.fruit'"),
        (lambda: client.scan(f"{namespace}.fruit"), "it is a view"),
        (lambda: client.drop_view(f"{namespace}.orders"), "it is a table"),
        (lambda: client.load_namespace(archiv), archive),
        (lambda: client.list_tables(archiv), archive),
        (lambda: client.list_namespaces(archiv), archive),
        (lambda: client.update_namespace(archiv, {"a": "b"}), archive),
        (lambda: client.create_table(f"{archiv}.t", "id long"), archive),
        (lambda: client.rename_table(f"{namespace}.orders", f"{archiv}.t"), archive),
        (lambda: client.load_table(f"{misspelled}.orders"), f"Namespace .*{misspelled}: did you"),
    ]
    for call, message in calls:
        with pytest.raises(NotFound, match=message):
            call()
    with pytest.raises(NotFound, match=r"exist: \w+\.else$"):
        client.load_table(f"{namespace}.else")


def test_a_name_without_a_suggestion_is_only_missing(client: Client, namespace: str) -> None:
    """Whoever may not list gets no hint, and nobody waits for one."""

    class Refusing:
        def send(self, request: Request) -> Answer:
            if request.path.endswith("/tables/order") and request.method == "GET":
                body = {"error": {"message": "no order", "type": "NoSuchTableException"}}
                return Answer(404, {}, json.dumps(body).encode())
            return Answer(200 if request.path == "config" else 503, {}, b"{}")

    with pytest.raises(NoSuchTable, match=r"^no order$"):
        Client(transport=Refusing()).load_table("ns.order")
