"""`format("frazil")`: reads and writes tables by Spark's readers and writers, without a `Session`.

    frazil.spark.streams.data_source.register(spark, "http://127.0.0.1:8181")
    df.write.format("frazil").mode("append").save("shop.orders")
    spark.read.format("frazil").option("snapshot-id", 7).load("shop.orders")

`session.table(…)` reads faster, and writes faster and into better files. Spark does not pass the
needed columns to a Python source, and a Python source cannot distribute the rows that it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType as SparkStruct

from frazil.spark.core.context import configured
from frazil.spark.core.progress import is_classic
from frazil.spark.streams.micro_batches import MAX_FILES, MAX_ROWS, Limits
from frazil.spark.streams.source_options import CREDENTIALS, SourceOptions, source_options
from frazil.spark.streams.source_readers import (
    PinnedSnapshot,
    TableReader,
    TableStreamReader,
    pin,
    read_schema,
)
from frazil.spark.streams.source_writers import TableStreamWriter, TableWriter
from frazil.wire.errors import BadRequest
from frazil.wire.frazil_properties import OUTAGE_TIMEOUT

NAME: Final = "frazil"
_STREAM_INTERFACES: Final = "pyspark.sql.streaming.datasource"
"""This module exists since Spark 4.2."""


_registered: WeakKeyDictionary[SparkSession, Mapping[str, str]] = WeakKeyDictionary()


class FrazilSource(DataSource):
    defaults: ClassVar[Mapping[str, str]] = {}
    """Options of the session that has registered the source."""
    _pinned: PinnedSnapshot | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> SparkStruct:
        """Return the schema; choose the snapshot, since Spark keeps this object for a frame."""
        options = self._options()
        table = options.load()
        self._pinned = pin(options, table)
        return read_schema(options, table, self._pinned.schema(table))

    def reader(self, schema: SparkStruct) -> TableReader:
        return TableReader(self._options(), schema, self._pinned)

    def writer(self, schema: SparkStruct, overwrite: bool) -> TableWriter:
        return TableWriter(self._options(), schema, overwrite)

    def streamReader(self, schema: SparkStruct) -> TableStreamReader:  # noqa: N802
        options = self._options()
        check_limits(options.limits)
        reader: TableStreamReader = _stream_reader_class()(options, schema)
        return reader

    def streamWriter(self, schema: SparkStruct, overwrite: bool) -> Any:  # noqa: N802
        return TableStreamWriter(self._options(), schema, overwrite)

    def _options(self) -> SourceOptions:
        return source_options(self.options, self.defaults)


def check_limits(limits: Limits) -> None:
    """Refuse limits of micro-batches if Spark's version does not ask a Python source for them.

    Such a Spark runs a single batch for the trigger AvailableNow and tells the source of no
    trigger. A limited batch would end the run before everything available is read.
    """
    if limits != Limits() and not _has_stream_interfaces():
        raise BadRequest(
            f"max_files, max_rows ({MAX_FILES}, {MAX_ROWS}): Frazil's own reader limits batches "
            f"from Spark 4.2 on, and this is Spark {pyspark.__version__}, where a run with the "
            "trigger availableNow would end after one batch: leave the limits out, or read with "
            "Iceberg's runtime (reader=jar)"
        )


def _has_stream_interfaces() -> bool:
    return find_spec(_STREAM_INTERFACES) is not None


def _stream_reader_class() -> type[TableStreamReader]:
    """Return the reader, which supports the trigger AvailableNow if Spark's version has it."""
    if not _has_stream_interfaces():
        return TableStreamReader
    interface = import_module(_STREAM_INTERFACES).SupportsTriggerAvailableNow
    return type("TableStreamReader", (TableStreamReader, interface), {})


def register(
    spark: SparkSession, uri: str | None = None, properties: Mapping[str, str] | None = None
) -> None:
    """Register `format("frazil")` in a Spark session, with defaults for its options.

    The last registration counts. On Spark Connect the server needs frazil installed.
    """
    # Other properties, such as `prefix`, are no options of the source.
    defaults = {
        name: text
        for name, text in (properties or {}).items()
        if name in CREDENTIALS or "." in name
    }
    if uri is not None:
        defaults["uri"] = uri
    timeout = configured(spark, "outage_timeout_s")
    if timeout is not None:
        defaults.setdefault(OUTAGE_TIMEOUT, str(timeout))
    # Registering again would make Spark warn that a source is replaced.
    if _registered.get(spark) != defaults:
        source: Any = type(FrazilSource.__name__, (FrazilSource,), {"defaults": defaults})
        _activate(spark)
        spark.dataSource.register(source)
        _registered[spark] = defaults


def _activate(spark: SparkSession) -> None:
    """Make this the active session of the thread, as every query of it does.

    Spark refuses a source that the active session has, even if it is registered in another one.
    """
    if is_classic(spark):
        session: Any = spark
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
