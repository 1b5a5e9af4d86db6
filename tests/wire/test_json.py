"""Decoding errors name the problem and its JSON path."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import CommitUpdate
from frazil.wire.job_messages import ReportJobRequest
from frazil.wire.json_bodies import MAX_DEPTH, check_text, decode, known_tags
from frazil.wire.rest_messages import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    ReportMetricsRequest,
)


def commit(update: str) -> bytes:
    return b'{"requirements":[],"updates":[' + update.encode() + b"]}"


REFUSED: list[tuple[Any, bytes, str]] = [
    (CommitTableRequest, b"", "the request body is empty"),
    (CommitTableRequest, b" \n", "the request body is empty"),
    (CommitTableRequest, b"{", "not valid JSON"),
    (CommitTableRequest, commit("") + b" {}", "not valid JSON"),
    (CommitTableRequest, b'{"updates":NaN}', "not valid JSON"),
    (CommitTableRequest, b"\xef\xbb\xbf{}", "not valid JSON"),
    (CommitTableRequest, b'{"updates":"\xff"}', "not valid UTF-8 at byte 12"),
    (
        ReportJobRequest,
        b'{"worker":"w","state":"zzz"}',
        "state: unknown value 'zzz'; known are cancelled, failed, queued, running, succeeded",
    ),
    (CommitTableRequest, b"[]", "the request body: expected object, got array"),
    (CommitTableRequest, b"null", "the request body: expected object, got null"),
    (CommitTableRequest, b"{}", "requirements: required, but missing"),
    (CommitTableRequest, b'{"requirements":[]}', "updates: required, but missing"),
    (CommitTableRequest, b'{"requirements":{},"updates":[]}', "requirements: expected array"),
    (
        CommitTableRequest,
        commit('{"action":"set-current-schema","schema-id":"1"}'),
        "updates[0].schema-id: expected int, got str",
    ),
    (
        CommitTableRequest,
        commit('{"action":"set-current-schema","schema-id":2147483648}'),
        "updates[0].schema-id: expected int <= 2147483647",
    ),
    (
        CommitTableRequest,
        commit('{"action":"remove-snapshots","snapshot-ids":[1,9223372036854775808]}'),
        "updates[0].snapshot-ids[1]: expected int <= 9223372036854775807",
    ),
    (
        CommitTableRequest,
        commit('{"action":"remove-snapshots","snapshot-ids":[' + "9" * 5000 + "]}"),
        "updates[0].snapshot-ids[0]: integer value out of range",
    ),
    (
        CommitTableRequest,
        commit('{"action":"set-current-schema","schema-id":1,"x":2}'),
        "updates[0].x: unknown field",
    ),
    (CommitTableRequest, commit("{}"), "updates[0].action: required, but missing"),
    (
        CommitTableRequest,
        commit('{"action":"set-properties","updates":{"a":"1","b":2}}'),
        "updates[0].updates['b']: expected str, got int",
    ),
    (CommitTableRequest, commit('{"action":"nope"}'), "updates[0].action: unknown update 'nope'"),
    (
        CommitViewRequest,
        b'{"updates":[{"action":"add-snapshot","snapshot":{}}]}',
        "updates[0].action: unknown update 'add-snapshot'; known are add-schema, add-view-version",
    ),
    (
        CommitViewRequest,
        b'{"updates":[],"requirements":[{"type":"assert-create"}]}',
        "requirements[0].type: unknown requirement 'assert-create'; known are assert-view-uuid",
    ),
    (
        CommitTransactionRequest,
        b'{"table-changes":[{"requirements":[{"type":"x"}],"updates":[]}]}',
        "table-changes[0].requirements[0].type: unknown requirement 'x'; known are assert-create",
    ),
    (CommitTransactionRequest, b'{"table-changes":[]}', "table-changes: expected array of length"),
    (CreateNamespaceRequest, b'{"namespace":["a",1]}', "namespace[1]: expected str, got int"),
    (
        CreateNamespaceRequest,
        b'{"namespace":["a"],"properties":{"k":null}}',
        "properties['k']: expected str, got null",
    ),
    (ReportMetricsRequest, b'{"report-type":"x"}', "report-type: unknown report 'x'"),
]


@pytest.mark.parametrize(("kind", "body", "message"), REFUSED)
def test_refusal_names_the_field(kind: Any, body: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        decode(kind, body)
    assert message in refused.value.message


def test_unknown_update_lists_all_known_ones() -> None:
    with pytest.raises(BadRequest) as refused:
        decode(CommitTableRequest, commit('{"action":"nope"}'))
    known = known_tags(CommitUpdate, "action")
    assert len(known) == 28
    assert refused.value.message.endswith("; known are " + ", ".join(known))


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """Return a request body that is nested to the given depth."""
    inner = opening * (depth - 1) + b"1" + closing * (depth - 1)
    return b'{"name":"t","schema":' + inner + b"}"


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[1,"[{",', b'["\\"]\\\\",'])
def test_nesting_is_allowed_up_to_the_limit_and_refused_above(opening: bytes) -> None:
    closing = b"}" if opening.startswith(b"{") else b"]"
    decode(CreateTableRequest, nested(MAX_DEPTH, opening, closing))
    with pytest.raises(BadRequest, match="nested more than 500 levels"):
        decode(CreateTableRequest, nested(MAX_DEPTH + 1, opening, closing))


def test_brackets_inside_strings_are_no_nesting() -> None:
    check_text(b'{"name":"' + b"[" * 5000 + b'"}')
    check_text(b'{"name":"' + b'\\"[' * 5000 + b'"}')


def test_wide_bodies_are_not_deep() -> None:
    check_text(b"[" + b"[[],{}]," * 400_000 + b"1]")


def test_nesting_is_followed_across_the_chunks_of_a_large_body() -> None:
    padding = b'"' + b"x" * 70_000 + b'",'
    deep = (b"[" + padding) * (MAX_DEPTH + 1) + b"1" + b"]" * (MAX_DEPTH + 1)
    with pytest.raises(BadRequest, match="nested more than"):
        check_text(deep)
    check_text(deep.replace(b"[", b"", 1))


def test_optional_objects_may_be_null_or_left_out() -> None:
    request = decode(CreateTableRequest, b'{"name":"t","schema":{},"partition-spec":null}')
    assert request.partition_spec is None
    assert request.write_order is None
    request = decode(CreateTableRequest, b'{"name":"t","schema":{},"write-order":{"order-id":1}}')
    assert request.write_order is not None
    assert bytes(request.write_order) == b'{"order-id":1}'
