"""The signing secret is generated once and is the same for every process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from frazil.db.base import SECRET_BYTES
from frazil.db.rows import Database


def test_a_secret_is_drawn_once(database: Database) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: database.secret("plans"), range(16)))
    assert len(found) == 1
    assert len(found.pop()) == SECRET_BYTES


def test_each_name_has_its_own(database: Database) -> None:
    assert database.secret("plans") != database.secret("other")
