"""The proof that a client's snapshot is an append accepts only appends."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.commit.snapshot.rebase_proof import (
    AddedManifest,
    RebaseRefused,
    RebaseTarget,
    list_difference,
    prove_append,
    rebase_target,
    rebased_snapshot,
)
from frazil.format.manifest.manifest_entries import Manifest, ManifestEntry, read_manifest
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING
from frazil.format.manifest.manifest_list import (
    DELETES,
    ManifestFile,
    ManifestList,
    read_manifest_list,
)
from frazil.format.metadata.snapshots import Snapshot, parse_snapshot
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.rest_updates import AddSnapshot, SetSnapshotRef, UpgradeFormatVersion
from tests.support.tables import apply_updates
from tests.support.trees import SCHEMA, list_bytes, manifest_bytes

PARENT, HEAD, OWN, OTHER = 101, 102, 103, 999
BASE_MS = 1_700_000_000_000
FIELD = {"name": "p", "type": ["null", "double"], "default": None, "field-id": 1000}
MANIFEST = read_manifest(manifest_bytes([], 3, partition=[FIELD]))
LIST = read_manifest_list(list_bytes([], 3))


def snapshot(snapshot_id: int, parent: int | None, number: int, **fields: Any) -> Snapshot:
    summary = {"operation": "append", "total-records": "10", "added-records": "1"}
    document = {
        "snapshot-id": snapshot_id,
        "sequence-number": number,
        "timestamp-ms": BASE_MS + number,
        "manifest-list": f"memory://w/t/metadata/{snapshot_id}.avro",
        "summary": summary,
        **({} if parent is None else {"parent-snapshot-id": parent}),
        **fields,
    }
    return parse_snapshot(json.dumps(document).encode())


def table(format_version: int = 2, **head_fields: Any) -> TableMetadata:
    """Return a table with two snapshots, PARENT and then HEAD."""
    metadata = new_table(
        schema=SCHEMA.model_dump_json().encode(),
        spec=None,
        order=None,
        location="memory://w/t",
        properties={"format-version": str(format_version)},
        uuid=str(uuid4()),
        now_ms=BASE_MS,
    )
    rows: dict[str, Any] = {} if format_version < 3 else {"first-row-id": 0, "added-rows": 10}
    for snapshot_id, parent, number in ((PARENT, None, 1), (HEAD, PARENT, 2)):
        if rows and number == 2:
            rows = {"first-row-id": 10, "added-rows": 5}
        fields = {**rows, **(head_fields if number == 2 else {})}
        number = number if format_version > 1 else 0
        added = snapshot(snapshot_id, parent, number, **fields)
        updates = (
            AddSnapshot(snapshot=msgspec.Raw(added.raw)),
            SetSnapshotRef(ref_name="main", type="branch", snapshot_id=snapshot_id),
        )
        metadata = apply_updates(metadata, updates, now_ms=BASE_MS)
    return metadata


def listed(path: str, added_by: int, number: int, **fields: Any) -> ManifestFile:
    empty: dict[str, Any] = {field.name: None for field in dataclasses.fields(ManifestFile)}
    known = {
        "manifest_path": path,
        "manifest_length": 10,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": number,
        "min_sequence_number": number,
        "added_snapshot_id": added_by,
        "encrypted": False,
        "raw": b"",
    }
    return ManifestFile(**{**empty, **known, **fields})


def an_entry(path: str, status: int = ADDED, **fields: Any) -> ManifestEntry:
    known: dict[str, Any] = {
        "status": status,
        "snapshot_id": None,
        "sequence_number": None,
        "file_sequence_number": None,
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "record_count": 3,
        "file_size_in_bytes": 30,
        "first_row_id": None,
        "partition": (1.5,),
    }
    return ManifestEntry(**{**known, **fields})


@dataclass
class Case:
    """A client's snapshot as data that a test can corrupt before it runs the proof."""

    target: RebaseTarget
    parent: list[ManifestFile]
    own: list[ManifestFile]
    manifests: dict[str, list[ManifestEntry]]

    def prove(self) -> tuple[AddedManifest, ...]:
        parent = dataclasses.replace(LIST, manifests=tuple(self.parent))
        difference = list_difference(self.target, self._list(self.own), parent)
        read: dict[str, Manifest] = {
            path: dataclasses.replace(MANIFEST, entries=tuple(entries))
            for path, entries in self.manifests.items()
        }
        return prove_append(self.target, difference, read)

    def _list(self, manifests: list[ManifestFile]) -> ManifestList:
        return dataclasses.replace(LIST, manifests=tuple(manifests))


def target(**fields: Any) -> RebaseTarget:
    return rebase_target(table(), snapshot(OWN, PARENT, 2, **fields), "main")


