"""Which catalog a client uses: arguments, variables, configuration, default."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.client.catalog_config import (
    CLIENT_VARIABLES,
    DEFAULT_URI,
    ConfigError,
    resolve_catalog,
)
from frazil.settings import all_settings

NO_FILE = {"HOME": "/no/such/folder"}
HERE, THERE = "http://here:8181", "http://there:8181"
VARIABLES = {
    "FRAZIL_URI": HERE,
    "FRAZIL_TOKEN": "t",
    "FRAZIL_CA_FILE": "/ca.pem",
    "FRAZIL_CLIENT_WAREHOUSE": "w",
}
CONFIGURED = {"PYICEBERG_CATALOG__PROD__URI": THERE, "PYICEBERG_CATALOG__PROD__TOKEN": "p"}
DEFAULT = {"PYICEBERG_CATALOG__DEFAULT__URI": THERE, "PYICEBERG_CATALOG__DEFAULT__TOKEN": "d"}
ALL = {"uri": HERE, "token": "t", "ssl.cabundle": "/ca.pem", "warehouse": "w"}


def resolved(
    env: dict[str, str], arguments: dict[str, str | None] | None = None, catalog: str | None = None
) -> dict[str, str]:
    return dict(resolve_catalog(arguments, catalog=catalog, env=NO_FILE | env).properties)


def test_no_variable_of_a_client_is_a_setting_of_the_server() -> None:
    names = {variable.env for variable in CLIENT_VARIABLES}
    assert len(names) == len(CLIENT_VARIABLES)
    assert not names & {setting.env for setting in all_settings()}


def test_variables_win_over_the_configuration_and_arguments_over_variables() -> None:
    assert resolved({}) == {"uri": DEFAULT_URI}
    assert resolved(dict.fromkeys(VARIABLES, "")) == {"uri": DEFAULT_URI}
    assert resolved(VARIABLES) == ALL
    assert resolved(VARIABLES | DEFAULT) == ALL
    assert resolved(DEFAULT) == {"uri": THERE, "token": "d"}
    assert resolved(VARIABLES, {"token": "other", "warehouse": None}) == ALL | {"token": "other"}
    assert resolved(CONFIGURED | {"FRAZIL_CATALOG": "prod"}) == {"uri": THERE, "token": "p"}
    assert resolved(CONFIGURED | {"FRAZIL_CATALOG": "prod", "FRAZIL_TOKEN": "t"}) == {
        "uri": THERE,
        "token": "t",
    }


@pytest.mark.parametrize(
    ("env", "arguments", "catalog"),
    [
        (VARIABLES, {"uri": THERE}, None),
        (VARIABLES, {"uri": "https://here:8181"}, None),
        (VARIABLES, {"uri": "http://here"}, None),
        (VARIABLES, {"uri": "http://here:8181@there"}, None),
        (VARIABLES | CONFIGURED, {}, "prod"),
        ({"FRAZIL_TOKEN": "t"}, {"uri": THERE}, None),
        ({"FRAZIL_TOKEN": "t"} | CONFIGURED, {}, "prod"),
        # A `.pyiceberg.yaml` in the working directory must not receive the token.
        ({"FRAZIL_TOKEN": "t"} | DEFAULT, {}, None),
        (CONFIGURED | {"FRAZIL_CATALOG": "prod", "FRAZIL_TOKEN": "t"}, {"uri": HERE}, None),
        (VARIABLES | DEFAULT, {"uri": THERE}, None),
    ],
)
def test_a_token_goes_only_to_the_server_that_the_environment_names(
    env: dict[str, str], arguments: dict[str, str | None], catalog: str | None
) -> None:
    found = resolve_catalog(arguments, catalog=catalog, env=NO_FILE | env)
    configured = "d" if found.properties["uri"] == THERE and not arguments else None
    assert found.properties.get("token") in (configured, "p" if catalog else None)
    assert "FRAZIL_TOKEN" in found.unused_variables


@pytest.mark.parametrize(
    ("env", "uri"),
    [
        (VARIABLES, HERE),
        (VARIABLES, "http://HERE:8181/catalog"),
        ({"FRAZIL_TOKEN": "t"}, DEFAULT_URI),
        (CONFIGURED | {"FRAZIL_CATALOG": "prod", "FRAZIL_TOKEN": "t"}, THERE),
    ],
)
def test_a_token_is_used_if_an_argument_names_its_own_server(env: dict[str, str], uri: str) -> None:
    assert resolved(env, {"uri": uri})["token"] == "t"


def test_two_variables_that_name_two_servers_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"FRAZIL_URI is http://here:8181, but .* unset one"):
        resolved(VARIABLES | CONFIGURED | {"FRAZIL_CATALOG": "prod"})


def test_each_property_has_its_source(tmp_path: Path) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  prod:\n    uri: {HERE}\n    s3.region: a\n"
    )
    env = {
        "HOME": str(tmp_path),
        "FRAZIL_CATALOG": "prod",
        "FRAZIL_TOKEN": "t",
        "PYICEBERG_CATALOG__PROD__S3__REGION": "b",
    }
    found = resolve_catalog({"warehouse": "w"}, env=env)
    assert found.name == "prod"
    assert found.sources == {
        "uri": f"file {tmp_path}/.pyiceberg.yaml",
        "s3.region": "environment PYICEBERG_CATALOG__PROD__*",
        "token": "environment FRAZIL_TOKEN",
        "warehouse": "argument",
    }
    assert found.storage_properties == {"s3.region": "b"}
