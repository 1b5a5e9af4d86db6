"""Operations on whole tables and views: create, stage, register, drop, purge, rename,
unregister."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from frazil.store import local_store
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    CommitFailed,
    Forbidden,
    FrazilError,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchTable,
    NoSuchView,
)
from tests.commit.requests import Driver, append, body, context, head_is, name, set_property
from tests.support.patience import HANG_S, wait_until


def path_of(location: str | None) -> Path:
    assert location is not None
    return Path(location.removeprefix("file://"))


def test_a_table_gets_a_folder_of_its_own_with_data_and_metadata(driver: Driver) -> None:
    location = driver.load().metadata.location
    assert location.startswith(f"file://{driver.warehouse}/ns/t-")
    assert (path_of(location) / "data").is_dir()
    assert (path_of(location) / "metadata").is_dir()


def test_a_name_used_again_never_shares_a_folder(driver: Driver) -> None:
    first = driver.load().metadata.location
    driver.rename("t", "away")
    second = driver.create_table("t").table.metadata.location
    assert first != second
    driver.drop("t", purge=True)
    assert driver.load("away").metadata.location == first


def test_a_staged_table_leaves_nothing_visible_but_its_folders(driver: Driver) -> None:
    answer = driver.create_table("staged", stage_create=True)
    assert answer.table.metadata_location is None
    assert (path_of(answer.table.metadata.location) / "metadata").is_dir()
    with pytest.raises(NoSuchTable):
        driver.load("staged")
    assert [str(event.identifier) for event in driver.events()].count("ns.staged") == 0


def staged_updates(driver: Driver, table: str) -> list[dict[str, object]]:
    metadata = driver.create_table(table, stage_create=True).table.metadata
    return [
        {"action": "assign-uuid", "uuid": metadata.table_uuid},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": json.loads(metadata.schemas[0].raw)},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": json.loads(metadata.partition_specs[0].raw)},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": json.loads(metadata.sort_orders[0].raw)},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata.location},
        {"action": "set-properties", "updates": {"made": "by stage"}},
    ]


def test_a_staged_table_is_born_in_its_commit(driver: Driver) -> None:
    updates = staged_updates(driver, "staged") + append(1)
    driver.commit("staged", updates, [{"type": "assert-create"}])
    metadata = driver.load("staged").metadata
    assert metadata.properties["made"] == "by stage"
    assert metadata.last_sequence_number == 1
    assert len(metadata.metadata_log) == 0
    # The response was lost; when the client repeats the request, its own commit is recognized.
    driver.commit("staged", updates, [{"type": "assert-create"}])
    assert driver.snapshot_ids("staged") == [1]


def test_another_staged_create_of_the_same_name_is_a_conflict(driver: Driver) -> None:
    first, second = staged_updates(driver, "staged"), staged_updates(driver, "staged")
    driver.commit("staged", first, [{"type": "assert-create"}])
    with pytest.raises(CommitFailed, match=r"^Requirement failed: table already exists"):
        driver.commit("staged", second, [{"type": "assert-create"}])


def test_a_create_can_require_nothing_else(driver: Driver) -> None:
    with pytest.raises(BadRequest, match="assert-create stands alone"):
        driver.commit("new", staged_updates(driver, "new"), [{"type": "assert-create"}, head_is(1)])


def test_tables_and_views_share_their_names(driver: Driver) -> None:
    driver.create_view("v")
    with pytest.raises(AlreadyExists, match=r"View with same name already exists: ns\.v"):
        driver.create_table("v")
    with pytest.raises(AlreadyExists, match=r"Table with same name already exists: ns\.t"):
        driver.create_view("t")
    with pytest.raises(NoSuchTable):
        driver.load("v")
    with pytest.raises(NoSuchView):
        driver.catalog.load_view(name("t"))
    with pytest.raises(NoSuchTable):
        driver.drop("v")
    with pytest.raises(AlreadyExists, match=r"Cannot rename ns\.t to ns\.v\. View already exists"):
        driver.rename("t", "v")


def test_a_create_needs_its_namespace(driver: Driver) -> None:
    with pytest.raises(NoSuchNamespace, match="Namespace does not exist: nowhere"):
        driver.create_table("nowhere.t")
    with pytest.raises(NoSuchNamespace):
        driver.create_table("nowhere.t", stage_create=True)
    assert not (driver.warehouse / "nowhere").exists()


@pytest.mark.parametrize("nested", ["{}", "{}/inside", "{}/../{name}/x"])
def test_locations_never_nest(driver: Driver, nested: str) -> None:
    location = driver.load().metadata.location
    target = nested.format(location, name=path_of(location).name)
    with pytest.raises((Forbidden, BadRequest)):
        driver.create_table("other", location=target)
    with pytest.raises((Forbidden, BadRequest)):
        driver.create_table("other", location=str(path_of(location).parent))
    driver.create_table("other", location=f"{location}_other")


def test_register_takes_over_what_is_there(driver: Driver) -> None:
    driver.commit("t", append(1))
    before = driver.load()
    driver.drop("t")
    assert before.metadata_location is not None
    answer = driver.register("back", before.metadata_location)
    assert answer.table.metadata == before.metadata
    driver.commit("back", append(2, 1), [head_is(1)])
    assert driver.snapshot_ids("back") == [1, 2]
    with pytest.raises(AlreadyExists, match=r"Table already exists: ns\.back"):
        driver.register("back", before.metadata_location)


def test_register_can_overwrite(driver: Driver) -> None:
    old = driver.load().metadata_location
    driver.commit("t", append(1))
    assert old is not None
    driver.register("t", old, overwrite=True)
    assert driver.snapshot_ids() == []
    other = driver.create_table("other")
    location = other.table.metadata_location
    assert location is not None
    driver.drop("other")
    driver.register("t", location, overwrite=True)
    assert driver.load().metadata.table_uuid == other.table.metadata.table_uuid
    assert [event.operation for event in driver.events()[-2:]] == ["drop", "register"]


def test_a_table_cannot_be_registered_twice_under_two_names(driver: Driver) -> None:
    location = driver.load().metadata_location
    assert location is not None
    with pytest.raises((Forbidden, AlreadyExists)):
        driver.register("twin", location)
    with pytest.raises(NoSuchTable):
        driver.load("twin")


def test_register_reads_only_what_is_allowed_and_valid(driver: Driver) -> None:
    with pytest.raises(BadRequest, match="metadata-location"):
        driver.register("r", "file:///etc/passwd")
    broken = driver.warehouse / "00000-x.metadata.json"
    broken.write_text('{"format-version": 2}')
    with pytest.raises(BadRequest, match="not valid table metadata"):
        driver.register("r", f"file://{broken}")
    stranger = json.loads(path_of(driver.load().metadata_location).read_text())
    stranger["location"] = "file:///etc/frazil"
    broken.write_text(json.dumps(stranger))
    with pytest.raises(BadRequest, match="location"):
        driver.register("r", f"file://{broken}")


def test_purge_deletes_the_tables_own_files_and_nothing_else(driver: Driver) -> None:
    driver.commit("t", [set_property("a", "1")])
    folder = path_of(driver.load().metadata.location)
    foreign = folder / "data" / "not-ours.parquet"
    foreign.write_text("kept: no manifest names it")
    driver.drop("t", purge=True)
    assert sorted(folder.rglob("*")) == [folder / "data", foreign], "empty folders go too"


def test_purge_leaves_no_folder(driver: Driver) -> None:
    folder = path_of(driver.load().metadata.location)
    driver.drop("t", purge=True)
    assert not folder.exists()


def test_a_table_that_is_not_created_leaves_no_folder(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata file cannot be written."""
    namespace = path_of(driver.load().metadata.location).parent
    before = set(namespace.iterdir())

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_store, "_put", fail)
    with pytest.raises(FrazilError, match="No space left"):
        driver.create_table("new")
    wait_until(lambda: set(namespace.iterdir()) == before, "the folders are left")


