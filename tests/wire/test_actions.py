"""Fine-grained updates on the wire: valid requests, and the errors for invalid ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from frazil.wire.conflicts import ConflictFile, ConflictSnapshot, conflict
from frazil.wire.declared_content import (
    DeclaredDataFile,
    DeleteFileReference,
    EqualityDeleteFile,
    NamedDataFile,
    NamedDeleteFile,
    PositionDeleteFile,
)
from frazil.wire.errors import BadRequest, ValidationError
from frazil.wire.file_actions import (
    SERVER_SUMMARY_KEYS,
    Append,
    CherryPick,
    Delete,
    FineGrainedUpdate,
    NotAllowedAddedDataFiles,
    NotAllowedAddedDeleteFiles,
    NotAllowedNewDeletesForDataFiles,
    Once,
    Overwrite,
    Replace,
    RequiredDataFiles,
    RequiredDeleteFiles,
    check_request,
)
from frazil.wire.json_bodies import decode, encode
from frazil.wire.rest_updates import TableUpdate


class Request(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A commit of one table without its requirements."""

    updates: tuple[TableUpdate | FineGrainedUpdate, ...]
    once: Once | None = None


def file(path: str, spec_id: int = 0, **more: Any) -> dict[str, Any]:
    document = {
        "content": "data",
        "spec-id": spec_id,
        "partition": [],
        "file-path": path,
        "file-format": "parquet",
        "file-size-in-bytes": 1,
        "record-count": 1,
    }
    return document | {name.replace("_", "-"): value for name, value in more.items()}


def deletes(path: str, spec_id: int = 0) -> dict[str, Any]:
    return file(path, spec_id, content="position-deletes")


def vector(path: str, offset: int, of: str = "d") -> dict[str, Any]:
    return file(
        path,
        content="position-deletes",
        file_format="puffin",
        content_offset=offset,
        content_size_in_bytes=9,
        referenced_data_file=of,
    )


def update(action: str, **fields: Any) -> dict[str, Any]:
    return {"action": action} | {name.replace("_", "-"): fields[name] for name in fields}


def append(**fields: Any) -> dict[str, Any]:
    return update("append", **({"add_data_files": [file("a")]} | fields))


def read(*updates: dict[str, Any], once: Any = None) -> Request:
    request = decode(Request, encode({"updates": updates, "once": once}))
    check_request(request.updates, request.once)
    return request


def refusal(*updates: dict[str, Any], once: Any = None) -> str:
    with pytest.raises(BadRequest) as refused:
        read(*updates, once=once)
    return refused.value.message


A, B = [file("a")], [file("b")]
TRUE = {"type": "true"}
ADD_SNAPSHOT = {"action": "add-snapshot", "snapshot": {}}

