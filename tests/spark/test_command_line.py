"""`frazil spark` runs files and statements, here on the Spark of the test run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner, Result

from frazil.cli.app import app
from frazil.cli.shared.typed_names import BadName
from frazil.cli.spark.file_rows import Source, format_of, on_condition
from frazil.cli.spark.sql_command import json_value, statements_in
from frazil.client.catalog_client import Client

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession, server_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command; the shared Spark survives the command."""
    monkeypatch.setattr("frazil.spark.runtime.local_spark.local_spark", lambda settings: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)

    def typed(*words: str, code: int = 0) -> Result:
        done = CliRunner().invoke(app, ["spark", *words, "--uri", server_url])
        assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
        return done

    return typed


def answer(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def select(run: Run, text: str) -> list[dict[str, Any]]:
    (result,) = answer(run("sql", text, "-o", "json"))["results"]
    rows: list[dict[str, Any]] = result["rows"]
    return rows


def files_below(client: Client, name: str) -> set[Path]:
    location = client.load_table(name).location.removeprefix("file://")
    return {path for path in Path(location, "data").rglob("*") if path.is_file()}


def test_files_are_loaded_created_and_appended(run: Run, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.orders"
    first = tmp_path / "first.csv"
    first.write_text("id,day,note\n1,2026-05-01,a\n2,2026-05-02,\n")
    load = ["load", "--table", table]
    refused = run(*load, str(first), code=1)
    assert "does not exist" in refused.stderr
    done = answer(
        run(
            *load,
            str(first),
            *("--create", "--partitioned-by", "day(day)", "--property", "format-version=3"),
            *("-o", "json"),
        )
    )
    assert (done["operation"], done["rows-written"], done["files-added"]) == ("create", 2, 2)
    # The columns have another order, and their types come from the table, not from the values.
    second = tmp_path / "second.jsonl.gz"
    second.write_bytes(gzip.compress(b'{"note": "7", "id": 3, "day": "2026-05-02"}\n'))
    said = run(*load, str(second)).stdout
    assert "(append), on main" in said
    assert "+ 1 row, 1 file" in said
    third = tmp_path / "third.parquet"
    pq.write_table(pa.table({"id": [4], "extra": ["x"]}), third)
    assert "extra" in run(*load, str(third), code=1).stderr
    run(*load, str(third), "--merge-schema")
    assert select(
        run, f"SELECT id, CAST(day AS STRING) AS day, note, extra FROM {table} ORDER BY 1"
    ) == [
        {"id": 1, "day": "2026-05-01", "note": "a", "extra": None},
        {"id": 2, "day": "2026-05-02", "note": None, "extra": None},
        {"id": 3, "day": "2026-05-02", "note": "7", "extra": None},
        {"id": 4, "day": None, "note": None, "extra": "x"},
    ]


def test_what_was_there_is_replaced(run: Run, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.t"
    run("sql", f"CREATE TABLE {table} (id INT, part STRING) PARTITIONED BY (part)")
    run("sql", f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    source = tmp_path / "new.tsv"
    source.write_text("part\tid\nb\t3\n")
    run("load", str(source), "--table", table, "--mode", "overwrite-partitions")
    wanted = [{"id": 1, "part": "a"}, {"id": 3, "part": "b"}]
    assert select(run, f"SELECT id, part FROM {table} ORDER BY id") == wanted
    run("load", str(source), "--table", table, "--mode", "overwrite")
    assert select(run, f"SELECT id, part FROM {table}") == wanted[1:]


def test_a_value_that_does_not_fit_is_an_error(
    run: Run, namespace: str, tmp_path: Path, client: Client
) -> None:
    table = f"{namespace}.t"
    run("sql", f"CREATE TABLE {table} (id INT)")
    source = tmp_path / "bad.csv"
    source.write_text("id\n1\nseven\n")
    refused = run("load", str(source), "--table", table, code=1)
    assert refused.stdout == ""
    assert "seven" in refused.stderr
    assert client.load_table(table).snapshots == ()
    assert files_below(client, table) == set()


def test_rows_of_files_are_merged(run: Run, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.t"
    run(
        "sql",
        f"CREATE TABLE {table} (id BIGINT, n INT, note STRING) TBLPROPERTIES"
        " ('format-version' = '3', 'write.merge.mode' = 'merge-on-read');"
        f"INSERT INTO {table} VALUES (1, 10, 'kept; as it is'), (2, 20, 'x'), (3, 30, 'y')",
    )
    source = tmp_path / "news.csv"
    source.write_text("id,n,gone\n1,11,false\n2,0,true\n9,90,false\n")
    merge = ["merge", "--source", str(source), "--table", table, "--on", "id"]
    done = answer(run(*merge, "--delete-when", "source.gone = 'true'", "-o", "json"))
    assert (done["operation"], done["mode"]) == ("merge", "merge-on-read")
    assert select(run, f"SELECT * FROM {table} ORDER BY id") == [
        {"id": 1, "n": 11, "note": "kept; as it is"},
        {"id": 3, "n": 30, "note": "y"},
        {"id": 9, "n": 90, "note": None},
    ]
    run(*merge, "--no-update", "--no-insert", "--delete-missing", "--mode", "copy-on-write")
    assert [row["id"] for row in select(run, f"SELECT id FROM {table} ORDER BY id")] == [1, 9]
    assert "disabled" in run(*merge, "--no-update", "--no-insert", code=2).stderr


def test_a_dry_run_says_what_would_be_sent_and_leaves_nothing(
    run: Run, namespace: str, tmp_path: Path, client: Client
) -> None:
    table = f"{namespace}.t"
    run("sql", f"CREATE TABLE {table} (id BIGINT); INSERT INTO {table} VALUES (1), (2)")
    before = client.load_table(table).metadata_location, files_below(client, table)
    source = tmp_path / "more.json"
    source.write_text('{"id": 2}\n{"id": 3}\n')
    for words in (
        ["load", str(source), "--table", table],
        ["merge", "--source", str(source), "--table", table, "--on", "id"],
        ["sql", f"DELETE FROM {table} WHERE id = 1"],
    ):
        kept = answer(run(*words, "--dry-run", "-o", "json"))
        assert kept["method"] == "POST"
        assert kept["path"].endswith(f"/namespaces/{namespace}/tables/t")
        assert kept["body"]["updates"]
    created = ["load", str(source), "--table", f"{namespace}.new", "--create", "--dry-run"]
    assert "assert-create" in run(*created).stdout
    assert (client.load_table(table).metadata_location, files_below(client, table)) == before
    assert not client.table_exists(f"{namespace}.new")


def test_a_table_that_is_not_there_is_told_before_spark_starts(
    run: Run, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.spark.runtime.local_spark.local_spark", None)
    for words in (["load", "x.csv"], ["merge", "--source", "x.csv", "--on", "id"]):
        refused = run(*words, "--table", f"{namespace}.none", code=1)
        assert f"{namespace}.none" in refused.stderr


def test_rows_are_printed_up_to_the_limit(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "two.sql"
    script.write_text("-- first; only\nSELECT ';' AS a;\n\nSELECT id FROM range(5);")
    done = run("sql", "-f", str(script), "--limit", "2")
    assert [line.strip() for line in done.stdout.splitlines()] == ["a", ";", "id", "0", "1"]
    assert "the first 2 rows" in done.stderr
    assert "either" in run("sql", code=2).stderr


def test_an_error_of_spark_is_one_message(run: Run, server_url: str) -> None:
    refused = run("sql", "SELECT nothing FROM range(1)", "-o", "json", code=1)
    message = json.loads(refused.stderr)["error"]["message"]
    assert "nothing" in message
    assert "JVM stacktrace" not in message
    assert "\n'Project" not in message


# --- without Spark --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "format"),
    [
        (["a.csv"], "csv"),
        (["a.TSV", "b.csv.gz"], "csv"),
        (["x/y.jsonl"], "json"),
        (["part-0.snappy.parquet", "p.parquet"], "parquet"),
    ],
)
def test_names_say_the_format(names: list[str], format: str) -> None:
    assert format_of(names) == format


@pytest.mark.parametrize("names", [["folder"], ["a.csv", "b.json"], ["a.gz"]])
def test_where_names_do_not_say_the_format_it_is_asked_for(names: list[str]) -> None:
    with pytest.raises(BadName, match="--format"):
        format_of(names)


def test_a_file_that_is_not_there(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="/not/there"):
        Source(("/not/there.csv",)).read(spark)


def test_statements_are_parted_at_semicolons_outside_of_strings_and_comments() -> None:
    text = "SELECT ';' ; -- a; b\n  INSERT INTO t VALUES (1) /* ; */;;\n"
    assert list(statements_in(text)) == [
        "SELECT ';'",
        "-- a; b\n  INSERT INTO t VALUES (1) /* ; */",
    ]


def test_keys_and_conditions() -> None:
    assert on_condition(("ID", "target.n > 1"), {"id", "n"}) == (
        "target.`ID` = source.`ID` AND (target.n > 1)"
    )
    with pytest.raises(BadName, match="no such column, only id, n"):
        on_condition(("idd",), {"id", "n"})


def test_values_become_json() -> None:
    given = {"a": Row(x=b"\x01", y=[None, True])}
    assert json_value(given) == {"a": {"x": "AQ==", "y": [None, True]}}
