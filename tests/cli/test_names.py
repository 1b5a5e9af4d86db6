"""Names, partition values and numbers in input and output."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from frazil.cli.app import app
from frazil.cli.shared.printing import count_text, plain, size_text, time_text
from frazil.cli.shared.typed_names import BadName, namespace_name, table_and_ref, table_name
from frazil.cli.tables.commit_command import partition_of
from frazil.cli.tables.snapshot_text import change_text, total_text, writer_keys
from frazil.client.declare.client_table import Table
from frazil.wire.identifiers import Identifier


@pytest.mark.parametrize(
    ("text", "namespace", "name", "ref"),
    [
        ("shop.orders", ("shop",), "orders", None),
        ("a.b.t", ("a", "b"), "t", None),
        ("shop.orders@audit", ("shop",), "orders", "audit"),
        ("shop.orders@feature.x@2", ("shop",), "orders", "feature.x@2"),
        ('["a.b","t"]', ("a.b",), "t", None),
        ('["a", "b", "t@x"]@dev', ("a", "b"), "t@x", "dev"),
        ('["a]","t"]@[x]', ("a]",), "t", "[x]"),
    ],
)
def test_a_table_is_named(text: str, namespace: Any, name: str, ref: str | None) -> None:
    assert table_and_ref(text) == (Identifier(namespace, name), ref)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders", "is not a table name"),
        ("shop.orders@", "ends with @"),
        ('["a"', "is not one"),
        ('["a", 1]', "JSON array of texts"),
        ('["a","b"]x', "after the JSON array"),
        ('["t"]', "is not a table name"),
    ],
)
def test_what_names_no_table_is_told_how(text: str, message: str) -> None:
    with pytest.raises(BadName, match=message):
        table_and_ref(text)


@pytest.mark.parametrize("text", ["a..t", ".t", "a.", '["","t"]'])
def test_an_empty_level_is_refused(text: str) -> None:
    with pytest.raises(BadName, match="is empty"):
        table_name(text)


def test_a_namespace_is_named() -> None:
    assert namespace_name("a.b") == ("a", "b")
    assert namespace_name('["a.b"]') == ("a.b",)
    with pytest.raises(BadName, match="is empty"):
        namespace_name("a..b")


def table_with(*fields: tuple[str, str, str]) -> Table:
    """Return a table partitioned by columns of these types and transforms."""
    columns = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind, _) in enumerate(fields, 1)
    ]
    parts = [
        {"source-id": number, "field-id": 999 + number, "name": name, "transform": transform}
        for number, (name, _, transform) in enumerate(fields, 1)
    ]
    metadata = {
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": columns}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": parts}],
    }
    return Table(Identifier(("a",), "t"), metadata, "file:///m.json")


@pytest.mark.parametrize(
    ("kind", "transform", "text", "value"),
    [
        ("long", "identity", "-7", -7),
        ("int", "bucket[16]", "3", 3),
        ("string", "identity", "a=b", "a=b"),
        ("string", "identity", "", ""),
        ("string", "identity", "null", None),
        ("string", "identity", '"null"', "null"),
        ("string", "truncate[2]", "ab", "ab"),
        ("boolean", "identity", "false", False),
        ("double", "identity", "0.5", 0.5),
        ("date", "identity", "2026-05-01", "2026-05-01"),
        ("timestamp", "day", "2026-05-01", "2026-05-01"),
        ("timestamp", "year", "2026", 56),
        ("timestamp", "month", "2026-05", 676),
        ("timestamp", "hour", "1970-01-02-01", 25),
        ("decimal(9, 2)", "identity", "14.20", "14.20"),
    ],
)
def test_a_partition_value_is_read_as_it_is_printed(
    kind: str, transform: str, text: str, value: object
) -> None:
    found = partition_of(table_with(("p", kind, transform)), [f"p={text}"])
    assert found == {"p": value}
    assert found is not None
    assert type(found["p"]) is type(value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["p"], "write it as name=value"),
        (["q=1"], "'q' is not a partition field; known are p"),
        (["p=1", "p=2"], "p appears twice"),
        (["p=x"], "invalid literal for int"),
    ],
)
def test_a_wrong_partition_value_is_named(given: list[str], message: str) -> None:
    with pytest.raises(BadName, match=message):
        partition_of(table_with(("p", "long", "identity")), given)


@pytest.mark.parametrize(
    ("transform", "text", "message"),
    [("month", "2026-13", "2026-05"), ("hour", "2026-05-01", "12"), ("year", "x", "int")],
)
def test_a_wrong_time_is_named(transform: str, text: str, message: str) -> None:
    with pytest.raises(BadName, match=message):
        partition_of(table_with(("p", "timestamp", transform)), [f"p={text}"])


def test_no_partition_is_none() -> None:
    assert partition_of(table_with(("p", "long", "identity")), []) is None


def test_numbers_are_readable() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 20)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
    ]
    assert count_text(1, "row") == "1 row"
    assert count_text(12_000, "row") == "12,000 rows"
    assert time_text(1_777_636_800_042) == "2026-05-01 12:00:00.042Z"
    assert time_text(-1) == "1969-12-31 23:59:59.999Z"


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    assert plain("a\x1b[2Jb\r\n\x9b ü 日本 [x]") == "a\\x1b[2Jb\\r\\n\\x9b ü 日本 [x]"


@pytest.mark.parametrize(
    ("arguments", "add", "remove"),
    [
        (["a.t", "--add", "x", "y", "--remove", "z"], ["x", "y"], ["z"]),
        (["a.t", "--remove", "z", "w", "--add", "x", "--stage-only"], ["x"], ["z", "w"]),
        (["a.t", "--add", "x", "--add", "y", "--branch", "b"], ["x", "y"], None),
        (["a.t", "--add=-x", "--remove", "z"], ["-x"], ["z"]),
        (["--add", "x", "a.t"], ["x"], None),
        (["--add", "x", "--remove", "z", "a.t"], ["x"], ["z"]),
    ],
)
def test_several_files_may_follow_an_option(
    arguments: list[str], add: list[str], remove: list[str] | None
) -> None:
    command = get_command(app).commands["commit"]  # type: ignore[attr-defined]
    given = command.make_context("commit", arguments).params
    assert given["table"] == "a.t"
    assert (given["add"] or [], given["remove"] or []) == (add, remove or [])


def test_an_option_without_files_is_a_usage_error() -> None:
    for arguments in (["a.t", "--add"], ["a.t", "x", "--add", "y"]):
        assert CliRunner().invoke(app, ["commit", *arguments]).exit_code == 2


def test_a_summary_in_words() -> None:
    summary = {
        "operation": "overwrite",
        "added-data-files": "2",
        "added-records": "10",
        "added-files-size": "2048",
        "deleted-data-files": "1",
        "removed-delete-files": "3",
        "removed-files-size": "x",
        "total-data-files": "5",
        "total-delete-files": "0",
        "total-records": "50",
        "partitions.day=1": "added-data-files=2",
        "wap.id": "load-1",
        "replace-partitions": "true",
    }
    assert change_text(summary) == [
        "+ 2 data files, 10 rows, 2.0 KiB",
        "- 1 data file, 3 delete files",
    ]
    assert total_text(summary) == "5 data files, 50 rows"
    assert writer_keys(summary) == {"wap.id": "load-1", "replace-partitions": "true"}
    assert change_text({}) == []
    assert total_text({}) is None