ACCEPTED: dict[str, dict[str, Any]] = {
    "append": append(),
    "append with everything": append(
        branch="audit",
        stage_only=True,
        summary={"wap.id": "w", "spark.app.id": "1", "spark.sql.streaming.epochId": "3"},
        base_snapshot_id=1,
        commit_validations=[],
        case_sensitive=False,
    ),
    "append with a base of null": append(base_snapshot_id=None),
    "delete by path": update("delete", remove_data_files=["a", {"file-path": "b"}]),
    "delete of delete files": update("delete", remove_delete_files=["a"]),
    "delete by filter": update("delete", delete_row_filter=TRUE),
    "delete by Java's constant": update("delete", delete_row_filter=True),
    "overwrite that adds": update("overwrite", add_data_files=A),
    "row delta": update("overwrite", add_data_files=A, add_delete_files=[deletes("d")]),
    "overwrite by filter": update("overwrite", add_data_files=A, delete_row_filter=TRUE),
    "overwrite by path": update("overwrite", add_data_files=A, remove_data_files=["b"]),
    "two vectors of one Puffin file": update(
        "overwrite",
        add_delete_files=[vector("p", 4), vector("p", 40, of="e")],
        remove_delete_files=[
            {"file-path": "p", "content-offset": 80},
            {"file-path": "p", "content-offset": 90},
        ],
    ),
    "replace-partitions": update("overwrite", add_data_files=A, replace_partitions=True),
    "replace-partitions with null": update(
        "overwrite", add_data_files=A, replace_partitions=True, delete_row_filter=None
    ),
    "replace": update("replace", add_data_files=A, remove_data_files=["b"]),
    "replace by nothing": update("replace", remove_data_files=["b"]),
    "replace of delete files": update(
        "replace", add_delete_files=[deletes("a")], remove_delete_files=["b"]
    ),
    "replace under equality deletes": update(
        "replace",
        add_data_files=A,
        remove_data_files=["b"],
        base_snapshot_id=1,
        data_sequence_number=0,
    ),
    "cherry-pick": update("cherry-pick", snapshot_id=5),
    "cherry-pick on a branch": update("cherry-pick", snapshot_id=5, branch="audit"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case: str) -> None:
    (read_update,) = read(ACCEPTED[case]).updates
    assert isinstance(read_update, FineGrainedUpdate)
    assert read_update.__struct_config__.tag == ACCEPTED[case]["action"]


# --- a field that is not listed for the action ---------------------------------------------------

FILES = ["add-data-files", "add-delete-files", "remove-data-files", "remove-delete-files"]
COMMON = {
    "branch",
    "stage-only",
    "summary",
    "base-snapshot-id",
    "commit-validations",
    "case-sensitive",
}
LISTED: dict[str, set[str]] = {
    "append": {"add-data-files"} | COMMON,
    "delete": {"remove-data-files", "remove-delete-files", "delete-row-filter"} | COMMON,
    "overwrite": {*FILES, "delete-row-filter", "replace-partitions", "rebase-deletion-vectors"}
    | COMMON,
    "replace": {*FILES, "data-sequence-number", "rebase-deletion-vectors", "lost-rounds"} | COMMON,
    "cherry-pick": {"snapshot-id", "branch"},
}
VALUES: dict[str, Any] = {
    "add-data-files": [file("1")],
    "add-delete-files": [deletes("2")],
    "remove-data-files": ["3"],
    "remove-delete-files": ["4"],
    "delete-row-filter": TRUE,
    "replace-partitions": False,
    "rebase-deletion-vectors": True,
    "data-sequence-number": 1,
    "lost-rounds": 2,
    "snapshot-id": 1,
    "branch": "main",
    "stage-only": False,
    "summary": {"a": "b"},
    "base-snapshot-id": 1,
    "commit-validations": [],
    "case-sensitive": True,
    "once": {"id": "q", "epoch": 1},
    "filter": TRUE,
}


@pytest.mark.parametrize("action", LISTED)
def test_each_action_has_its_own_fields_and_no_others(action: str) -> None:
    listed = {name: VALUES[name] for name in sorted(LISTED[action])}
    read({"action": action} | listed)
    for name in VALUES.keys() - LISTED[action]:
        message = refusal({"action": action} | listed | {name: VALUES[name]})
        assert message == f"updates[0].{name}: unknown field, remove it"


def test_the_listed_fields_are_those_of_the_structs() -> None:
    kinds = {"append": Append, "delete": Delete, "overwrite": Overwrite, "replace": Replace}
    for action, kind in (kinds | {"cherry-pick": CherryPick}).items():
        assert set(kind.__struct_encode_fields__) == LISTED[action]


def test_defaults() -> None:
    (only,) = read(append()).updates
    assert isinstance(only, Append)
    assert (only.branch, only.stage_only, only.case_sensitive) == ("main", False, True)
    assert (only.summary, only.base_snapshot_id, only.validations) == ({}, None, ())


# --- rules of the text --------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    (update("append"), "updates[0]: this append would change nothing, send add-data-files"),
    (append(add_data_files=[]), "updates[0]: this append would change nothing"),
    (update("delete"), "updates[0]: this delete would change nothing, send remove-data-files"),
    (update("delete", delete_row_filter=None), "updates[0]: this delete would change nothing"),
    (update("overwrite"), "updates[0]: this overwrite would change nothing"),
    (
        update("overwrite", replace_partitions=True),
        "updates[0].add-data-files: required with replace-partitions",
    ),
    (
        update("overwrite", replace_partitions=True, add_delete_files=[deletes("d")]),
        "updates[0].add-data-files: required with replace-partitions",
    ),
    *(
        (
            update("overwrite", replace_partitions=True, add_data_files=A, **{field: value}),
            f"updates[0].{field.replace('_', '-')}: not allowed with replace-partitions",
        )
        for field, value in (
            ("delete_row_filter", TRUE),
            ("remove_data_files", ["b"]),
            ("remove_delete_files", ["b"]),
        )
    ),
    (
        update("overwrite", replace_partitions=True, add_data_files=[*A, file("b", 3)]),
        "updates[0].add-data-files: with replace-partitions all added files must be of one "
        "partition spec, but there are spec-id 0, 3",
    ),
    (
        update(
            "overwrite",
            replace_partitions=True,
            add_data_files=A,
            add_delete_files=[deletes("b", 2)],
        ),
        "but there are spec-id 0, 2",
    ),
    (update("replace"), "updates[0].remove-data-files: a replace must name the files"),
    (update("replace", add_data_files=A), "updates[0].remove-data-files: a replace must name"),
    (
        update("replace", add_data_files=A, remove_delete_files=["b"]),
        "updates[0].add-data-files: a replace that adds data files must remove data files",
    ),
    (
        update("replace", add_delete_files=[deletes("a")], remove_data_files=["b"]),
        "updates[0].add-delete-files: a replace that adds delete files must remove delete files",
    ),
    (
        update("replace", remove_data_files=["b"], data_sequence_number=3),
        "updates[0].data-sequence-number: needs base-snapshot-id",
    ),
    (
        update("replace", remove_data_files=["b"], data_sequence_number=-1),
        "updates[0].data-sequence-number: expected int >= 0",
    ),
    (append(add_data_files=[*A, *B, *A]), "updates[0].add-data-files: a stands there more than"),
    (
        update("delete", remove_data_files=["a", {"file-path": "a"}]),
        "updates[0].remove-data-files: a stands there more than once",
    ),
    (
        update("delete", remove_delete_files=["a", "a"]),
        "updates[0].remove-delete-files: a stands there more than once",
    ),
    (
        update("overwrite", add_delete_files=[vector("p", 4), vector("p", 4)]),
        "updates[0].add-delete-files: p with content-offset 4 stands there more than once",
    ),
    (
        update("delete", remove_delete_files=["p", {"file-path": "p", "content-offset": 4}]),
        "updates[0].remove-delete-files: p stands there both whole and with content-offset 4",
    ),
    *(
        (
            update(action, add_data_files=A, remove_data_files=["a"]),
            "updates[0].remove-data-files: a is added and removed in the same update",
        )
        for action in ("overwrite", "replace")
    ),
    (
        update("overwrite", add_delete_files=[deletes("d")], remove_delete_files=["d"]),
        "updates[0].remove-delete-files: d is added and removed in the same update",
    ),
    (
        update("overwrite", add_delete_files=[vector("p", 4)], remove_delete_files=["p"]),
        "updates[0].remove-delete-files: p with content-offset 4 is added and removed",
    ),
    (
        update(
            "replace",
            add_delete_files=[vector("p", 4)],
            remove_delete_files=[{"file-path": "p", "content-offset": 4}],
        ),
        "updates[0].remove-delete-files: p with content-offset 4 is added and removed",
    ),
    (append(branch=""), "updates[0].branch: expected str of length >= 1"),
    (append(branch=None), "updates[0].branch: expected str, got null"),
    (append(stage_only="yes"), "updates[0].stage-only: expected bool, got str"),
    (append(summary={"a": 1}), "updates[0].summary['a']: expected str, got int"),
    (append(base_snapshot_id="1"), "updates[0].base-snapshot-id: expected int | null, got str"),
    (append(base_snapshot_id=2**63), "updates[0].base-snapshot-id: expected int"),
    (update("cherry-pick"), "updates[0].snapshot-id: required, but missing"),
    (update("upsert"), "updates[0].action: unknown update 'upsert'"),
]


