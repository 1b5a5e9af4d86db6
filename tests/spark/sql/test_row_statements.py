"""`session.sql` runs SELECT, INSERT, DELETE, UPDATE and MERGE."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from frazil.wire.errors import BadRequest, NoSuchTable

if TYPE_CHECKING:
    from frazil.spark.core.statement_runs import Result
    from frazil.spark.session import Session


@pytest.fixture
def shop(session: Session, namespace: str) -> Session:
    """Return a session in the test's namespace, with a table t of four rows in two partitions."""
    session.sql(f"USE {namespace}")
    session.sql("CREATE TABLE t (id BIGINT, v STRING, p INT) PARTITIONED BY (p)")
    session.sql("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 1), (4, 'd', 1)")
    return session


def _rows(session: Session, text: str, args: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(text, args).collect()]


def _files(session: Session) -> set[str]:
    return {path for (path,) in _rows(session, "SELECT file_path FROM t.files")}


def _ids(session: Session, table: str = "t") -> list[int]:
    return [row[0] for row in _rows(session, f"SELECT id FROM {table} ORDER BY id")]


# --- SELECT ---------------------------------------------------------------------------------------


def test_select_with_everything(shop: Session, namespace: str) -> None:
    """Queries support CTEs, subqueries, Spark's own views, full names and parameters."""
    shop.spark.createDataFrame([(1, "x"), (4, "y")], "id int, w string").createOrReplaceTempView(
        f"v_{namespace}"
    )
    found = _rows(
        shop,
        f"""WITH high AS (SELECT * FROM {namespace}.t WHERE id > :low)
        SELECT {namespace}.t.id, w, '{{braces}}', (SELECT count(*) FROM high) AS n
        FROM {namespace}.t JOIN v_{namespace} USING (id)
        WHERE t.p IN (SELECT p FROM frazil.{namespace}.t) ORDER BY 1""",
        {"low": 2},
    )
    assert found == [(1, "x", "{braces}", 2), (4, "y", "{braces}", 2)]
    shop.spark.catalog.dropTempView(f"v_{namespace}")
    left = [view.name for view in shop.spark.catalog.listTables() if "frazil" in view.name]
    assert left == []


def test_a_query_reads_only_the_files_that_its_condition_needs(
    own_session: Session, shop: Session, namespace: str
) -> None:
    """Our own reader plans the scan before Spark sees the condition."""
    text = f"SELECT x.v, _pos FROM {namespace}.t x WHERE x.p = 1 AND length(x.v) = 1 ORDER BY v"
    frame = own_session.sql(text)
    assert [tuple(row) for row in frame.collect()] == [("c", 0), ("d", 1)]
    assert len(frame.inputFiles()) == 1
    assert len(own_session.sql(f"SELECT v FROM {namespace}.t").inputFiles()) == 2


def test_temporary_views_hide_tables(shop: Session) -> None:
    shop.spark.range(7, 8).createOrReplaceTempView("t")
    try:
        assert _ids(shop) == [7]
    finally:
        shop.spark.catalog.dropTempView("t")
    assert _ids(shop) == [1, 2, 3, 4]


def test_a_query_keeps_the_snapshot_that_it_began_with(shop: Session) -> None:
    frame = shop.sql("SELECT a.id FROM t a JOIN t b ON a.id = b.id")
    shop.sql("INSERT INTO t VALUES (5, 'e', 1)")
    assert frame.count() == 4


