"""The benchmark of declared files runs, and its files match their declarations."""

from __future__ import annotations

from benchmarks.declared_files import PATH_BYTES, TYPES, declared, measure


def test_every_step_of_a_declared_file_is_measured() -> None:
    measured, request_bytes, entry_bytes = measure(40, 1)
    steps = [one.step for one in measured]
    assert steps == ["decode", "check request", "check paths", "declare", "encode", "all"]
    assert all(one.files == 40 for one in measured)
    assert request_bytes > 40 * 1_000
    assert 40 * 400 < entry_bytes < request_bytes


def test_the_declared_files_are_those_of_the_aim() -> None:
    file = declared(7)
    assert len(file["file-path"]) == PATH_BYTES
    for name in ("column-sizes", "value-counts", "null-value-counts", "lower-bounds"):
        assert len(file[name]["values"]) == len(TYPES)