@pytest.mark.parametrize(("document", "message"), REFUSED, ids=[text[:70] for _, text in REFUSED])
def test_refused(document: dict[str, Any], message: str) -> None:
    assert message in refusal(document)


@pytest.mark.parametrize("key", [*sorted(SERVER_SUMMARY_KEYS), "partitions.day=2024-01-01"])
def test_summary_keys_of_the_server_are_refused(key: str) -> None:
    message = refusal(append(), append(summary={"mine": "1", key: "2"}))
    assert message == f"updates[1].summary: {key} is computed by the server, remove it"


# --- clauses ------------------------------------------------------------------------------------

CLAUSES: dict[str, tuple[dict[str, Any], type]] = {
    "not-allowed-added-data-files": ({}, NotAllowedAddedDataFiles),
    "not-allowed-added-delete-files": ({}, NotAllowedAddedDeleteFiles),
    "required-data-files": (
        {"file-paths": ["a", "a"], "allowed-remove-operations": ["DELETE", "replace"]},
        RequiredDataFiles,
    ),
    "required-delete-files": (
        {"file-paths": ["a", {"file-path": "p", "content-offset": 4}, {"file-path": "q"}]},
        RequiredDeleteFiles,
    ),
    "not-allowed-new-deletes-for-data-files": (
        {"file-paths": []},
        NotAllowedNewDeletesForDataFiles,
    ),
}


