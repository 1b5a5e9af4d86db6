"""The catalog configuration is found where PyIceberg finds it, without PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.utils.config import Config

from frazil.client.catalog_config import (
    DEFAULT_URI,
    ConfigError,
    client_arguments,
    resolve_catalog,
)

FILE = """
default-catalog: Prod
catalog:
  default:
    uri: http://default:8181
    token: 0x10
    s3.region: eu-central-1
    empty:
  Prod:
    URI: https://prod.example/catalog
    Header.X-Team: ice
    ssl:
      cabundle: /etc/ca.pem
      client:
        cert: /etc/me.pem
        key: /etc/me.key
    yes: no
    port: 010
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Create PYICEBERG_HOME, the home and the working directory, all empty."""
    found = {name: tmp_path / name for name in ("chosen", "home", "here")}
    for path in found.values():
        path.mkdir()
    monkeypatch.setenv("PYICEBERG_HOME", str(found["chosen"]))
    monkeypatch.setenv("HOME", str(found["home"]))
    monkeypatch.chdir(found["here"])
    return found


def catalog_properties(
    name: str | None = None, env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what the configuration says about a catalog."""
    resolved = resolve_catalog(catalog=name, env=env)
    sources = resolved.sources
    return {key: text for key, text in resolved.properties.items() if sources[key] != "default"}


def write(directory: Path, text: str = FILE) -> None:
    (directory / ".pyiceberg.yaml").write_text(text)


def flat(section: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in section.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{key}.{name}".rstrip("."): text for name, text in inner.items()}
    return found


def of_pyiceberg(name: str | None = None) -> dict[str, str]:
    config = Config()
    section = config.get_catalog_config(name or config.get_default_catalog_name())
    assert section is None or isinstance(section, dict)
    return flat(section or {})


@pytest.mark.parametrize("name", [None, "default", "prod", "PROD"])
@pytest.mark.parametrize("place", ["chosen", "home", "here"])
def test_a_file_is_read_as_pyiceberg_reads_it(
    places: dict[str, Path], place: str, name: str | None
) -> None:
    write(places[place])
    found = catalog_properties(name)
    assert found == of_pyiceberg(name)
    assert "uri" in found


def test_the_first_file_counts(places: dict[str, Path]) -> None:
    for place, path in places.items():
        write(path, f"catalog:\n  default:\n    uri: http://{place}\n")
    for place in ("chosen", "home", "here"):
        assert catalog_properties() == of_pyiceberg() == {"uri": f"http://{place}"}
        (places[place] / ".pyiceberg.yaml").unlink()
    assert catalog_properties() == of_pyiceberg() == {}


VARIABLES = [
    {"PYICEBERG_CATALOG__DEFAULT__URI": "http://variable"},
    {"PYICEBERG_CATALOG__PROD__URI": "http://variable"},
    {"pyiceberg_catalog__prod__uri": "http://variable"},
    {"PYICEBERG_CATALOG__PROD__S3__ACCESS_KEY_ID": "a"},
    {"PYICEBERG_CATALOG__PROD__URI": ""},
    {"PYICEBERG_CATALOG__MY_OTHER__TOKEN": "t", "PYICEBERG_DEFAULT_CATALOG": "my-other"},
    {"PYICEBERG_DEFAULT_CATALOG": "default", "PYICEBERG_MAX_WORKERS": "4"},
    {"PYICEBERG_CATALOG__PROD__SSL__CABUNDLE": "/other.pem"},
]


@pytest.mark.parametrize("variables", VARIABLES, ids=lambda each: next(iter(each)))
@pytest.mark.parametrize("with_file", [True, False], ids=["file", "no-file"])
def test_variables_go_before_the_file(
    places: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    with_file: bool,
) -> None:
    if with_file:
        write(places["home"])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    names = (None, "default", "prod", "my-other")
    configured = {name: found for name in names if (found := of_pyiceberg(name))}
    assert configured or not with_file
    assert {name: catalog_properties(name) for name in configured} == configured


def test_the_environment_can_be_given(places: dict[str, Path], tmp_path: Path) -> None:
    variables = {"PYICEBERG_CATALOG__A__URI": "http://a", "HOME": str(tmp_path / "none")}
    write(places["home"])
    assert catalog_properties("a", env=variables) == {"uri": "http://a"}
    assert catalog_properties(env={"HOME": str(places["here"])}) == {}
    assert "uri" in catalog_properties("prod", env={"HOME": str(places["home"])})


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (FILE, "other", r"'other' is not configured in .*yaml; known are default, prod: add"),
        (FILE, "my_cat", "PYICEBERG_CATALOG__MY_CAT__URI"),
        ("default-catalog: gone\n", None, "'gone' is not configured"),
        ("catalog: [", None, r"yaml is not valid YAML: .*line 1"),
        ("- a\n", None, "must be a mapping that begins with `catalog:`"),
        ("catalog: text\n", None, r"catalog in .*yaml must contain a section"),
        ("catalog:\n  default: text\n", None, r"catalog.default in .*yaml must be a section"),
        ("catalog:\n  default:\n    uri: [a]\n", None, "catalog.default.uri .* is a list"),
        ("catalog:\n  a:\n    uri: x\n    uri: y\n", "a", "line 4: uri appears twice, remove one"),
    ],
)
def test_what_cannot_be_used_is_named(
    places: dict[str, Path], text: str, name: str | None, message: str
) -> None:
    write(places["home"], text)
    with pytest.raises(ConfigError, match=message):
        catalog_properties(name)


