"""`Table.plan`: scans that a real server plans, over several pages and polls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from frazil import Client, Plan, RetryPolicy, Table, col
from frazil.client.declare.scan_plans import Walk
from frazil.client.send.http_transport import Answer, HttpTransport, Request
from frazil.wire.declared_content import (
    CountMap,
    DeclaredDataFile,
    EqualityDeleteFile,
    PositionDeleteFile,
    ValueMap,
)
from frazil.wire.errors import (
    BadRequest,
    NotFound,
    ServiceUnavailable,
    UnsupportedOperation,
)
from tests.client.conftest import BY_DAY, NewTable, declared
from tests.support.server import RunningServer, running_server

pytestmark = pytest.mark.process

IDS = {"lower_bounds": ValueMap((1,), (1,)), "upper_bounds": ValueMap((1,), (9,))}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Start a server with two files a page, so that plans have several pages."""
    with running_server(tmp_path_factory.mktemp("plans"), "--plan-page-files", "2") as server:
        yield server


def days(table: Table, *days: int, **bounds: Any) -> list[DeclaredDataFile]:
    return [declared(table, f"{day}", f"2026-05-{day:02}", **bounds) for day in days]


def names(plan: Plan) -> list[str]:
    return sorted(file.file_path.rsplit("/", 1)[1].removesuffix(".parquet") for file in plan.files)


def loaded(client: Client, table: Table) -> Table:
    return client.load_table(table.identifier)


