"""A listing that a client stores is what the server reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from frazil import Table
from frazil.housekeeping import file_lists
from frazil.maintenance.stored_file_list import stored_file_list
from frazil.store.local_store import LocalStore


def test_the_server_reads_what_the_client_has_stored(new_table: Callable[..., Table]) -> None:
    files = [(f"s3://b/t/data/ü\n{number}-{'x' * 200}", None, number) for number in range(60_000)]
    with stored_file_list(new_table(2), iter(files)) as location:
        read = list(file_lists.stored_file_list(LocalStore(), location))
        parts = list(Path(location.removeprefix("file://")).iterdir())
        assert read == files
        assert len(parts) == 2
        assert all(part.stat().st_size < file_lists.MAX_BYTES for part in parts)


def test_the_stored_listing_is_deleted_whatever_happens(new_table: Callable[..., Table]) -> None:
    with (
        pytest.raises(RuntimeError),
        stored_file_list(new_table(2), [("/a", 1, None)]) as location,
    ):
        assert Path(location.removeprefix("file://")).is_dir()
        raise RuntimeError
    assert not Path(location.removeprefix("file://")).exists()
