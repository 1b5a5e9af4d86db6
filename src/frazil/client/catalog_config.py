"""Read the configuration of catalogs from `.pyiceberg.yaml` and `PYICEBERG_*`, like PyIceberg.

The first file in PYICEBERG_HOME, the home directory or the working directory is used. Variables win
over the file. This mirrors PyIceberg's `Config`, except that nested objects (`ssl`, `auth`) become
names with dots, as in the variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Required, TypedDict

from frazil.wire.frazil_properties import OUTAGE_TIMEOUT

FILE_NAME: Final = ".pyiceberg.yaml"
HOME_VARIABLE: Final = "PYICEBERG_HOME"
DEFAULT_URI: Final = "http://127.0.0.1:8181"
DEFAULT_CATALOG: Final = "default"

_VARIABLE_PREFIX: Final = "pyiceberg_"
_CATALOG: Final = "catalog"
_DEFAULT_NAME_KEY: Final = "default-catalog"
_HEADER_PREFIX: Final = "header."


class ConfigError(ValueError):
    """The configuration is not valid; the message names the file or variable and the fix."""


class ClientArguments(TypedDict, total=False):
    """Arguments of `Client` from a catalog's properties; only those that are set."""

    uri: Required[str]
    token: str
    warehouse: str
    prefix: str
    headers: dict[str, str]
    ca_file: str
    """The file of authorities for the server's certificate."""
    client_certificate: tuple[str, str]
    """The files of the client's certificate and key."""
    outage_timeout_s: float


def catalog_properties(
    name: str | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    directories: Sequence[str | Path | None] | None = None,
) -> dict[str, str]:
    """Return the properties of a catalog, by default the default catalog.

    Without a name and without configuration, return no properties. An unknown name raises
    ConfigError.
    """
    source, config = _from_file(_directories(env) if directories is None else directories)
    _add_variables(config, env)
    chosen = name if name is not None else config.get(_DEFAULT_NAME_KEY) or DEFAULT_CATALOG
    if not isinstance(chosen, str):
        raise ConfigError(f"default-catalog in {source} must be the name of a catalog")
    catalogs = config.get(_CATALOG, {})
    if not isinstance(catalogs, dict):
        raise ConfigError(
            f"catalog in {source or 'PYICEBERG_CATALOG'} must contain a section for each catalog, "
            "such as catalog: default: uri: http://127.0.0.1:8181"
        )
    section = catalogs.get(chosen.lower())
    if section is None:
        if name is None and not config.get(_DEFAULT_NAME_KEY):
            return {}
        raise _unknown(chosen, sorted(catalogs), source)
    if not isinstance(section, dict):
        raise ConfigError(
            f"catalog.{chosen.lower()} in {source or 'the environment'} must be a section of "
            "properties, such as uri: http://127.0.0.1:8181"
        )
    return dict(_flat(section, f"catalog.{chosen.lower()}", source))


def _directories(env: Mapping[str, str]) -> tuple[str | None, ...]:
    home = env.get("HOME") or os.path.expanduser("~")
    return env.get(HOME_VARIABLE), home, os.getcwd()


def _unknown(name: str, known: Sequence[str], source: str | None) -> ConfigError:
    where = f"in {source}" if source else f"and no {FILE_NAME} was found"
    others = f"; known are {', '.join(known)}" if known else ""
    # PyIceberg turns underscores of variables into dashes, so names never contain underscores.
    variable = f"PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__URI"
    return ConfigError(
        f"the catalog {name!r} is not configured {where}{others}: add a section catalog.{name} "
        f"with a uri to {FILE_NAME} or set {variable}"
    )


# --- the file -----------------------------------------------------------------------------------


def _from_file(directories: Sequence[str | Path | None]) -> tuple[str | None, dict[str, Any]]:
    """Return the path and content of the first file that is not empty."""
    for directory in directories:
        if not directory:
            continue
        path = Path(directory) / FILE_NAME
        if path.is_file():
            config = _read(path)
            if config:
                return str(path), config
    return None, {}