def test_the_files_of_all_pages_are_there_in_order(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    table.append_files(days(table, *range(1, 8)))
    plan = loaded(client, table).plan()
    assert names(plan) == [str(day) for day in range(1, 8)]
    assert [file.partition for file in plan.files] == [(f"2026-05-0{day}",) for day in range(1, 8)]
    assert plan.is_whole
    assert plan.walk is None
    first = plan.files[0]
    assert (first.record_count, first.file_size_in_bytes) == (1, 100)
    assert (first.file_format, first.spec_id) == ("parquet", 0)


def test_no_more_pages_are_fetched_than_are_wanted(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    table.append_files(days(table, *range(1, 8)))
    some = loaded(client, table).plan(max_files=3)
    assert (len(some.tasks), some.is_whole) == (3, False)
    assert loaded(client, table).plan(max_files=0).tasks == ()
    all_of_them = loaded(client, table).plan(max_files=7)
    assert (len(all_of_them.tasks), all_of_them.is_whole) == (7, True)


def test_filters_leave_residuals(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    table.append_files(days(table, 1, 2, 3, **IDS))
    table = loaded(client, table)
    assert names(table.plan("day = '2026-05-02'")) == ["2"]
    assert table.plan("day = '2026-05-02'").tasks[0].residual is True
    (task,) = table.plan((col("day") == "2026-05-02") & (col("id") > 5)).tasks
    assert task.residual == {"type": "gt", "term": "id", "value": 5}
    assert names(table.plan({"type": "gt", "term": "id", "value": 9})) == []
    assert names(table.plan("DAY = '2026-05-02'", case_sensitive=False)) == ["2"]
    with pytest.raises(BadRequest, match="DAY"):
        table.plan("DAY = '2026-05-02'")
    with pytest.raises(BadRequest, match=r"select\[0\]"):
        table.plan(select=["nothing"])


def test_the_walk_is_told_on_request(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    table.append_files(days(table, 1, 2, **IDS))
    table.append_files(days(table, 3))
    plan = loaded(client, table).plan("day <= '2026-05-01' and id = 4", explain=True)
    assert plan.walk == Walk(
        data_manifests=2,
        data_manifests_skipped_by_partition=1,
        data_manifests_without_live_files=0,
        data_files=2,
        data_files_skipped_by_partition=1,
        data_files_skipped_by_statistics=0,
        delete_manifests=0,
        delete_manifests_skipped_by_partition=0,
        delete_manifests_without_live_files=0,
        delete_files=0,
        delete_files_skipped=0,
        data_files_planned=1,
    )


def test_sequence_numbers_are_told_on_request(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    for day in (1, 2, 3):
        table.append_files(days(table, day))
    table = loaded(client, table)
    # The last file is on its own page, whose token carries the request's options.
    plan = table.plan(sequence_numbers=True)
    numbers = {file.partition[0]: file.data_sequence_number for file in plan.files}
    assert numbers == {"2026-05-01": 1, "2026-05-02": 2, "2026-05-03": 3}
    assert {file.data_sequence_number for file in table.plan().files} == {None}


def test_statistics_of_columns_that_are_wanted(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    bounds = ValueMap((1, 3), (1, "a"))
    table.append_files(days(table, 1, lower_bounds=bounds, value_counts=CountMap((1, 3), (1, 1))))
    table = loaded(client, table)
    (file,) = table.plan(stats_fields=["item"]).files
    assert file.lower_bounds == ValueMap((3,), ("61",))
    assert file.value_counts == CountMap((3,), (1,))
    assert table.plan().files[0].lower_bounds is None


def test_deletes_are_attached_to_their_files(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY, properties={"format-version": "2"})
    one, two, three = days(table, 1, 2, 3)
    table.append_files([one, two, three])
    shared: dict[str, Any] = {
        "spec_id": 0,
        "file_format": "parquet",
        "file_size_in_bytes": 9,
        "record_count": 1,
    }
    positions = PositionDeleteFile(
        partition=one.partition,
        file_path=f"{table.location}/data/p.parquet",
        referenced_data_file=one.file_path,
        **shared,
    )
    equality = EqualityDeleteFile(
        partition=three.partition,
        file_path=f"{table.location}/data/e.parquet",
        equality_ids=(1,),
        **shared,
    )
    loaded(client, table).row_delta(add_deletes=[positions, equality])
    plan = loaded(client, table).plan()
    found = {
        task.data_file.file_path: [(file.content, file.file_path) for file in task.delete_files]
        for task in plan.tasks
    }
    assert found == {
        one.file_path: [("position-deletes", positions.file_path)],
        two.file_path: [],
        three.file_path: [("equality-deletes", equality.file_path)],
    }
    (deletes,) = plan.tasks[2].delete_files
    assert deletes.equality_ids == (1,)


def test_snapshots_refs_and_increments(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    ids = []
    for day in (1, 2, 3):
        done = table.append_files(days(table, day))
        assert done.snapshot_id is not None
        ids.append(done.snapshot_id)
    table.create_tag("v1", snapshot=ids[0])
    table.create_branch("side", snapshot=ids[1])
    table = loaded(client, table)
    assert names(table.plan(snapshot=ids[1])) == ["1", "2"]
    assert names(table.plan(snapshot="v1")) == ["1"]
    assert names(table.plan(snapshot="side")) == ["1", "2"]
    assert names(table.plan(from_snapshot="v1")) == ["2", "3"]
    assert names(table.plan(from_snapshot="v1", to_snapshot=ids[1])) == ["2"]
    assert names(table.plan(to_snapshot="side")) == ["1", "2"]
    with pytest.raises(BadRequest, match="either a snapshot, or from_snapshot"):
        table.plan(snapshot="v1", from_snapshot=ids[0])
    with pytest.raises(NotFound, match="nothing"):
        table.plan(snapshot="nothing")
    # A handle that only knows the heads of refs can still use the ids of older snapshots.
    assert names(client.table(table.identifier).plan(snapshot=ids[1])) == ["1", "2"]


def test_a_plan_is_of_the_table_as_it_was_loaded(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    table.append_files(days(table, 1))
    read = loaded(client, table)
    read.append_files(days(table, 2))
    assert names(read.plan()) == ["1"]
    assert names(loaded(client, table).plan()) == ["1", "2"]


def test_an_empty_table(client: Client, new_table: NewTable) -> None:
    plan = new_table(spec=BY_DAY).plan("id = 1", explain=True)
    assert plan.tasks == ()
    assert plan.walk is not None
    assert plan.walk.data_manifests == 0


def test_a_table_that_no_client_has_loaded() -> None:
    from frazil import Identifier

    table = Table(Identifier(("a",), "t"), {}, "file:///m")
    with pytest.raises(BadRequest, match="was not loaded by a client"):
        table.plan()


def test_long_plans_are_asked_for_again(tmp_path: Any) -> None:
    """The server never waits for a plan and always asks the client to poll again."""
    with running_server(tmp_path, "--plan-wait-s", "0") as server, Client(server.url) as client:
        client.create_namespace("ns")
        table = client.create_table(
            "ns.t", {"type": "struct", "fields": [FIELD]}, partition_spec={"fields": []}
        )
        table.append_files([declared(table, "a")])
        plan = loaded(client, table).plan(explain=True)
        assert names(plan) == ["a"]
        assert plan.walk is not None


FIELD = {"id": 1, "name": "id", "type": "long", "required": False}


class Scripted(HttpTransport):
    """The real transport, with scripted responses to plan requests."""

    def __init__(self, uri: str, answers: list[bytes]) -> None:
        super().__init__(uri)
        self.answers = answers
        self.seen: list[str] = []

    def send(self, request: Request) -> Answer:
        if "/plan" not in request.path:
            return super().send(request)
        self.seen.append(f"{request.method} {request.path.rsplit('/plan', 1)[1]}")
        if request.method == "DELETE":
            return Answer(204, {}, b"")
        return Answer(200, {}, self.answers.pop(0))


SUBMITTED = b'{"status":"submitted","plan-id":"a/b"}'


def test_a_plan_that_failed_is_raised(catalog: RunningServer, new_table: NewTable) -> None:
    error = b'{"message":"gone","type":"NoSuchPlanIdException","code":404}'
    failed = b'{"status":"failed","error":' + error + b"}"
    transport = Scripted(catalog.url, [SUBMITTED, SUBMITTED, failed])
    with pytest.raises(NotFound, match="gone"):
        Client(transport=transport).load_table(new_table().identifier).plan()
    # The client no longer waits for the plan, so it cancels it.
    assert transport.seen == ["POST ", "GET /a%2Fb", "GET /a%2Fb", "DELETE /a%2Fb"]


def test_a_plan_that_was_cancelled_is_said_so(catalog: RunningServer, new_table: NewTable) -> None:
    transport = Scripted(catalog.url, [SUBMITTED, b'{"status":"cancelled"}'])
    with pytest.raises(ServiceUnavailable, match="plan the scan again"):
        Client(transport=transport).load_table(new_table().identifier).plan()


def test_nobody_waits_for_ever(catalog: RunningServer, new_table: NewTable) -> None:
    transport = Scripted(catalog.url, [SUBMITTED, SUBMITTED])
    client = Client(transport=transport, retry=RetryPolicy(total_timeout_ms=1))
    with pytest.raises(ServiceUnavailable, match=r"not ready after 0\.001 s"):
        client.load_table(new_table().identifier).plan()
    assert transport.seen[-1] == "DELETE /a%2Fb"


def test_a_catalog_that_does_not_plan(catalog: RunningServer, new_table: NewTable) -> None:
    class Plain(HttpTransport):
        def send(self, request: Request) -> Answer:
            if request.path == "config":
                return Answer(200, {}, b'{"defaults":{},"overrides":{}}')
            return super().send(request)

    table = new_table()
    with pytest.raises(UnsupportedOperation, match="does not plan scans"):
        Client(transport=Plain(catalog.url)).load_table(table.identifier).plan()
