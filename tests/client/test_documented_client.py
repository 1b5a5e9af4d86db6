"""The examples in the client's user guide run as documented."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client
from frazil.client.declare.client_table import Table
from frazil.wire.declared_content import DeclaredDataFile, PositionDeleteFile
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier
from scripts.java import ROOT
from tests.client.conftest import Declaring
from tests.support.patience import HANG_S
from tests.support.server import RunningServer, ServerFactory, clean_environment

FENCE = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
WITHOUT_ICEBERG = ROOT / "docs" / "write-without-iceberg.md"
GUIDE = ROOT / "docs" / "client.md"
COMMITS = ROOT / "docs" / "fine-grained-commits.md"


@dataclass(frozen=True)
class Block:
    language: str
    mark: str
    text: str


def blocks(document: Path) -> list[Block]:
    return [
        Block(match[1] or "", match[2].strip(), match[3])
        for match in FENCE.finditer(document.read_text())
    ]


def run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    finished = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    shown = f"{command[-1]}\nended with {finished.returncode}:\n{finished.stdout}{finished.stderr}"
    assert finished.returncode == 0, shown
    return finished.stdout


def without_what_changes(value: Any) -> Any:
    """Replace what differs in every run: ids, times and locations."""
    if isinstance(value, dict):
        return {name: without_what_changes(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_what_changes(item) for item in value]
    if isinstance(value, int) and value > 1_000_000_000:
        return "a large number"
    if isinstance(value, str):
        value = re.sub(r"\d{16,}", "<id>", value)
        value = re.sub(r"/orders-[0-9a-f]{8}/", "/orders-<id>/", value)
        value = re.sub(r"metadata/\d+-[^/]+", "metadata/<file>", value)
        return re.sub(r"file:///.*?/warehouse/|file:///warehouse/", "<warehouse>/", value)
    return value


def without_messages(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_messages(item) for name, item in value.items() if name != "message"}
    return [without_messages(item) for item in value] if isinstance(value, list) else value


@pytest.fixture
def running(server: ServerFactory) -> RunningServer:
    return server()


def play_the_session(running: RunningServer, directory: Path) -> list[tuple[Any, Any]]:
    """Run the curl commands and return each documented response with the real one."""
    end = "--- the next block ---"
    shown: dict[int, Any] = {}
    commands: list[str] = []
    for block in blocks(WITHOUT_ICEBERG):
        if block.language == "sh" and "frazil serve" not in block.text:
            commands.append(block.text)
        elif block.language == "json":
            assert block.mark in ("answer", "part of the answer")
            shown[len(commands) - 1] = json.loads(block.text)
    session = "".join(f"{command}\necho '{end}'\n" for command in commands)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = clean_environment({"FRAZIL_URI": running.url, "PATH": path})
    said = run(["bash", "-euo", "pipefail", "-c", session], directory, environment).split(end)
    return [(answer, json.loads(said[number])) for number, answer in shown.items()]


def test_curl_alone_is_enough(running: RunningServer, tmp_path: Path) -> None:
    compared = play_the_session(running, tmp_path)
    assert len(compared) == 4
    for shown, answered in compared:
        assert without_messages(without_what_changes(answered)) == without_what_changes(shown)
    assert "id = 5" in compared[2][1]["error"]["message"]
    keyed = [block.text for block in blocks(WITHOUT_ICEBERG) if "LOCATION=" in block.text]
    keyed += [block.text for block in blocks(WITHOUT_ICEBERG) if "'Idempotency-Key" in block.text]
    environment = clean_environment({"FRAZIL_URI": running.url})
    again = json.loads(run(["bash", "-euc", "".join(keyed)], tmp_path, environment))
    assert again["committed"] == compared[1][1]["committed"]


def test_a_file_without_field_ids_is_read_as_the_pages_say(
    running: RunningServer,
    tmp_path: Path,
    duckdb_connection: Callable[[], duckdb.DuckDBPyConnection],
) -> None:
    appended = play_the_session(running, tmp_path)[1][1]["committed"][0]["snapshot-id"]
    catalog = RestCatalog("docs", uri=running.url)

    def read_by_duckdb() -> Any:
        connection = duckdb_connection()
        connection.execute(
            f"ATTACH '' AS docs (TYPE iceberg, ENDPOINT '{running.url}', AUTHORIZATION_TYPE 'none')"
        )
        query = "SELECT count(*), count(id), count(item) FROM docs.shop.orders"
        return connection.execute(f"{query} AT (VERSION => {appended})").fetchone()

    assert read_by_duckdb() == (10, 10, 10)
    with catalog.load_table("shop.orders").transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(BadRequest, match=r"set the table's property schema\.name-mapping"):
        append_again(running, tmp_path)
    with catalog.load_table("shop.orders").transaction() as change:
        change.remove_properties("frazil.commit.verify-files")
    append_again(running, tmp_path)

    assert read_by_duckdb() == (10, 0, 0)
    (message,) = re.findall(r"PyIceberg fails \(`([^`…]+)…`\)", COMMITS.read_text())
    with pytest.raises(ValueError, match=message):
        catalog.load_table("shop.orders").scan().to_arrow()


def append_again(running: RunningServer, directory: Path) -> None:
    """Add the second file of the page, which has no field ids."""
    table = Client(running.url).load_table("shop.orders")
    path = f"{table.location}/data/five.parquet"
    size = (directory / "five.parquet").stat().st_size
    fields = {**FIELDS, "file_size_in_bytes": size}
    table.append_files([DeclaredDataFile(file_path=path, **fields)])


def python_without_frazil(directory: Path) -> tuple[list[str], dict[str, str]]:
    """Return a Python command and environment with pyarrow and the standard library only."""
    folder = directory / "only-pyarrow"
    folder.mkdir()
    package = Path(pyarrow.__file__).parent
    (folder / "pyarrow").symlink_to(package, target_is_directory=True)
    # -S disables site-packages and editable installs.
    return [sys.executable, "-S"], {"PYTHONPATH": str(folder)}


def test_thirty_lines_without_frazil_write_rows_that_everybody_reads(
    running: RunningServer,
    tmp_path: Path,
    duckdb_connection: Callable[[], duckdb.DuckDBPyConnection],
) -> None:
    play_the_session(running, tmp_path)
    (script,) = (block.text for block in blocks(WITHOUT_ICEBERG) if block.language == "python")
    assert len(script.splitlines()) <= 30
    python, variables = python_without_frazil(tmp_path)
    environment = clean_environment({**variables, "FRAZIL_URI": running.url})
    for absent in ("frazil", "pyiceberg", "msgspec", "urllib3"):
        look = f"import importlib.util as u; assert u.find_spec({absent!r}) is None"
        run([*python, "-c", look], tmp_path, environment)
    (tmp_path / "script.py").write_text(script)
    committed = ast.literal_eval(run([*python, "script.py"], tmp_path, environment))
    assert [made["operation"] for made in committed] == ["append"]

    rows = [(1, "apple"), (2, "pear"), (3, None)]
    table = RestCatalog("docs", uri=running.url).load_table("shop.orders")
    read = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["item"]) for row in read] == rows
    connection = duckdb_connection()
    connection.execute(
        f"ATTACH '' AS docs (TYPE iceberg, ENDPOINT '{running.url}', AUTHORIZATION_TYPE 'none')"
    )
    found = connection.execute("SELECT id, item FROM docs.shop.orders ORDER BY id").fetchall()
    assert found == rows


# --- the guide -------------------------------------------------------------------------------


def test_the_guide_does_what_it_says(running: RunningServer, tmp_path: Path) -> None:
    """Run all examples in order in one Python process, as a reader would."""
    examples = [block.text for block in blocks(GUIDE) if block.language == "python"]
    assert len(examples) >= 10
    script = tmp_path / "guide.py"
    # PyIceberg's SQL catalog needs a library that no extra of Frazil brings.
    script.write_text("\n".join(["import sys; sys.modules['sqlalchemy'] = None", *examples]))
    environment = clean_environment({"FRAZIL_URI": running.url})
    said = run([sys.executable, "-W", "ignore", str(script)], tmp_path, environment)
    for word in ("quince", "append 1", "not-allowed-added-data-files", "grape", "lemon", "melon"):
        assert word in said
    table = RestCatalog("docs", uri=running.url).load_table("shop.orders")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [5, 6, 8]
    assert set(table.refs()) == {"main", "audit", "may"}


def rows_of_the_table() -> list[tuple[str, str, str]]:
    text = GUIDE.read_text().split("| operation |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    return [(call, serializable, snapshot) for call, serializable, snapshot in rows]


def named_clauses(cell: str) -> list[str]:
    return re.findall(r"`([a-z-]+)`", cell)


OLD = "file:///data/old.parquet"
FIELDS: dict[str, Any] = {
    "spec_id": 0,
    "partition": (),
    "file_format": "parquet",
    "file_size_in_bytes": 1,
    "record_count": 1,
}
NEW = DeclaredDataFile(file_path="file:///data/new.parquet", **FIELDS)
DELETES = PositionDeleteFile(
    file_path="file:///data/deletes.parquet", referenced_data_file=OLD, **FIELDS
)
CALLS: dict[str, Callable[[Declaring, Any], Any]] = {
    "`append_files(files)`": lambda table, _: table.append_files([NEW]),
    "`delete_files(files)`": lambda table, options: table.delete_files([OLD], **options),
    "`delete_files(row_filter=…)`": (
        lambda table, options: table.delete_files(row_filter="id = 1", **options)
    ),
    "`overwrite_files(add, row_filter=…)`": (
        lambda table, options: table.overwrite_files([NEW], row_filter="id = 1", **options)
    ),
    "`overwrite_files(add, remove)`": (
        lambda table, options: table.overwrite_files([NEW], [OLD], **options)
    ),
    "`row_delta(add_deletes=…)`, a DELETE": (
        lambda table, options: table.row_delta(add_deletes=[DELETES], **options)
    ),
    "`row_delta(add_data, add_deletes)`, an UPDATE or MERGE": (
        lambda table, options: table.row_delta([NEW], [DELETES], **options)
    ),
    "`rewrite_files(remove_data, add_data)`": (
        lambda table, options: table.rewrite_files([OLD], [NEW], **options)
    ),
    "`replace_partitions(add)`": (
        lambda table, options: table.replace_partitions([NEW], **options)
    ),
}


def test_the_guide_lists_the_clauses_that_are_sent() -> None:
    rows = rows_of_the_table()
    assert [call for call, _, _ in rows] == list(CALLS)
    table = Declaring(Table(Identifier(("shop",), "orders"), {}, ""))
    for call, serializable, snapshot in rows:
        same = serializable if snapshot == "the same" else snapshot
        for isolation, cell in (("serializable", serializable), ("snapshot", same)):
            update = CALLS[call](table, {"isolation": isolation})
            clauses = getattr(update, "commit_validations", ())
            assert [_tag(clause) for clause in clauses] == named_clauses(cell), (call, isolation)


def _tag(clause: Any) -> str:
    return str(type(clause).__struct_config__.tag)
