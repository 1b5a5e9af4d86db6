from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from frazil.format.metadata.view_builder import (
    apply_view_updates,
    check_view_requirements,
    new_view,
)
from frazil.format.metadata.view_metadata import (
    ViewMetadata,
    encode_view_metadata,
    new_view_location,
    parse_view_metadata,
)
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.rest_updates import (
    AddSchema,
    AddViewVersion,
    AssertViewUUID,
    AssignUUID,
    RemoveProperties,
    SetCurrentViewVersion,
    SetLocation,
    SetProperties,
    UpgradeFormatVersion,
    ViewUpdate,
)

UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"
NOW_MS = 1_700_000_000_000


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def schema(*names: str, schema_id: int = 0) -> msgspec.Raw:
    fields = [
        {"id": position, "name": name, "required": False, "type": "int"}
        for position, name in enumerate(names, 1)
    ]
    return raw({"type": "struct", "schema-id": schema_id, "fields": fields})


def sql(text: str, dialect: str = "spark") -> dict[str, Any]:
    return {"type": "sql", "sql": text, "dialect": dialect}


def version(
    *representations: dict[str, Any], version_id: int = 1, schema_id: int = 0, **more: Any
) -> msgspec.Raw:
    return raw(
        {
            "version-id": version_id,
            "timestamp-ms": 5000 + version_id,
            "schema-id": schema_id,
            "summary": {"engine-name": "spark"},
            "default-namespace": ["ns"],
            "representations": list(representations),
        }
        | {key.replace("_", "-"): value for key, value in more.items()}
    )


def view(
    *representations: dict[str, Any], properties: Mapping[str, str] | None = None
) -> ViewMetadata:
    return new_view(
        location="file:///views/v",
        schema=schema("a", schema_id=7),
        view_version=version(*(representations or (sql("select 1"),)), version_id=9, schema_id=7),
        properties=properties or {},
        uuid=UUID,
        now_ms=NOW_MS,
    )


def applied(base: ViewMetadata, *updates: ViewUpdate, now_ms: int = NOW_MS + 1) -> ViewMetadata:
    result = apply_view_updates(base, updates, now_ms=now_ms)
    # The result can be encoded and parsed again without a change.
    assert parse_view_metadata(encode_view_metadata(result)) == result
    return result


def replaced(base: ViewMetadata, text: str, dialect: str = "spark", **more: Any) -> ViewMetadata:
    return applied(
        base,
        AddViewVersion(version(sql(text, dialect), version_id=base.current_version_id + 1, **more)),
        SetCurrentViewVersion(-1),
    )


def log(metadata: ViewMetadata) -> list[tuple[int, int]]:
    return [(entry.version_id, entry.timestamp_ms) for entry in metadata.version_log]


def test_a_new_view_gets_its_ids_and_time_from_the_server() -> None:
    made = view(properties={"comment": "x"})
    assert json.loads(encode_view_metadata(made)) == {
        "view-uuid": UUID,
        "format-version": 1,
        "location": "file:///views/v",
        "properties": {"comment": "x"},
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}],
            }
        ],
        "current-version-id": 1,
        "versions": [
            {
                "version-id": 1,
                "timestamp-ms": NOW_MS,
                "schema-id": 0,
                "summary": {"engine-name": "spark"},
                "default-namespace": ["ns"],
                "representations": [sql("select 1")],
            }
        ],
        "version-log": [{"timestamp-ms": NOW_MS, "version-id": 1}],
    }
    assert parse_view_metadata(encode_view_metadata(made)) == made
    assert made.current_schema.schema_id == 0


