"""The wheel works when it is installed outside of the checkout."""

from __future__ import annotations

import json
import subprocess
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

import frazil
from tests.support.patience import HANG_S
from tests.support.server import running_server
from tests.support.wheel import build_wheel, make_environment

pytestmark = pytest.mark.process

SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def call(method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        document: dict[str, Any] = json.load(answer)
        return document


def test_wheel_carries_types_and_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "frazil/py.typed" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "scripts", "benchmarks"))]


def test_command_needs_no_extra(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env", wheel, extras=())
    answer = subprocess.run(
        [python.with_name("frazil"), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    assert answer.stdout.strip() == f"frazil {frazil.__version__}"


def test_installed_server_takes_a_commit(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env", wheel, extras=("server",))
    origin = [str(python), "-c", "import frazil; print(frazil.__file__)"]
    found = subprocess.run(origin, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(tmp_path), "not the wheel but the checkout is run"

    command = [str(python.with_name("frazil"))]
    with running_server(tmp_path / "run", command=command) as server:
        tables = f"{server.url}/v1/namespaces/ns/tables"
        call("POST", f"{server.url}/v1/namespaces", {"namespace": ["ns"]})
        created = call("POST", tables, {"name": "t", "schema": SCHEMA})
        committed = call(
            "POST",
            f"{tables}/t",
            {
                "requirements": [
                    {"type": "assert-table-uuid", "uuid": created["metadata"]["table-uuid"]}
                ],
                "updates": [{"action": "set-properties", "updates": {"owner": "wheel"}}],
            },
        )
        loaded = call("GET", f"{tables}/t")
    assert committed["metadata-location"] != created["metadata-location"]
    assert loaded["metadata-location"] == committed["metadata-location"]
    assert loaded["metadata"]["properties"]["owner"] == "wheel"
