"""Any sequence of updates results in metadata that other readers accept."""

from __future__ import annotations

import copy
import gzip
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from frazil.format.metadata.table_builder import with_previous_file
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_metadata_json import (
    InvalidMetadata,
    encode_gzip,
    encode_table_metadata,
    parse_table_metadata,
)
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.rest_updates import TableUpdate
from tests.support.tables import (
    DAY_SPEC,
    ID_ORDER,
    LOCATION,
    NOW_MS,
    SCHEMA,
    WIDER_SCHEMA,
    apply_updates,
    document,
    history,
    table,
)

_UPDATES: msgspec.json.Decoder[list[TableUpdate]] = msgspec.json.Decoder(list[TableUpdate])

ids = st.integers(1, 8)
small = st.integers(-1, 3)
names = st.sampled_from(["main", "dev", "v1", "résumé"])
properties = st.dictionaries(
    st.sampled_from(["a", "b", "write.metadata.path"]), st.text(max_size=5)
)


def action(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    members = {key.replace("_", "-"): value for key, value in fields.items()}
    return st.fixed_dictionaries({"action": st.just(name), **members})


snapshots = st.builds(
    lambda snapshot_id, parent, sequence_number, offset, extra: {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent,
        "sequence-number": sequence_number,
        "timestamp-ms": NOW_MS + offset,
        "manifest-list": f"{LOCATION}/metadata/{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        **extra,
    },
    ids,
    st.none() | ids,
    st.integers(0, 12),
    st.integers(-70_000, 70_000),
    st.just({}) | st.just({"first-row-id": 40, "added-rows": 3}) | st.just({"unknown": [1, "x"]}),
)
schemas = st.sampled_from([SCHEMA, WIDER_SCHEMA])
specs = st.sampled_from(
    [
        {"fields": []},
        DAY_SPEC,
        {"fields": [{"source-id": 1, "name": "id_bucket", "transform": "bucket[4]"}]},
    ]
)
orders = st.sampled_from([ID_ORDER, {"order-id": 0, "fields": []}])
statistics = st.builds(
    lambda snapshot_id, path: {
        "snapshot-id": snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": 5,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    },
    ids,
    st.text(max_size=3),
)

any_update = st.one_of(
    action("upgrade-format-version", format_version=st.integers(1, 3)),
    action("set-location", location=st.sampled_from([LOCATION, "s3://other/t/"])),
    action("set-properties", updates=properties),
    action("remove-properties", removals=st.lists(st.sampled_from(["a", "b"]))),
    action("add-schema", schema=schemas),
    action("set-current-schema", schema_id=small),
    action("remove-schemas", schema_ids=st.lists(small, max_size=2)),
    action("add-spec", spec=specs),
    action("set-default-spec", spec_id=small),
    action("remove-partition-specs", spec_ids=st.lists(small, max_size=2)),
    action("add-sort-order", sort_order=orders),
    action("set-default-sort-order", sort_order_id=small),
    action("add-snapshot", snapshot=snapshots),
    action(
        "set-snapshot-ref", ref_name=names, type=st.sampled_from(["branch", "tag"]), snapshot_id=ids
    ),
    action("remove-snapshot-ref", ref_name=names),
    action("remove-snapshots", snapshot_ids=st.lists(ids, max_size=3)),
    action("set-statistics", statistics=statistics),
    action("remove-statistics", snapshot_id=ids),
    action("set-partition-statistics", partition_statistics=statistics),
    action("remove-partition-statistics", snapshot_id=ids),
)
requests = st.lists(st.lists(any_update, min_size=1, max_size=4), max_size=8)


def check(metadata: TableMetadata) -> None:
    data = b"".join(encode_table_metadata(metadata))
    again = parse_table_metadata(data, summaries=True)
    assert again == metadata
    assert b"".join(encode_table_metadata(again)) == data
    assert gzip.decompress(b"".join(encode_gzip(metadata))) == data
    if metadata.format_version < 3:
        read = TableMetadataUtil.parse_raw(data.decode())
        assert read.current_snapshot_id == metadata.current_snapshot_id
        assert {s.snapshot_id for s in read.snapshots} == metadata.snapshots.ids()


@given(st.integers(1, 3), st.integers(0, 4), requests)
def test_every_state_can_be_written_and_read(
    version: int, length: int, commits: list[list[dict[str, Any]]]
) -> None:
    metadata = history(length, version)
    for number, request in enumerate(commits):
        updates = _UPDATES.decode(json.dumps(request))
        before = b"".join(encode_table_metadata(metadata))
        try:
            after = apply_updates(metadata, updates, now_ms=NOW_MS + number)
        except (BadRequest, CommitFailed):
            after = metadata
        assert b"".join(encode_table_metadata(metadata)) == before
        if after is not metadata:
            after = with_previous_file(after, f"v{number}", metadata.last_updated_ms)
        metadata = after
    check(metadata)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a document."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return found
    for key, inner in items:
        found.append((value, key))
        found += places(inner)
    return found


@given(st.integers(1, 3), st.data())
def test_a_damaged_document_is_read_or_refused(version: int, data: st.DataObject) -> None:
    value = copy.deepcopy(document(history(3, version)))
    container, key = data.draw(st.sampled_from(places(value)))
    container[key] = data.draw(json_values)
    try:
        metadata = parse_table_metadata(json.dumps(value).encode(), summaries=True)
    except InvalidMetadata:
        return
    assert parse_table_metadata(b"".join(encode_table_metadata(metadata))) == metadata


RAW_PARTS: dict[str, tuple[str, Any]] = {
    "add-schema": ("schema", WIDER_SCHEMA),
    "add-spec": ("spec", DAY_SPEC),
    "add-sort-order": ("sort-order", ID_ORDER),
    "add-snapshot": (
        "snapshot",
        {
            "snapshot-id": 9,
            "sequence-number": 9,
            "timestamp-ms": NOW_MS,
            "manifest-list": "s3://b/l.avro",
            "summary": {"operation": "append"},
            "first-row-id": 90,
            "added-rows": 1,
        },
    ),
    "set-statistics": (
        "statistics",
        {
            "snapshot-id": 1,
            "statistics-path": "p",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [{"type": "t", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}],
        },
    ),
    "set-partition-statistics": (
        "partition-statistics",
        {"snapshot-id": 1, "statistics-path": "p", "file-size-in-bytes": 1},
    ),
    "add-encryption-key": (
        "encryption-key",
        {"key-id": "k", "encrypted-key-metadata": "aGk=", "properties": {"a": "b"}},
    ),
}


@given(st.integers(1, 3), st.sampled_from(sorted(RAW_PARTS)), st.data())
def test_a_damaged_update_is_applied_or_refused(
    version: int, name: str, data: st.DataObject
) -> None:
    field, part = RAW_PARTS[name]
    value = {"action": name, field: copy.deepcopy(part)}
    choices = [place for place in places(value) if place[1] != "action"]
    container, key = data.draw(st.sampled_from(choices))
    container[key] = data.draw(json_values)
    (update,) = _UPDATES.decode(json.dumps([value]))
    try:
        metadata = apply_updates(history(1, version), [update], now_ms=NOW_MS + 1)
    except (BadRequest, CommitFailed):
        return
    data_written = b"".join(encode_table_metadata(metadata))
    assert parse_table_metadata(data_written, summaries=True) == metadata


def test_the_strategies_reach_deep_states() -> None:
    """The strategies can build a table with a history, so the property above is not vacuous."""
    request = [
        {"action": "add-snapshot", "snapshot": document(history(1))["snapshots"][0]},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
    ]
    metadata = apply_updates(table(), _UPDATES.decode(json.dumps(request)), now_ms=NOW_MS)
    assert metadata.current_snapshot_id == 1
    check(metadata)
