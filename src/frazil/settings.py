"""Declares every setting of the server once.

A setting is a field of `Settings`, which has its name, type, default and help text. Its
environment variable, its flag and its key in the file derive from the name. A value comes from
the first of: flag, environment, file, default. `resolve` remembers which one. A relative path in
the file is relative to the folder of the file, any other to the working directory.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frazil.client.catalog_config import CLIENT_VARIABLES

ENV_PREFIX = "FRAZIL_"
CONFIG_ENV = "FRAZIL_CONFIG"

_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SHA256_HEX = re.compile(r"[0-9a-fA-F]{64}")
_RELATIVE_PATH = re.compile(r"(sqlite:///|file:)?(?![/~:]|[A-Za-z][A-Za-z0-9+.-]*://)(.+)")
_READ_ONLY = "read"
MASK = "***"
_SWITCH = "BOOL"


class SettingsError(Exception):
    """A setting cannot be used. The message names the setting, its source, and the fix."""


# --- reading one value: from text (flag, environment) or from what TOML holds -----------------


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _optional_text(value: object) -> str | None:
    return None if value == "" else _text(value)


def _whole(value: object, low: int, high: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value.strip()):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"must be a whole number from {low} to {high}, not {value!r}")
    return value


def _between(low: int, high: int) -> Callable[[object], int]:
    return lambda value: _whole(value, low, high)


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off", ""} and isinstance(value, str):
        return False
    raise ValueError(f"must be true or false, not {value!r}")


def _optional_boolean(value: object) -> bool | None:
    return None if value == "" else _boolean(value)


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return parse


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of text, not {value!r}")
    return tuple(_text(part) for part in value)


def _public_url(value: object) -> str | None:
    text = _optional_text(value)
    if text is None:
        return None
    parts = urlsplit(text)
    surplus = parts.query or parts.fragment or parts.username
    if parts.scheme not in ("http", "https") or not parts.hostname or surplus:
        raise ValueError(f"must be a URL such as https://catalog.example.com, not {mask_url(text)}")
    return text.rstrip("/").removesuffix("/v1")


def token_name(name: str) -> str:
    """Return the name of a principal as tokens, logs and events show it."""
    if not _TOKEN_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a token name: use 1 to 64 of A-Z a-z 0-9 . _ @ -, "
            "beginning with a letter or a digit"
        )
    return name


@dataclass(frozen=True, slots=True)
class Token:
    """The digest of a principal's token, and whether the principal may change anything."""

    sha256: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Token:
        """Parse `sha256` or `sha256:read`."""
        digest, colon, access = (part.strip() for part in text.partition(":"))
        if not _SHA256_HEX.fullmatch(digest) or (colon and access != _READ_ONLY):
            # Do not repeat the text: it may be a token, which must not appear in a log.
            raise ValueError(
                "must contain name:sha256 or name:sha256:read entries with 64 hex digits each; "
                "`frazil token new NAME` prints one"
            )
        return cls(digest.lower(), bool(colon))

    def __str__(self) -> str:
        return f"{self.sha256}:{_READ_ONLY}" if self.read_only else self.sha256


def _add_token(tokens: dict[str, Token], line: str) -> None:
    name, _, entry = line.partition(":")
    token = Token.parse(entry)
    if token_name(name.strip()) in tokens:
        raise ValueError(f"names the token {name.strip()!r} twice: remove one of them")
    tokens[name.strip()] = token


def _tokens(value: object) -> dict[str, Token]:
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, dict):
        value = [f"{name}:{digest}" for name, digest in value.items()]
    if not isinstance(value, list):
        raise ValueError("must be name:sha256 entries")
    tokens: dict[str, Token] = {}
    for part in value:
        _add_token(tokens, _text(part))
    return tokens


# --- the declarations ---------------------------------------------------------------------------


