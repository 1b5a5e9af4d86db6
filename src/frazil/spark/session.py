"""`connect`: a Spark session and a catalog, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from frazil.client.catalog_client import DEFAULT_URI, Client
from frazil.spark.core.context import Context, settings_of
from frazil.spark.streams.data_source import register
from frazil.spark.table import SparkTable, spark_table
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.spark.builders import FrameReader, TableWriter


def connect(
    spark: SparkSession | None = None,
    uri: str = DEFAULT_URI,
    *,
    token: str | None = None,
    warehouse: str | None = None,
    properties: Mapping[str, str] | None = None,
    client: Client | None = None,
    reader: str | None = None,
    writer: str | None = None,
    statement_retries: int | None = None,
    stream_id: str | None = None,
    temp_dir: str | None = None,
    progress: bool | None = None,
) -> Session:
    """A session of the catalog at `uri`.

    Without `spark` one is built, with Iceberg's runtime for reading. Either knows
    `format("frazil")` afterwards. `properties` are those of Iceberg's REST catalogs, such as
    `s3.access-key-id`; the other arguments win over the settings `spark.frazil.*` of the Spark
    session.
    """
    if spark is None:
        from frazil.spark.runtime.local_spark import local_spark

        spark = local_spark()
    settings = settings_of(
        spark,
        reader=reader,
        writer=writer,
        statement_retries=statement_retries,
        stream_id=stream_id,
        temp_dir=temp_dir,
        progress=progress,
    )
    known = {"token": token, "warehouse": warehouse}
    said = {**(properties or {}), **{name: text for name, text in known.items() if text}}
    register(spark, uri, said)
    made = client or Client(uri, token=token, warehouse=warehouse, properties=properties)
    return Session(Context(spark, made, settings, uri, said), owns_client=client is None)


class Session:
    """Tables of one catalog in one Spark. Close it, or use it in a `with` block; Spark goes on."""

    def __init__(self, context: Context, *, owns_client: bool = True) -> None:
        self.context = context
        self._owns_client = owns_client

    @property
    def spark(self) -> SparkSession:
        return self.context.spark

    @property
    def client(self) -> Client:
        return self.context.client

    def close(self) -> None:
        if self._owns_client:
            self.context.client.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def table(self, name: str | tuple[str, ...] | Identifier) -> SparkTable:
        """The table's verbs: `scan`, `append`, `overwrite`, `delete`, `update`, `merge`."""
        return spark_table(self.context, name)

    def sql(self, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None) -> DataFrame:
        """Runs a statement. SELECT sees the catalog's tables beside Spark's own views."""
        from frazil.spark.sql.dispatch import run

        return run(self, text, args)

    @property
    def read(self) -> FrameReader:
        """`session.read.option("snapshot-id", 7).table("ns.t")`, as `spark.read` has it."""
        from frazil.spark.builders import FrameReader

        return FrameReader(self)

    def write_to(self, frame: DataFrame, table: str) -> TableWriter:
        """`session.write_to(frame, "ns.t").append()`, as `frame.writeTo` has it."""
        from frazil.spark.builders import TableWriter

        return TableWriter(self, frame, table)

    def create_view(self, table: str, view: str | None = None, **scan_options: Any) -> str:
        """Registers a scan as a temporary view, for plain `spark.sql`; answers the view's name."""
        name = view or table.rpartition(".")[2]
        self.table(table).scan(**scan_options).createOrReplaceTempView(name)
        return name
