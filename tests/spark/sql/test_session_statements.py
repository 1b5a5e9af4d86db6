"""Statements beside queries, changes and definitions behave as in stock Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException

from frazil.spark.session import Session
from frazil.wire.errors import BadRequest, NoSuchTable, UnsupportedOperation


@pytest.fixture
def name(session: Session, namespace: str) -> str:
    name = f"{namespace}.t"
    session.sql(
        f"CREATE TABLE {name} (id BIGINT COMMENT 'the key', cat STRING, `a b` DATE) "
        "PARTITIONED BY (cat)"
    )
    return name


@pytest.fixture
def view(session: Session) -> Iterator[str]:
    """Return a temporary view, which only Spark knows."""
    session.spark.range(3).createOrReplaceTempView("only_sparks")
    yield "only_sparks"
    session.spark.catalog.dropTempView("only_sparks")


@pytest.mark.parametrize(
    "statement",
    [
        "SHOW COLUMNS IN {t}",
        "SHOW COLUMNS FROM {t}.partitions",
        "DESCRIBE {t} id",
        "DESC TABLE {t} cat",
        "DESCRIBE QUERY SELECT id, cat FROM {t}",
    ],
)
def test_answers_are_those_of_stock_spark(
    session: Session, stock: str, name: str, statement: str
) -> None:
    ours = session.sql(statement.format(t=name))
    theirs = session.spark.sql(statement.format(t=f"{stock}.{name}"))
    assert ours.columns == theirs.columns
    assert ours.collect() == theirs.collect()


def test_columns_may_be_asked_for_in_several_ways(session: Session, name: str) -> None:
    namespace = name.split(".")[0]
    columns = [("id",), ("cat",), ("a b",)]
    assert session.sql(f"SHOW COLUMNS FROM t FROM frazil.{namespace}").collect() == columns
    session.sql(f"USE {namespace}")
    assert session.sql("SHOW COLUMNS IN t").collect() == columns
    assert session.sql("SHOW CURRENT NAMESPACE").collect() == [("frazil", namespace)]
    with pytest.raises(BadRequest, match="no column nope; it has id, cat, a b"):
        session.sql("DESCRIBE t nope")
    with pytest.raises(BadRequest, match="the namespace once"):
        session.sql(f"SHOW COLUMNS IN {name} IN other")
    described = session.sql("DESCRIBE t.refs").collect()
    assert described[0] == ("name", "string", None)


def test_tables_are_listed_with_their_description(session: Session, stock: str, name: str) -> None:
    namespace = name.split(".")[0]
    statement = f"SHOW TABLE EXTENDED IN {{}}{namespace} LIKE 't*'"
    (ours,) = session.sql(statement.format("")).collect()
    (theirs,) = session.spark.sql(statement.format(f"{stock}.")).collect()
    assert ours[:3] == theirs[:3]
    assert ours.asDict().keys() == theirs.asDict().keys()
    location = session.client.load_table(name).location
    for text in ("Table: t\n", f"Location: {location}\n", "Provider: iceberg\n", " |-- id: "):
        assert text in ours.information
        assert text in theirs.information
    with pytest.raises(BadRequest, match="LIKE and a pattern"):
        session.sql(f"SHOW TABLE EXTENDED IN {namespace}")


def test_comments_are_properties(session: Session, stock: str, name: str) -> None:
    namespace = name.split(".")[0]
    for target in (name, f"{stock}.{name}"):
        run = session.sql if target == name else session.spark.sql
        run(f"COMMENT ON TABLE {target} IS 'it\\'s {len(target)}'")
        assert session.client.load_table(name).properties["comment"] == f"it's {len(target)}"
        run(f"COMMENT ON TABLE {target} IS NULL")
        assert session.client.load_table(name).properties["comment"] == ""
    session.sql(f"COMMENT ON DATABASE frazil.{namespace} IS 'sales'")
    assert session.client.load_namespace(namespace)["comment"] == "sales"
    with pytest.raises(BadRequest, match="ALTER TABLE … ALTER COLUMN … COMMENT is for columns"):
        session.sql(f"COMMENT ON COLUMN {name}.id IS 'x'")
    with pytest.raises(NoSuchTable, match=f"{namespace}.nope"):
        session.sql(f"COMMENT ON TABLE {namespace}.nope IS 'x'")


@pytest.mark.parametrize(
    ("statement", "instead"),
    [
        ("ANALYZE TABLE {t} COMPUTE STATISTICS FOR ALL COLUMNS", "compute_table_stats.'{t}'"),
        ("SHOW PARTITIONS {t} PARTITION (cat = 'a')", r"SELECT \* FROM {t}.partitions"),
        ("CACHE LAZY TABLE {t}", r"session.table\(.{t}.\).scan\(\).cache\(\)"),
        ("MSCK REPAIR TABLE {t}", "its metadata knows its files"),
    ],
)
def test_what_stock_spark_refuses_says_what_to_do(
    session: Session, name: str, statement: str, instead: str
) -> None:
    with pytest.raises(UnsupportedOperation, match=instead.format(t=name)):
        session.sql(statement.format(t=name))


def test_statements_of_spark_reach_spark(session: Session, name: str, view: str) -> None:
    spark = session.spark
    session.sql("SET spark.frazil_test.text=it's -- no comment")
    assert spark.conf.get("spark.frazil_test.text") == "it's -- no comment"
    session.sql("-- it's\n/* two */ reset spark.frazil_test.text")
    assert spark.conf.get("spark.frazil_test.text", None) is None
    session.sql(f"INSERT INTO {name} VALUES (7, 'a', NULL)")
    session.sql("DECLARE OR REPLACE VARIABLE newest BIGINT DEFAULT 0")
    session.sql(f"SET VAR newest = (SELECT max(id) FROM {name})")
    assert session.sql("SELECT newest").collect() == [(7,)]
    session.sql("DROP TEMPORARY VARIABLE newest")
    assert session.sql("SHOW FUNCTIONS LIKE 'abs'").collect() == [("abs",)]
    assert session.sql("DESCRIBE FUNCTION abs").count() > 0
    assert ("spark_catalog",) in session.sql("SHOW CATALOGS").collect()
    for statement in ("SHOW COLUMNS IN {v}", "DESCRIBE {v} id", "DESCRIBE {v}"):
        text = statement.format(v=view)
        assert session.sql(text).collect() == spark.sql(text).collect()
    session.sql(f"CACHE TABLE {view}")
    session.sql(f"UNCACHE TABLE {view}")
    session.sql(f"REFRESH TABLE {name}")


def test_an_unknown_column_is_answered_with_all_columns(session: Session, name: str) -> None:
    for query in (f"SELECT nope FROM {name}", f"SELECT id FROM {name} WHERE nope = 1"):
        with pytest.raises(AnalysisException, match="`cat`"):
            session.sql(query)
