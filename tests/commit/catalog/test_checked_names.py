"""Unknown transforms and unknown `frazil.*` properties are refused when somebody sets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.wire.errors import BadRequest
from frazil.wire.frazil_properties import CATALOG_PROPERTIES, REBASE_APPENDS, TABLE_PROPERTIES
from frazil.wire.maintenance_settings import MAINTENANCE_PROPERTIES
from tests.commit.requests import Change, Driver, body, context, set_property

TYPO = "frazil.commit.rebase-append"


def spec(transform: str) -> dict[str, Any]:
    return {"fields": [{"name": "p", "transform": transform, "source-id": 1, "field-id": 1000}]}


def order(transform: str) -> dict[str, Any]:
    field = {
        "transform": transform,
        "source-id": 1,
        "direction": "asc",
        "null-order": "nulls-first",
    }
    return {"order-id": 1, "fields": [field]}


def registered(driver: Driver, table: str, **changed: Any) -> None:
    """Register the metadata of another writer, which has members that nobody may set here."""
    metadata = driver.load()
    path = Path(str(metadata.metadata_location).removeprefix("file://"))
    location = f"file://{driver.warehouse}/foreign/{table}"
    document = json.loads(path.read_text()) | changed
    document |= {"location": location, "table-uuid": "5f3c8d0e-9a56-4d5a-b6a1-2f2f6c4e9d01"}
    target = Path(location.removeprefix("file://")) / "metadata" / "00000-a.metadata.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps(document))
    driver.register(table, f"file://{target}")


# --- transforms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transform", "hint"),
    [
        ("bucket(4)", "did you mean 'bucket[4]'?"),
        ("bucket", "did you mean 'bucket[N]'?"),
        ("trunc[3]", "did you mean 'truncate[3]'?"),
        ("dayz", "did you mean 'day'?"),
        ("years", "did you mean 'year'?"),
        ("zorder", "known are identity, void, year, month, day, hour, bucket[N], truncate[N]"),
    ],
)
def test_a_table_is_not_created_with_an_unknown_transform(
    driver: Driver, transform: str, hint: str
) -> None:
    problem = f".fields[0].transform: {transform!r} is not a transform; {hint}"
    for stage in (False, True):
        with pytest.raises(BadRequest) as refused:
            driver.create_table("new", stage_create=stage, partition_spec=spec(transform))
        assert str(refused.value) == f"partition-spec{problem}"
        with pytest.raises(BadRequest) as refused:
            driver.create_table("new", stage_create=stage, write_order=order(transform))
        assert str(refused.value) == f"write-order{problem}"


ADDED = [
    pytest.param({"action": "add-spec", "spec": spec("dayz")}, id="add-spec"),
    pytest.param({"action": "add-sort-order", "sort-order": order("dayz")}, id="add-sort-order"),
]


@pytest.mark.parametrize("added", ADDED)
def test_a_commit_adds_no_unknown_transform(driver: Driver, added: dict[str, Any]) -> None:
    schema = json.loads(driver.load().metadata.current_schema.raw)
    creation = [
        {"action": "assign-uuid", "uuid": "5f3c8d0e-9a56-4d5a-b6a1-2f2f6c4e9d01"},
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    replacement = [*creation[1:], added]
    for refused in (
        lambda: driver.commit("t", [added]),
        lambda: driver.commit("t", replacement),
        lambda: driver.commit("new", [*creation, added], [{"type": "assert-create"}]),
        lambda: driver.transact(Change("t", [added])),
    ):
        with pytest.raises(BadRequest, match="'dayz' is not a transform; did you mean 'day'"):
            refused()


def test_a_registered_table_keeps_its_unknown_transforms(driver: Driver) -> None:
    foreign = {"spec-id": 0, **spec("zorder(16)")}
    own = {
        "partition-specs": [foreign],
        "sort-orders": [order("far")],
        "default-sort-order-id": 1,
    }
    registered(driver, "foreign", **own)
    assert str(driver.load("foreign").metadata.partition_specs[0].fields[0].transform) == (
        "zorder(16)"
    )
    # A client that evolves the spec sends the field of the table with the new one.
    fields = [*foreign["fields"], {"name": "id", "transform": "bucket[2]", "source-id": 1}]
    fields[1]["field-id"] = 1001
    driver.commit("foreign", [{"action": "add-spec", "spec": {"fields": fields}}])
    assert len(driver.load("foreign").metadata.partition_specs) == 2
    with pytest.raises(BadRequest, match=r"'zorder\(8\)' is not a transform"):
        driver.commit("foreign", [{"action": "add-spec", "spec": spec("zorder(8)")}])


# --- properties -----------------------------------------------------------------------------------


def test_a_misspelled_property_of_a_table_is_refused(driver: Driver) -> None:
    hint = f"properties.{TYPO}: Frazil has no such property; did you mean '{REBASE_APPENDS}'?"
    for stage in (False, True):
        with pytest.raises(BadRequest) as refused:
            driver.create_table("new", stage_create=stage, properties={TYPO: "true"})
        assert str(refused.value) == hint
    with pytest.raises(BadRequest) as refused:
        driver.commit("t", [set_property(TYPO, "true")])
    assert str(refused.value) == hint
    with pytest.raises(BadRequest, match="did you mean"):
        driver.commit("t", [set_property("Frazil.Commit.Rebase_Appends", "true")])
    with pytest.raises(BadRequest, match="a table may have frazil"):
        driver.commit("t", [set_property("frazil.color", "blue")])
    with pytest.raises(BadRequest, match="belongs into the configuration of FrazilCatalog"):
        driver.commit("t", [set_property(CATALOG_PROPERTIES[0], "3")])


@pytest.mark.parametrize("property_name", TABLE_PROPERTIES)
def test_a_property_of_a_table_takes_its_values_only(driver: Driver, property_name: str) -> None:
    for value in TABLE_PROPERTIES[property_name]:
        driver.commit("t", [set_property(property_name, value)])
        assert driver.properties()[property_name] == value
    with pytest.raises(BadRequest) as refused:
        driver.commit("t", [set_property(property_name, "yes")])
    values = ", ".join(TABLE_PROPERTIES[property_name])
    assert str(refused.value) == f"properties.{property_name}: 'yes' is not one of {values}"


@pytest.mark.parametrize(
    ("property_name", "good", "bad"),
    [
        ("write.delete.isolation-level", "SNAPSHOT", "snapshit"),
        ("write.update.isolation-level", "serializable", ""),
        ("write.merge.mode", "Merge-On-Read", "merge_on_read"),
        ("write.delete.mode", "copy-on-write", "cow"),
        ("write.distribution-mode", "RANGE", "ranged"),
        ("write.merge.distribution-mode", "none", "off"),
        ("commit.retry.num-retries", "0", "many"),
        ("commit.retry.total-timeout-ms", "1800000", "30 min"),
        ("commit.retry.min-wait-ms", "100", "-1"),
    ],
)
def test_a_value_that_would_break_later_writes_is_refused(
    driver: Driver, property_name: str, good: str, bad: str
) -> None:
    driver.commit("t", [set_property(property_name, good)])
    assert driver.properties()[property_name] == good
    with pytest.raises(BadRequest, match=f"^properties.{property_name}: '{bad}' "):
        driver.commit("t", [set_property(property_name, bad)])
    with pytest.raises(BadRequest, match=f"^properties.{property_name}: '{bad}' "):
        driver.create_table("new", properties={property_name: bad})


def test_a_registered_table_keeps_its_unknown_properties(driver: Driver) -> None:
    kept = {TYPO: "true", REBASE_APPENDS: "yes", "write.merge.mode": "cow"}
    registered(driver, "foreign", properties=kept)
    driver.commit("foreign", [{"action": "set-properties", "updates": kept | {"a": "b"}}])
    assert driver.properties("foreign") == kept | {"a": "b"}
    with pytest.raises(BadRequest, match="did you mean"):
        driver.commit("foreign", [set_property(TYPO, "false")])
    driver.commit("foreign", [{"action": "remove-properties", "removals": list(kept)}])
    assert driver.properties("foreign") == {"a": "b"}


@pytest.mark.parametrize(
    ("own", "of_view", "of_namespace"),
    [
        (
            REBASE_APPENDS,
            "it is a property of tables, not of a view: set it on each table",
            "it is a property of tables, not of a namespace: set it on each table",
        ),
        (
            "frazil.color",
            "Frazil has no such property; a view has none of its own",
            "Frazil has no such property; a namespace may have "
            + ", ".join(MAINTENANCE_PROPERTIES),
        ),
    ],
)
def test_views_and_namespaces_have_no_property_of_tables(
    driver: Driver, own: str, of_view: str, of_namespace: str
) -> None:
    driver.create_view("v")
    catalog, properties = driver.catalog, {own: "true"}
    calls: list[tuple[str, Callable[[], object]]] = [
        ("view", lambda: driver.create_view("w", properties=properties)),
        ("view", lambda: driver.commit_view("v", [set_property(own, "true")])),
        ("namespace", lambda: catalog.create_namespace(context(), ("m",), properties)),
        (
            "namespace",
            lambda: catalog.update_namespace_properties(context(), ("ns",), [], properties),
        ),
    ]
    for kind, refused in calls:
        with pytest.raises(BadRequest) as error:
            refused()
        problem = of_view if kind == "view" else of_namespace
        assert str(error.value) == f"properties.{own}: {problem}"
    answer = catalog.update_namespace_properties(context(), ("ns",), [], {"owner": "me"})
    assert body(answer)["updated"] == ["owner"]