def _read(path: Path) -> dict[str, Any]:
    import yaml

    class Loader(yaml.BaseLoader):
        """Reads all values as text and refuses duplicate keys, like PyIceberg's reader."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for number, (key, (key_node, _)) in enumerate(zip(keys, node.value, strict=True)):
                if key in keys[:number]:
                    line = key_node.start_mark.line + 1
                    raise ConfigError(f"{path}, line {line}: {key} appears twice, remove one")
            return super().construct_mapping(node, deep)

    try:
        # Loader is a BaseLoader, which creates only text, lists and mappings.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML: {text}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if not content:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must be a mapping that begins with `catalog:`")
    return _lower_keys(content)


def _lower_keys(section: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        str(key).lower(): _lower_keys(value) if isinstance(value, dict) else value
        for key, value in section.items()
    }


# --- variables ----------------------------------------------------------------------------------


def _add_variables(config: dict[str, Any], env: Mapping[str, str]) -> None:
    """Add variables: `PYICEBERG_CATALOG__NAME__S3__ENDPOINT` is `s3.endpoint` of `name`.

    A double underscore is the next level or a dot, a single one is a dash.
    """
    for variable, value in env.items():
        name = variable.lower()
        if not name.startswith(_VARIABLE_PREFIX):
            continue
        parts = name.removeprefix(_VARIABLE_PREFIX).split("__", maxsplit=2)
        *levels, last = (part.replace("__", ".").replace("_", "-") for part in parts)
        section = config
        for level in levels:
            inner = section.setdefault(level, {})
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"{variable} sets a property inside of {level}, which is the text {inner!r}: "
                    "remove one of the two"
                )
            section = inner
        section[last] = value


def _flat(section: Mapping[str, Any], path: str, source: str | None) -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, dict):
            for inner, text in _flat(value, f"{path}.{key}", source):
                yield f"{key}.{inner}", text
        elif isinstance(value, str):
            yield key, value
        else:
            raise ConfigError(
                f"{path}.{key} in {source} is a list: properties of a catalog are text"
            )


# --- arguments of the client ----------------------------------------------------------------------


def client_arguments(properties: Mapping[str, str]) -> ClientArguments:
    """Convert properties to arguments of `Client`; other properties are ignored."""
    kind = properties.get("type", "rest").lower()
    if kind != "rest":
        raise ConfigError(
            f"the catalog's type is {kind!r}, but this client supports only REST catalogs: choose "
            "another catalog, or set type to rest"
        )
    arguments = ClientArguments(uri=_uri(properties))
    for name, key in (
        ("token", "token"),
        ("warehouse", "warehouse"),
        ("prefix", "prefix"),
        ("ca_file", "ssl.cabundle"),
    ):
        if properties.get(key):
            arguments[name] = properties[key]  # type: ignore[literal-required]
    if properties.get("credential") and "token" not in arguments:
        raise ConfigError(
            "credential is set without a token, and this client has no OAuth2 login: get a token "
            "from the catalog's identity provider and set it as token"
        )
    headers = _headers(properties)
    if headers:
        arguments["headers"] = headers
    certificate, private = properties.get("ssl.client.cert"), properties.get("ssl.client.key")
    if private and not certificate:
        raise ConfigError("ssl.client.key is set without ssl.client.cert: set both, or neither")
    if certificate:
        # Without a separate key file, the certificate's file contains the key.
        arguments["client_certificate"] = certificate, private or certificate
    waits_s = outage_timeout_of(properties)
    if waits_s is not None:
        arguments["outage_timeout_s"] = waits_s
    return arguments


def outage_timeout_of(properties: Mapping[str, str]) -> float | None:
    """Return how long to wait for a server that is away; None if the user has not said so."""
    text = properties.get(OUTAGE_TIMEOUT)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"{OUTAGE_TIMEOUT}: {text!r} must be a number of seconds, 0 or more")
    return seconds


def _headers(properties: Mapping[str, str]) -> dict[str, str]:
    headers = {
        key.removeprefix(_HEADER_PREFIX): value
        for key, value in properties.items()
        if key.startswith(_HEADER_PREFIX)
    }
    return headers | _authorization(properties)


def _uri(properties: Mapping[str, str]) -> str:
    uri = properties.get("uri") or DEFAULT_URI
    if not uri.startswith(("http://", "https://")):
        raise ConfigError(f"the catalog's uri {uri!r} must begin with http:// or https://")
    return uri


def _authorization(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the header for PyIceberg's `auth` section, for types without a login."""
    kind = properties.get("auth.type")
    if kind in (None, "noop"):
        return {}
    if kind == "basic":
        from base64 import b64encode

        user = properties.get("auth.basic.username", "")
        password = properties.get("auth.basic.password", "")
        return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}
    raise ConfigError(
        f"auth.type {kind!r} is not supported by this client: use noop or basic, or set token or "
        "credential instead"
    )