@pytest.mark.parametrize("name", CLAUSES)
def test_a_clause_alone_is_a_list_of_one(name: str) -> None:
    fields, kind = CLAUSES[name]
    bare = {"type": name} | fields
    full = bare | {"filter": TRUE, "base-snapshot-id": 7}
    listed, alone = read(
        append(commit_validations=[bare, full]), append(commit_validations=full)
    ).updates
    assert isinstance(listed, Append)
    assert isinstance(alone, Append)
    first, second = listed.validations
    assert alone.validations == (second,)
    assert type(first) is kind
    assert (first.clause, first.filter, first.base_snapshot_id) == (name, None, None)
    assert second.filter == Raw(encode(TRUE))
    assert second.base_snapshot_id == 7


def test_the_parts_of_clauses_about_files() -> None:
    clauses = [{"type": name} | CLAUSES[name][0] for name in sorted(CLAUSES)]
    (only,) = read(append(commit_validations=clauses)).updates
    assert isinstance(only, Append)
    data, vectors = only.validations[3:]
    assert isinstance(data, RequiredDataFiles)
    assert isinstance(vectors, RequiredDeleteFiles)
    assert data.allowed_operations == {"delete", "replace"}
    assert vectors.file_paths == ("a", DeleteFileReference("p", 4), DeleteFileReference("q"))


PLACE = "updates[0].commit-validations"

REFUSED_CLAUSES: list[tuple[Any, str]] = [
    ("all", f"{PLACE}: expected object | array, got str"),
    ([{}], f"{PLACE}[0].type: required, but missing"),
    ([{"type": "nope"}], f"{PLACE}[0].type: unknown"),
    (
        {"type": "not-allowed-added-data-files", "file-paths": ["a"]},
        f"{PLACE}.file-paths: unknown field",
    ),
    (
        [{"type": "required-data-files", "allowed-remove-operations": ["REWRITE"]}],
        f"{PLACE}[0].allowed-remove-operations[0]: unknown value 'REWRITE'",
    ),
    (
        [{"type": "required-delete-files", "allowed-remove-operations": []}],
        f"{PLACE}[0].allowed-remove-operations: unknown field",
    ),
    (
        [{"type": "required-data-files", "file-paths": [{"file-path": "a"}]}],
        f"{PLACE}[0].file-paths[0]: expected str, got object",
    ),
    (
        [{"type": "required-delete-files", "file-paths": [{"path": "a"}]}],
        f"{PLACE}[0].file-paths[0].path: unknown field",
    ),
    ([{"type": "required-data-files", "file-paths": [""]}], f"{PLACE}[0].file-paths[0]: expected"),
    (
        [{"type": "required-data-files"}, {"type": "required-delete-files"}],
        f"{PLACE}[1].file-paths: required in required-delete-files without a filter",
    ),
    (
        {"type": "not-allowed-new-deletes-for-data-files"},
        f"{PLACE}.file-paths: required in not-allowed-new-deletes-for-data-files",
    ),
]