def plain() -> Case:
    """Return a fast append: one new manifest before those of the parent."""
    kept = listed("kept", PARENT, 1)
    return Case(target(), [kept], [listed("new", OWN, 2), kept], {"new": [an_entry("a")]})


def merged() -> Case:
    """Return a merge append: the client's manifest contains the entries of two of the parent's."""
    old, older = listed("old", PARENT, 1), listed("older", OTHER, 0)
    live = [
        an_entry("x"),
        an_entry("nan", partition=(math.nan,)),
        an_entry("gone", DELETED, snapshot_id=PARENT, sequence_number=0),
        an_entry("y", EXISTING, snapshot_id=7, sequence_number=0, file_sequence_number=0),
    ]
    assigned = {"snapshot_id": PARENT, "sequence_number": 1, "file_sequence_number": 1}
    carried = [
        an_entry("x", EXISTING, **assigned),
        an_entry("nan", EXISTING, partition=(math.nan,), **assigned),
        an_entry("y", EXISTING, snapshot_id=7, sequence_number=0, file_sequence_number=0),
        an_entry("z", EXISTING, snapshot_id=OTHER, sequence_number=0, file_sequence_number=0),
    ]
    own = listed("merged", OWN, 2)
    entries = {"old": live, "older": [an_entry("z")], "merged": [an_entry("a"), *carried]}
    return Case(target(), [old, older], [own], entries)


def test_a_fast_append_is_proven_and_its_manifest_is_listed_as_it_is() -> None:
    (added,) = plain().prove()
    assert added.listed.manifest_path == "new"
    assert [entry.file_path for entry in added.entries] == ["a"]
    assert not added.rewrite


def test_a_merge_append_is_proven_and_only_its_additions_are_taken() -> None:
    (added,) = merged().prove()
    assert [entry.file_path for entry in added.entries] == ["a"]
    assert added.rewrite


def test_a_merge_that_adds_nothing_to_one_manifest_leaves_that_out() -> None:
    case = merged()
    case.own.append(listed("new", OWN, 2))
    case.manifests["new"] = [case.manifests["merged"].pop(0)]
    (added,) = case.prove()
    assert (added.listed.manifest_path, added.rewrite) == ("new", False)


def test_a_manifest_of_the_parent_without_live_entries_may_go() -> None:
    case = plain()
    case.parent.append(listed("dead", PARENT, 1, content=DELETES))
    case.manifests["dead"] = [an_entry("d", DELETED, snapshot_id=PARENT, sequence_number=0)]
    assert len(case.prove()) == 1
    case.manifests["dead"] = [an_entry("d", content=1)]
    with pytest.raises(RebaseRefused, match="1 files of its parent are gone, d among them"):
        case.prove()


def test_an_append_of_nothing_is_an_append() -> None:
    case = plain()
    del case.own[0]
    assert case.prove() == ()


@pytest.mark.parametrize(
    ("fields", "rewrite"),
    [
        ({"snapshot_id": OWN}, False),
        ({"sequence_number": 2}, True),
        ({"file_sequence_number": 2}, True),
        ({"first_row_id": 10}, True),
    ],
)
def test_what_was_assigned_on_the_old_head_is_written_anew(
    fields: dict[str, Any], rewrite: bool
) -> None:
    case = plain()
    case.manifests["new"] = [an_entry("a", **fields)]
    (added,) = case.prove()
    assert added.rewrite == rewrite


# --- tampering -------------------------------------------------------------------------------

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "snapshot_id": st.sampled_from([None, OWN, OTHER, 1]),
    "sequence_number": st.sampled_from([None, 5, 2]),
    "file_sequence_number": st.sampled_from([None, 5, 2]),
    "content": st.just(1),
    "file_path": st.just("elsewhere"),
    "file_format": st.just("ORC"),
    "record_count": st.integers(4, 9),
    "file_size_in_bytes": st.sampled_from([None, 31]),
    "partition": st.sampled_from([(None,), (2.5,), (-1.5,)]),
    "status": st.sampled_from([ADDED, DELETED]),
}


@given(st.data())
def test_any_change_to_a_carried_entry_is_refused(data: st.DataObject) -> None:
    case = merged()
    entries = case.manifests["merged"]
    position = data.draw(st.integers(1, len(entries) - 1))
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    value = data.draw(FIELDS[name])
    if value == getattr(entries[position], name):
        return
    entries[position] = dataclasses.replace(entries[position], **{name: value})
    with pytest.raises(RebaseRefused):
        case.prove()


@given(st.data())
def test_losing_or_doubling_a_carried_entry_is_refused(data: st.DataObject) -> None:
    case = merged()
    entries = case.manifests["merged"]
    position = data.draw(st.integers(1, len(entries) - 1))
    if data.draw(st.booleans()):
        del entries[position]
    else:
        entries.append(entries[position])
    with pytest.raises(RebaseRefused):
        case.prove()


