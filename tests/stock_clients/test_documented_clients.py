"""The documentation page on clients matches the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from frazil.server.client_snippets import snippets
from frazil.settings import Settings
from scripts.jars import locked_jars
from scripts.java import ROOT
from tests.support.duck import EXTENSIONS, extension_file
from tests.support.patience import HANG_S
from tests.support.server import ServerFactory, clean_environment

PAGE = (ROOT / "docs" / "stock-clients.md").read_text()
QUOTED = re.compile(r"`([^`]+)`")
NOT_AN_ERROR = re.compile(r"^(ALTER|CREATE TABLE|CALL|INSERT|[a-z_:/-]+$)")


def test_versions_on_the_page_are_the_ones_that_were_run() -> None:
    assert f"PyIceberg {version('pyiceberg')}" in PAGE
    assert f"DuckDB {version('duckdb')}" in PAGE
    (runtime,) = locked_jars(["spark"])
    assert f"Spark {version('pyspark')} with Iceberg's jar {runtime.version}" in PAGE


def test_every_error_on_the_page_was_seen_by_a_test() -> None:
    folder = Path(__file__).parent
    tests = "".join(path.read_text() for path in folder.glob("test_*.py"))
    _, declined = PAGE.split("## What the clients refuse")
    quoted = [text for text in QUOTED.findall(declined) if not NOT_AN_ERROR.match(text)]
    assert len(quoted) > 15
    assert [text for text in quoted if text not in tests] == []


FENCES = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("language", ["python", "text"])
def test_duckdb_installs_its_extensions_without_internet(
    language: str, server: ServerFactory, tmp_path: Path
) -> None:
    (install,) = (text for mark, text in FENCES if mark == language)
    if language == "text":
        for name in EXTENSIONS:
            path = f"/path/{name}.duckdb_extension"
            assert path in install
            install = install.replace(path, str(extension_file(name)))
        loads = install.replace("INSTALL", "LOAD")
        run_python(f"import duckdb; duckdb.sql({loads!r})", tmp_path)
        install = f"import duckdb; duckdb.sql({install!r})"
    run_python(install, tmp_path)
    assert len(list(tmp_path.rglob("*.duckdb_extension"))) == len(EXTENSIONS)
    code = snippets(Settings(), server().url, with_token=False)["DuckDB shell"]
    run_python(f"import duckdb; duckdb.sql({code + ' SHOW ALL TABLES;'!r})", tmp_path)


def run_python(code: str, home: Path) -> None:
    """Run the code as a user with an empty home directory."""
    finished = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment({"HOME": str(home)}),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