def test_drop_without_purge_keeps_every_file(driver: Driver) -> None:
    files = driver.metadata_files()
    folder = path_of(driver.load().metadata.location) / "metadata"
    driver.drop("t")
    assert {path.name for path in folder.iterdir()} == files
    with pytest.raises(NoSuchTable, match=r"Table does not exist: ns\.t"):
        driver.drop("t")


def test_unregister_answers_the_last_pointer_and_leaves_the_files(driver: Driver) -> None:
    driver.commit("t", append(1))
    location = driver.load().metadata_location
    answer = driver.unregister("t")
    assert answer.table.metadata_location == location
    assert path_of(location).is_file()
    with pytest.raises(NoSuchTable):
        driver.commit("t", append(2, 1))


def test_rename_moves_the_name_alone(driver: Driver) -> None:
    driver.create_namespace("other")
    before = driver.load()
    driver.rename("t", "other.t2")
    assert driver.load("other.t2").metadata_location == before.metadata_location
    with pytest.raises(NoSuchTable):
        driver.load("t")
    with pytest.raises(NoSuchNamespace, match="Namespace does not exist: missing"):
        driver.rename("other.t2", "missing.t")
    with pytest.raises(NoSuchTable):
        driver.rename("t", "t3")
    driver.create_table("t")
    with pytest.raises(AlreadyExists, match=r"Cannot rename ns\.t to other\.t2\. Table already"):
        driver.rename("t", "other.t2")
    driver.rename("t", "t")
    assert driver.load("t").identifier == name("t")