def first(case: Case) -> str:
    return case.own[0].manifest_path


def change_entry(**fields: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        entries = case.manifests[first(case)]
        entries[0] = dataclasses.replace(entries[0], **fields)

    return change


def add_entry(entry: ManifestEntry) -> Callable[[Case], None]:
    return lambda case: case.manifests[first(case)].append(entry)


def change_listed(**fields: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.own[0] = dataclasses.replace(case.own[0], **fields)

    return change


def list_more(manifest: ManifestFile, *entries: ManifestEntry) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.own.append(manifest)
        case.manifests[manifest.manifest_path] = list(entries)

    return change


def drop_parent(case: Case) -> None:
    """Remove a live manifest of the parent from the client's list."""
    lost = listed("lost", PARENT, 1)
    case.parent.append(lost)
    case.manifests["lost"] = [an_entry("l")]


SPOILED = [
    (change_entry(status=DELETED), "it deletes a"),
    (change_entry(status=EXISTING), "not in a manifest that it replaced"),
    (change_entry(snapshot_id=OTHER), "added by another snapshot"),
    (change_entry(sequence_number=1), "a sequence number other than"),
    (change_entry(file_sequence_number=9), "a sequence number other than"),
    (change_entry(content=1), "the delete file a"),
    (add_entry(an_entry("a")), "twice"),
    (add_entry(an_entry("b", EXISTING)), "not in a manifest that it replaced"),
    (add_entry(an_entry("b", DELETED)), "it deletes b"),
    (change_listed(content=DELETES), "delete manifest of its own"),
    (change_listed(added_snapshot_id=OTHER), "neither its own nor its parent's"),
    (change_listed(added_snapshot_id=None), "neither its own nor its parent's"),
    (change_listed(sequence_number=3), "not of its sequence number 2"),
    (change_listed(encrypted=True), "is encrypted"),
    (change_listed(partition_spec_id=5), "no longer has the partition spec 5"),
    (list_more(listed("more", OWN, 2, content=DELETES)), "delete manifest of its own"),
    (list_more(listed("more", OTHER, 1), an_entry("b")), "neither its own nor its parent's"),
    (list_more(listed("more", OWN, 2), an_entry("a")), "twice"),
    (lambda case: case.own.append(case.own[0]), "a manifest twice"),
    (lambda case: case.parent.append(case.parent[0]), "a manifest twice"),
    (drop_parent, "gone, l among them"),
]


@pytest.mark.parametrize(("spoil", "problem"), SPOILED)
@pytest.mark.parametrize("make", [plain, merged])
def test_a_spoiled_append_is_refused(
    make: Callable[[], Case], spoil: Callable[[Case], None], problem: str
) -> None:
    case = make()
    spoil(case)
    with pytest.raises(RebaseRefused, match=problem):
        case.prove()


@pytest.mark.parametrize(
    "fields",
    [
        {"content": DELETES},
        {"partition_spec_id": 1},
        {"sequence_number": 9},
        {"added_snapshot_id": 1},
    ],
)
def test_a_manifest_of_the_parent_must_be_listed_as_it_was(fields: dict[str, Any]) -> None:
    case = plain()
    case.own[1] = dataclasses.replace(case.own[1], **fields)
    with pytest.raises(RebaseRefused, match="otherwise than that of its parent"):
        case.prove()


def test_row_ids_of_carried_entries_must_stay() -> None:
    case = merged()
    case.parent = [dataclasses.replace(m, first_row_id=50) for m in case.parent]
    case.own = [dataclasses.replace(m, first_row_id=90) for m in case.own]
    entries = case.manifests["merged"]
    ids = {"x": 50, "nan": 53, "y": 56, "z": 50}
    for position, entry in enumerate(entries[1:], start=1):
        entries[position] = dataclasses.replace(entry, first_row_id=ids[entry.file_path])
    assert len(case.prove()) == 1
    entries[2] = dataclasses.replace(entries[2], first_row_id=54)
    with pytest.raises(RebaseRefused, match="with other row ids"):
        case.prove()


def test_manifests_of_version_1_are_not_taken_into_later_versions() -> None:
    case = plain()
    read = {"new": dataclasses.replace(MANIFEST, entries=(an_entry("a"),))}
    parent = dataclasses.replace(LIST, manifests=tuple(case.parent))
    own = dataclasses.replace(LIST, manifests=tuple(case.own))
    difference = list_difference(case.target, own, parent)
    old = {"new": dataclasses.replace(read["new"], has_sequence_numbers=False)}
    with pytest.raises(RebaseRefused, match="before the table's upgrade"):
        prove_append(case.target, difference, old)


# --- the snapshots ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"parent-snapshot-id": OTHER}, "is not an ancestor"),
        ({"snapshot-id": HEAD}, "already in the table"),
        ({"summary": {"operation": "overwrite"}}, "operation is overwrite"),
        ({"summary": {"operation": "delete"}}, "operation is delete"),
        ({"summary": {"total-records": "1"}}, "operation is unknown"),
        ({"summary": {"operation": "append", "published-wap-id": "w"}}, "publishes another"),
        ({"summary": {"operation": "append", "source-snapshot-id": "1"}}, "publishes another"),
        ({"key-id": "k"}, "no manifest list that can be read"),
        ({"manifest-list": None, "manifests": ["m"]}, "no manifest list that can be read"),
    ],
)
def test_snapshots_that_cannot_be_rebased(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(RebaseRefused, match=problem):
        target(**fields)


def test_the_branch_must_be_there() -> None:
    with pytest.raises(RebaseRefused, match="no branch audit"):
        rebase_target(table(), snapshot(OWN, PARENT, 2), "audit")


def test_a_tag_is_no_branch() -> None:
    tag = SetSnapshotRef(ref_name="v1", type="tag", snapshot_id=PARENT)
    metadata = apply_updates(table(), (tag,), now_ms=BASE_MS)
    with pytest.raises(RebaseRefused, match="no branch v1"):
        rebase_target(metadata, snapshot(OWN, PARENT, 2), "v1")


def test_no_parent_is_an_ancestor_of_every_head() -> None:
    found = rebase_target(table(), snapshot(OWN, None, 1), "main")
    assert (found.parent, found.head.snapshot_id, found.sequence_number) == (None, HEAD, 3)


def rebased(found: RebaseTarget, **arguments: Any) -> dict[str, Any]:
    added = AddedManifest(listed("new", OWN, 2), MANIFEST, (an_entry("a"), an_entry("b")), False)
    known = {"manifest_list": "list", "kept_manifests": 4, "assigned_rows": 6}
    document = json.loads(rebased_snapshot(found, [added], **{**known, **arguments}))
    assert isinstance(document, dict)
    return document


def test_the_new_snapshot() -> None:
    summary = {
        "operation": "append",
        "added-records": "1",
        "total-records": "11",
        "total-data-files": "1",
        "manifests-created": "3",
        "manifests-kept": "1",
        "manifests-replaced": "2",
        "engine": "any",
    }
    head = {"operation": "append", "total-records": "40", "total-delete-files": "7"}
    metadata = table(summary=head)
    own = snapshot(OWN, PARENT, 2, summary=summary, **{"schema-id": 0, "from-the-future": [1]})
    assert rebased(rebase_target(metadata, own, "main")) == {
        "snapshot-id": OWN,
        "parent-snapshot-id": HEAD,
        "sequence-number": 3,
        "timestamp-ms": BASE_MS + 3,
        "manifest-list": "list",
        "schema-id": 0,
        "from-the-future": [1],
        "summary": {
            "operation": "append",
            "added-records": "1",
            "total-records": "46",
            "total-delete-files": "7",
            "manifests-created": "1",
            "manifests-kept": "4",
            "manifests-replaced": "0",
            "engine": "any",
        },
    }


def test_a_later_timestamp_of_the_client_is_kept() -> None:
    found = rebase_target(
        table(), snapshot(OWN, PARENT, 2, **{"timestamp-ms": BASE_MS + 99}), "main"
    )
    assert rebased(found)["timestamp-ms"] == BASE_MS + 99


@pytest.mark.parametrize("total", ["many", "-1", "", "٣", "9" * 30])
def test_a_total_that_is_no_number_does_not_go_on(total: str) -> None:
    head = {"operation": "append", "total-records": total}
    found = rebase_target(table(summary=head), snapshot(OWN, PARENT, 2), "main")
    assert "total-records" not in rebased(found)["summary"]


def test_version_1_has_no_sequence_numbers() -> None:
    document = rebased(rebase_target(table(1), snapshot(OWN, PARENT, 0), "main"))
    assert document["sequence-number"] == 0
    assert "first-row-id" not in document


def test_version_3_takes_row_ids_from_the_head() -> None:
    rows = {"first-row-id": 10, "added-rows": 1}
    document = rebased(rebase_target(table(3), snapshot(OWN, PARENT, 2, **rows), "main"))
    assert (document["first-row-id"], document["added-rows"]) == (15, 6)
    upgraded = apply_updates(table(2), (UpgradeFormatVersion(3),), now_ms=BASE_MS)
    document = rebased(rebase_target(upgraded, snapshot(OWN, PARENT, 2), "main"))
    assert (document["first-row-id"], document["added-rows"]) == (0, 6)
