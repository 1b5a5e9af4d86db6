"""Many concurrent writers over HTTP on real servers: none fails, no file is lost or duplicated.

The files are real Parquet files, which PyIceberg reads back.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from tests.commit.finegrained.requests import (
    Json,
    append,
    data_exists,
    delete,
    eq,
    in_bucket,
    no_new_data,
    no_new_deletes,
    no_new_deletes_for,
    overwrite,
)
from tests.commit.finegrained.tables import Answer
from tests.commit.finegrained.trees import check_tree
from tests.conftest import SERVERS
from tests.stock_clients.declared import BY_PART, FLAT, SCHEMA, Http, RealTable
from tests.stock_clients.stock import pyiceberg_catalog, pyiceberg_ids
from tests.support.patience import HANG_S
from tests.support.server import RunningServer, running_server

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.process

MINIMAL = {"Prefer": "return=minimal"}
COMMITS = 5
"""The number of commits of each writer."""

Urls = list[str]


@pytest.fixture(scope="module", params=["one server", "two servers"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RunningServer]]:
    """Start one server on SQLite, or two on one PostgreSQL and one warehouse."""
    folder = tmp_path_factory.mktemp("writers")
    with ExitStack() as stack:
        if request.param == "one server":
            yield [stack.enter_context(running_server(folder))]
            return
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        flags = ("--database", postgres.create_database(), "--warehouse", str(folder / "wh"))
        (folder / "wh").mkdir()
        yield [stack.enter_context(running_server(folder / name, *flags)) for name in ("a", "b")]


@pytest.fixture
def urls(servers: list[RunningServer], request: pytest.FixtureRequest) -> Urls:
    """Return the servers' URLs; their logs are shown if the test fails."""
    request.node.stash.setdefault(SERVERS, []).extend(servers)
    return [server.url for server in servers]


def create(urls: Urls, stack: ExitStack, **fields: Any) -> RealTable:
    """Create a table in its own namespace."""
    http = stack.enter_context(closing(Http(urls[0])))
    namespace = f"ns_{uuid.uuid4().hex[:8]}"
    assert http("POST", "/v1/namespaces", {"namespace": [namespace]}).status == 200
    table = RealTable(
        http, **{"namespace": namespace, "name": "t", "schema": SCHEMA, "spec": FLAT} | fields
    )
    table.create()
    return table


def stock(urls: Urls, stack: ExitStack) -> Catalog:
    return stack.enter_context(closing(pyiceberg_catalog(urls[-1])))


def at_once(
    urls: Urls, table: RealTable, writers: int, work: Callable[[int, RealTable], list[Answer]]
) -> list[Answer]:
    """Run all writers at once, each with its own connection to one of the servers."""
    start = threading.Barrier(writers)

    def run(number: int) -> list[Answer]:
        with closing(Http(urls[number % len(urls)])) as http:
            own = RealTable(
                http,
                namespace=table.namespace,
                name=table.name,
                schema=table.schema,
                spec=table.spec,
                version=table.version,
            )
            own.load()
            start.wait(HANG_S)
            return work(number, own)

    with ThreadPoolExecutor(writers) as pool:
        return [answer for found in pool.map(run, range(writers)) for answer in found]


def check_line(table: RealTable, commits: int) -> None:
    """Check that each commit made one snapshot, the child of the previous one, with a valid
    tree."""
    table.load()
    snapshots = sorted(table.metadata["snapshots"], key=lambda found: found["sequence-number"])
    assert [found["sequence-number"] for found in snapshots] == list(range(1, commits + 1))
    parents = [found.get("parent-snapshot-id") for found in snapshots]
    assert parents == [None, *(found["snapshot-id"] for found in snapshots[:-1])]
    for found in snapshots[-3:]:
        check_tree(table.metadata, found["snapshot-id"])


def statuses(answers: Sequence[Answer]) -> Counter[int]:
    for answer in answers:
        assert answer.status < 500, answer.body
    return Counter(answer.status for answer in answers)


