"""Importing the client does not load libraries that it does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

import frazil
from tests.support.patience import HANG_S

HEAVY = {
    "boto3",
    "fastavro",
    "numpy",
    "obstore",
    "polars",
    "psycopg",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
    "requests",
    "rich",
    "starlette",
    "typer",
    "urllib3",
    "uvicorn",
    "yaml",
}


@pytest.mark.process
@pytest.mark.parametrize(
    "statement",
    [
        "import frazil",
        "from frazil import Client, DataFile, Table, ValidationError, col",
        "import frazil; frazil.Client('http://127.0.0.1:1')",
        "import frazil; [getattr(frazil, name) for name in frazil.__all__]",
    ],
)
def test_no_heavy_library_is_loaded(statement: str) -> None:
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S
    ).stdout
    loaded = set(shown.split())
    assert "frazil" in loaded
    assert loaded & HEAVY == set()


def test_every_public_name_is_there_and_listed() -> None:
    for name in frazil.__all__:
        assert getattr(frazil, name) is not None
        assert name in dir(frazil)
    assert set(frazil._MODULES) | {"__version__"} == set(frazil.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = frazil.Nothing
