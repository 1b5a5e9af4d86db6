"""Parses the options of `format("frazil")`: which catalog, which table, which of its rows.

Spark passes options as text, with names in any case. An option with a dot in its name is a property
of the catalog or its storage, such as `s3.endpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from frazil.client.catalog_client import Client
from frazil.client.catalog_config import client_arguments
from frazil.client.declare.client_table import Table
from frazil.datafiles.reading.file_storage import Storage, storage_of
from frazil.datafiles.writing.write_properties import boolean, positive_number, whole_number
from frazil.spark.core.context import OUTAGE_TIMEOUT_S, setting_text
from frazil.spark.streams.micro_batches import (
    FROM_TIMESTAMP,
    MAX_FILES,
    MAX_ROWS,
    SKIP_DELETES,
    SKIP_OVERWRITES,
    Limits,
    Skips,
)
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import MAIN

SNAPSHOT_PROPERTY: Final = "snapshot-property."
OVERWRITE_MODES: Final = ("static", "dynamic")

_OPTIONS: Final = frozenset(
    {
        "uri",
        "table",
        "path",
        "token",
        "warehouse",
        "branch",
        "tag",
        "snapshot-id",
        "as-of-timestamp",
        "columns",
        "target-file-size-bytes",
        "overwrite-mode",
        "overwrite-filter",
        "stream-id",
        FROM_TIMESTAMP,
        MAX_FILES,
        MAX_ROWS,
        SKIP_DELETES,
        SKIP_OVERWRITES,
    }
)
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark's stream writers add."""
CREDENTIALS: Final = ("token", "warehouse")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    uri: str
    table: str | tuple[str, ...]
    properties: Mapping[str, str]
    """Properties of the catalog and its storage."""
    branch: str = MAIN
    has_branch: bool = False
    """Whether an option names the branch, so that `spark.wap.branch` does not choose it."""
    tag: str | None = None
    snapshot_id: int | None = None
    as_of_timestamp_ms: int | None = None
    columns: tuple[str, ...] | None = None
    target_file_size_bytes: int | None = None
    overwrite_mode: str = "static"
    overwrite_filter: str | None = None
    stream_id: str | None = None
    from_timestamp_ms: int | None = None
    limits: Limits
    skips: Skips
    summary: Mapping[str, str]

    def load(self) -> Table:
        """Load the table as it is now."""
        return self.client.load_table(self.table)

    @property
    def client(self) -> Client:
        return _client(self.uri, tuple(sorted(self.properties.items())))

    def storage(self, config: Mapping[str, str]) -> Storage:
        return storage_of(self.properties, config)


@lru_cache(maxsize=8)
def _client(uri: str, properties: tuple[tuple[str, str], ...]) -> Client:
    """Return a client that lives as long as the process, which Spark starts for a query."""
    return client_of(uri, dict(properties))


def client_of(uri: str, properties: Mapping[str, str]) -> Client:
    """Return a client with the credentials that are among the properties."""
    return Client(
        **client_arguments({**properties, "uri": uri}),
        properties=properties,
        outage_default_s=OUTAGE_TIMEOUT_S,
    )


def source_options(texts: Mapping[str, str], defaults: Mapping[str, str]) -> SourceOptions:
    """Parse the options; `defaults` are those that the source was registered with."""
    options = {**_lowered(defaults), **_lowered(texts)}
    _refuse_unknown(options)
    table = options.get("table") or options.get("path")
    if not table:
        raise BadRequest('format("frazil"): name the table, as option("table", "ns.t")')
    uri = options.get("uri")
    if not uri:
        raise BadRequest('format("frazil"): name the catalog, as option("uri", "http://…")')
    return SourceOptions(
        uri=uri,
        table=_value({"table": table}, "table", _json_names) or table,
        properties={
            name: text
            for name, text in options.items()
            if name in CREDENTIALS or ("." in name and not name.startswith(SNAPSHOT_PROPERTY))
        },
        branch=options.get("branch", MAIN),
        has_branch="branch" in options,
        tag=options.get("tag"),
        snapshot_id=_value(options, "snapshot-id", whole_number),
        as_of_timestamp_ms=_value(options, "as-of-timestamp", _milliseconds),
        columns=_value(options, "columns", _names),
        target_file_size_bytes=_value(options, "target-file-size-bytes", positive_number),
        overwrite_mode=_value(options, "overwrite-mode", _overwrite_mode) or OVERWRITE_MODES[0],
        overwrite_filter=options.get("overwrite-filter"),
        stream_id=options.get("stream-id"),
        from_timestamp_ms=_value(options, FROM_TIMESTAMP, _milliseconds),
        limits=Limits(
            _value(options, MAX_FILES, positive_number), _value(options, MAX_ROWS, positive_number)
        ),
        skips=Skips(
            deletes=_value(options, SKIP_DELETES, boolean) or False,
            overwrites=_value(options, SKIP_OVERWRITES, boolean) or False,
        ),
        summary={
            name.removeprefix(SNAPSHOT_PROPERTY): text
            for name, text in options.items()
            if name.startswith(SNAPSHOT_PROPERTY)
        },
    )


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(text) for name, text in options.items()}


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _OPTIONS and name not in _OF_SPARK and "." not in name:
            raise BadRequest(
                f'format("frazil") has no option {name}; there are {", ".join(sorted(_OPTIONS))}, '
                f"{SNAPSHOT_PROPERTY}* and properties of the catalog, which have a dot"
            )


# --- texts ----------------------------------------------------------------------------------------


def _value(options: Mapping[str, str], name: str, parse: Callable[[str], T | None]) -> T | None:
    try:
        return parse(options[name].strip()) if name in options else None
    except ValueError as error:
        raise BadRequest(f"option {name}: {error}") from None


def _milliseconds(text: str) -> int:
    """Parse milliseconds since 1970, as in Iceberg's options, or a date and time with a zone."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is neither milliseconds nor like 2026-05-01T12:00:00Z")
    return int(moment.timestamp() * 1000)


def _json_names(text: str) -> tuple[str, ...] | None:
    """Parse a JSON list, as for names that contain dots; None if the text is none."""
    if not text.startswith("["):
        return None
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError:
        raise ValueError(f"{text!r} is not a list of names") from None


def _names(text: str) -> tuple[str, ...]:
    """Parse `a, b`, or a JSON list."""
    return _json_names(text) or tuple(name.strip() for name in text.split(",") if name.strip())


def _overwrite_mode(text: str) -> str:
    if text.lower() not in OVERWRITE_MODES:
        raise ValueError(f"{text!r} is none of {', '.join(OVERWRITE_MODES)}")
    return text.lower()


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark takes them, without those that are None."""
    return {name: setting_text(value) for name, value in options.items() if value is not None}
