"""Stock Trino works with the catalog: DDL, changes, time travel, maintenance and views."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.support.s3 import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server
from tests.support.server import ServerFactory
from tests.support.trino import TrinoSession, running_trino

# Trino takes about a minute to start on two cores, and longer when it must be unpacked first.
pytestmark = pytest.mark.full


def use_tables(trino: TrinoSession) -> None:
    """Create tables and change them. Leave `ns.renamed` with the ids 2, 3 and 4."""
    run, value, rows = trino.rows, trino.value, trino.rows
    run("CREATE SCHEMA ns")
    assert ["ns"] in rows("SHOW SCHEMAS")
    run("CREATE TABLE ns.t (id bigint NOT NULL, name varchar, day date)")
    run("INSERT INTO ns.t VALUES (1, 'a', DATE '2026-01-01'), (2, 'b', DATE '2026-01-02')")
    first = value("SELECT snapshot_id FROM ns.\"t$refs\" WHERE name = 'main'")
    run("INSERT INTO ns.t VALUES (3, 'c', DATE '2026-02-01')")
    assert value("SELECT count(*) FROM ns.t") == 3
    run("DELETE FROM ns.t WHERE id = 1")
    run("UPDATE ns.t SET name = 'bb' WHERE id = 2")
    run(
        "MERGE INTO ns.t USING (VALUES (3, 'cc'), (4, 'd')) AS s (id, name) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = s.name"
        " WHEN NOT MATCHED THEN INSERT (id, name, day) VALUES (s.id, s.name, DATE '2026-03-01')"
    )
    assert rows("SELECT id, name FROM ns.t ORDER BY id") == [[2, "bb"], [3, "cc"], [4, "d"]]
    assert value(f"SELECT count(*) FROM ns.t FOR VERSION AS OF {first}") == 2

    run("ALTER TABLE ns.t ADD COLUMN amount double")
    run("ALTER TABLE ns.t RENAME COLUMN name TO label")
    run("COMMENT ON TABLE ns.t IS 'kept by Frazil'")
    run("UPDATE ns.t SET amount = 1.5 WHERE id = 4")
    assert rows("SELECT label, amount FROM ns.t WHERE id >= 3 ORDER BY id") == [
        ["cc", None],
        ["d", 1.5],
    ]
    run("ALTER TABLE ns.t SET PROPERTIES partitioning = ARRAY['month(day)']")
    run("ALTER TABLE ns.t EXECUTE optimize")
    run("ALTER TABLE ns.t DROP COLUMN amount")
    run("ALTER TABLE ns.t RENAME TO ns.renamed")
    assert value("SELECT count(*) FROM ns.renamed") == 3
    assert value('SELECT count(*) FROM ns."renamed$history"') >= 5


def use_maintenance(trino: TrinoSession) -> None:
    run, value = trino.rows, trino.value
    run(
        "CREATE TABLE ns.parts WITH (partitioning = ARRAY['bucket(id, 2)'])"
        " AS SELECT id, label FROM ns.renamed"
    )
    assert value("SELECT count(*) FROM ns.parts") == 3
    run("ANALYZE ns.parts")
    before = value("SELECT snapshot_id FROM ns.\"parts$refs\" WHERE name = 'main'")
    run("INSERT INTO ns.parts VALUES (9, 'gone')")
    run(f"ALTER TABLE ns.parts EXECUTE rollback_to_snapshot({before})")
    assert value("SELECT count(*) FROM ns.parts") == 3
    trino.rows("SET SESSION ice.expire_snapshots_min_retention = '0s'")
    run("ALTER TABLE ns.parts EXECUTE expire_snapshots(retention_threshold => '0s')")
    assert value('SELECT count(*) FROM ns."parts$snapshots"') == 1
    run("DROP TABLE ns.parts")


def use_views(trino: TrinoSession) -> None:
    run, rows = trino.rows, trino.rows
    run("CREATE VIEW ns.v AS SELECT id FROM ns.renamed WHERE id > 2")
    assert rows("SELECT id FROM ns.v ORDER BY id") == [[3], [4]]
    run("CREATE OR REPLACE VIEW ns.v AS SELECT id FROM ns.renamed WHERE id > 3")
    assert rows("SELECT id FROM ns.v") == [[4]]
    assert sorted(rows("SHOW TABLES FROM ns")) == [["renamed"], ["v"]]
    run("DROP VIEW ns.v")


def use_everything(trino: TrinoSession) -> None:
    use_tables(trino)
    use_maintenance(trino)
    use_views(trino)


def read_with_pyiceberg(url: str, **properties: str) -> list[int]:
    catalog = load_catalog("frazil", type="rest", uri=url, **properties)
    ids = catalog.load_table("ns.renamed").scan().to_arrow()["id"].to_pylist()
    return sorted(int(each) for each in ids)


def test_trino_on_local_files(server: ServerFactory, tmp_path: Path) -> None:
    running = server()
    files = {"fs.hadoop.enabled": "true"}
    with running_trino(tmp_path / "trino", running.url, **files) as trino:
        use_everything(trino)
        assert read_with_pyiceberg(running.url) == [2, 3, 4]
        trino.rows("DROP TABLE ns.renamed")
        trino.rows("DROP SCHEMA ns")


def test_trino_on_s3(
    server: ServerFactory, tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    running = server("--warehouse", f"{s3_bucket}/warehouse", env=s3_server.environ())
    files = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": s3_server.endpoint,
        "s3.region": REGION,
        "s3.path-style-access": "true",
        "s3.aws-access-key": ACCESS_KEY_ID,
        "s3.aws-secret-key": SECRET_ACCESS_KEY,
    }
    with running_trino(tmp_path / "trino", running.url, **files) as trino:
        use_everything(trino)
        keys = {"s3.access-key-id": ACCESS_KEY_ID, "s3.secret-access-key": SECRET_ACCESS_KEY}
        assert read_with_pyiceberg(running.url, **keys) == [2, 3, 4]
        trino.rows("DROP TABLE ns.renamed")
        trino.rows("DROP SCHEMA ns")
