"""`connect` and `Session`: a Spark session together with a catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from frazil.client.catalog_client import Client
from frazil.client.catalog_config import resolve_catalog
from frazil.client.send.catalog_calls import identifier_of
from frazil.maintenance import RewriteResult
from frazil.spark.builders import FrameReader, TableWriter
from frazil.spark.core.context import Context, settings_of
from frazil.spark.core.jvm_errors import translated
from frazil.spark.maintenance.table_rewrite import rewrite_data_files
from frazil.spark.reading.catalog_entries import register_catalog
from frazil.spark.runtime.local_spark import local_spark
from frazil.spark.sql.dispatch import run
from frazil.spark.sql.table_names import SqlSession
from frazil.spark.streams.data_source import register
from frazil.spark.streams.source_options import client_of
from frazil.spark.table import Condition, SparkTable
from frazil.wire.file_actions import MAIN
from frazil.wire.frazil_properties import OUTAGE_TIMEOUT
from frazil.wire.identifiers import Identifier


def connect(
    spark: SparkSession | None = None,
    uri: str | None = None,
    *,
    catalog: str | None = None,
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
    outage_timeout_s: float | None = None,
    sql_catalog: str | None = None,
) -> Session:
    """Return a session of the catalog at `uri`, or of the configured catalog `catalog`.

    Without both, `FRAZIL_URI` or the configuration names the address, as for `Client`. Without
    `spark`, a Spark session is built with Iceberg's runtime for reading. `format("frazil")` is
    registered in the Spark session, and so is the catalog under the name `sql_catalog`, by default
    `frazil`, which plain `spark.sql` can read with Iceberg's runtime. `properties` are those of
    Iceberg's REST catalogs, such as `s3.access-key-id`. The other arguments win over the settings
    `spark.frazil.*` of the Spark session.
    """
    if spark is None:
        spark = local_spark()
    settings = settings_of(
        spark,
        reader=reader,
        writer=writer,
        statement_retries=statement_retries,
        stream_id=stream_id,
        temp_dir=temp_dir,
        progress=progress,
        sql_catalog=sql_catalog,
        outage_timeout_s=outage_timeout_s,
    )
    named = {"uri": uri, "token": token, "warehouse": warehouse}
    arguments = {name: text for name, text in named.items() if text}
    resolved = resolve_catalog({**(properties or {}), **arguments}, catalog=catalog)
    of_catalog = {name: text for name, text in resolved.properties.items() if name != "uri"}
    if settings.outage_timeout_s is not None:
        of_catalog[OUTAGE_TIMEOUT] = str(settings.outage_timeout_s)
    used_uri = resolved.properties["uri"]
    register(spark, used_uri, of_catalog)
    used_client = client or client_of(used_uri, of_catalog)
    context = Context(spark, used_client, settings, used_uri, of_catalog)
    register_catalog(context)
    return Session(context, owns_client=client is None)


class Session:
    """Tables of one catalog in one Spark session.

    Close it, or use it in a `with` block. That does not stop Spark.
    """

    def __init__(self, context: Context, *, owns_client: bool = True) -> None:
        self.context = context
        self._owns_client = owns_client
        self._sql = SqlSession(context)

    @property
    def spark(self) -> SparkSession:
        return self.context.spark

    @property
    def client(self) -> Client:
        return self.context.client

    def close(self) -> None:
        self.context.leases.release(self.client.leases)
        if self._owns_client:
            self.context.client.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def table(self, name: str | tuple[str, ...] | Identifier) -> SparkTable:
        """Return a handle with `scan`, `append`, `overwrite`, `delete`, `update` and `merge`."""
        return SparkTable(self.context, identifier_of(name))

    def sql(self, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None) -> DataFrame:
        """Run a statement. SELECT sees the catalog's tables and Spark's own views."""
        with translated():
            return run(self._sql, text, args)

    @property
    def read(self) -> FrameReader:
        """Return a reader: `session.read.option("snapshot-id", 7).table("ns.t")`."""
        return FrameReader(self._sql)

    def write_to(self, frame: DataFrame, table: str) -> TableWriter:
        """Return a writer: `session.write_to(frame, "ns.t").append()`, like `frame.writeTo`."""
        return TableWriter(self._sql, frame, table)

    def rewrite_data_files(
        self,
        table: str | tuple[str, ...] | Identifier,
        *,
        strategy: str | None = None,
        sort_order: str | None = None,
        where: Condition | None = None,
        branch: str = MAIN,
        options: Mapping[str, str] | None = None,
        engine: str | None = None,
        dry_run: bool = False,
    ) -> RewriteResult:
        """Rewrite small, large and partly deleted files, in this process or by Spark.

        The arguments are those of Iceberg's procedure. `engine` is `local`, `spark` or `auto`, as
        the option `frazil.engine`.
        """
        return rewrite_data_files(
            self.context,
            table,
            strategy=strategy,
            sort_order=sort_order,
            where=where,
            branch=branch,
            options=options,
            engine=engine,
            dry_run=dry_run,
        )

    def create_view(self, table: str, view: str | None = None, **scan_options: Any) -> str:
        """Register a scan as a temporary view for plain `spark.sql`; return the view's name."""
        name = view or table.rpartition(".")[2]
        self.table(table).scan(**scan_options).createOrReplaceTempView(name)
        return name