@pytest.mark.parametrize(
    ("view_version", "message"),
    [
        (version(), "'representations' is empty"),
        (version(sql("a"), sql("b", "SPARK")), "Cannot add multiple queries for dialect spark"),
        (version({"type": "sql", "sql": "a"}), "representations[0]: 'dialect' is missing"),
        (version({"type": "sql", "dialect": "a"}), "representations[0]: 'sql' is missing"),
        (version({"sql": "a"}), "representations[0]: 'type' is missing"),
        (version(sql("a"), summary=None), "'summary' is missing"),
        (version(sql("a"), summary={"a": 1}), "'summary' must be an object whose values are"),
        (version(sql("a"), default_namespace=None), "'default-namespace' is missing"),
        (version(sql("a"), default_namespace=[1]), "'default-namespace' must be a list of"),
        (version(sql("a"), default_catalog=1), "'default-catalog' must be a string"),
        (version(sql("a"), timestamp_ms="now"), "'timestamp-ms' must be an integer"),
        (raw([]), "view-version must be a JSON object"),
    ],
)
def test_names_what_is_wrong_with_a_version(view_version: msgspec.Raw, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        new_view(
            location="file:///v",
            schema=schema("a"),
            view_version=view_version,
            properties={},
            uuid=UUID,
            now_ms=NOW_MS,
        )
    assert message in str(caught.value)


def test_unknown_fields_and_representations_are_kept() -> None:
    substrait = {"type": "substrait", "plan": {"x": 1.50}}
    made = view(sql("select 1") | {"hint": "h"}, substrait)
    whole = json.loads(encode_view_metadata(made))
    whole["x-top"] = {"n": 1}
    whole["versions"][0]["x-version"] = True
    whole["version-log"][0]["x-log"] = "l"
    read = parse_view_metadata(json.dumps(whole).encode())
    changed = replaced(read, "select 2")
    written = json.loads(encode_view_metadata(changed))
    assert written["x-top"] == {"n": 1}
    assert written["versions"][0] == whole["versions"][0]
    assert written["versions"][0]["representations"][1] == substrait
    assert written["version-log"][0] == whole["version-log"][0]


def test_replacing_adds_a_version_and_an_entry_at_its_time() -> None:
    second = applied(
        view(),
        AddSchema(schema("a", "b", schema_id=1)),
        AddViewVersion(version(sql("select 2"), version_id=2, schema_id=-1)),
        SetCurrentViewVersion(-1),
    )
    assert second.current_version_id == 2
    assert [found.schema_id for found in second.schemas] == [0, 1]
    assert second.current_version.schema_id == 1
    assert log(second) == [(1, NOW_MS), (2, 5002)]


def test_stale_replaces_are_applied_one_after_the_other() -> None:
    """The compatibility kit requires this: the server assigns ids and reuses schemas."""
    base = view(sql("select 1", "trino"), properties={"replace.drop-dialect.allowed": "true"})
    first = applied(
        base,
        AddSchema(schema("b", schema_id=1)),
        AddViewVersion(version(sql("select 2", "spark"), version_id=2, schema_id=-1)),
        SetCurrentViewVersion(-1),
    )
    second = applied(
        first,
        AddViewVersion(version(sql("select 3", "trino"), version_id=2, schema_id=0)),
        SetCurrentViewVersion(-1),
    )
    assert [(v.version_id, v.schema_id) for v in second.versions] == [(1, 0), (2, 1), (3, 0)]
    assert second.current_version_id == 3
    assert [entry.version_id for entry in second.version_log] == [1, 2, 3]


def test_a_schema_that_is_there_is_used_again() -> None:
    changed = applied(
        view(),
        AddSchema(schema("a", schema_id=5)),
        AddViewVersion(version(sql("select 2"), version_id=2, schema_id=-1)),
        SetCurrentViewVersion(-1),
    )
    assert [found.schema_id for found in changed.schemas] == [0]
    assert changed.current_version.schema_id == 0


def test_an_equal_version_is_used_again() -> None:
    second = replaced(view(), "select 2")
    back = applied(
        second,
        AddViewVersion(version(sql("select 1"), version_id=3)),
        SetCurrentViewVersion(-1),
        now_ms=NOW_MS + 7,
    )
    assert back.current_version_id == 1
    assert len(back.versions) == 2
    # The version is older than this commit, so the entry has the time of the commit.
    assert log(back)[-1] == (1, NOW_MS + 7)


@pytest.mark.parametrize(
    "difference",
    [
        {"summary": {}},
        {"default_catalog": "c"},
        {"default_namespace": ["other"]},
        {"representations": [sql("select 1"), sql("select 1", "trino")]},
    ],
)
def test_a_version_that_differs_is_a_new_one(difference: dict[str, Any]) -> None:
    changed = applied(view(), AddViewVersion(version(sql("select 1"), **difference)))
    assert [found.version_id for found in changed.versions] == [1, 2]
    assert changed.current_version_id == 1
    assert len(changed.version_log) == 1


def test_a_larger_version_id_is_kept() -> None:
    changed = applied(view(), AddViewVersion(version(sql("select 2"), version_id=40)))
    assert [found.version_id for found in changed.versions] == [1, 40]


def test_several_changes_of_the_current_version_are_one_entry() -> None:
    changed = applied(
        view(),
        AddViewVersion(version(sql("select 2"), version_id=2)),
        SetCurrentViewVersion(-1),
        AddViewVersion(version(sql("select 3"), version_id=3)),
        SetCurrentViewVersion(-1),
    )
    assert log(changed) == [(1, NOW_MS), (3, 5003)]


def test_rolling_back_is_an_entry_at_the_time_of_the_commit() -> None:
    back = applied(replaced(view(), "select 2"), SetCurrentViewVersion(1), now_ms=NOW_MS + 9)
    assert log(back) == [(1, NOW_MS), (2, 5002), (1, NOW_MS + 9)]


def test_nothing_changed_is_the_same_object() -> None:
    base = view(properties={"a": "1"})
    updates: list[ViewUpdate] = [
        AssignUUID(UUID),
        UpgradeFormatVersion(1),
        SetLocation(base.location),
        SetProperties({"a": "1"}),
        RemoveProperties(("missing",)),
        AddSchema(schema("a", schema_id=3)),
        AddViewVersion(version(sql("select 1"), version_id=2)),
        SetCurrentViewVersion(-1),
        SetCurrentViewVersion(1),
    ]
    assert apply_view_updates(base, updates, now_ms=NOW_MS) is base
    assert apply_view_updates(base, [], now_ms=NOW_MS) is base


def test_properties_and_location() -> None:
    changed = applied(
        view(properties={"a": "1", "b": "2"}),
        SetProperties({"a": "3", "c": "4"}),
        RemoveProperties(("b",)),
        SetLocation("file:///views/w"),
    )
    assert changed.properties == {"a": "3", "c": "4"}
    assert changed.location == "file:///views/w"
    emptied = applied(changed, RemoveProperties(("a", "c")))
    assert b"properties" not in encode_view_metadata(emptied)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (AssignUUID("0" * 8), "Cannot reassign uuid"),
        (UpgradeFormatVersion(0), "Cannot downgrade v1 view to v0"),
        (UpgradeFormatVersion(2), "Unsupported format version: 2"),
        (SetCurrentViewVersion(5), "Cannot set current version to unknown version: 5"),
        (SetCurrentViewVersion(-1), "Cannot set last version id"),
        (
            AddViewVersion(version(sql("x"), schema_id=-1)),
            "Cannot set last added schema: no schema has been added",
        ),
        (
            AddViewVersion(version(sql("x"), schema_id=3)),
            "Cannot add version with unknown schema: 3",
        ),
        (
            AddViewVersion(version(sql("x"), sql("y"))),
            "Invalid view version: Cannot add multiple queries for dialect spark",
        ),
        (AddSchema(raw({"type": "struct"})), "schema: 'fields' is missing"),
        (
            SetProperties({"version.history.num-entries": "0"}),
            "version.history.num-entries must be positive but was 0",
        ),
        (
            SetProperties({"version.history.num-entries": "many"}),
            "version.history.num-entries must be an integer but was 'many'",
        ),
    ],
)
def test_refuses_updates_that_make_no_sense(update: ViewUpdate, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        apply_view_updates(view(), [update], now_ms=NOW_MS)
    assert message in str(caught.value)


def test_dialects_are_lost_only_where_that_is_allowed() -> None:
    base = view(sql("select 1", "Spark"), sql("select 1", "trino"))
    with pytest.raises(BadRequest) as caught:
        replaced(base, "select 2", "spark")
    assert str(caught.value) == (
        "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
        "Previous dialects: ['spark', 'trino']\nNew dialects: ['spark']"
    )
    allowed = applied(base, SetProperties({"replace.drop-dialect.allowed": "TRUE"}))
    assert replaced(allowed, "select 2", "spark").current_version.dialects == ("spark",)
    kept = applied(
        base,
        AddViewVersion(version(sql("select 2"), sql("select 2", "TRINO"), sql("s", "duckdb"))),
        SetCurrentViewVersion(-1),
    )
    assert kept.current_version.dialects == ("spark", "trino", "duckdb")


def test_old_versions_expire_with_their_history() -> None:
    current = view(properties={"version.history.num-entries": "2"})
    for number in range(2, 5):
        current = replaced(current, f"select {number}")
    assert [found.version_id for found in current.versions] == [3, 4]
    assert [entry.version_id for entry in current.version_log] == [3, 4]


def test_the_current_version_never_expires() -> None:
    current = replaced(replaced(view(), "select 2"), "select 3")
    current = applied(current, SetCurrentViewVersion(1))
    current = applied(current, SetProperties({"version.history.num-entries": "2"}))
    assert [found.version_id for found in current.versions] == [1, 3]
    # Version 2 no longer exists, so the log drops it and everything before it.
    assert [entry.version_id for entry in current.version_log] == [3, 1]


def test_versions_added_together_are_all_kept() -> None:
    current = applied(
        view(properties={"version.history.num-entries": "1"}),
        *[AddViewVersion(version(sql(f"select {n}"), version_id=n)) for n in range(2, 5)],
        SetCurrentViewVersion(-1),
    )
    assert [found.version_id for found in current.versions] == [2, 3, 4]


def test_ten_versions_are_kept_by_default() -> None:
    current = view()
    for number in range(2, 14):
        current = replaced(current, f"select {number}")
    assert [found.version_id for found in current.versions] == list(range(4, 14))


def test_requirements() -> None:
    check_view_requirements(view(), [])
    check_view_requirements(view(), [AssertViewUUID(UUID.upper())])
    with pytest.raises(CommitFailed) as caught:
        check_view_requirements(view(), [AssertViewUUID("other")])
    assert str(caught.value) == (
        f"Requirement failed: view UUID does not match: expected {UUID} != other"
    )


def test_reads_gzipped_files_as_java_writes_them() -> None:
    made = view()
    packed = gzip.compress(encode_view_metadata(made))
    assert parse_view_metadata(packed) == made
    with pytest.raises(BadRequest, match="ends too early"):
        parse_view_metadata(packed[:-20])
    with pytest.raises(BadRequest, match="not a valid gzip file"):
        parse_view_metadata(b"\x1f\x8b" + b"x" * 20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"view-uuid": None}, "view metadata: 'view-uuid' is missing"),
        ({"format-version": 2}, "Unsupported format version: 2"),
        ({"location": 1}, "view metadata: 'location' must be a string"),
        ({"properties": {"a": 1}}, "'properties' must be an object whose values are strings"),
        ({"schemas": None}, "view metadata: 'schemas' is missing"),
        ({"schemas": []}, "Cannot find current schema with id 0 in schemas: []"),
        ({"versions": []}, "Cannot find current version 1 in view versions: []"),
        ({"versions": [1]}, "versions[0] must be an object"),
        ({"current-version-id": 2}, "Cannot find current version 2 in view versions: [1]"),
        ({"version-log": [1]}, "version-log[0] must be an object"),
        ({"version-log": [{"version-id": 1}]}, "version-log[0]: 'timestamp-ms' is missing"),
    ],
)
def test_names_what_is_wrong_with_a_file(changes: dict[str, Any], message: str) -> None:
    whole = json.loads(encode_view_metadata(view())) | changes
    with pytest.raises(BadRequest) as caught:
        parse_view_metadata(json.dumps(whole).encode())
    assert message in str(caught.value)


def test_ids_of_versions_and_schemas_are_unique() -> None:
    whole = json.loads(encode_view_metadata(view()))
    for key, message in (("versions", "version-id is used twice"), ("schemas", "schema-id is")):
        twice = whole | {key: whole[key] * 2}
        with pytest.raises(BadRequest, match=message):
            parse_view_metadata(json.dumps(twice).encode())


def test_metadata_files_are_named_like_javas_and_never_the_same() -> None:
    made = view()
    first, second = new_view_location(made, 3), new_view_location(made, 3)
    assert first != second
    assert re.fullmatch(r"file:///views/v/metadata/00003-[0-9a-f-]{36}\.metadata\.json", first)
    moved = applied(made, SetProperties({"write.metadata.path": "file:///m/"}))
    assert new_view_location(moved, 12).startswith("file:///m/00012-")