def _setting(
    default: Any,
    parse: Callable[[object], Any],
    help_text: str,
    *,
    metavar: str = "TEXT",
    flag: bool = True,
    secret: bool = False,
    path: bool = False,
) -> Any:
    """Declare a field of `Settings`. `flag=False` adds no flag; `secret` masks the value; `path`
    means that the value is or contains a path."""
    metadata = {
        "parse": parse,
        "help": help_text,
        "metavar": metavar,
        "has_flag": flag,
        "secret": secret,
        "is_path": path,
    }
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the server."""

    host: str = _setting(
        "127.0.0.1",
        _text,
        "Address to listen on. Beyond loopback only with tokens or --insecure.",
        metavar="ADDRESS",
    )
    port: int = _setting(
        8181, _between(0, 65535), "Port to listen on; 0 picks a free one.", metavar="PORT"
    )
    warehouse: str = _setting(
        "./warehouse",
        _text,
        "Where tables are stored: a folder, or a URL such as s3://bucket/prefix.",
        metavar="PATH|URL",
        path=True,
    )
    database: str = _setting(
        "sqlite:///frazil.db",
        _text,
        "Where the catalog is stored: sqlite:///PATH or postgresql://user@host/name.",
        metavar="URL",
        secret=True,
        path=True,
    )
    allow_location: tuple[str, ...] = _setting(
        (),
        _texts,
        "A location outside the warehouse that tables may use too. May be repeated; "
        "in the environment separated by commas.",
        metavar="URL",
        path=True,
    )
    insecure: bool = _setting(
        False,
        _boolean,
        "Listen beyond loopback even if no tokens are configured.",
        metavar=_SWITCH,
    )
    tokens: Mapping[str, Token] = _setting(
        {},
        _tokens,
        "Tokens of the server's users: name:sha256 entries separated by commas, or "
        "name:sha256:read for users who may only read. `frazil token new NAME` creates one.",
        metavar="NAME:SHA256,...",
        flag=False,
        secret=True,
    )
    tokens_file: str | None = _setting(
        None,
        _optional_text,
        "A file with one name:sha256 or name:sha256:read entry per line; blank lines and lines "
        "with # are skipped. The server reads it again when it changes, and on SIGHUP.",
        metavar="PATH",
        path=True,
    )
    tls_cert: str | None = _setting(
        None,
        _optional_text,
        "Serve https with this certificate chain in PEM; needs --tls-key. The server reads both "
        "files again when they change, and on SIGHUP.",
        metavar="PATH",
        path=True,
    )
    tls_key: str | None = _setting(
        None,
        _optional_text,
        "The private key of --tls-cert in PEM, without a password.",
        metavar="PATH",
        path=True,
    )
    public_url: str | None = _setting(
        None,
        _public_url,
        "The URL that clients use if a proxy stands before the server, such as "
        "https://catalog.example.com. It is printed for clients; with https it also says that "
        "the proxy encrypts, so that the server does not warn about plain http.",
        metavar="URL",
    )
    s3_endpoint: str | None = _setting(
        None,
        _optional_text,
        "Address of an S3 server other than Amazon's, such as http://127.0.0.1:9000.",
        metavar="URL",
        secret=True,
    )
    s3_region: str | None = _setting(
        None,
        _optional_text,
        "Region of the S3 warehouse. By default AWS's own variables and files are read.",
        metavar="NAME",
    )
    s3_path_style: bool | None = _setting(
        None,
        _optional_boolean,
        "Address buckets as http://endpoint/bucket. By default this is done only with an endpoint.",
        metavar=_SWITCH,
    )
    log_format: str = _setting(
        "text", _one_of("text", "json"), "Format of log lines.", metavar="text|json"
    )
    max_request_bytes: int = _setting(
        256 * 1024 * 1024,
        _between(1024, 2**40),
        "Largest request body after decompression.",
        metavar="BYTES",
    )
    idempotency_lifetime_s: int = _setting(
        30 * 60,
        _between(1, 7 * 24 * 3600),
        "How long the server remembers an Idempotency-Key.",
        metavar="SECONDS",
    )
    metadata_cache_bytes: int = _setting(
        256 * 1024 * 1024,
        _between(0, 2**44),
        "Memory for recently used table metadata.",
        metavar="BYTES",
    )
    manifest_cache_bytes: int = _setting(
        384 * 1024 * 1024,
        _between(0, 2**44),
        "Memory for manifests of tables with commits.",
        metavar="BYTES",
    )
    manifest_cache_folder: str | None = _setting(
        "./frazil-cache",
        _optional_text,
        "Local folder that caches parts of large manifests across restarts. It may be deleted "
        "at any time. Empty: no folder.",
        metavar="FOLDER",
        path=True,
    )
    plan_wait_s: int = _setting(
        20,
        _between(0, 3600),
        "How long a request for a scan plan waits for it; after that the client must poll. "
        "PyIceberg cannot poll.",
        metavar="SECONDS",
    )
    plan_page_files: int = _setting(
        5000,
        _between(1, 1_000_000),
        "Data files in one response of a scan plan; clients fetch the others in pages.",
        metavar="COUNT",
    )
    maintain: bool = _setting(
        False,
        _boolean,
        "Maintain tables in a process beside the server: compact files, expire snapshots.",
        metavar=_SWITCH,
    )
    maintain_memory: int = _setting(
        1 << 30,
        _between(64 << 20, 2**44),
        "Memory of the process of --maintain; it is ended and started again if it uses more.",
        metavar="BYTES",
    )
    maintain_interval_s: int = _setting(
        600,
        _between(1, 24 * 3600),
        "How long the process of --maintain waits between two rounds.",
        metavar="SECONDS",
    )
    shutdown_timeout_s: int = _setting(
        25,
        _between(1, 3600),
        "How long requests in flight may take to finish after SIGTERM.",
        metavar="SECONDS",
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """Describes one setting for the command line, `config show` and the tests of the
    documentation."""

    name: str
    default: Any
    help: str
    metavar: str
    has_flag: bool
    secret: bool
    is_path: bool
    parse: Callable[[object], Any]

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def flag(self) -> str | None:
        return "--" + self.name.replace("_", "-") if self.has_flag else None

    @property
    def is_switch(self) -> bool:
        """Return whether the flag takes no value."""
        return self.metavar == _SWITCH

    def shown(self, value: Any) -> Any:
        """Return the value for display, with digests and passwords masked."""
        if isinstance(value, Mapping):
            return {name: str(replace(token, sha256=MASK)) for name, token in value.items()}
        if self.secret and isinstance(value, str):
            return mask_url(value)
        return list(value) if isinstance(value, tuple) else value


def all_settings() -> tuple[Setting, ...]:
    """Return every setting, in the order of declaration."""
    defaults = Settings()
    return tuple(
        Setting(name=each.name, default=getattr(defaults, each.name), **each.metadata)
        for each in fields(Settings)
    )


# --- putting the four sources together ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, with the source of each in words: `flag --port`, `default`, …"""

    settings: Settings
    sources: Mapping[str, str]
    config_file: str | None
    unknown_variables: tuple[str, ...]
    """FRAZIL_* variables that neither the server nor a client uses: perhaps misspelled."""


