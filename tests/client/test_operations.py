"""Each operation sends the clauses of its Java class, and a real catalog checks them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from frazil import Client, CommitFailed, Once, Table, ValidationError
from frazil.client.declare.file_operations import Command
from frazil.wire.declared_content import DeclaredDataFile, EqualityDeleteFile, PositionDeleteFile
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import FileUpdate, Overwrite
from tests.client.conftest import BY_DAY, Declaring, NewTable, declared

COMMANDS: tuple[Command, ...] = ("delete", "update", "merge")
ID_5 = {"type": "eq", "term": "id", "value": 5}


def clauses(update: FileUpdate) -> list[dict[str, Any]]:
    validations = msgspec.to_builtins(msgspec.json.decode(msgspec.json.encode(update.validations)))
    return list(validations)


def position_deletes(
    table: Table, name: str, of: DeclaredDataFile | None = None
) -> PositionDeleteFile:
    return PositionDeleteFile(
        spec_id=0,
        partition=(),
        file_path=f"{table.location}/data/{name}.parquet",
        file_format="parquet",
        file_size_in_bytes=10,
        record_count=1,
        referenced_data_file=None if of is None else of.file_path,
    )


# --- misspelled options and wrong files ---------------------------------------------------------


def test_a_misspelled_option_commits_nothing(new_table: NewTable) -> None:
    table = new_table()
    file = declared(table, "a")
    for options, hint in (
        ({"brnach": "audit"}, "'brnach' is not an option; did you mean 'branch'?"),
        ({"stage_olny": True}, "did you mean 'stage_only'?"),
        ({"base_snapshot_id": None}, "'base_snapshot_id' is not an option; the options are branch"),
    ):
        with pytest.raises(TypeError, match=re.escape(hint)):
            table.append_files([file], **cast(Any, options))
    changes: list[Callable[..., object]] = [
        table.delete_files,
        table.overwrite_files,
        table.row_delta,
        table.rewrite_files,
        table.replace_partitions,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="did you mean 'isolation'"):
            change([file], isolaton="snapshot")
    assert not table.refreshed().snapshots


def test_files_are_a_list_of_paths_or_files(new_table: NewTable) -> None:
    table = new_table()
    with pytest.raises(TypeError, match=r"files: give a list of files, as in \['/x.parquet'\]"):
        table.append_files("/x.parquet")
    with pytest.raises(TypeError, match="not Table; append, overwrite and upsert take rows"):
        table.append_files(cast(Any, [pa.table({"id": [1]})]))


# --- which clauses ------------------------------------------------------------------------------


def test_an_append_carries_no_clause_and_no_base(new_table: NewTable) -> None:
    table = new_table()
    update = Declaring(table).append_files([declared(table, "a")])
    assert clauses(update) == []
    assert update.base_snapshot_id is None


def test_a_delete_requires_the_files_that_it_names(new_table: NewTable) -> None:
    table = new_table()
    update = Declaring(table).delete_files(["a", declared(table, "b")])
    paths = ["a", declared(table, "b").file_path]
    assert clauses(update) == [{"type": "required-data-files", "file-paths": paths}]
    by_filter = Declaring(table).delete_files(row_filter="id = 5")
    assert clauses(by_filter) == []
    assert by_filter.base_snapshot_id is None


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_an_overwrite_by_path(new_table: NewTable, isolation: str) -> None:
    table = new_table()
    update = Declaring(table).overwrite_files(
        [declared(table, "new")], ["old"], isolation=isolation
    )
    added = [{"type": "not-allowed-added-data-files"}] if isolation == "serializable" else []
    assert clauses(update) == [
        *added,
        {"type": "required-data-files", "file-paths": ["old"]},
        {"type": "not-allowed-new-deletes-for-data-files", "file-paths": ["old"]},
    ]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_an_overwrite_by_filter_is_scoped_by_it(new_table: NewTable, isolation: str) -> None:
    table = new_table()
    update = Declaring(table).overwrite_files(
        [declared(table, "new")], row_filter="id = 5", isolation=isolation
    )
    added = (
        [{"type": "not-allowed-added-data-files", "filter": ID_5}]
        if isolation == "serializable"
        else []
    )
    assert clauses(update) == [
        *added,
        {"type": "not-allowed-added-delete-files", "filter": ID_5},
        {"type": "required-data-files", "filter": ID_5},
    ]


def test_a_conflict_filter_wins_over_the_row_filter(new_table: NewTable) -> None:
    table = new_table()
    update = Declaring(table).overwrite_files(
        remove=["old"], row_filter="id > 0", conflict_filter="id = 5"
    )
    assert [clause.get("filter") for clause in clauses(update)] == [ID_5, ID_5, ID_5, None, ID_5]


def test_a_row_delta_of_a_delete_lets_other_deletes_remove_its_files(new_table: NewTable) -> None:
    table = new_table()
    data = declared(table, "a")
    update = Declaring(table).row_delta(
        add_deletes=[position_deletes(table, "d", data)], referenced_data_files=["other"]
    )
    assert clauses(update) == [
        {
            "type": "required-data-files",
            "file-paths": [data.file_path, "other"],
            "allowed-remove-operations": ["DELETE"],
        },
        {"type": "not-allowed-added-data-files"},
    ]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_row_delta_of_an_update(new_table: NewTable, isolation: str) -> None:
    table = new_table()
    data = declared(table, "a")
    update = Declaring(table).row_delta(
        [declared(table, "new")],
        [position_deletes(table, "d", data)],
        remove_data=["gone"],
        remove_deletes=[position_deletes(table, "old")],
        isolation=isolation,
        conflict_filter="id = 5",
    )
    added = (
        [{"type": "not-allowed-added-data-files", "filter": ID_5}]
        if isolation == "serializable"
        else []
    )
    old = position_deletes(table, "old").file_path
    assert clauses(update) == [
        {"type": "required-data-files", "file-paths": [data.file_path]},
        {"type": "required-data-files", "file-paths": ["gone"]},
        {"type": "not-allowed-new-deletes-for-data-files", "file-paths": ["gone"]},
        {"type": "required-delete-files", "file-paths": [old]},
        {"type": "not-allowed-added-delete-files", "filter": ID_5},
        *added,
    ]


def test_a_rewrite_checks_the_same_at_every_isolation_level(new_table: NewTable) -> None:
    table = new_table()
    expected = [
        {"type": "required-data-files", "file-paths": ["a"]},
        {"type": "not-allowed-new-deletes-for-data-files", "file-paths": ["a"]},
        {"type": "required-delete-files", "file-paths": ["d"]},
    ]
    for isolation in ("serializable", "snapshot"):
        update = Declaring(table).rewrite_files(["a"], remove_deletes=["d"], isolation=isolation)
        assert clauses(update) == expected


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_replaced_partitions(new_table: NewTable, isolation: str) -> None:
    table = new_table(spec=BY_DAY)
    update = Declaring(table).replace_partitions(
        [declared(table, "a", "2026-05-01")], isolation=isolation
    )
    added = [{"type": "not-allowed-added-data-files"}] if isolation == "serializable" else []
    assert clauses(update) == [
        *added,
        {"type": "required-data-files"},
        {"type": "not-allowed-added-delete-files"},
    ]
    assert isinstance(update, Overwrite)
    assert update.replace_partitions


@pytest.mark.parametrize("command", COMMANDS)
def test_isolation_is_read_from_the_property_of_the_command(
    new_table: NewTable, command: Any
) -> None:
    table = new_table(properties={f"write.{command}.isolation-level": "SNAPSHOT"})
    for asked in COMMANDS:
        update = Declaring(table).overwrite_files([declared(table, "n")], ["o"], command=asked)
        types = {clause["type"] for clause in clauses(update)}
        assert ("not-allowed-added-data-files" in types) == (asked != command)


def test_an_unknown_isolation_level_names_where_it_stands(new_table: NewTable) -> None:
    table = new_table(properties={"write.update.isolation-level": "snapshot"})
    # The server accepts such a value only in a registered table.
    table.metadata["properties"]["write.update.isolation-level"] = "dirty"
    with pytest.raises(BadRequest, match=r"write\.update\.isolation-level: 'dirty'"):
        Declaring(table).overwrite_files([declared(table, "n")])
    with pytest.raises(BadRequest, match=r"^isolation: 'none'"):
        Declaring(table).overwrite_files(remove=["o"], isolation="none")


# --- against a catalog --------------------------------------------------------------------------


def test_all_six_operations_on_one_table(client: Client, new_table: NewTable) -> None:
    name = new_table(spec=BY_DAY).identifier
    day, other = "2026-05-01", "2026-05-02"
    table = client.load_table(name)
    first, second = declared(table, "a", day, rows=9), declared(table, "b", other, rows=9)
    assert client.append_files(name, [first, second]).operation == "append"

    table = client.load_table(name)
    third = declared(table, "c", day, rows=9)
    assert table.overwrite_files([third], [first]).operation == "overwrite"

    table = client.load_table(name)
    deletes = EqualityDeleteFile(
        spec_id=0,
        partition=(other,),
        file_path=f"{table.location}/data/eq.parquet",
        file_format="parquet",
        file_size_in_bytes=10,
        record_count=1,
        equality_ids=(1,),
    )
    assert table.row_delta([], [deletes]).operation == "delete"

    table = client.load_table(name)
    fourth = declared(table, "d", other, rows=8)
    rewritten = table.rewrite_files([second], [fourth], remove_deletes=[deletes])
    assert rewritten.operation == "replace"

    table = client.load_table(name)
    fifth = declared(table, "e", other)
    assert table.replace_partitions([fifth]).operation == "overwrite"
    assert client.delete_files(name, [third]).operation == "delete"
    assert client.delete_files(name, row_filter=f"day = '{other}'").operation == "delete"
    snapshots = client.history(name)
    assert len(snapshots) == 7
    assert snapshots[0].summary["total-data-files"] == "0"
    assert [found.operation for found in reversed(snapshots)] == [
        "append",
        "overwrite",
        "delete",
        "replace",
        "overwrite",
        "delete",
        "delete",
    ]


def test_serializable_refuses_what_snapshot_isolation_lets_pass(
    client: Client, new_table: NewTable
) -> None:
    table = new_table()
    client.append_files(table, [declared(table, "a"), declared(table, "b")])
    read = client.load_table(table.identifier)
    client.append_files(table, [declared(table, "meanwhile")])
    with pytest.raises(ValidationError) as refused:
        read.overwrite_files([declared(table, "a2")], [declared(table, "a")])
    (conflict,) = refused.value.conflicts
    assert conflict["clause"] == "not-allowed-added-data-files"
    assert [file["file-path"] for file in conflict["files"]] == [
        declared(table, "meanwhile").file_path
    ]
    replaced = read.overwrite_files(
        [declared(table, "a2")], [declared(table, "a")], isolation="snapshot"
    )
    assert replaced.attempts == 1


def test_a_conflict_filter_lets_disjoint_writers_pass(client: Client, new_table: NewTable) -> None:
    table = new_table(spec=BY_DAY)
    mondays, tuesdays = "2026-05-04", "2026-05-05"
    client.append_files(table, [declared(table, "m", mondays), declared(table, "t", tuesdays)])
    read = client.load_table(table.identifier)
    client.append_files(table, [declared(table, "t2", tuesdays)])
    overwritten = read.overwrite_files(
        [declared(table, "m2", mondays)],
        [declared(table, "m", mondays)],
        conflict_filter=f"day = '{mondays}'",
    )
    assert overwritten.operation == "overwrite"
    stale = client.load_table(table.identifier)
    client.append_files(table, [declared(table, "m3", mondays)])
    with pytest.raises(ValidationError):
        stale.replace_partitions([declared(table, "m4", mondays)])
    assert stale.replace_partitions([declared(table, "t3", tuesdays)]).snapshot_id is not None


def test_the_base_is_what_was_read_unless_it_is_given(client: Client, new_table: NewTable) -> None:
    table = new_table()
    first = client.append_files(table, [declared(table, "a")])
    client.append_files(table, [declared(table, "b")])
    now = client.load_table(table.identifier)
    with pytest.raises(ValidationError):
        now.overwrite_files(
            [declared(table, "a2")], [declared(table, "a")], base_snapshot_id=first.snapshot_id
        )
    with pytest.raises(ValidationError):
        now.overwrite_files([declared(table, "a2")], [declared(table, "a")], base_snapshot_id=None)
    assert now.overwrite_files([declared(table, "a2")], [declared(table, "a")]).snapshots


def test_branches_summaries_and_staging(client: Client, new_table: NewTable) -> None:
    table = new_table()
    main = client.append_files(table, [declared(table, "a")], summary={"app": "etl"})
    dev = client.append_files(table, [declared(table, "b")], branch="dev")
    staged = client.append_files(
        table, [declared(table, "c")], stage_only=True, summary={"wap.id": "w1"}
    )
    loaded = client.load_table(table.identifier)
    assert loaded.head() == main.snapshot_id
    assert loaded.head("dev") == dev.snapshot_id
    assert loaded.snapshot("dev").parent_snapshot_id == main.snapshot_id
    assert loaded.snapshot("main").summary["app"] == "etl"
    assert staged.snapshot_id is not None
    published = client.cherry_pick(table, staged.snapshot_id)
    assert client.load_table(table.identifier).head() == published.snapshot_id


def test_an_epoch_is_committed_once(client: Client, new_table: NewTable) -> None:
    table = new_table()
    first = client.append_files(table, [declared(table, "a")], once=Once("stream", 1))
    again = client.append_files(table, [declared(table, "a2")], once=Once("stream", 1))
    assert not first.already_committed
    assert again.already_committed
    assert again.snapshot_id == first.snapshot_id
    assert len(client.history(table.identifier)) == 1


def test_a_table_that_was_made_anew_is_not_written_to(client: Client, new_table: NewTable) -> None:
    table = new_table()
    client.drop_table(table.identifier)
    client.create_table(table.identifier, {"type": "struct", "fields": []})
    with pytest.raises(CommitFailed, match=r"uuid|UUID"):
        table.append_files([declared(table, "a")])
    with pytest.raises(BadRequest, match="another table now"):
        table.create_tag("v1")


def test_a_table_without_a_client_only_tells(new_table: NewTable) -> None:
    loaded = new_table()
    alone = Table(loaded.identifier, loaded.metadata, loaded.metadata_location)
    with pytest.raises(BadRequest, match="not loaded by a client"):
        alone.append_files([declared(alone, "a")])
