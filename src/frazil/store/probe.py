"""Proof that a store keeps the promise of `put_new`, before the catalog relies on it."""

from __future__ import annotations

import uuid

from frazil.store.base import ObjectExists, Store, StoreError

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
    """Writes one name twice and removes it.

    Writers do not race here. Every name the catalog writes holds a fresh UUID, so what has to be
    caught is a second writer long after the first, and a start that fails once in a hundred on a
    store with a small race would cost more than it proves.
    """
    # No folder of its own: a local store would keep it, empty, for each start of the server.
    name = f"{prefix.rstrip('/')}/frazil-probe-{uuid.uuid4()}"
    try:
        store.put_new(name, [b"first"])
        try:
            store.put_new(name, [b"second"])
        except ObjectExists:
            pass
        else:
            raise PutIfAbsentUnsupported(prefix, "a second write of one name succeeded")
        if store.get(name, max_bytes=_MAX_PROBE_BYTES) != b"first":
            raise PutIfAbsentUnsupported(prefix, "a refused write changed the object")
    finally:
        store.delete([name])
