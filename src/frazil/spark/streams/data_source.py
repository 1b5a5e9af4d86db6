"""`format("frazil")`: tables by Spark's own readers and writers, without a session of ours.

    frazil.spark.streams.data_source.register(spark, "http://127.0.0.1:8181")
    df.write.format("frazil").mode("append").save("shop.orders")
    spark.read.format("frazil").option("snapshot-id", 7).load("shop.orders")

A façade: Spark does not tell a Python source which columns are needed, nor lets it lay out the rows
that are written, so that `session.table(…)` reads and writes faster and into better files.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType as SparkStruct

from frazil.spark.streams.source_options import SourceOptions, source_options
from frazil.spark.streams.source_readers import Pinned, TableReader, pin, read_schema
from frazil.spark.streams.source_writers import TableStreamWriter, TableWriter
from frazil.spark.streams.stream_reader import TableStreamReader

NAME: Final = "frazil"
_STREAM_INTERFACES: Final = "pyspark.sql.streaming.datasource"
"""From Spark 4.2 on."""


_registered: WeakKeyDictionary[SparkSession, Mapping[str, str]] = WeakKeyDictionary()


class FrazilSource(DataSource):
    defaults: ClassVar[Mapping[str, str]] = {}
    """Options of the session that has registered it."""
    _pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> SparkStruct:
        """Also chooses the snapshot: Spark keeps this object, and asks it for each evaluation."""
        options = self._options()
        table = options.load()
        self._pinned = pin(options, table)
        return read_schema(options, table, self._pinned.schema(table))

    def reader(self, schema: SparkStruct) -> TableReader:
        return TableReader(self._options(), schema, self._pinned)

    def writer(self, schema: SparkStruct, overwrite: bool) -> TableWriter:
        return TableWriter(self._options(), schema, overwrite)

    def streamReader(self, schema: SparkStruct) -> TableStreamReader:  # noqa: N802
        found: TableStreamReader = _stream_reader_class()(self._options(), schema)
        return found

    def streamWriter(self, schema: SparkStruct, overwrite: bool) -> Any:  # noqa: N802
        return TableStreamWriter(self._options(), schema, overwrite)

    def _options(self) -> SourceOptions:
        return source_options(self.options, self.defaults)


def _stream_reader_class() -> type[TableStreamReader]:
    """Says that it can end where the table ends now, to a Spark that asks sources about it."""
    if find_spec(_STREAM_INTERFACES) is None:
        return TableStreamReader
    interface = import_module(_STREAM_INTERFACES).SupportsTriggerAvailableNow
    return type("TableStreamReader", (TableStreamReader, interface), {})


def register(
    spark: SparkSession, uri: str | None = None, properties: Mapping[str, str] | None = None
) -> None:
    """Makes `format("frazil")` known to a Spark session; what is given here need not be an option.

    What was registered last counts. On Spark Connect the server then needs frazil installed.
    """
    defaults = dict(properties or {})
    if uri is not None:
        defaults["uri"] = uri
    # Spark warns of a source that takes the place of another.
    if _registered.get(spark) != defaults:
        found: Any = type(FrazilSource.__name__, (FrazilSource,), {"defaults": defaults})
        spark.dataSource.register(found)
        _registered[spark] = defaults
