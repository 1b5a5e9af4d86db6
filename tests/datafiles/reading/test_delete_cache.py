"""Deletes are read once for many data files, and kept in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

from frazil.datafiles.reading.delete_cache import DeleteCache


def reading(name: str, log: list[str]) -> Callable[[], bytes]:
    def read() -> bytes:
        log.append(name)
        return name.encode()

    return read


def test_what_was_not_used_for_the_longest_time_is_dropped() -> None:
    cache, log = DeleteCache[bytes](6, len), list[str]()

    def get(name: str) -> None:
        assert cache.get(name, reading(name, log)) == name.encode()

    for name in ("aa", "bb", "cc", "aa", "dd", "aa", "cc", "bb"):
        get(name)
    assert log == ["aa", "bb", "cc", "dd", "bb"]


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache, log = DeleteCache[bytes](6, len), list[str]()
    for name in ("aa", "much too long", "much too long", "aa"):
        cache.get(name, reading(name, log))
    assert log == ["aa", "much too long", "much too long"]
