"""PyIceberg, DuckDB and Spark read the correct rows from the trees that the server builds.

If a reader does not support a feature, the test asserts its refusal. The test then fails when
the reader gains support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from tests.commit.finegrained.requests import at_least, delete, eq
from tests.stock_clients.conftest import SPARK_CATALOG
from tests.stock_clients.declared import BY_PART, FLAT, SCHEMA, Http, RealTable, Row, rows
from tests.stock_clients.stock import duck_rows, spark_column, spark_rows
from tests.support.server import RunningServer

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
WITH_DELETES = pytest.mark.parametrize("version", [2, 3])


@pytest.fixture
def http(catalog_server: RunningServer) -> Iterator[Http]:
    transport = Http(catalog_server.url)
    yield transport
    transport.close()


@pytest.fixture
def new_table(http: Http, namespace: str) -> Callable[..., RealTable]:
    def make(**fields: Any) -> RealTable:
        table = RealTable(
            http,
            **{"namespace": namespace, "name": "t", "schema": SCHEMA, "spec": BY_PART} | fields,
        )
        table.create()
        return table

    return make


@dataclass(frozen=True)
class Readers:
    """The three readers on one table."""

    iceberg: Catalog
    duck: duckdb.DuckDBPyConnection
    spark: SparkSession
    namespace: str

    def pyiceberg(self, **scan: Any) -> list[Row]:
        found = self.iceberg.load_table((self.namespace, "t")).scan(**scan).to_arrow()
        return sorted(tuple(row.values()) for row in found.to_pylist())

    def duckdb(self, end: str = "") -> list[Row]:
        query = f"SELECT id, name, part FROM ice.{self.namespace}.t {end}"
        return sorted(duck_rows(self.duck, query))

    def sparks(self, end: str = "") -> list[Row]:
        return sorted(spark_rows(self.spark, f"SELECT id, name, part FROM t {end}"))

    def read(self, wanted: list[Row], *, without: tuple[str, ...] = ()) -> None:
        """Check that all readers except `without` return these rows; Spark must read everything."""
        assert self.sparks() == sorted(wanted)
        if "pyiceberg" not in without:
            assert self.pyiceberg() == sorted(wanted)
        if "duckdb" not in without:
            assert self.duckdb() == sorted(wanted)


@pytest.fixture
def readers(
    iceberg: Catalog, duck: duckdb.DuckDBPyConnection, sql: SparkSession, namespace: str
) -> Readers:
    return Readers(iceberg, duck, sql, namespace)


# --- data files -----------------------------------------------------------------------------------


@VERSIONS
def test_appends_overwrites_deletes_and_rewrites(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    table = new_table(version=version, properties={"commit.manifest.min-count-to-merge": "3"})
    a, b = table.write("a", 1, 2, 3), table.write("b", 4, 5, part="b")
    states = [(table.append(a, b), rows(1, 2, 3) + rows(4, 5, part="b"))]
    c = table.write("c", 6, part="c")
    states.append((table.append(c), [*states[-1][1], *rows(6, part="c")]))
    a2 = table.write("a2", 10, 11)
    states.append(
        (
            table.overwrite(remove=[a], add=[a2]),
            rows(10, 11) + rows(4, 5, part="b") + rows(6, part="c"),
        )
    )
    both = table.write("b2", 4, 5, part="b")
    states.append((table.replace(remove=[b], add=[both]), states[-1][1]))
    states.append((table.delete(row_filter=eq("part", "c")), rows(10, 11) + rows(4, 5, part="b")))
    d = table.write("d", 20, 21, part="b")
    states.append((table.replace_partitions(d), rows(10, 11) + rows(20, 21, part="b")))
    table.append(table.write("e", 30))
    readers.read(states[-1][1] + rows(30))
    for snapshot, wanted in states:
        number = snapshot["snapshot-id"]
        assert readers.sparks(f"VERSION AS OF {number}") == sorted(wanted)
        assert readers.pyiceberg(snapshot_id=number) == sorted(wanted)
        assert readers.duckdb(f"AT (VERSION => {number})") == sorted(wanted)


@VERSIONS
def test_filters_find_their_files(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    """Partition summaries, partition values and bounds do not hide any matching row."""
    table = new_table(version=version)
    for start in range(0, 40, 4):
        part = "even" if start % 8 == 0 else "odd"
        table.append(table.write(f"f{start}", *range(start, start + 4), part=part))
    for number in (0, 7, 16, 39):
        part = "even" if number // 4 % 2 == 0 else "odd"
        wanted = rows(number, part=part)
        assert readers.sparks(f"WHERE id = {number}") == wanted
        assert readers.pyiceberg(row_filter=f"id == {number}") == wanted
        assert readers.duckdb(f"WHERE id = {number}") == wanted
    evens = [
        row for start in range(0, 40, 8) for row in rows(*range(start, start + 4), part="even")
    ]
    assert readers.sparks("WHERE part = 'even'") == evens
    assert readers.pyiceberg(row_filter="part == 'even'") == evens
    assert readers.duckdb("WHERE part = 'even'") == evens


@VERSIONS
def test_branches_staged_snapshots_and_cherry_picks(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    table = new_table(version=version, spec=FLAT)
    table.append(table.write("a", 1))
    table.append(table.write("b", 2), branch="audit")
    staged = table.append(table.write("c", 3), stage_only=True, summary={"wap.id": "w"})
    table.append(table.write("d", 4))
    readers.read(rows(1, 4))
    assert readers.sparks("VERSION AS OF 'audit'") == rows(1, 2)
    assert readers.sparks(f"VERSION AS OF {staged['snapshot-id']}") == rows(1, 3)
    table.cherry_pick(staged)
    readers.read(rows(1, 3, 4))


@pytest.mark.parametrize("codec", ["gzip", "zstd", "snappy", "uncompressed"])
def test_codecs_of_manifests(
    new_table: Callable[..., RealTable], readers: Readers, codec: str
) -> None:
    """Each side reads and rewrites the manifests of the other.

    DuckDB's Avro reader crashes the whole process when it reads Zstandard. PyIceberg needs
    python-snappy to read Snappy.
    """
    table = new_table(spec=FLAT, properties={"write.manifest.compression-codec": codec})
    for number in range(3):
        answer = table.post(
            {"action": "append", "add-data-files": [table.write(f"f{number}", number)]}
        )
        assert answer.status == 200, answer.body
    without = {"zstd": ("duckdb",), "snappy": ("duckdb", "pyiceberg")}
    readers.read(rows(0, 1, 2), without=without.get(codec, ()))
    spark_rows(readers.spark, "INSERT INTO t VALUES (3, 'n3', 'a')")
    answer = table.post(delete(row_filter=eq("id", 1)))
    assert answer.status == 200, answer.body
    assert readers.sparks() == sorted([*rows(0, 2), (3, "n3", "a")])


# --- delete files ---------------------------------------------------------------------------------


def test_position_deletes(new_table: Callable[..., RealTable], readers: Readers) -> None:
    table = new_table(version=2)
    a, b = table.write("a", 1, 2, 3, 4), table.write("b", 5, 6, part="b")
    base = table.append(a, b)
    table.overwrite(
        add_deletes=[
            table.write_position_deletes("da", a, 0, 2),
            table.write_position_deletes("db", b, 1),
        ],
        add=[table.write("c", 7)],
    )
    left = rows(2, 4, 7) + rows(5, part="b")
    readers.read(left)
    table.overwrite(add_deletes=[table.write_position_deletes("da2", a, 1)])
    readers.read(rows(4, 7) + rows(5, part="b"))
    table.replace(remove=[a], add=[table.write("a-compact", 4)])
    table.append(table.write("later", 8))
    readers.read(rows(4, 7, 8) + rows(5, part="b"))
    assert readers.sparks(f"VERSION AS OF {base['snapshot-id']}") == rows(1, 2, 3, 4) + rows(
        5, 6, part="b"
    )


@WITH_DELETES
def test_equality_deletes(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    table = new_table(version=version, spec=FLAT)
    a = table.write("a", 1, 2, 3)
    base = table.append(a)["snapshot-id"]
    table.overwrite(
        add_deletes=[table.write_equality_deletes("eq", 1, 3)], add=[table.write("c", 3)]
    )
    readers.read(rows(2, 3), without=("pyiceberg",))
    with pytest.raises(ValueError, match="equality delet"):
        readers.pyiceberg()
    # Rewrite the file after the newer delete, with the old sequence number, so that it still
    # applies.
    table.append(table.write("other", 9), branch="other")
    table.replace(remove=[a], add=[table.write("a2", 1, 2, 3)], base=base, data_sequence_number=1)
    readers.read(rows(2, 3), without=("pyiceberg",))


@WITH_DELETES
def test_equality_deletes_of_one_partition(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    table = new_table(version=version)
    table.append(table.write("a", 1, 2), table.write("b", 1, 2, part="b"))
    table.overwrite(add_deletes=[table.write_equality_deletes("eq", 1)])
    readers.read(rows(2) + rows(1, 2, part="b"), without=("pyiceberg", "duckdb"))
    # DuckDB applies these deletes to the whole table.
    assert readers.duckdb() == rows(2) + rows(2, part="b")


def test_deletion_vectors(new_table: Callable[..., RealTable], readers: Readers) -> None:
    table = new_table(version=3)
    a, b, c = table.write("a", 1, 2, 3, 4), table.write("b", 5, 6, part="b"), table.write("c", 7, 8)
    table.append(a, b, c)
    vectors = table.write_vectors("v1", (a, [0, 2]), (b, [1]))
    table.overwrite(add_deletes=vectors)
    readers.read(rows(2, 4, 7, 8) + rows(5, part="b"))
    (more,) = table.write_vectors("v2", (a, [0, 1, 2]))
    table.overwrite(add_deletes=[more], remove_deletes=[vectors[0]], base=table.head_id)
    readers.read(rows(4, 7, 8) + rows(5, part="b"))
    table.delete(b)
    readers.read(rows(4, 7, 8))
    table.replace(remove=[a], add=[table.write("a2", 4)], base=table.head_id)
    readers.read(rows(4, 7, 8))


def test_a_table_grows_up(new_table: Callable[..., RealTable], readers: Readers) -> None:
    """After upgrades from version 1 to 3, the rows written in each version remain readable."""
    table = new_table(version=1)
    a = table.write("a", 1, 2, 3)
    table.append(a)
    table.commit({"action": "upgrade-format-version", "format-version": 2})
    table.version = 2
    b = table.write("b", 4, 5, 6)
    table.append(b)
    table.overwrite(add_deletes=[table.write_position_deletes("pa", a, 0)])
    readers.read(rows(2, 3, 4, 5, 6))
    table.commit({"action": "upgrade-format-version", "format-version": 3})
    table.version = 3
    (vector,) = table.write_vectors("vb", (b, [2]))
    table.overwrite(add_deletes=[vector])
    table.append(table.write("c", 7))
    readers.read(rows(2, 3, 4, 5, 7))


# --- row lineage ----------------------------------------------------------------------------------


def test_spark_sees_row_ids_that_stay(
    new_table: Callable[..., RealTable], readers: Readers
) -> None:
    table = new_table(version=3, spec=FLAT, properties={"commit.manifest.min-count-to-merge": "2"})
    query = "SELECT id, _row_id, _last_updated_sequence_number FROM t ORDER BY id"
    table.append(table.write("a", 0, 1, 2))
    table.append(table.write("b", 3, 4))
    first = spark_rows(readers.spark, query)
    assert [row[2] for row in first] == [1, 1, 1, 2, 2]
    table.append(table.write("c", 5))
    table.delete(table.data_path("b"))
    table.append(table.write("d", 6, 7))
    found = spark_rows(readers.spark, query)
    assert found[:3] == first[:3]
    numbers = [row[1] for row in found]
    assert len(set(numbers)) == len(numbers) == 6
    assert max(numbers) < table.metadata["next-row-id"]


# --- stock writers go on --------------------------------------------------------------------------


@WITH_DELETES
def test_spark_writes_on_our_trees_and_we_on_its(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    spark = readers.spark
    modes = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
    table = new_table(version=version, properties=modes)
    a = table.write("a", 1, 2, 3)
    table.append(a, table.write("b", 4, 5, part="b"))
    table.overwrite(add_deletes=[table.write_deletes("da", a, 0)])
    spark.sql("DELETE FROM t WHERE id = 2")
    spark.sql("INSERT INTO t VALUES (6, 'row-6', 'a')")
    spark.sql("UPDATE t SET name = 'changed' WHERE id = 4")
    left = [(3, "row-3", "a"), (4, "changed", "b"), (5, "row-5", "b"), (6, "row-6", "a")]
    readers.read(left)
    table.load()
    table.totals = False
    table.append(table.write("c", 7))
    table.delete(row_filter=at_least("id", 7))
    table.append(table.write("d", 8))
    readers.read([*left, *rows(8)])
    spark.sql(f"CALL {SPARK_CATALOG}.system.rewrite_manifests('{readers.namespace}.t')")
    table.load()
    table.replace(remove=[a], add=[table.write("a2", 3)])
    readers.read([*left, *rows(8)])
    spark.sql(f"CALL {SPARK_CATALOG}.system.rewrite_data_files('{readers.namespace}.t')")
    readers.read([*left, *rows(8)])


@pytest.mark.parametrize("version", [1, 2])
def test_we_go_on_with_trees_of_pyiceberg(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    """Our server rewrites and merges PyIceberg's manifests by copying their encoded entries."""
    table = new_table(version=version, properties={"commit.manifest.min-count-to-merge": "2"})
    stock = readers.iceberg.load_table((readers.namespace, "t"))
    for start in (0, 10):
        ids = [start, start + 1]
        columns = {"id": ids, "name": [f"row-{n}" for n in ids], "part": ["a", "b"]}
        stock.append(pa.table(columns))
    table.load()
    table.totals = False
    paths = stock.inspect.files()["file_path"].to_pylist()
    gone = next(path for path in paths if path in table_paths(table, "a"))
    table.delete(gone)
    (removed,) = [entry for entry in table.tree().entries if entry.file_path == gone]
    table.append(table.write("ours", 20))
    table.append(table.write("more", 21, part="b"))
    found = readers.sparks()
    assert len(found) == 5
    assert [row[0] for row in found if row[2] == "b"] == [1, 11, 21]
    assert removed.record_count == 1
    readers.read(found)
    stock.refresh().append(pa.table({"id": [30], "name": ["row-30"], "part": ["a"]}))
    readers.read([*found, *rows(30)])