def test_time_travel_and_branches(shop: Session, namespace: str) -> None:
    first = shop.table(f"{namespace}.t").load().head()
    shop.sql("ALTER TABLE t CREATE TAG begin")
    shop.sql("ALTER TABLE t CREATE BRANCH audit")
    shop.sql("INSERT INTO t.branch_audit VALUES (5, 'e', 1)")
    shop.sql("DELETE FROM t.branch_audit WHERE id = 1")
    shop.sql("INSERT INTO t VALUES (6, 'f', 1)")
    moments = {
        "t": [1, 2, 3, 4, 6],
        "t TIMESTAMP AS OF current_timestamp() + INTERVAL 1 HOUR": [1, 2, 3, 4, 6],
        "t.branch_audit": [2, 3, 4, 5],
        f"t VERSION AS OF {first}": [1, 2, 3, 4],
        f"t FOR SYSTEM_VERSION AS OF '{first}'": [1, 2, 3, 4],
        "t VERSION AS OF 'begin'": [1, 2, 3, 4],
        "t.tag_begin": [1, 2, 3, 4],
        f"{namespace}.t.snapshot_id_{first}": [1, 2, 3, 4],
    }
    columns = [f"(SELECT sort_array(collect_list(id)) FROM {moment})" for moment in moments]
    assert _rows(shop, f"SELECT {', '.join(columns)}") == [tuple(moments.values())]
    with pytest.raises(BadRequest, match="only a table or a branch"):
        shop.sql("INSERT INTO t.tag_begin VALUES (7, 'g', 1)")


@pytest.mark.parametrize("name", ["snapshots", "history", "refs"])
def test_metadata_tables_are_those_of_stock(
    shop: Session, stock: str, namespace: str, name: str
) -> None:
    shop.sql("ALTER TABLE t CREATE TAG begin RETAIN 3 DAYS")
    shop.sql("TRUNCATE TABLE t")
    ours = shop.sql(f"SELECT * FROM t.{name}")
    theirs = shop.spark.sql(f"SELECT * FROM {stock}.{namespace}.t.{name}")
    assert ours.columns == theirs.columns
    assert [field.dataType for field in ours.schema] == [field.dataType for field in theirs.schema]
    key = "name" if name == "refs" else "snapshot_id"
    assert sorted(ours.collect(), key=lambda row: row[key]) == sorted(
        theirs.collect(), key=lambda row: row[key]
    )
    with pytest.raises(BadRequest):
        shop.sql(f"DELETE FROM t.{name}")


def test_explain(shop: Session, namespace: str) -> None:
    ((plan,),) = _rows(shop, f"EXPLAIN SELECT {namespace}.t.id FROM t")
    assert "Physical Plan" in plan


def test_names_that_are_nowhere(shop: Session) -> None:
    with pytest.raises(NoSuchTable):
        shop.sql("SELECT * FROM frazil.nowhere.t")
    with pytest.raises(NoSuchTable):
        shop.sql("DELETE FROM nowhere")


# --- INSERT ---------------------------------------------------------------------------------------


def test_insert_by_position_and_by_name(shop: Session) -> None:
    shop.sql("INSERT INTO t (p, id) VALUES (2, 5), (DEFAULT, 6)")
    shop.sql("INSERT INTO t BY NAME SELECT 'g' AS v, 7L AS id")
    assert _rows(shop, "SELECT * FROM t WHERE id > 4 ORDER BY id") == [
        (5, None, 2),
        (6, None, None),
        (7, "g", None),
    ]
    with pytest.raises(BadRequest, match=r"takes 3 columns here \(id, v, p\), the query has 1"):
        shop.sql("INSERT INTO t SELECT 1")
    with pytest.raises(BadRequest, match="has no column nope"):
        shop.sql("INSERT INTO t (nope) VALUES (1)")


@pytest.mark.parametrize(
    ("statement", "mode", "expected"),
    [
        ("INSERT OVERWRITE t VALUES (9, 'z', 1)", "static", [9]),
        ("INSERT OVERWRITE t VALUES (9, 'z', 1)", "dynamic", [1, 2, 9]),
        ("INSERT OVERWRITE t PARTITION (p = 0) SELECT 9L, 'z'", "static", [3, 4, 9]),
        (
            "INSERT OVERWRITE t PARTITION (p = 0) SELECT id, v FROM t WHERE id > 3",
            "static",
            [3, 4, 4],
        ),
        ("INSERT INTO t REPLACE WHERE p = 1 SELECT 9L, 'z', 1", "static", [1, 2, 9]),
    ],
    ids=["full", "dynamic", "static-partition", "from-itself", "replace-where"],
)
def test_overwrite(shop: Session, statement: str, mode: str, expected: list[int]) -> None:
    setting = "spark.sql.sources.partitionOverwriteMode"
    files = _files(shop)
    shop.spark.conf.set(setting, mode)
    try:
        (row,) = shop.sql(statement).collect()
    finally:
        shop.spark.conf.unset(setting)
    assert (row.operation, row.rows_written) == ("overwrite", 1)
    assert _ids(shop) == expected
    assert row.rows_deleted == 4 + 1 - len(expected)
    assert (row.files_added, row.files_removed) == (1, len(files - _files(shop)))