def test_a_name_without_any_file_says_so(places: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"no \.pyiceberg\.yaml was found"):
        catalog_properties("prod")


def test_a_variable_inside_of_a_text_is_named(tmp_path: Path) -> None:
    variables = {
        "HOME": str(tmp_path),
        "PYICEBERG_CATALOG": "x",
        "PYICEBERG_CATALOG__A__URI": "http://a",
    }
    with pytest.raises(ConfigError, match="PYICEBERG_CATALOG__A__URI sets a property inside"):
        catalog_properties("a", env=variables)


def test_arguments_of_a_client() -> None:
    assert client_arguments({}) == {"uri": DEFAULT_URI}
    assert client_arguments({"uri": "", "token": "", "scope": "unused"}) == {"uri": DEFAULT_URI}
    assert client_arguments(
        {
            "type": "REST",
            "uri": "https://prod.example/catalog",
            "token": "t",
            "credential": "id:secret",
            "oauth2-server-uri": "https://login",
            "scope": "PRINCIPAL_ROLE:ALL",
            "warehouse": "w",
            "prefix": "p",
            "header.X-Team": "ice",
            "ssl.cabundle": "/ca.pem",
            "ssl.client.cert": "/me.pem",
            "ssl.client.key": "/me.key",
            "s3.region": "eu-1",
            "py-catalog-impl": "frazil.pyiceberg.FrazilCatalog",
        }
    ) == {
        "uri": "https://prod.example/catalog",
        "token": "t",
        "warehouse": "w",
        "prefix": "p",
        "headers": {"X-Team": "ice"},
        "ca_file": "/ca.pem",
        "client_certificate": ("/me.pem", "/me.key"),
    }


def test_a_certificate_may_hold_its_key() -> None:
    arguments = client_arguments({"ssl.client.cert": "/me.pem"})
    assert arguments["client_certificate"] == ("/me.pem", "/me.pem")


def test_basic_authorization_is_a_header() -> None:
    properties = {
        "auth.type": "basic",
        "auth.basic.username": "me",
        "auth.basic.password": "pw",
    }
    assert client_arguments(properties)["headers"] == {"Authorization": "Basic bWU6cHc="}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"type": "sql"}, "type is 'sql'"),
        ({"uri": "sqlite:///x"}, "must begin with http"),
        ({"auth.type": "google"}, "set token or credential"),
        ({"ssl.client.key": "/k"}, "without ssl.client.cert"),
        ({"credential": "id:secret"}, "credential is set without a token"),
    ],
)
def test_what_the_client_cannot_use_is_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client_arguments(properties)