@pytest.mark.parametrize(("clauses", "message"), REFUSED_CLAUSES)
def test_refused_clause(clauses: Any, message: str) -> None:
    assert message in refusal(append(commit_validations=clauses))


# --- the whole request --------------------------------------------------------------------------

ONCE = {"id": "query", "epoch": 0}
SET_REF = {"action": "set-snapshot-ref", "ref-name": "x", "type": "branch", "snapshot-id": 1}


def test_several_actions_and_other_updates_stand_beside_each_other() -> None:
    renamed = {"action": "set-properties", "updates": {"a": "b"}}
    request = read(renamed, append(), append(branch="audit"), SET_REF, renamed)
    assert len(request.updates) == 5
    read(ADD_SNAPSHOT, SET_REF)


@pytest.mark.parametrize("action", [append(), ACCEPTED["delete by path"], ACCEPTED["cherry-pick"]])
def test_add_snapshot_beside_an_action_is_refused(action: dict[str, Any]) -> None:
    assert refusal(ADD_SNAPSHOT, action).startswith("updates[0].action: add-snapshot cannot stand")
    assert refusal(action, ADD_SNAPSHOT).startswith("updates[1].action: add-snapshot cannot stand")


def test_once() -> None:
    audit = {"branch": "audit"}
    properties = {"action": "set-properties", "updates": {}}
    request = read(append(**audit), properties, append(**audit), once=ONCE)
    assert request.once == Once("query", 0)
    read(append(), SET_REF | {"ref-name": "main"}, SET_REF | {"type": "tag"}, once=ONCE)


@pytest.mark.parametrize(
    ("updates", "once", "message"),
    [
        (
            [append(), append(branch="audit")],
            ONCE,
            "updates[1].branch: under once all updates must name one branch, but there are "
            "'main' and 'audit'",
        ),
        ([append(), SET_REF], ONCE, "updates[1].ref-name: under once all updates must name one"),
        ([], ONCE, "once: needs an update"),
        ([SET_REF], ONCE, "once: needs an update"),
        (
            [append(summary={"spark.sql.streaming.epochId": "1"})],
            ONCE,
            "updates[0].summary: spark.sql.streaming.epochId is set by the server under once",
        ),
        ([append()], {"id": "", "epoch": 1}, "once.id: expected str of length >= 1"),
        ([append()], {"id": "q"}, "once.epoch: required, but missing"),
        ([append()], {"id": "q", "epoch": -1}, "once.epoch: expected int >= 0"),
        ([append()], {"id": "q", "epoch": 1, "x": 1}, "once.x: unknown field"),
    ],
)
def test_refused_once(updates: list[dict[str, Any]], once: Any, message: str) -> None:
    assert message in refusal(*updates, once=once)


def test_the_place_of_a_table_in_a_transaction_is_named() -> None:
    with pytest.raises(BadRequest) as refused:
        check_request([Append()], json_path="table-changes[2].")
    assert refused.value.message.startswith("table-changes[2].updates[0]: this append")


# --- conflicts in an answer ---------------------------------------------------------------------