def resolve(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config_file: str | None = None,
) -> Resolved:
    """Take each value from the first source that has it. A flag that is None was not passed."""
    environ = os.environ if environ is None else environ
    flags = flags or {}
    path = config_file or environ.get(CONFIG_ENV) or None
    in_file = _read_file(path) if path else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in all_settings():
        name, source = setting.name, "default"
        raw: object = None
        if flags.get(name) is not None:
            source, raw = f"flag {setting.flag}", flags[name]
        elif setting.env in environ:
            source, raw = f"environment {setting.env}", environ[setting.env]
        elif name in in_file:
            source, raw = f"file {path}", in_file[name]
        sources[name] = source
        if source != "default":
            values[name] = _parse(setting, source, raw)
        if path and setting.is_path and source == f"file {path}":
            values[name] = _below(Path(os.path.abspath(path)).parent, values[name])
    return Resolved(Settings(**values), sources, path, _unknown_variables(environ))


def _parse(setting: Setting, source: str, raw: object) -> Any:
    try:
        return setting.parse(raw)
    except ValueError as error:
        raise SettingsError(f"{setting.name} ({source}) {error}") from None


def _below(folder: Path, value: Any) -> Any:
    """Make relative paths absolute, also in `sqlite:///PATH` and `file:PATH`."""
    if isinstance(value, tuple):
        return tuple(_below(folder, each) for each in value)
    match = None if value is None else _RELATIVE_PATH.fullmatch(value)
    return value if match is None else f"{match[1] or ''}{folder / match[2]}"


