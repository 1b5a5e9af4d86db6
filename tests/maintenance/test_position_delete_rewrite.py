"""Files of position deletes become few, or vectors, and no reader sees another row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil import Client, Table
from frazil.client.rows.row_removal import write_grouped_deletes
from frazil.maintenance import (
    convert_equality_deletes,
    rewrite_data_files,
    rewrite_position_delete_files,
)
from frazil.maintenance.position_delete_rewrite import DeleteRewriteResult
from frazil.wire.errors import BadRequest
from frazil.wire.scan_planning import PlannedDeleteFile
from tests.maintenance.conftest import during_the_rewrite, equality_delete, everything, rows
from tests.maintenance.test_equality_conversion import stock_rows
from tests.support.server import RunningServer

BY_PARTITION = {"write.delete.granularity": "partition"}
GONE = (3, 7, 14, 25, 31, 32, 48)


def with_deletes(
    client: Client, new_table: Callable[..., Table], **properties: str
) -> tuple[Table, dict[int, str]]:
    """Create a table of version 2 with seven files of position deletes, and return its rows."""
    table = new_table(2, **BY_PARTITION, **properties)
    for id in GONE:
        client.delete(table.identifier, f"id in ({id}, {id + 1})")
    gone = {each for id in GONE for each in (id, id + 1)}
    return client.load_table(table.identifier), everything(*gone)


def delete_files(client: Client, table: Table) -> dict[tuple[str, int | None], PlannedDeleteFile]:
    tasks = client.load_table(table.identifier).plan(all_deletes=True).tasks
    return {
        (file.file_path, file.content_offset): file for task in tasks for file in task.delete_files
    }


def total(client: Client, table: Table, name: str) -> int:
    return int(client.load_table(table.identifier).snapshot("main").summary[f"total-{name}"])


@pytest.mark.parametrize(("granularity", "files"), [("partition", 1), ("file", 5)])
def test_small_delete_files_become_few(
    client: Client,
    new_table: Callable[..., Table],
    catalog: RunningServer,
    granularity: str,
    files: int,
) -> None:
    table, expected = with_deletes(client, new_table)
    assert total(client, table, "delete-files") == len(GONE)
    client.set_properties(table.identifier, {"write.delete.granularity": granularity})
    planned = rewrite_position_delete_files(table, dry_run=True)
    assert (planned.rewritten_delete_files_count, planned.dry_run) == (len(GONE), True)
    assert total(client, table, "delete-files") == len(GONE)
    result = rewrite_position_delete_files(table)
    assert result.rewritten_delete_files_count == len(GONE)
    assert result.added_delete_files_count == files
    assert result.rewritten_bytes_count == planned.rewritten_bytes_count
    assert result.added_bytes_count > 0
    assert total(client, table, "delete-files") == files
    assert client.load_table(table.identifier).snapshot("main").summary["operation"] == "replace"
    assert rows(client, table) == expected
    assert stock_rows(catalog, table) == [expected, expected]
    assert rewrite_position_delete_files(table) == DeleteRewriteResult()


def test_dangling_rows_are_dropped(client: Client, new_table: Callable[..., Table]) -> None:
    table, expected = with_deletes(client, new_table)
    before = total(client, table, "position-deletes")
    client.delete_files(table.identifier, row_filter="id >= 30 and id < 40")
    expected = {id: item for id, item in expected.items() if not 30 <= id < 40}
    assert rows(client, table) == expected
    rewrite_position_delete_files(table, options={"rewrite-all": "true"})
    assert total(client, table, "position-deletes") < before
    assert {file.record_count for file in delete_files(client, table).values()} == {10}
    assert rows(client, table) == expected


@pytest.mark.parametrize("deletes", [{}, {"id": 20}])
def test_version_3_gets_vectors(
    client: Client, new_table: Callable[..., Table], catalog: RunningServer, deletes: dict[str, int]
) -> None:
    table, expected = with_deletes(client, new_table)
    client.change_metadata(
        table.identifier,
        lambda _: ([{"action": "upgrade-format-version", "format-version": 3}], []),
    )
    for id in deletes.values():
        # A file with a vector has no position deletes, because its vector includes them.
        client.delete(table.identifier, f"id = {id}")
        del expected[id]
    result = rewrite_position_delete_files(table)
    assert result.added_delete_files_count == 5 - (1 if deletes else 0)
    files = delete_files(client, table)
    assert {file.file_format for file in files.values()} == {"puffin"}
    assert total(client, table, "delete-files") == len(files) == 5
    assert rows(client, table) == expected
    assert stock_rows(catalog, table) == [expected, expected]
    assert rewrite_position_delete_files(table) == DeleteRewriteResult()


def test_options_choose_files(client: Client, new_table: Callable[..., Table]) -> None:
    table, expected = with_deletes(client, new_table)
    assert rewrite_position_delete_files(table, options={"min-input-files": "8"}) == (
        DeleteRewriteResult()
    )
    assert rewrite_position_delete_files(table, where="id > 900") == DeleteRewriteResult()
    result = rewrite_position_delete_files(
        table, options={"rewrite-all": "true", "max-files-to-rewrite": "3"}
    )
    assert (result.rewritten_delete_files_count, result.added_delete_files_count) == (3, 1)
    with pytest.raises(BadRequest, match=r"options\.min-input-file: it is not an option"):
        rewrite_position_delete_files(table, options={"min-input-file": "1"})
    with pytest.raises(BadRequest, match="target-file-size-bytes: 5 must be above"):
        rewrite_position_delete_files(
            table, options={"target-file-size-bytes": "5", "min-file-size-bytes": "6"}
        )
    assert rows(client, table) == expected


@pytest.mark.parametrize("version", [2, 3])
def test_concurrent_commits_lose_nothing(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    table, expected = with_deletes(client, new_table)
    client.set_properties(table.identifier, {"write.delete.granularity": "file"})
    if version == 3:
        client.change_metadata(
            table.identifier,
            lambda _: ([{"action": "upgrade-format-version", "format-version": 3}], []),
        )

    def others() -> None:
        # Removes files, adds deletes to one, and compacts the rest.
        client.delete_files(table.identifier, row_filter="id >= 30 and id < 40")
        client.delete(table.identifier, "id = 20")
        rewrite_data_files(client.load_table(table.identifier), where="id < 20", options=ALL)

    during_the_rewrite(monkeypatch, others)
    rewrite_position_delete_files(table, options=ALL)
    expected = {id: item for id, item in expected.items() if not 30 <= id < 40 and id != 20}
    assert rows(client, table) == expected
    rewrite_position_delete_files(table, options=ALL)
    assert rows(client, table) == expected


def test_only_changed_partitions_are_written_again(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{namespace}.t"
    client.create_table(
        name,
        "id long, item string",
        partition_by=["item"],
        format_version=2,
        properties={"write.delete.mode": "merge-on-read", **BY_PARTITION},
    )
    for item in ("a", "b"):
        for start in (0, 5):
            client.append(name, [{"id": start + id, "item": item} for id in range(5)])
        for id in (1, 6):
            client.delete(name, f"item = '{item}' and id in ({id}, {id + 1})")
    written: list[Any] = []

    def noted(table: Table, groups: Any, folder: Any) -> Any:
        files = write_grouped_deletes(table, groups, folder)
        written.extend(file.partition[0] for file in files)
        return files

    monkeypatch.setattr("frazil.maintenance.position_delete_rewrite.write_grouped_deletes", noted)
    # A compaction removes one of the delete files.
    during_the_rewrite(
        monkeypatch,
        lambda: rewrite_data_files(
            client.load_table(name), where="item = 'a' and id < 3", options=ALL
        ),
    )
    before = client.scan(name).to_pylist()
    rewrite_position_delete_files(client.load_table(name), options=ALL)
    assert sorted(written) == ["a", "a", "b"]
    key = str
    assert sorted(client.scan(name).to_pylist(), key=key) == sorted(before, key=key)


ALL = {"rewrite-all": "true"}


@pytest.mark.parametrize("version", [2, 3])
def test_a_compaction_that_was_overtaken_keeps_the_deletes(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    table, expected = with_deletes(client, new_table)
    if version == 3:
        client.change_metadata(
            table.identifier,
            lambda _: ([{"action": "upgrade-format-version", "format-version": 3}], []),
        )

    def others() -> None:
        client.delete(table.identifier, "id = 20")
        equality_delete(client, table, 50)
        convert_equality_deletes(client.load_table(table.identifier))
        rewrite_position_delete_files(client.load_table(table.identifier), options=ALL)

    during_the_rewrite(monkeypatch, others)
    rewrite_data_files(client.load_table(table.identifier), options=ALL)
    del expected[20], expected[50]
    assert rows(client, table) == expected