def table_paths(table: RealTable, part: str) -> set[str]:
    return {e.file_path for e in table.tree().live.values() if e.partition == (part,)}


@WITH_DELETES
def test_we_go_on_with_trees_of_duckdb(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    table = new_table(
        version=version, spec=FLAT, properties={"commit.manifest.min-count-to-merge": "2"}
    )
    name = f"ice.{readers.namespace}.t"
    for number in range(3):
        values = f"({number}, 'row-{number}', 'a'), ({number + 10}, 'row-{number + 10}', 'a')"
        duck_rows(readers.duck, f"INSERT INTO {name} VALUES {values}")
    duck_rows(readers.duck, f"DELETE FROM {name} WHERE id = 11")
    left = rows(0, 1, 2, 10, 12)
    readers.read(left)
    table.load()
    table.totals = False
    table.append(table.write("ours", 20))
    table.delete(table.data_path("ours"))
    table.append(table.write("more", 21))
    readers.read([*left, *rows(21)])


def test_spark_shows_the_metadata_that_we_wrote(
    new_table: Callable[..., RealTable], readers: Readers
) -> None:
    table = new_table(version=2)
    a = table.write("a", 1, 2, 3)
    table.append(a, table.write("b", 4, part="b"))
    table.overwrite(add_deletes=[table.write_deletes("da", a, 0)])
    name = f"{readers.namespace}.t"
    files = spark_rows(
        readers.spark,
        f"SELECT content, record_count, partition.part FROM {name}.files ORDER BY 1, 3",
    )
    assert files == [(0, 3, "a"), (0, 1, "b"), (1, 1, "a")]
    operations = spark_column(
        readers.spark, f"SELECT operation FROM {name}.snapshots ORDER BY committed_at"
    )
    assert operations == ["append", "delete"]
    totals = spark_column(
        readers.spark,
        f"SELECT summary['total-records'] FROM {name}.snapshots ORDER BY committed_at",
    )
    assert totals == ["4", "4"]
    manifests = spark_rows(
        readers.spark,
        "SELECT content, added_data_files_count, added_delete_files_count,"
        f" partition_summaries FROM {name}.manifests ORDER BY 1",
    )
    assert [row[:3] for row in manifests] == [(0, 2, 0), (1, 0, 1)]
    bounds = [(found["lower_bound"], found["upper_bound"]) for _, _, _, (found,) in manifests]
    assert bounds == [("a", "b"), ("a", "a")]
    partitions = spark_rows(
        readers.spark,
        f"SELECT partition.part, record_count, position_delete_record_count FROM {name}.partitions"
        " ORDER BY 1",
    )
    assert partitions == [("a", 3, 1), ("b", 1, 0)]