def _read_file(path: str) -> Mapping[str, object]:
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(
            f"the settings file {path} does not exist: create it, or correct --config or "
            f"{CONFIG_ENV}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not valid TOML: {error}") from None
    names = [setting.name for setting in all_settings()]
    for key in content:
        if key not in names:
            raise SettingsError(f"the settings file {path}: {_unknown(key, names)}")
    return content


def _unknown(key: str, names: list[str]) -> str:
    near = difflib.get_close_matches(key.replace("-", "_").lower(), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return f"{key!r} is not a setting; {hint}"


def _unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    known = {setting.env for setting in all_settings()} | {CONFIG_ENV}
    known |= {variable.env for variable in CLIENT_VARIABLES}
    return tuple(sorted(n for n in environ if n.startswith(ENV_PREFIX) and n not in known))


# --- what needs a look beyond one value ---------------------------------------------------------


def all_tokens(settings: Settings) -> dict[str, Token]:
    """Return each principal's token, from `tokens` and `tokens_file` together."""
    tokens = dict(settings.tokens)
    if settings.tokens_file is None:
        return tokens
    try:
        lines = Path(settings.tokens_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"tokens_file {settings.tokens_file} cannot be read: {error}; "
            "create it with one name:sha256 entry per line"
        ) from None
    in_file: dict[str, Token] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                _add_token(in_file, line)
            except ValueError as error:
                where = f"tokens_file {settings.tokens_file}, line {number}"
                raise SettingsError(f"{where}: {error}") from None
    twice = sorted(tokens.keys() & in_file.keys())
    if twice:
        raise SettingsError(
            f"the token {twice[0]!r} is both in tokens and in tokens_file: remove one of them"
        )
    return tokens | in_file


def warehouse_location(settings: Settings) -> str:
    """Return the warehouse as a URL without a trailing slash."""
    return _as_location("warehouse", settings.warehouse)


def database_url(settings: Settings) -> str:
    """Return the URL of the database for display, with an absolute path and a masked password."""
    return mask_url(_below(Path.cwd(), settings.database))


def extra_locations(settings: Settings) -> tuple[str, ...]:
    """Return the other locations that tables may use, as URLs."""
    return tuple(_as_location("allow_location", each) for each in settings.allow_location)


def _as_location(name: str, value: str) -> str:
    """Convert a folder to an absolute file: URL.

    Iceberg's clients take a file: location literally, without percent-decoding. So a folder is
    written as it is, and a folder whose name could be read in two ways is refused.
    """
    scheme, separator, _ = value.partition("://")
    if separator and scheme.lower() != "file":
        return value.rstrip("/")
    path = value[len("file:") :] if value.lower().startswith("file:") else value
    if path.startswith("//") and not path.startswith("///"):
        raise SettingsError(f"{name} {value!r} names a host: write file:///PATH with 3 slashes")
    folder = Path(re.sub(r"^/+", "/", path)).expanduser().resolve()
    if re.search(r"[%?#\\\x00-\x1f\x7f]", str(folder)):
        raise SettingsError(
            f"{name} {str(folder)!r} has one of % ? # \\ or a control character in its path, "
            "which Iceberg's clients read differently: choose a folder without them"
        )
    return f"file://{folder}"


def mask_url(url: str) -> str:
    """Mask the password anywhere in a URL; if in doubt, mask more.

    >>> mask_url("postgresql://etl:p%40ss@db:5432/frazil?sslpassword=x&sslmode=require")
    'postgresql://etl:***@db:5432/frazil?sslpassword=***&sslmode=require'
    """
    url = re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*://[^:/@?#]*):.*@", rf"\1:{MASK}@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", rf"\1{MASK}", url, flags=re.IGNORECASE)