# --- appends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "writers",
    [16, pytest.param(64, marks=pytest.mark.full)],
)
def test_every_append_of_every_writer_lands_once(urls: Urls, writers: int) -> None:
    with ExitStack() as stack:
        table = create(urls, stack, version=3)

        def work(number: int, own: RealTable) -> list[Answer]:
            first = 1000 * number
            files = [own.write(f"w{number}-{n}", first + n) for n in range(COMMITS)]
            return [own.post(append(file), headers=MINIMAL) for file in files]

        answers = at_once(urls, table, writers, work)
        assert statuses(answers) == {200: writers * COMMITS}
        made = [answer.body["committed"][0]["snapshot-id"] for answer in answers]
        assert len(set(made)) == writers * COMMITS
        check_line(table, writers * COMMITS)
        loaded = stock(urls, stack).load_table((table.namespace, "t"))
        wanted = sorted(1000 * number + n for number in range(writers) for n in range(COMMITS))
        assert pyiceberg_ids(loaded) == wanted
        files = [f for f in Path(table.location[7:], "metadata").iterdir() if f.suffix == ".json"]
        if len(urls) == 1:
            assert len(files) < writers * COMMITS, "commits that wait share a metadata file"


def test_one_file_sent_by_all_is_there_once(urls: Urls) -> None:
    """All writers send the same file: one succeeds, and the others learn who committed it."""
    writers = 16
    with ExitStack() as stack:
        table = create(urls, stack)
        file = table.write("same", 1)
        answers = at_once(urls, table, writers, lambda _, own: [own.post(append(file))])
        assert statuses(answers) == {200: 1, 409: writers - 1}
        refused = [answer.body["error"] for answer in answers if answer.status == 409]
        assert {error["conflicts"][0]["clause"] for error in refused} == {"duplicate-file"}
        assert pyiceberg_ids(stock(urls, stack).load_table((table.namespace, "t"))) == [1]


def test_one_key_sent_to_all_servers_commits_once(urls: Urls) -> None:
    writers = 16
    with ExitStack() as stack:
        table = create(urls, stack)
        file, key = table.write("same", 1), str(uuid.uuid4())
        answers = at_once(
            urls, table, writers, lambda _, own: [own.post(append(file), key=key, headers=MINIMAL)]
        )
        assert statuses(answers) == {200: writers}
        assert len({answer.body["committed"][0]["snapshot-id"] for answer in answers}) == 1
        check_line(table, 1)


def test_one_epoch_sent_to_all_servers_commits_once(urls: Urls) -> None:
    writers = 16
    with ExitStack() as stack:
        table = create(urls, stack)
        file, once = table.write("same", 1), {"id": "stream", "epoch": 7}
        answers = at_once(urls, table, writers, lambda _, own: [own.post(append(file), once=once)])
        assert statuses(answers) == {200: writers}
        assert sum("already-committed" not in answer.body for answer in answers) == 1
        check_line(table, 1)


# --- deletes in partitions of one's own -----------------------------------------------------------


BY_BUCKET: Json = {
    "fields": [{"source-id": 1, "field-id": 1000, "name": "bucket", "transform": "bucket[16]"}]
}


def ids_by_bucket(count: int) -> dict[int, list[int]]:
    """Return the lowest ids of each bucket, as PyIceberg computes it."""
    bucket = BucketTransform(16).transform(LongType())
    found: dict[int, list[int]] = {number: [] for number in range(16)}
    for candidate in range(16 * 16 * count):
        found[bucket(candidate) or 0].append(candidate)
    return {number: ids[:count] for number, ids in found.items()}