def test_every_change_of_a_table_is_an_event(driver: Driver) -> None:
    created = driver.load().metadata_location
    driver.commit("t", append(1))
    driver.rename("t", "t2")
    location = driver.unregister("t2").table.metadata_location
    assert location is not None
    driver.register("t3", location)
    driver.drop("t3")
    events = driver.events()
    assert [(event.operation, str(event.identifier)) for event in events] == [
        ("create", "ns.t"),
        ("commit", "ns.t"),
        ("rename", "ns.t2"),
        ("unregister", "ns.t2"),
        ("register", "ns.t3"),
        ("drop", "ns.t3"),
    ]
    assert len({(event.uuid, event.version) for event in events}) == len(events)
    pointer = {"metadata-location": location}
    snapshot = {"update": 0, "snapshot-id": 1, "sequence-number": 1, "operation": "append"}
    actions = ["add-snapshot", "set-snapshot-ref"]
    assert [json.loads(event.payload) for event in events] == [
        {"metadata-location": created},
        {**pointer, "updates": actions, "committed": [snapshot]},
        {"from": "ns.t", "to": "ns.t2"},
        pointer,
        pointer,
        pointer,
    ]


def test_views_live_through_create_commit_rename_and_drop(driver: Driver) -> None:
    created = driver.create_view("v")
    answer = driver.commit_view("v", [set_property("comment", "nice")])
    assert answer.view.metadata.properties["comment"] == "nice"
    assert answer.view.metadata.view_uuid == created.view.metadata.view_uuid
    driver.catalog.rename_view(context(), name("v"), name("w")).result(HANG_S)
    with pytest.raises(NoSuchView, match=r"View does not exist: ns\.v"):
        driver.commit_view("v", [set_property("a", "b")])
    driver.catalog.drop_view(context(), name("w")).result(HANG_S)
    with pytest.raises(NoSuchView):
        driver.catalog.load_view(name("w"))


def test_a_view_stays_inside_the_allowed_places(driver: Driver) -> None:
    with pytest.raises(BadRequest, match="location"):
        driver.create_view("v", location="file:///etc/view")
    with pytest.raises(BadRequest, match=r"write\.metadata\.path"):
        driver.create_view("v", properties={"write.metadata.path": "file:///etc/view"})
    driver.create_view("v")
    with pytest.raises(BadRequest, match=r"write\.metadata\.path"):
        driver.commit_view("v", [set_property("write.metadata.path", "file:///etc/view")])


def test_namespace_properties(driver: Driver) -> None:
    catalog = driver.catalog
    answer = catalog.update_namespace_properties(context(), ("ns",), ["gone"], {"a": "1"})
    assert body(answer) == {"updated": ["a"], "removed": [], "missing": ["gone"]}
    answer = catalog.update_namespace_properties(context(), ("ns",), ["a"], {"b": "2"})
    assert body(answer) == {"updated": ["b"], "removed": ["a"], "missing": []}
    assert catalog.load_namespace(("ns",))["b"] == "2"
    assert "a" not in catalog.load_namespace(("ns",))
    with pytest.raises(NamespaceNotEmpty, match="is not empty"):
        catalog.drop_namespace(context(), ("ns",))


def test_a_namespace_has_a_location_and_its_tables_follow_it(driver: Driver) -> None:
    catalog = driver.catalog
    root = f"file://{driver.warehouse}"
    assert catalog.load_namespace(("ns",)) == {"location": f"{root}/ns"}
    catalog.update_namespace_properties(context(), ("ns",), [], {"location": f"{root}/elsewhere"})
    assert driver.create_table("a").table.metadata.location.startswith(f"{root}/elsewhere/a-")
    # A location that is not allowed is stored as a property but has no effect.
    catalog.update_namespace_properties(context(), ("ns",), [], {"location": "file:///etc"})
    assert driver.create_table("b").table.metadata.location.startswith(f"{root}/ns/b-")
    assert catalog.load_namespace(("ns",)) == {"location": "file:///etc"}
