"""What all parts of a session share: the Spark session, the client, and the settings.

Settings are arguments of `connect`; without an argument, `spark.frazil.*` of Spark's configuration
counts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.client.declare.scan_plans import Plan
from frazil.spark.core.read_leases import ReadLeases
from frazil.wire.errors import BadRequest

LOGGER: Final = logging.getLogger("frazil.spark")
"""Reports which engine reads and writes, and why."""

PREFIX: Final = "spark.frazil."
READERS: Final = ("auto", "jar", "own")
OUTAGE_TIMEOUT_S: Final = 300.0
"""The default of `outage_timeout_s`: the work of a long job is worth more than that of a client."""
WRITERS: Final = ("auto", "jvm", "arrow")
DEFAULT_CATALOG: Final = "frazil"
_CATALOG_NAME: Final = re.compile(r"(?!spark_catalog$)[A-Za-z_][A-Za-z0-9_]*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Settings:
    reader: str = "auto"
    """`jar`: Iceberg's runtime reads; `own`: Frazil reads; `auto`: the jar if it is available."""
    writer: str = "auto"
    """`jvm`: Spark's Parquet writer; `arrow`: executors write through Arrow; `auto`: `jvm` where
    schema and storage allow it."""
    statement_retries: int = 3
    """How often a refused statement runs again from a new scan."""
    stream_id: str | None = None
    """The stream's id for exactly-once writes; None: the id in the checkpoint."""
    temp_dir: str | None = None
    """A folder that driver and executors share, for staged frames."""
    progress: bool | None = None
    """Whether to show stages and rows; None: only on a terminal."""
    outage_timeout_s: float | None = None
    """How long each step waits for a catalog that is away; None: the property of the catalog."""
    sql_catalog: str | None = None
    """The catalog's name in SQL; None: `frazil`, if Spark has no other catalog of that name."""

    def __post_init__(self) -> None:
        _check_choice("reader", self.reader, READERS)
        _check_choice("writer", self.writer, WRITERS)
        if self.sql_catalog is not None and _CATALOG_NAME.fullmatch(self.sql_catalog) is None:
            raise BadRequest(
                f"sql_catalog: {self.sql_catalog!r} is not a name of letters, digits and _ that "
                "Spark can use for a catalog, other than spark_catalog"
            )
        if self.statement_retries < 0:
            raise BadRequest(f"statement-retries: {self.statement_retries} is below 0")
        if self.outage_timeout_s is not None and not 0 <= self.outage_timeout_s < inf:
            raise BadRequest(f"outage-timeout-s: {self.outage_timeout_s} is no time in seconds")

    @property
    def catalog_name(self) -> str:
        return self.sql_catalog or DEFAULT_CATALOG


@dataclass(frozen=True)
class Context:
    spark: SparkSession
    client: Client
    settings: Settings
    uri: str
    """The catalog's address, which Iceberg's own reader needs too."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The user's properties of the catalog and its storage, by the names of Iceberg's REST
    catalogs: `token`, `warehouse`, `s3.access-key-id` and so on."""
    leases: ReadLeases = field(default_factory=ReadLeases, repr=False, compare=False)

    def leased_plan(self, table: Table, snapshot_id: int, plan: Callable[[str], Plan]) -> Plan:
        """Plan a scan of a snapshot, which keeps its files until the statement or session ends."""
        return self.leases.plan(self.client.leases, self.spark, table, snapshot_id, plan)

    @property
    def time_zone(self) -> str:
        """The zone in which Spark reads timestamps from texts without a zone."""
        zone = self.spark.conf.get("spark.sql.session.timeZone")
        assert zone is not None
        return zone


def settings_of(spark: SparkSession, **arguments: Any) -> Settings:
    """Return the settings; an argument wins over the session's configuration."""
    names = [setting.name for setting in fields(Settings)]
    unknown = sorted(arguments.keys() - set(names))
    if unknown:
        raise BadRequest(f"unknown settings {', '.join(unknown)}; there are {', '.join(names)}")
    values: dict[str, Any] = {}
    for name in names:
        value = arguments.get(name)
        if value is None:
            value = configured(spark, name)
        if value is not None:
            values[name] = value
    return Settings(**values)


def configured(spark: SparkSession, name: str) -> Any:
    """Return a setting of the session's configuration; None if it is not set."""
    key = PREFIX + name.replace("_", "-")
    text = spark.conf.get(key, None)
    if text is None or name not in _PARSERS:
        return text
    expected, parse = _PARSERS[name]
    try:
        return parse(text)
    except (KeyError, ValueError):
        raise BadRequest(f"{key}: {text!r} is not {expected}") from None


_BOOLEANS: Final = {"true": True, "false": False}
_PARSERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "statement_retries": ("a whole number", int),
    "outage_timeout_s": ("a number of seconds", float),
    "progress": ("true or false", lambda text: _BOOLEANS[text.strip().lower()]),
}
"""For settings that are not texts: what is expected, and the function that parses it."""


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadRequest(f"{name}: {value!r} is none of {', '.join(choices)}")


# --- values and rows for Spark --------------------------------------------------------------------


def setting_text(value: Any) -> str:
    """Return the value of a setting or an option as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def dealt_out(spark: SparkSession, name: str, values: pa.Array, partitions: int) -> DataFrame:
    """Return a frame of one column whose rows are spread evenly over the partitions."""
    frame = spark.createDataFrame(pa.table({name: values})).coalesce(1)
    # Repartitioning a single partition deals rows out evenly.
    return frame.repartition(partitions) if partitions > 1 else frame
