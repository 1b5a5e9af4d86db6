"""Tables on S3 are written through Arrow and read by our own reader and by stock Spark.

Stock Spark uses its S3 bundle. The client has only its own keys; endpoint, region and path style
come from the catalog.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from frazil.datafiles.reading.file_storage import storage_of
from frazil.spark import connect
from frazil.spark.session import Session
from tests.conftest import SERVERS
from tests.spark.leftovers import strays
from tests.spark.stock_tables import COPY_ON_WRITE, MERGE_ON_READ, rows, table_properties
from tests.support.s3 import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server
from tests.support.server import RunningServer, running_server
from tests.support.spark import add_catalog

KEYS = {"s3.access-key-id": ACCESS_KEY_ID, "s3.secret-access-key": SECRET_ACCESS_KEY}
STOCK_ON_S3 = "stock_on_s3"
S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"

MERGE = """
    MERGE INTO {t} t USING (SELECT id + 6 AS id, concat('m', id) AS note FROM range(8)) s
    ON t.id = s.id
    WHEN MATCHED AND s.id = 7 THEN DELETE
    WHEN MATCHED THEN UPDATE SET note = s.note
    WHEN NOT MATCHED THEN INSERT *
"""
MERGED = [
    *((number, f"n{number}") for number in range(6)),
    *((number, f"m{number - 6}") for number in range(6, 14) if number != 7),
]


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.create_bucket(f"spark-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def server_on_s3(
    s3_server: S3Server, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    flags = ("--warehouse", f"{bucket}/warehouse")
    folder = tmp_path_factory.mktemp("spark-on-s3")
    with running_server(folder, *flags, env=s3_server.environ()) as server:
        yield server


@pytest.fixture(scope="module")
def stock_on_s3(spark: SparkSession, server_on_s3: RunningServer) -> str:
    add_catalog(spark, STOCK_ON_S3, server_on_s3.url, **KEYS, **{"io-impl": S3_FILE_IO})
    return STOCK_ON_S3


@pytest.fixture
def session_on_s3(
    spark: SparkSession,
    server_on_s3: RunningServer,
    bucket: str,
    request: pytest.FixtureRequest,
) -> Iterator[Session]:
    """Return a session that uses no jar and stages files on S3, as on a cluster."""
    request.node.stash.setdefault(SERVERS, []).append(server_on_s3)
    with connect(
        spark,
        server_on_s3.url,
        properties=KEYS,
        reader="own",
        writer="arrow",
        temp_dir=f"{bucket}/temporary",
    ) as session:
        yield session


@pytest.fixture
def name(session_on_s3: Session) -> str:
    namespace = f"ns_{uuid.uuid4().hex[:8]}"
    session_on_s3.client.create_namespace(namespace)
    return f"{namespace}.t"


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        (2, COPY_ON_WRITE),
        (2, MERGE_ON_READ),
        pytest.param(3, COPY_ON_WRITE, marks=pytest.mark.full),
        (3, MERGE_ON_READ),
    ],
)
def test_append_and_merge_on_s3(
    spark: SparkSession,
    session_on_s3: Session,
    stock_on_s3: str,
    bucket: str,
    name: str,
    version: int,
    mode: str,
) -> None:
    session_on_s3.sql(
        f"CREATE TABLE {name} (id BIGINT, note STRING) PARTITIONED BY (bucket(2, id))"
        f" {table_properties(version, mode)}"
    )
    first = spark.range(10).selectExpr("id", "concat('n', id) AS note")
    session_on_s3.table(name).append(first)
    assert session_on_s3.client.load_table(name).location.startswith(f"{bucket}/warehouse/")

    session_on_s3.sql(MERGE.format(t=name))
    assert rows(session_on_s3.table(name).scan()) == sorted(MERGED, key=repr)
    assert rows(spark.table(f"{stock_on_s3}.{name}")) == sorted(MERGED, key=repr)
    uri = session_on_s3.context.uri
    with connect(spark, uri, properties=KEYS, reader="jar") as by_jar:
        assert rows(by_jar.table(name).scan()) == sorted(MERGED, key=repr)
    assert strays(session_on_s3, name) == set()
    config = session_on_s3.client.load_table(name).config
    assert storage_of(KEYS, config).list(f"{bucket}/temporary") == []

    # In the other direction, we do not see rows that stock Spark deleted.
    spark.sql(f"DELETE FROM {stock_on_s3}.{name} WHERE id % 2 = 0")
    left = sorted((row for row in MERGED if row[0] % 2), key=repr)
    assert rows(session_on_s3.table(name).scan()) == left


def test_a_stream_on_s3(
    spark: SparkSession, session_on_s3: Session, stock_on_s3: str, name: str, tmp_path: Path
) -> None:
    """A query runs twice; the second run continues where the first one ended."""
    session_on_s3.sql(f"CREATE TABLE {name} (id BIGINT) {table_properties(3, MERGE_ON_READ)}")
    fed = tmp_path / "fed"
    fed.mkdir()

    def run() -> None:
        stream = spark.readStream.schema("id BIGINT").parquet(str(fed))
        query = session_on_s3.table(name).write_stream(
            stream, checkpoint_location=str(tmp_path / "checkpoint"), trigger="availableNow"
        )
        assert query.awaitTermination(100)

    for number in (1, 2):
        pq.write_table(pa.table({"id": pa.array([number])}), fed / f"{number}.parquet")
        run()
    run()
    assert len(session_on_s3.client.history(name)) == 2
    assert rows(session_on_s3.table(name).scan()) == [(1,), (2,)]
    assert rows(spark.table(f"{stock_on_s3}.{name}")) == [(1,), (2,)]
    assert strays(session_on_s3, name) == set()