def test_a_conflict_is_cut_at_a_hundred_and_counts_all_files() -> None:
    entry = conflict(
        "required-delete-files",
        "two vectors are gone",
        update=1,
        validation=2,
        snapshots=(ConflictSnapshot(number, "delete") for number in range(101)),
        files=(ConflictFile(f"f{number}", number or None) for number in range(250)),
    )
    document = msgspec.json.decode(encode(entry.document()))
    assert document["file-count"] == 250
    assert [len(document[name]) for name in ("files", "snapshots")] == [100, 100]
    assert document["files"][:2] == [
        {"file-path": "f0"},
        {"file-path": "f1", "content-offset": 1},
    ]
    assert document["snapshots"][99] == {"snapshot-id": 99, "operation": "delete"}


def test_a_rejection_carries_its_conflicts() -> None:
    files = [ConflictFile("a")]
    entry = conflict("duplicate-file", "a is already live", update=0, files=files)
    body = msgspec.json.decode(encode(ValidationError("rejected", [entry.document()]).body()))
    assert body["error"]["conflicts"] == [
        {
            "update": 0,
            "validation": None,
            "clause": "duplicate-file",
            "message": "a is already live",
            "snapshots": [],
            "file-count": 1,
            "files": [{"file-path": "a"}],
        }
    ]


# --- there and back -----------------------------------------------------------------------------

paths = st.text(min_size=1, max_size=6)
longs = st.integers(-(2**63), 2**63 - 1)
filters = st.sampled_from([Raw(b"true"), Raw(encode(TRUE)), Raw(b"null")])
path_lists = st.none() | st.lists(paths, max_size=2).map(tuple)
references = st.lists(paths | st.builds(DeleteFileReference, paths, st.none()), max_size=2)
common = {"filter_json": filters, "base_snapshot_id": st.none() | longs}
validations = st.one_of(
    st.builds(NotAllowedAddedDataFiles, **common),
    st.builds(NotAllowedAddedDeleteFiles, **common),
    st.builds(RequiredDataFiles, file_paths=path_lists, **common),
    st.builds(RequiredDeleteFiles, file_paths=references.map(tuple), **common),
    st.builds(NotAllowedNewDeletesForDataFiles, file_paths=path_lists, **common),
)

FACTS: dict[str, Any] = {
    "spec_id": st.just(0),
    "partition": st.just((1, "x", None)),
    "file_path": paths,
    "file_format": st.just("parquet"),
    "file_size_in_bytes": st.integers(0, 9),
    "record_count": st.integers(0, 9),
}


def some(*items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.one_of(*items), max_size=2).map(tuple)


shared: dict[str, Any] = {
    "branch": paths,
    "stage_only": st.booleans(),
    "summary": st.dictionaries(paths, st.text(max_size=4), max_size=2),
    "base_snapshot_id": st.none() | longs,
    "commit_validations": some(validations) | validations,
    "case_sensitive": st.booleans(),
}
add_data = {"add_data_files": some(st.builds(DeclaredDataFile, **FACTS))}
add_deletes = {
    "add_delete_files": some(
        st.builds(PositionDeleteFile, **FACTS),
        st.builds(EqualityDeleteFile, equality_ids=st.just((1,)), **FACTS),
    )
}
removals = {
    "remove_data_files": some(paths, st.builds(NamedDataFile, file_path=paths)),
    "remove_delete_files": some(
        paths, st.builds(NamedDeleteFile, file_path=paths, content_offset=st.integers(0, 9))
    ),
}
row_filter = {"delete_row_filter_json": filters}
updates = st.one_of(
    st.builds(Append, **shared, **add_data),
    st.builds(Overwrite, **shared, **add_data, **add_deletes, **removals, **row_filter),
    st.builds(Replace, **shared, **add_data, **add_deletes, **removals),
    st.builds(Delete, **shared, **removals, **row_filter),
    st.builds(CherryPick, snapshot_id=longs, branch=paths),
)
requests = st.builds(
    Request,
    updates=st.lists(updates, max_size=2).map(tuple),
    once=st.none() | st.builds(Once, paths, st.integers(0, 2**63 - 1)),
)


@settings(max_examples=60, deadline=None)
@given(request=requests)
def test_requests_come_back_as_they_were_written(request: Request) -> None:
    body = encode(request)
    again = decode(Request, body)
    assert again == request
    assert encode(again) == body