@pytest.mark.parametrize("version", [2, 3])
def test_writers_of_disjoint_buckets_never_conflict(urls: Urls, version: int) -> None:
    """Under serializable isolation every writer requires that its own ids are unchanged, which
    is true.

    Column bounds overlap and prove nothing here. The buckets of the ids prove it.
    """
    writers = 16
    ids = ids_by_bucket(4)
    with ExitStack() as stack:
        table = create(urls, stack, version=version, spec=BY_BUCKET)

        def work(number: int, own: RealTable) -> list[Answer]:
            mine = {"type": "in", "term": "id", "values": ids[number]}
            one, two, three, last = ids[number]
            file = own.write(f"a{number}", one, two, three, partition=number)
            answers = [own.post(append(file), headers=MINIMAL)]

            def commit(update: Json) -> None:
                base = answers[-1].body["committed"][0]["snapshot-id"]
                clauses = [
                    no_new_data(mine),
                    no_new_deletes(mine),
                    data_exists(filter=mine),
                    no_new_deletes_for(file),
                ]
                update = {"base-snapshot-id": base, "commit-validations": clauses} | update
                answers.append(own.post(update, headers=MINIMAL))
                assert answers[-1].status == 200, answers[-1].body

            commit(overwrite(add_deletes=[own.write_deletes(f"d{number}", file, 0)]))
            rewritten = own.write(f"b{number}", two, three, partition=number)
            commit(overwrite(remove=[file], add=[rewritten]))
            new = own.write(f"c{number}", last, partition=number)
            commit(overwrite(row_filter=in_bucket("id", number), add=[new]))
            return answers

        answers = at_once(urls, table, writers, work)
        assert statuses(answers) == {200: 4 * writers}
        check_line(table, 4 * writers)
        loaded = stock(urls, stack).load_table((table.namespace, "t"))
        assert pyiceberg_ids(loaded) == sorted(ids[number][-1] for number in range(writers))


def test_deletes_by_path_and_by_filter_of_disjoint_partitions(urls: Urls) -> None:
    writers = 16
    with ExitStack() as stack:
        table = create(urls, stack, spec=BY_PART)
        files = [table.write(f"f{n}", n, part=f"p{n}") for n in range(2 * writers)]
        table.append(*files)

        def work(number: int, own: RealTable) -> list[Answer]:
            by_path = own.post(delete(files[number]), headers=MINIMAL)
            mine = eq("part", f"p{writers + number}")
            return [by_path, own.post(delete(row_filter=mine), headers=MINIMAL)]

        assert statuses(at_once(urls, table, writers, work)) == {200: 2 * writers}
        check_line(table, 2 * writers + 1)
        assert table.live() == set()


def test_one_file_removed_by_all_goes_once(urls: Urls) -> None:
    writers = 8
    with ExitStack() as stack:
        table = create(urls, stack)
        file = table.write("a", 1)
        table.append(file, table.write("b", 2))
        answers = at_once(urls, table, writers, lambda _, own: [own.post(delete(file))])
        assert statuses(answers) == {200: 1, 409: writers - 1}
        check_line(table, 2)


# --- the lost delete ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_a_deleted_row_is_not_brought_back(urls: Urls, version: int) -> None:
    """An overwrite without a predicate races a position delete that is followed by an append.

    A client that compares with the head's sequence number, such as PyIceberg 0.12, would commit
    it.
    """
    with ExitStack() as stack:
        table = create(urls, stack, version=version)
        file = table.write("a", 1, 2, 3)
        base = table.append(file)["snapshot-id"]
        overwritten = overwrite(
            remove=[file],
            add=[table.write("a-changed", 1, 2, 3)],
            base=base,
            validations=[no_new_deletes_for(file), data_exists(file)],
        )
        deleted = table.overwrite(add_deletes=[table.write_deletes("d", file, 1)])
        table.append(table.write("b", 4))
        with closing(Http(urls[-1])) as http:
            table.call = http
            conflict = table.conflict(overwritten)
        assert conflict.clause == "not-allowed-new-deletes-for-data-files"
        assert conflict.snapshots == [deleted["snapshot-id"]]
        table.call = Http(urls[0])
        loaded = stock(urls, stack).load_table((table.namespace, "t"))
        assert pyiceberg_ids(loaded) == [1, 3, 4]
        table.call.close()
