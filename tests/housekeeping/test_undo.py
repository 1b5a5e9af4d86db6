"""An expired snapshot comes back with everything that it needs, until its files are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.commit.pipeline.pending_requests import Context
from frazil.housekeeping.expiration_plan import ExpireOptions
from frazil.housekeeping.server_operations import JobRun
from frazil.housekeeping.undo import NoSuchQuarantine, UndoResult, undo, undo_expiry
from frazil.wire.errors import BadRequest, ValidationError
from tests.commit.finegrained.world import World
from tests.housekeeping.tables_on_disk import HOUR_MS, TableOnDisk, new_table

CLEAN = ExpireOptions(older_than_ms=2**53, clean_expired_metadata=True)


@pytest.fixture
def shop(shared_world: World) -> TableOnDisk:
    return new_table(shared_world, {"frazil.gc.quarantine-ms": str(HOUR_MS)})


def bring_back(shop: TableOnDisk, snapshot_id: int, **options: str) -> UndoResult:
    named = {"snapshot_id": str(snapshot_id), **options}
    run = JobRun(shop.identifier, shop.uuid, named, False, "p", lambda *_: None, lambda: False)
    result = undo(shop.tools, run)
    shop.table.load()
    return result


def test_a_snapshot_comes_back_with_a_tag(shop: TableOnDisk) -> None:
    first = shop.append("a")
    shop.delete("a")
    shop.append("b")
    before = shop.table.snapshot(first)
    shop.expire()
    log = shop.table.metadata["snapshot-log"]
    result = bring_back(shop, first)
    assert result.tag == f"undo-{first}"
    assert shop.table.snapshot(first) == before
    assert shop.table.metadata["refs"][f"undo-{first}"] == {"snapshot-id": first, "type": "tag"}
    assert shop.table.metadata["snapshot-log"] == log
    assert first not in shop.expired_ids()
    shop.set_properties(frazil_gc_quarantine__ms="0")
    shop.expire()
    assert shop.names() == {"a", "b"}
    shop.check()


def test_the_tag_stays_even_if_the_table_drops_old_tags(shop: TableOnDisk) -> None:
    first = shop.append("a")
    shop.append("b")
    shop.set_properties(history_expire_max__ref__age__ms="1")
    shop.expire()
    bring_back(shop, first, tag="mine")
    shop.expire()
    assert "mine" in shop.table.metadata["refs"]


def test_removed_schemas_and_specs_come_back(shop: TableOnDisk) -> None:
    first = shop.append("a")
    schema = dict(shop.table.metadata["schemas"][0], **{"schema-id": 1})
    schema["fields"] = [
        *schema["fields"],
        {"id": 90, "name": "x", "type": "int", "required": False},
    ]
    field = {"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}
    shop.table.commit(
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    shop.delete("a")
    shop.table.append(shop.written(shop.table.data("b", 3, spec_id=1)))
    shop.expire(CLEAN)
    assert [own.spec_id for own in shop.metadata.partition_specs] == [1]
    result = bring_back(shop, first)
    assert (result.restored_schemas, result.restored_specs) == ((0,), (0,))
    assert {own.schema_id for own in shop.metadata.schemas} == {0, 1}
    assert {own.spec_id for own in shop.metadata.partition_specs} == {0, 1}
    shop.check()


def test_a_schema_whose_id_has_a_new_meaning_is_not_mixed_up(shop: TableOnDisk) -> None:
    field = {"id": 90, "name": "x", "type": "int", "required": False}
    old = dict(shop.table.metadata["schemas"][0], **{"schema-id": 1})
    old["fields"] = [*old["fields"], field]
    shop.table.commit(
        {"action": "add-schema", "schema": old}, {"action": "set-current-schema", "schema-id": -1}
    )
    second = shop.append("a")
    shop.update("set-current-schema", schema_id=0)
    shop.append("b")
    shop.expire(CLEAN)
    new = dict(old, fields=[*old["fields"][:-1], dict(field, name="y")])
    shop.update("add-schema", schema=new)
    with pytest.raises(ValidationError, match="schema 1 of the table has another meaning"):
        bring_back(shop, second)


def test_statistics_of_a_snapshot_that_came_back_are_deleted_later(shop: TableOnDisk) -> None:
    first = shop.append("a")
    shop.append("b")
    path = f"{shop.table.location}/metadata/a.stats"
    Path(path.removeprefix("file://")).write_bytes(b"x")
    document = {
        "snapshot-id": first,
        "statistics-path": path,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    shop.update("set-statistics", statistics=document)
    shop.expire()
    bring_back(shop, first)
    shop.set_properties(frazil_gc_quarantine__ms="0")
    shop.sweep()
    assert not Path(path.removeprefix("file://")).exists()


def test_what_cannot_come_back_is_refused(shop: TableOnDisk) -> None:
    first, second = shop.append("a"), shop.append("b")
    with pytest.raises(BadRequest, match="is not expired"):
        bring_back(shop, first)
    with pytest.raises(NoSuchQuarantine):
        bring_back(shop, 12345)
    shop.expire()
    shop.update("set-snapshot-ref", ref_name="taken", type="tag", snapshot_id=second)
    with pytest.raises(BadRequest, match="taken exists already"):
        bring_back(shop, first, tag="taken")
    run = JobRun(shop.identifier, shop.uuid, {}, False, "p", lambda *_: None, lambda: False)
    with pytest.raises(BadRequest, match=r"options\.snapshot_id"):
        undo(shop.tools, run)
    assert (
        undo_expiry(shop.tools, shop.identifier, first, Context("p", "r"), dry_run=True).tag
        == f"undo-{first}"
    )
    assert shop.expired_ids() == [first]
    shop.world.database.execute(
        "delete_expired_snapshot", {"uuid": shop.uuid, "snapshot_id": first}
    )
    with pytest.raises(ValidationError, match="are being deleted"):
        bring_back(shop, first)