def test_partition_must_be_a_column_of_the_partitions(shop: Session) -> None:
    with pytest.raises(BadRequest, match="not partitioned by that column"):
        shop.sql("INSERT OVERWRITE t PARTITION (v = 'a') SELECT 1L, 1")


# --- DELETE, UPDATE, MERGE ------------------------------------------------------------------------


def test_delete_and_update_with_queries_inside(shop: Session, namespace: str) -> None:
    (row,) = shop.sql("DELETE FROM t AS x WHERE x.id = (SELECT max(id) FROM t)").collect()
    assert (row.operation, row.rows_deleted, row.attempts) == ("delete", 1, 1)
    shop.sql(
        f"UPDATE t SET v = upper({namespace}.t.v), frazil.{namespace}.t.p = DEFAULT WHERE id = :id",
        {"id": 3},
    )
    assert _rows(shop, "SELECT * FROM t ORDER BY id") == [(1, "a", 0), (2, "b", 0), (3, "C", None)]
    with pytest.raises(BadRequest, match="set twice"):
        shop.sql("UPDATE t SET v = 'x', t.v = 'y'")


def test_merge_from_a_source_that_reads_the_target(shop: Session) -> None:
    (row,) = shop.sql(
        """MERGE INTO t USING (SELECT id + 2 AS id, v, p FROM t WHERE id >= 2) s ON t.id = s.id
        WHEN MATCHED AND s.id = 5 THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = concat(t.v, s.v)
        WHEN NOT MATCHED AND s.id = 6 THEN INSERT *
        WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'new')
        WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN UPDATE SET v = 'only'
        WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN DELETE"""
    ).collect()
    assert row.operation == "merge"
    assert _rows(shop, "SELECT * FROM t ORDER BY id") == [
        (1, "only", 0),
        (3, "c", 1),
        (4, "db", 1),
        (5, "new", None),
        (6, "d", 1),
    ]


