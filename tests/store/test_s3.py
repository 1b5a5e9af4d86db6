"""Behavior that only S3 has: lost responses, stores without put-if-absent, settings."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from frazil.store import s3_store
from frazil.store.object_store import (
    ObjectExists,
    PutIfAbsentUnsupported,
    StoreError,
    prove_put_if_absent,
)
from frazil.store.s3_store import S3Store
from frazil.wire.errors import BadRequest
from tests.store.faulty_proxy import (
    Fault,
    FaultyProxy,
    ProxyHandler,
    conflict,
    done_but_500,
    done_but_cut,
    faulty_proxy,
    refuse,
    taken_by,
)
from tests.support.s3 import S3Server


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def store(s3_server: S3Server, proxy: FaultyProxy) -> Iterator[S3Store]:
    store = S3Store(environ={**s3_server.environ(), "FRAZIL_S3_ENDPOINT": proxy.endpoint})
    yield store
    store.close()


@pytest.fixture
def location(s3_bucket: str) -> str:
    return f"{s3_bucket}/{uuid.uuid4()}/object"


@pytest.mark.parametrize(
    "faults",
    [
        [refuse],
        [refuse, refuse, refuse],
        [conflict],
        [done_but_500],
        [done_but_cut],
        [refuse, done_but_500],
        [conflict, done_but_cut],
        [done_but_cut, refuse],
    ],
    ids=lambda faults: "-".join(fault.__name__ for fault in faults),
)
def test_a_write_survives_refusals_and_lost_answers(
    store: S3Store, proxy: FaultyProxy, location: str, faults: list[Fault]
) -> None:
    proxy.faults = list(faults)

    store.put_new(location, [b"our ", b"content"])

    assert proxy.puts == len(faults) + 1
    assert store.get(location) == b"our content"
    with pytest.raises(ObjectExists):
        store.put_new(location, [b"our content"])


@pytest.mark.parametrize("content", [b"theirs", b"0" * 11, b"something longer than ours"])
def test_another_writers_object_is_not_taken_for_ours(
    store: S3Store, proxy: FaultyProxy, location: str, content: bytes
) -> None:
    proxy.faults = [taken_by(content)]

    with pytest.raises(ObjectExists):
        store.put_new(location, [b"our content"])

    assert store.get(location) == content


def test_a_store_that_stays_down_is_given_up(
    store: S3Store, proxy: FaultyProxy, location: str
) -> None:
    proxy.faults = [refuse] * 20

    with pytest.raises(StoreError, match=f"cannot write {location}: .*503") as raised:
        store.put_new(location, [b"content"])

    assert not isinstance(raised.value, ObjectExists)
    assert "\n" not in str(raised.value)
    assert 1 < proxy.puts < 10
    assert raised.value.location == location
    assert raised.value.reason == "the object store does not answer, or is overloaded or full"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "the object store refuses access (403)"),
        (401, "the object store refuses the keys of this server (401)"),
        (404, "the bucket does not exist (404)"),
        (507, "the object store does not answer, or is overloaded or full"),
    ],
)
def test_a_refused_write_has_a_reason_for_operators(
    store: S3Store, proxy: FaultyProxy, location: str, status: int, reason: str
) -> None:
    def refuse_with(handler: ProxyHandler) -> bool:
        handler.answer(status, [], b"")
        return True

    proxy.faults = [refuse_with] * 5
    with pytest.raises(StoreError) as raised:
        store.put_new(location, [b"content"])
    assert raised.value.reason == reason


def test_a_store_without_put_if_absent_is_refused(
    store: S3Store, proxy: FaultyProxy, s3_bucket: str
) -> None:
    proxy.strip_conditions = True
    root = f"{s3_bucket}/{uuid.uuid4()}"

    with pytest.raises(PutIfAbsentUnsupported, match="second write of one name succeeded"):
        prove_put_if_absent(store, root)

    assert list(store.list(root)) == []


def test_more_objects_than_one_request_takes_are_deleted(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "_PAGE", 40)
    store = S3Store(environ=s3_server.environ())
    root = f"{s3_bucket}/{uuid.uuid4()}"
    names = [f"{root}/{number:04}" for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put_new(name, [b"x"]), names))

    assert sorted(info.location for info in store.list(root)) == names
    store.delete(iter(names[:-1]))
    assert [info.location for info in store.list(root)] == names[-1:]


def test_listed_locations_begin_as_the_prefix_is_written(
    s3_server: S3Server,
) -> None:
    store = S3Store(environ=s3_server.environ())
    bucket = s3_server.create_bucket(f"prefix-{uuid.uuid4().hex[:12]}").removeprefix("s3://")
    store.put_new(f"s3://{bucket}/a/b", [b"x"])

    for prefix, found in (
        (f"s3a://{bucket}/a", f"s3a://{bucket}/a/b"),
        (f"S3N://{bucket}/a/", f"S3N://{bucket}/a/b"),
        (f"s3://{bucket}", f"s3://{bucket}/a/b"),
        (f"s3://{bucket}/", f"s3://{bucket}/a/b"),
    ):
        assert [info.location for info in store.list(prefix)] == [found]
    assert store.get(f"s3a://{bucket}/a/b") == b"x"


def test_a_bucket_that_is_not_there_is_said_to_be_missing(s3_server: S3Server) -> None:
    store = S3Store(environ=s3_server.environ())

    with pytest.raises(StoreError, match=r"cannot write s3://no-such-bucket/a: .*NoSuchBucket"):
        store.put_new("s3://no-such-bucket/a", [b"x"])
    with pytest.raises(StoreError, match="no-such-bucket"):
        list(store.list("s3://no-such-bucket/a"))
    with pytest.raises(StoreError, match="no-such-bucket"):
        store.delete(["s3://no-such-bucket/a"])


def test_a_server_that_is_not_there_is_an_error(s3_server: S3Server) -> None:
    environ = {**s3_server.environ(), "FRAZIL_S3_ENDPOINT": "http://127.0.0.1:9"}

    with pytest.raises(StoreError, match="cannot write s3://bucket/a: "):
        S3Store(environ=environ).put_new("s3://bucket/a", [b"x"])


def test_a_bucket_is_no_object_and_a_file_is_not_in_s3(s3_server: S3Server) -> None:
    store = S3Store(environ=s3_server.environ())

    with pytest.raises(BadRequest, match="whole bucket"):
        store.get("s3://bucket/")
    with pytest.raises(BadRequest, match="not in S3"):
        store.get("file:///a")


def test_half_a_key_pair_is_refused(s3_server: S3Server) -> None:
    environ = s3_server.environ()
    del environ["AWS_SECRET_ACCESS_KEY"]

    with pytest.raises(StoreError, match="AWS_SECRET_ACCESS_KEY"):
        S3Store(environ=environ).get("s3://bucket/a")
