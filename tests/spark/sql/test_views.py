"""`session.sql` creates, reads, changes and drops views; stock Spark reads ours and we its."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frazil.spark import connect
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    NoSuchNamespace,
    NoSuchView,
    NotFound,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.client.catalog_client import Client
    from frazil.spark.session import Session

SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "type": "int", "required": False}],
}


def _rows(session: Session | SparkSession, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(text).collect()]


@pytest.fixture
def orders(session: Session, namespace: str) -> str:
    """Return a table of three orders."""
    name = f"{namespace}.orders"
    session.sql(f"CREATE TABLE {name} (id INT, item STRING, price DECIMAL(6, 2))")
    session.sql(f"INSERT INTO {name} VALUES (1, 'a', 2.50), (2, 'b', 3.00), (3, NULL, 4.00)")
    return name


# --- creating and reading -------------------------------------------------------------------------


def test_a_view_shows_what_its_table_has_now(
    each_session: Session, namespace: str, orders: str
) -> None:
    session = each_session
    session.sql(f"DELETE FROM {orders} WHERE id = 3")
    view = f"{namespace}.cheap"
    session.sql(f"CREATE VIEW {view} AS SELECT id, upper(item) AS item FROM {orders} WHERE id < 9")
    assert _rows(session, f"SELECT * FROM {view} ORDER BY id") == [(1, "A"), (2, "B")]
    session.sql(f"INSERT INTO {orders} VALUES (8, 'h', 1), (9, 'i', 1)")
    text = f"SELECT cheap.id, {view}.item FROM frazil.{view} WHERE frazil.{view}.id > 2"
    assert _rows(session, text) == [(8, "H")]
    assert _rows(session, f"SELECT count(*) FROM {view} AS v JOIN {orders} o ON v.id = o.id") == [
        (3,)
    ]


NAMES = (
    "SELECT id FROM `{ns}`.orders",
    "WITH orders AS (SELECT 7 AS id) SELECT id FROM orders",
    "SELECT orders.id FROM orders",
    "SELECT {ns}.orders.id FROM {ns}.orders",
    "SELECT frazil.{ns}.orders.id FROM frazil.{ns}.orders",
    "SELECT o.id FROM frazil.orders o WHERE EXISTS (SELECT 1 FROM orders WHERE id = o.id)",
    "FROM orders SELECT id",
    "SELECT id FROM orders WHERE '{{x}}' = '{{x}}' AND id IN (:one, 2)",
    "VALUES (1), (2)",
)


def test_names_in_a_view_mean_the_same_for_each_reader(
    session: Session, spark: SparkSession, namespace: str, orders: str, stock: str
) -> None:
    """A reader has another current namespace, and a temporary view of the same name."""
    expected = []
    session.sql(f"USE {namespace}")
    for number, text in enumerate(NAMES):
        query = text.format(ns=namespace)
        args = {"one": 1} if ":one" in query else None
        expected.append(sorted(tuple(row) for row in session.sql(query, args).collect()))
        session.sql(f"CREATE VIEW v{number} (number) AS {query}", args)
    session.sql("USE frazil")
    session.sql("CREATE TEMPORARY VIEW orders AS SELECT -1 AS id")
    try:
        for number, rows in enumerate(expected):
            view = f"{namespace}.v{number}"
            assert sorted(_rows(session, f"SELECT number FROM {view}")) == rows
            assert sorted(_rows(spark, f"SELECT number FROM {stock}.{view}")) == rows
    finally:
        session.sql("DROP VIEW orders")


def test_columns_have_the_names_types_and_comments_of_the_view(
    session: Session, spark: SparkSession, namespace: str, orders: str, stock: str
) -> None:
    view = f"{namespace}.v"
    session.sql(
        f"CREATE VIEW {view} (`the key` COMMENT 'it\\'s first', again, sum, list, tree) AS "
        "SELECT id, id, price * 2, array(item), named_struct('x', map(item, price)) "
        f"FROM {orders}"
    )
    ours = session.sql(f"SELECT * FROM {view}").schema
    theirs = spark.sql(f"SELECT * FROM {stock}.{view}").schema
    assert ours.simpleString() == theirs.simpleString()
    assert ours[0].metadata["comment"] == theirs[0].metadata["comment"] == "it's first"
    described = _rows(session, f"DESCRIBE {view}")
    assert described[:2] == [("the key", "int", "it's first"), ("again", "int", "")]
    assert described == _rows(spark, f"DESCRIBE {stock}.{view}")
    assert _rows(session, f"SELECT `the key`, again, sum FROM {view} WHERE again = 1") == _rows(
        spark, f"SELECT `the key`, again, sum FROM {stock}.{view} WHERE again = 1"
    )


def test_views_on_views_in_other_namespaces(
    each_session: Session, spark: SparkSession, client: Client, namespace: str, stock: str
) -> None:
    session = each_session
    other = f"{namespace}_other"
    client.create_namespace(other)
    session.sql(f"CREATE TABLE {other}.t AS SELECT id FROM VALUES (1), (2), (3) AS x(id)")
    session.sql(f"USE {other}")
    session.sql("CREATE VIEW odd AS SELECT id FROM t WHERE id % 2 = 1")
    session.sql(f"CREATE VIEW {namespace}.sums AS SELECT sum(id) AS total FROM odd")
    session.sql("USE frazil")
    text = "SELECT total, (SELECT max(id) FROM {0}{1}.odd) FROM {0}{2}.sums"
    assert _rows(session, text.format("", other, namespace)) == [(4, 3)]
    assert _rows(spark, text.format(f"{stock}.", other, namespace)) == [(4, 3)]


def test_a_view_of_an_older_snapshot(session: Session, namespace: str, orders: str) -> None:
    view = f"{namespace}.first"
    session.sql(f"ALTER TABLE {orders} CREATE TAG start")
    session.sql(f"CREATE VIEW {view} AS SELECT * FROM {orders} VERSION AS OF 'start'")
    session.sql(f"DELETE FROM {orders} WHERE id > 1")
    assert _rows(session, f"SELECT count(*) FROM {view}") == [(3,)]


def test_a_select_star_view_keeps_its_columns(
    session: Session, spark: SparkSession, namespace: str, orders: str, stock: str
) -> None:
    """Later columns of the table are not in the view, as in stock Spark."""
    view = f"{namespace}.everything"
    session.sql(f"CREATE VIEW {view} AS SELECT * FROM {orders}")
    session.sql(f"ALTER TABLE {orders} ADD COLUMN more INT")
    assert session.sql(f"SELECT * FROM {view}").columns == ["id", "item", "price"]
    assert spark.sql(f"SELECT * FROM {stock}.{view}").columns == ["id", "item", "price"]
    session.sql(f"ALTER TABLE {orders} ALTER COLUMN id TYPE BIGINT")
    with pytest.raises(BadRequest, match=r"column id is int, but its query has bigint there now"):
        session.sql(f"SELECT * FROM {view}")
    session.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {orders}")
    assert session.sql(f"SELECT * FROM {view}").columns == ["id", "item", "price", "more"]


def test_statements_that_write_read_views(session: Session, namespace: str, orders: str) -> None:
    """A statement whose target is read by its source through a view runs from one snapshot."""
    view, copy = f"{namespace}.v", f"{namespace}.copy"
    session.sql(f"CREATE VIEW {view} AS SELECT id + 10 AS id, item, price FROM {orders}")
    session.sql(f"CREATE TABLE {copy} AS SELECT * FROM {view}")
    session.sql(f"INSERT INTO {orders} SELECT * FROM {view}")
    session.sql(
        f"MERGE INTO {orders} t USING {view} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET item = 'met' WHEN NOT MATCHED THEN INSERT *"
    )
    session.sql(f"DELETE FROM {orders} WHERE id IN (SELECT id FROM {copy} WHERE id = 12)")
    session.sql(f"UPDATE {orders} SET item = 'both' WHERE id IN (SELECT id FROM {view})")
    expected = [(1, "a"), (2, "b"), (3, None), (11, "both"), (13, "both"), (21, "met")]
    rows = _rows(session, f"SELECT id, item FROM {orders} WHERE id < 22 ORDER BY id")
    assert [row for row in rows if row[0] != 21] == expected[:-1]


def test_readers_of_frames_read_views(session: Session, namespace: str, orders: str) -> None:
    view = f"{namespace}.v"
    session.sql(f"CREATE VIEW {view} AS SELECT id AS number FROM {orders}")
    assert sorted(row[0] for row in session.read.table(view).collect()) == [1, 2, 3]
    scanned = session.table(view).scan("number > 1", columns=["number"])
    assert sorted(row[0] for row in scanned.collect()) == [2, 3]
    session.create_view(view, "by_name")
    assert session.spark.sql("SELECT count(*) FROM by_name").collect()[0][0] == 3
    session.spark.catalog.dropTempView("by_name")
    with pytest.raises(BadRequest, match="is a view"):
        session.read.option("snapshot-id", 1).table(view)
    with pytest.raises(BadRequest, match="is a view"):
        session.table(view).scan(snapshot=1)


# --- refusals -------------------------------------------------------------------------------------


def test_what_a_view_cannot_do(session: Session, namespace: str, orders: str) -> None:
    view = f"{namespace}.v"
    session.sql(f"CREATE VIEW {view} AS SELECT id, item, price FROM {orders}")
    for text in (
        f"INSERT INTO {view} VALUES (1, 'a', 1)",
        f"DELETE FROM {view}",
        f"UPDATE {view} SET id = 1",
        f"MERGE INTO {view} t USING {orders} s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"TRUNCATE TABLE {view}",
        f"ALTER TABLE {view} ADD COLUMN x INT",
        f"DROP TABLE {view}",
    ):
        with pytest.raises(BadRequest, match=rf"{view} is a view"):
            session.sql(text)
    with pytest.raises(BadRequest, match="is a view"):
        session.table(view).append(session.spark.range(1))
    for clause in ("VERSION AS OF 1", "TIMESTAMP AS OF now()"):
        with pytest.raises(BadRequest, match="is a view, so it has no version or time to read"):
            session.sql(f"SELECT * FROM {view} {clause}")
    with pytest.raises(AlreadyExists):
        session.sql(f"CREATE TABLE {view} (id INT)")
    with pytest.raises(AlreadyExists):
        session.sql(f"CREATE OR REPLACE VIEW {orders} AS SELECT 1 AS id")
    with pytest.raises(BadRequest, match="is a table: use DROP TABLE"):
        session.sql(f"DROP VIEW {orders}")


def test_a_view_that_others_could_not_read_is_refused(
    session: Session, namespace: str, orders: str
) -> None:
    spark = session.spark
    spark.range(1).createOrReplaceTempView("numbers")
    spark.udf.register("twice", lambda value: value, "int")
    create = f"CREATE VIEW {namespace}.v"
    with pytest.raises(BadRequest, match="temporary view numbers"):
        session.sql(f"{create} AS SELECT * FROM {orders} WHERE id IN (SELECT id FROM numbers)")
    with pytest.raises(BadRequest, match="cannot use twice"):
        session.sql(f"{create} AS SELECT twice(id) AS id FROM {orders}")
    with pytest.raises(NotFound, match=r"orders has no namespace"):
        session.sql(f"{create} AS SELECT * FROM orders")
    with pytest.raises(NotFound, match=r"Table does not exist: frazil.default.x"):
        session.sql(f"{create} AS SELECT * FROM default.x")
    with pytest.raises(BadRequest, match=r"nope"):
        session.sql(f"{create} AS SELECT nope FROM {orders}")
    with pytest.raises(
        BadRequest, match=r"names 1 columns \(a\), but the query has 2 \(id, item\)"
    ):
        session.sql(f"{create} (a) AS SELECT id, item FROM {orders}")
    with pytest.raises(BadRequest, match="two columns id: rename one"):
        session.sql(f"{create} AS SELECT id, id FROM {orders}")
    with pytest.raises(BadRequest, match="Iceberg has no type"):
        session.sql(f"{create} AS SELECT INTERVAL 1 DAY AS day FROM {orders}")
    with pytest.raises(BadRequest, match="USE ns"):
        session.sql("CREATE VIEW v AS SELECT 1 AS id")
    with pytest.raises(NoSuchNamespace):
        session.sql("CREATE VIEW nowhere.v AS SELECT 1 AS id")
    spark.catalog.dropTempView("numbers")
    spark.sql("DROP TEMPORARY FUNCTION twice")
    assert session.client.list_views(namespace) == []


def test_cycles_are_named(session: Session, client: Client, namespace: str) -> None:
    a, b = f"{namespace}.a", f"{namespace}.b"
    session.sql(f"CREATE VIEW {a} AS SELECT 1 AS id")
    session.sql(f"CREATE VIEW {b} AS SELECT * FROM {a}")
    message = rf"the view {a} reads itself: {a} -> {b} -> {a}"
    with pytest.raises(BadRequest, match=message):
        session.sql(f"CREATE OR REPLACE VIEW {a} AS SELECT id FROM {b}")
    with pytest.raises(BadRequest, match=message):
        session.sql(f"ALTER VIEW {a} AS SELECT id FROM {b}")
    client.replace_view(a, SCHEMA, f"SELECT id FROM {b}")
    with pytest.raises(BadRequest, match=message):
        session.sql(f"SELECT * FROM {a}")
    session.sql(f"CREATE TABLE {namespace}.t (id INT)")
    with pytest.raises(BadRequest, match=message):
        session.sql(f"INSERT INTO {namespace}.t SELECT * FROM {a}")


def test_a_view_that_cannot_be_read_says_why(
    session: Session, client: Client, namespace: str, orders: str
) -> None:
    view = f"{namespace}.v"
    client.create_view(view, SCHEMA, {"trino": f'SELECT "id" FROM {orders}'})
    with pytest.raises(NotFound, match=rf"{view}.*no SQL in the dialect spark.*trino"):
        session.sql(f"SELECT * FROM {view}")
    client.drop_view(view)
    client.create_view(view, SCHEMA, f"SELECT id FROM {orders}", default_catalog="prod")
    with pytest.raises(NotFound, match=r"the catalog prod, .*spark\.sql\.catalog\.prod"):
        session.sql(f"SELECT * FROM {view}")
    for catalog in (None, "spark_catalog"):
        client.replace_view(view, SCHEMA, f"SELECT id FROM lake.{orders}", default_catalog=catalog)
        with pytest.raises(NotFound, match=r"the catalog lake, .*sql_catalog='lake'"):
            session.sql(f"SELECT * FROM {view}")
        with connect(session.spark, session.context.uri, sql_catalog="lake") as lake:
            assert sorted(_rows(lake, f"SELECT * FROM lake.{view}")) == [(1,), (2,), (3,)]
        session.spark.conf.unset("spark.sql.catalog.lake")
    session.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT id, item FROM {orders}")
    session.sql(f"ALTER TABLE {orders} DROP COLUMN item")
    with pytest.raises(BadRequest, match=rf"the query of view {view} fails.*item"):
        session.sql(f"SELECT * FROM {view}")
    session.sql(f"DROP TABLE {orders}")
    with pytest.raises(NotFound, match=rf"view {view}: Table does not exist: frazil.{orders}"):
        session.sql(f"SELECT id FROM {view}")


# --- definitions ----------------------------------------------------------------------------------


def test_a_view_is_stored_as_stock_spark_stores_it(
    session: Session, spark: SparkSession, client: Client, namespace: str, orders: str, stock: str
) -> None:
    statement = (
        "CREATE VIEW {} (number COMMENT 'the id', item) COMMENT 'all orders' "
        "TBLPROPERTIES ('k' = 'v') AS SELECT id, item FROM {}"
    )
    session.sql(statement.format(f"{namespace}.ours", f"frazil.{orders}"))
    spark.sql(f"USE {stock}.{namespace}")
    try:
        spark.sql(statement.format("theirs", orders))
    finally:
        spark.sql("USE spark_catalog.default")
    ours, theirs = (client.load_view(f"{namespace}.{name}") for name in ("ours", "theirs"))
    assert ours.properties == theirs.properties
    assert ours.sql() == f"SELECT id, item FROM {orders}"
    assert theirs.sql() == f"SELECT id, item FROM {orders}"
    assert [(f.name, str(f.type), f.doc) for f in ours.schema.fields] == [
        (f.name, str(f.type), f.doc) for f in theirs.schema.fields
    ]
    for key in ("engine-name", "engine-version", "app-id"):
        assert ours.current_version.summary[key] == theirs.current_version.summary[key]
    assert ours.current_version.default_catalog == theirs.current_version.default_catalog
    assert _rows(session, f"SELECT * FROM {namespace}.theirs ORDER BY 1") == _rows(
        spark, f"SELECT * FROM {stock}.{namespace}.ours ORDER BY 1"
    )
    shown = dict(row[:2] for row in _rows(session, f"DESCRIBE EXTENDED {namespace}.theirs"))
    expected = _rows(spark, f"DESCRIBE EXTENDED {stock}.{namespace}.theirs")
    assert shown.pop("View Catalog and Namespace") == f"frazil.{namespace}"
    assert shown.items() <= dict(row[:2] for row in expected).items()


@pytest.mark.parametrize("place", ["catalog", "namespace", "elsewhere"])
def test_views_of_stock_spark_are_read(
    each_session: Session, spark: SparkSession, namespace: str, orders: str, stock: str, place: str
) -> None:
    """Stock Spark made the view from different current catalogs and namespaces."""
    at = {"catalog": stock, "namespace": f"{stock}.{namespace}", "elsewhere": "spark_catalog"}
    table = {"catalog": orders, "namespace": "orders", "elsewhere": f"{stock}.{orders}"}[place]
    spark.sql(f"USE {at[place]}")
    try:
        spark.sql(f"CREATE VIEW {stock}.{namespace}.one AS SELECT * FROM {table} WHERE id < 3")
        spark.sql(f"CREATE VIEW {stock}.{namespace}.two AS SELECT id FROM {stock}.{namespace}.one")
    finally:
        spark.sql("USE spark_catalog.default")
    for view in ("one", "two"):
        text = f"SELECT id FROM {namespace}.{view} ORDER BY id"
        assert _rows(each_session, text) == [(1,), (2,)]


def test_changes_of_a_view(
    session: Session, spark: SparkSession, client: Client, namespace: str, orders: str, stock: str
) -> None:
    view = f"{namespace}.v"
    session.sql(f"CREATE VIEW {view} COMMENT 'c' AS SELECT id FROM {orders}")
    with pytest.raises(AlreadyExists):
        session.sql(f"CREATE VIEW {view} AS SELECT 1 AS id")
    session.sql(f"CREATE VIEW IF NOT EXISTS {view} AS SELECT 1 AS id")
    assert len(client.load_view(view).versions) == 1
    session.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT item FROM {orders}")
    session.sql(f"ALTER VIEW {view} AS SELECT price FROM {orders}")
    loaded = client.load_view(view)
    assert [field.name for field in loaded.schema.fields] == ["price"]
    assert len(loaded.versions) == 3
    assert loaded.properties["comment"] == "c"
    assert loaded.properties["spark.query-column-names"] == "price"
    session.sql(f"ALTER VIEW {view} SET TBLPROPERTIES ('a' = '1', 'b' = '2')")
    session.sql(f"ALTER VIEW {view} UNSET TBLPROPERTIES ('a')")
    assert _rows(session, f"SHOW TBLPROPERTIES {view} ('b')") == [("b", "2")]
    ours = _rows(session, f"SHOW TBLPROPERTIES {view}")
    assert sorted(ours) == sorted(_rows(spark, f"SHOW TBLPROPERTIES {stock}.{view}"))
    with pytest.raises(BadRequest, match="no property a: add IF EXISTS"):
        session.sql(f"ALTER VIEW {view} UNSET TBLPROPERTIES ('a')")
    session.sql(f"ALTER VIEW {view} UNSET TBLPROPERTIES IF EXISTS ('a')")
    with pytest.raises(BadRequest, match="location cannot be set or removed"):
        session.sql(f"ALTER VIEW {view} SET TBLPROPERTIES ('location' = '/x')")
    session.sql(f"ALTER VIEW frazil.{view} RENAME TO w")
    assert _rows(session, f"SHOW VIEWS IN {namespace} LIKE 'W|x'") == [(namespace, "w", False)]
    assert _rows(session, f"SHOW TABLES IN {namespace}") == [(namespace, "orders", False)]
    session.sql(f"DROP VIEW {namespace}.w")
    session.sql(f"DROP VIEW IF EXISTS {namespace}.w")
    with pytest.raises(NoSuchView):
        session.sql(f"DROP VIEW {namespace}.w")
    session.sql(f"CREATE VIEW {view} AS SELECT 1 AS id")
    session.sql(f"DROP NAMESPACE {namespace} CASCADE")


def test_show_create_makes_the_view_again(
    session: Session, client: Client, namespace: str, orders: str
) -> None:
    view = f"{namespace}.`my view`"
    session.sql(
        f"CREATE VIEW {view} (`a b` COMMENT 'it''s', c) COMMENT 'say \"x\"' "
        f"TBLPROPERTIES ('k' = 'v\\\\w') AS SELECT id, item FROM {orders}"
    )
    first = client.load_view((namespace, "my view"))
    ((text,),) = _rows(session, f"SHOW CREATE TABLE {view}")
    session.sql(f"DROP VIEW {view}")
    session.sql(text)
    again = client.load_view((namespace, "my view"))
    assert again.properties == first.properties
    assert again.schema_document == first.schema_document
    assert again.sql() == first.sql()


# --- temporary views ------------------------------------------------------------------------------


def test_temporary_views_show_what_their_tables_have_now(
    each_session: Session, namespace: str, orders: str
) -> None:
    session, spark = each_session, each_session.spark
    session.sql(f"USE {namespace}")
    session.sql("CREATE VIEW v AS SELECT id, item FROM orders")
    session.sql("CREATE TEMPORARY VIEW few (a COMMENT 'x', b) AS SELECT * FROM v WHERE id > 1")
    session.sql("CREATE OR REPLACE GLOBAL TEMP VIEW many AS SELECT item, a FROM orders, few")
    session.sql("USE frazil")
    try:
        session.sql(f"INSERT INTO {orders} VALUES (4, 'd', 1)")
        assert sorted(_rows(session, "SELECT FEW.a FROM Few")) == [(2,), (3,), (4,)]
        assert _rows(session, "SELECT count(*) FROM global_temp.many") == [(12,)]
        session.sql(f"INSERT INTO {orders} (id) SELECT a + 10 FROM few WHERE a = 4")
        assert _rows(session, f"SELECT count(*) FROM {orders} WHERE id = 14") == [(1,)]
        # Spark's own view is the frame as it was.
        assert sorted(_rows(spark, "SELECT a FROM few")) == [(2,), (3,)]
        spark.table("few").where("a = 2").createOrReplaceTempView("few")
        assert _rows(session, "SELECT a FROM few") == [(2,)]
    finally:
        session.sql("DROP VIEW IF EXISTS few")
        session.sql("DROP VIEW global_temp.many")


def test_temporary_views_are_listed_and_replaced(session: Session, namespace: str) -> None:
    session.sql(f"CREATE VIEW {namespace}.v AS SELECT 1 AS id")
    session.sql(f"CREATE TEMPORARY VIEW own_one AS SELECT id FROM {namespace}.v")
    session.sql("CREATE TEMPORARY VIEW own_two AS SELECT id FROM own_one")
    session.sql("CREATE GLOBAL TEMPORARY VIEW own_three AS SELECT id FROM own_two")
    try:
        with pytest.raises(AlreadyExists, match="CREATE OR REPLACE TEMPORARY VIEW"):
            session.sql("CREATE TEMPORARY VIEW own_one AS SELECT 1 AS a")
        for text in ("own_one", "own_two", "global_temp.own_three"):
            with pytest.raises(BadRequest, match="own_one would read itself"):
                session.sql(f"CREATE OR REPLACE TEMP VIEW own_one AS SELECT id FROM {text}")
        with pytest.raises(BadRequest, match="two columns id"):
            session.sql("CREATE TEMP VIEW x (id, ID) AS SELECT 1, 2")
        with pytest.raises(BadRequest, match="own_one is a view, so it has no version"):
            session.sql("SELECT * FROM own_one VERSION AS OF 1")
        shown = _rows(session, f"SHOW VIEWS IN {namespace} LIKE 'own*|v'")
        assert shown == [("", "own_one", True), ("", "own_two", True), (namespace, "v", False)]
        shown = _rows(session, "SHOW VIEWS IN global_temp")
        assert ("global_temp", "own_three", True) in shown
    finally:
        for name in ("own_one", "own_two", "global_temp.own_three"):
            session.sql(f"DROP VIEW {name}")
    session.sql("DROP VIEW IF EXISTS own_one")
