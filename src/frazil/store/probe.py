"""Proof that a store keeps the promise of `put_new`, before the catalog relies on it."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from frazil.store.base import ObjectExists, Store, StoreError

_RACE_ROUNDS = 4
_RACERS = 8
_MAX_PROBE_BYTES = 1024


class PutIfAbsentUnsupported(StoreError):
    """The store lets a second writer overwrite an object."""

    def __init__(self, prefix: str, seen: str) -> None:
        super().__init__(
            f"the store at {prefix} has no working put-if-absent: {seen}. Without it two writers "
            "can overwrite each other's files; use a store that honours If-None-Match on PUT, "
            "such as Amazon S3 or MinIO"
        )


def prove_put_if_absent(store: Store, prefix: str) -> None:
    """Writes one name twice, then lets writers race for a few more; removes what it wrote.

    The race matters: some stores refuse a second write only when the first is long over. It can
    show that a store is broken; that one is sound it makes likely.
    """
    # No folder of its own: a local store would keep it, empty, for each start of the server.
    probe = f"{prefix.rstrip('/')}/frazil-probe-{uuid.uuid4()}"
    names = [f"{probe}-{number}" for number in range(1 + _RACE_ROUNDS)]
    try:
        _write_twice(store, prefix, names[0])
        with ThreadPoolExecutor(_RACERS) as pool:
            for name in names[1:]:
                _race(store, prefix, name, pool)
    finally:
        store.delete(names)


def _write_twice(store: Store, prefix: str, name: str) -> None:
    store.put_new(name, [b"first"])
    try:
        store.put_new(name, [b"second"])
    except ObjectExists:
        _expect(store, prefix, name, b"first")
    else:
        raise PutIfAbsentUnsupported(prefix, "a second write of one name succeeded")


def _race(store: Store, prefix: str, name: str, pool: ThreadPoolExecutor) -> None:
    def put(content: bytes) -> bytes | None:
        try:
            store.put_new(name, [content])
        except ObjectExists:
            return None
        return content

    contents = [f"racer {number}".encode() for number in range(_RACERS)]
    winners = [content for content in pool.map(put, contents) if content is not None]
    if len(winners) != 1:
        raise PutIfAbsentUnsupported(
            prefix, f"of {_RACERS} writers racing for one name {len(winners)} succeeded"
        )
    _expect(store, prefix, name, winners[0])


def _expect(store: Store, prefix: str, name: str, content: bytes) -> None:
    if store.get(name, max_bytes=_MAX_PROBE_BYTES) != content:
        raise PutIfAbsentUnsupported(prefix, "a refused write changed the object")