def test_a_statement_that_reads_its_target_is_run_again_as_a_whole(
    shop: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another row is inserted between load and commit, and it then has the greatest id."""
    from frazil.spark.rows import row_changes

    delete = row_changes.delete
    runs: list[int] = []

    def late(*args: Any, **options: Any) -> Result:
        runs.append(1)
        if len(runs) == 1:
            shop.sql("INSERT INTO t VALUES (9, 'z', 1)")
        return delete(*args, **options)

    monkeypatch.setattr(row_changes, "delete", late)
    (row,) = shop.sql("DELETE FROM t WHERE id = (SELECT max(id) FROM t)").collect()
    assert (row.attempts, len(runs)) == (2, 2)
    assert _ids(shop) == [1, 2, 3, 4]


def test_truncate(shop: Session) -> None:
    (row,) = shop.sql("TRUNCATE TABLE t").collect()
    assert (row.rows_deleted, row.files_removed) == (4, 2)
    assert _ids(shop) == []


@pytest.mark.parametrize(("where", "rows", "files"), [("", 4, 2), ("WHERE p = 1", 2, 1)])
def test_a_delete_of_whole_files_counts_their_rows(
    shop: Session, where: str, rows: int, files: int
) -> None:
    (row,) = shop.sql(f"DELETE FROM t {where}").collect()
    assert (row.mode, row.rows_deleted, row.files_removed) == ("metadata", rows, files)


def test_a_replaced_table_says_that_its_numbers_are_unknown(shop: Session) -> None:
    (row,) = shop.sql("CREATE OR REPLACE TABLE t AS SELECT 1 AS id").collect()
    assert (row.rows_written, row.rows_deleted, row.files_removed) == (1, None, None)


# --- errors in the user's terms -------------------------------------------------------------------


def _message(session: Session, statement: str) -> str:
    with pytest.raises((AnalysisException, BadRequest, NoSuchTable)) as caught:
        session.sql(statement).collect()
    return str(caught.value)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("SELECT id FROM {t} WHERE nope > 2", "nope"),
        ("SELECT a.id FROM {t} a JOIN {t} AS b ON a.id = b.nope", "b.nope"),
        ("SELECT *\nFROM {t} VERSION\nAS OF {s} WHERE nope IS NULL", "nope"),
        ("SELECT '{{x}}' FROM {t} WHERE nosuch(id)", "nosuch"),
        ("SELECT count(*) FROM {t} WHERE {t}.v > ANY", "ANY"),
        ("SELECT * FROM {t} WHERE id = = 2", "= 2"),
    ],
)
@pytest.mark.parametrize("reader", ["session", "own_session"])
def test_a_position_is_that_of_the_users_text(
    request: pytest.FixtureRequest,
    shop: Session,
    namespace: str,
    query: str,
    word: str,
    reader: str,
) -> None:
    table = f"{namespace}.t"
    text = query.format(t=table, s=shop.client.load_table(table).head())
    message = _message(request.getfixturevalue(reader), text)
    before = text[: text.rindex(word)].split("\n")
    assert re.search(rf"line {len(before)},? pos {len(before[-1])}\b", message), message
    assert "_pyspark" not in message
    assert "SubqueryAlias" not in message


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("DELETE FROM t WHERE vv > 'a'", "no column vv here: did you mean 'v'?"),
        (
            "DELETE FROM t WHERE t.nope = 1",
            r"no column t.nope here: the columns are id, v, p",
        ),
        ("DELETE FROM t WHERE p = 9 AND nope = 1", "no column nope here"),
        (
            "INSERT INTO t REPLACE WHERE pp = 1 SELECT * FROM t",
            "no column pp here: did you mean 'p'?",
        ),
        ("UPDATE t SET v = 'x' WHERE idd = 1", "no column idd here: did you mean 'id'?"),
        ("UPDATE t SET v = upper(vv)", "no column vv here: did you mean 'v'?"),
        ("UPDATE t AS x SET v = x.vv WHERE x.id = 1", "no column x.vv here: did you mean 'v'?"),
        (
            "MERGE INTO t USING (SELECT 1 AS id) s ON t.idd = s.id WHEN MATCHED THEN DELETE",
            "no column t.idd here: did you mean 'id'?",
        ),
        (
            "MERGE INTO t USING (SELECT 1 AS id, 'x' AS w) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.ww",
            "no column s.ww here: did you mean 'w'?",
        ),
    ],
)
@pytest.mark.parametrize("reader", ["session", "own_session"])
def test_row_changes_suggest_the_columns_of_their_tables(
    request: pytest.FixtureRequest,
    shop: Session,
    namespace: str,
    statement: str,
    hint: str,
    reader: str,
) -> None:
    session: Session = request.getfixturevalue(reader)
    session.sql(f"USE {namespace}")
    message = _message(session, statement)
    assert f"{namespace}.t: there is {hint}" in message
    assert not re.search(r"_pos|_file|__frazil|line \d+", message)


def test_other_errors_of_row_changes_have_no_position(shop: Session) -> None:
    message = _message(shop, "DELETE FROM t WHERE nosuch(v) OR id = 1")
    assert "`nosuch`" in message
    assert "pos 0" not in message
    message = _message(shop, "INSERT INTO t SELECT idd, v, p FROM t")
    assert "`id`" in message
    assert "pos" not in message
    # A subquery has columns of its own, which Spark knows best.
    message = _message(shop, "DELETE FROM t WHERE id IN (SELECT idd FROM t x WHERE x.p = t.p)")
    assert "`id`" in message


def test_a_condition_is_checked_where_there_is_nothing_to_change(
    shop: Session, namespace: str
) -> None:
    shop.sql("TRUNCATE TABLE t")
    for statement in ("DELETE FROM t WHERE nope = 1", "UPDATE t SET v = 'x' WHERE nope = 1"):
        assert "there is no column nope here" in _message(shop, statement)
    shop.sql("CREATE TABLE never (id BIGINT)")
    assert "there is no column nope here" in _message(shop, "DELETE FROM never WHERE nope = 1")


@pytest.mark.parametrize("prefix", ["", "frazil."])
def test_a_misspelled_metadata_table_is_answered_with_the_nearest(
    shop: Session, namespace: str, prefix: str
) -> None:
    table = f"{prefix}{namespace}.t"
    message = _message(shop, f"SELECT * FROM {table}.snapshot")
    assert f"{namespace}.t has no metadata table snapshot: did you mean 'snapshots'?" in message
    message = _message(shop, f"SELECT * FROM {table}.zzzz")
    assert "zzzz: the metadata tables are all_data_files, " in message
    if not prefix:
        assert "did you mean 'files'?" in _message(shop, "SELECT * FROM t.file")


def test_a_procedure_of_icebergs_runtime_is_named_with_its_call(shop: Session) -> None:
    message = _message(shop, "CALL system.ancestors_of('t')")
    assert "no procedure ancestors_of; it has cherrypick_snapshot, " in message
    assert 'spark.sql("CALL frazil.system.…")' in message


def test_jobs_of_the_server_are_procedures_and_leave_a_record(
    shop: Session, namespace: str
) -> None:
    name = f"{namespace}.expired"
    shop.sql(f"CREATE TABLE {name} (id BIGINT)")
    for id in range(3):
        shop.sql(f"INSERT INTO {name} VALUES ({id})")
    call = f"CALL system.expire_snapshots('{name}', TIMESTAMP '2100-01-01 00:00:00', 1)"
    (row,) = shop.sql(call).collect()
    assert row.asDict().keys() == {
        "deleted_data_files_count",
        "deleted_position_delete_files_count",
        "deleted_equality_delete_files_count",
        "deleted_manifest_files_count",
        "deleted_manifest_lists_count",
        "deleted_statistics_files_count",
    }
    assert shop.sql(f"SELECT * FROM {name}.snapshots").count() == 1
    orphans = f"CALL system.remove_orphan_files(table => '{name}', dry_run => true)"
    assert shop.sql(orphans).columns == ["orphan_file_location"]
    recent = f"CALL system.remove_orphan_files('{name}', current_timestamp())"
    assert "older_than: files of the last 24 hours" in _message(shop, recent)
    runs = shop.sql(
        f"SELECT operation, state, dry_run FROM {name}.maintenance_runs ORDER BY created_at"
    ).collect()
    assert [tuple(run) for run in runs] == [
        ("expire_snapshots", "succeeded", False),
        ("remove_orphan_files", "succeeded", True),
    ]


def test_a_view_with_a_listing_is_searched_for_orphans(shop: Session, namespace: str) -> None:
    name = f"{namespace}.listed"
    shop.sql(f"CREATE TABLE {name} (id BIGINT)")
    shop.sql(f"INSERT INTO {name} VALUES (1)")
    ((live,),) = shop.sql(f"SELECT file_path FROM {name}.files").collect()
    folder = live.rpartition("/")[0]
    long_ago, now = datetime(2020, 1, 1), datetime.now()
    files = [
        (live, long_ago),
        (f"{folder}/orphan.parquet", long_ago),
        (f"{folder}/recent.parquet", now),
        (f"{folder}/unknown.parquet", None),
        ("s3://elsewhere/a.parquet", long_ago),
    ]
    listing = shop.spark.createDataFrame(files, "file_path string, last_modified timestamp")
    listing.createOrReplaceTempView("listing")
    find = (
        f"CALL system.remove_orphan_files('{name}', dry_run => true, file_list_view => 'listing')"
    )
    assert [row[0] for row in shop.sql(find).collect()] == [f"{folder}/orphan.parquet"]
    listing.selectExpr("file_path", "1 AS last_modified").createOrReplaceTempView("listing")
    assert "listing.last_modified is a int: it must be a timestamp" in _message(shop, find)
    listing.select("file_path").createOrReplaceTempView("listing")
    assert "listing.last_modified is missing" in _message(shop, find)


def test_delete_files_are_rewritten_by_procedures(shop: Session, namespace: str) -> None:
    name = f"{namespace}.deleted"
    shop.sql(
        f"CREATE TABLE {name} (id BIGINT, item STRING) TBLPROPERTIES ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"
    )
    shop.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    for id in (1, 3):
        shop.sql(f"DELETE FROM {name} WHERE id = {id}")
    call = f"CALL system.rewrite_position_delete_files(table => '{name}', options => map({{}}))"
    (row,) = shop.sql(call.format("'min-input-files', '2'")).collect()
    assert (row["rewritten_delete_files_count"], row["added_delete_files_count"]) == (2, 1)
    assert row["rewritten_bytes_count"] > row["added_bytes_count"] > 0
    assert sorted(r["id"] for r in shop.sql(f"SELECT id FROM {name}").collect()) == [2, 4]
    (row,) = shop.sql(f"CALL system.convert_equality_deletes('{name}', 'id < 9')").collect()
    assert row.asDict() == {
        "converted_equality_delete_files_count": 0,
        "added_position_delete_files_count": 0,
        "deleted_rows_count": 0,
    }
    (row,) = shop.sql(
        f"CALL system.rewrite_manifests(table => '{name}', use_caching => true, sort_by => array())"
    ).collect()
    assert row.asDict().keys() == {"rewritten_manifests_count", "added_manifests_count"}
    assert "nope is not a field of partition spec 0" in _message(
        shop, f"CALL system.rewrite_manifests(table => '{name}', sort_by => array('nope'))"
    )
    message = _message(shop, call.format("'min-input-file', '2'"))
    assert "min-input-file: it is not an option of rewrite_position_delete_files" in message


def test_data_files_are_rewritten_without_spark(shop: Session, namespace: str) -> None:
    shop.sql(f"CREATE TABLE {namespace}.many (id BIGINT, item STRING)")
    for number in range(3):
        shop.sql(f"INSERT INTO {namespace}.many VALUES ({number}, 'x')")
    (row,) = shop.sql(
        f"CALL system.rewrite_data_files(table => '{namespace}.many', where => 'id < 2',"
        " options => map('min-input-files', '2'))"
    ).collect()
    assert (row["rewritten_data_files_count"], row["added_data_files_count"]) == (2, 1)
    assert row["rewritten_bytes_count"] > 0
    assert shop.sql(f"SELECT count(*) FROM {namespace}.many.files").collect()[0][0] == 2
    assert sorted(r["id"] for r in shop.sql(f"SELECT id FROM {namespace}.many").collect()) == [
        0,
        1,
        2,
    ]
    message = _message(shop, f"CALL system.rewrite_data_files('{namespace}.many', 'sort')")
    assert "has no sort order: name one" in message
    shop.sql(f"CALL system.rewrite_data_files('{namespace}.many', 'sort', 'id DESC NULLS LAST')")
    assert shop.sql(f"SELECT count(*) FROM {namespace}.many.files").collect()[0][0] == 2
    shop.sql(
        f"CALL system.rewrite_data_files(table => '{namespace}.many',"
        " sort_order => 'zorder(id, item)', options => map('rewrite-all', 'true'))"
    )
    assert shop.sql(f"SELECT count(*) FROM {namespace}.many.files").collect()[0][0] == 1
    assert shop.sql(f"SELECT id FROM {namespace}.many").count() == 3
