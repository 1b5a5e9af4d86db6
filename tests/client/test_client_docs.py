"""What the documents show a client's user is run as it stands, and does what they say."""

from __future__ import annotations

import ast
import json
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

from scripts.java import ROOT
from tests.support.server import RunningServer, ServerFactory, clean_environment

FENCE = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
WITHOUT_ICEBERG = ROOT / "docs" / "write-without-iceberg.md"


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
        timeout=50,
        check=False,
    )
    shown = f"{command[-1]}\nended with {finished.returncode}:\n{finished.stdout}{finished.stderr}"
    assert finished.returncode == 0, shown
    return finished.stdout


def without_what_changes(value: Any) -> Any:
    """An answer without what is different in every run: ids, times and places."""
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
    """Runs the curl commands; each answer that the document shows beside the real one."""
    end = "--- the next block ---"
    shown: dict[int, Any] = {}
    commands: list[str] = []
    for block in blocks(WITHOUT_ICEBERG):
        if block.language == "sh":
            commands.append(block.text)
        elif block.language == "json":
            assert block.mark in ("answer", "part of the answer")
            shown[len(commands) - 1] = json.loads(block.text)
    session = "".join(f"{command}\necho '{end}'\n" for command in commands)
    environment = clean_environment({"FRAZIL_URI": running.url})
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


def python_without_frazil(directory: Path) -> tuple[list[str], dict[str, str]]:
    """A Python that has pyarrow beside its standard library and nothing else."""
    folder = directory / "only-pyarrow"
    folder.mkdir()
    package = Path(pyarrow.__file__).parent
    (folder / "pyarrow").symlink_to(package, target_is_directory=True)
    # -S: neither site-packages nor what is installed in place.
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
