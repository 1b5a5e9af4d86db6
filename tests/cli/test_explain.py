"""`frazil explain` describes conflicts of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from frazil.cli.app import app
from frazil.cli.shared.conflict_explanation import CLAUSES
from frazil.wire.conflicts import ConflictClause, ConflictFile, ConflictSnapshot, conflict
from frazil.wire.errors import CommitFailed, CommitStateUnknown, TooManyRequests, ValidationError


def refusal(*clauses: ConflictClause, files: int = 2) -> dict[str, Any]:
    conflicts = [
        conflict(
            clause,
            f"message of {clause}",
            update=number,
            validation=None if number else 3,
            snapshots=[ConflictSnapshot(77, "append")],
            files=[ConflictFile(f"s3://b/{count}.parquet") for count in range(files)],
        )
        for number, clause in enumerate(clauses)
    ]
    return ValidationError("the first message", [one.document() for one in conflicts]).body()


def explain(text: str, *options: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["explain", *options], input=text)
    return done.exit_code, done.stdout, done.stderr


def test_every_clause_has_its_words() -> None:
    assert set(CLAUSES) == set(get_args(ConflictClause))


@pytest.mark.parametrize("clause", get_args(ConflictClause))
def test_a_conflict_is_explained(clause: ConflictClause) -> None:
    code, said, _ = explain(json.dumps(refusal(clause)))
    assert code == 0
    known = CLAUSES[clause]
    for words in (
        "ValidationException: the first message",
        "nothing was committed",
        f"1 of 1: {known.failed} ({clause})",
        "updates[0].commit-validations[3]",
        f"message of {clause}",
        known.meaning,
        "77 (append)",
        "2 files",
        "s3://b/1.parquet",
        *known.remedies,
    ):
        assert words in said


def test_several_conflicts_are_all_told() -> None:
    code, said, _ = explain(json.dumps(refusal("duplicate-file", "removed-file-not-live")))
    assert code == 0
    assert "1 of 2: " in said
    assert "2 of 2: " in said
    assert "updates[1], always checked" in said


def test_a_long_list_is_cut_and_counted() -> None:
    _, said, _ = explain(json.dumps(refusal("required-data-files", files=250)))
    assert "250 files" in said
    assert "… and 240 more" in said
    assert "s3://b/9.parquet" in said
    assert "s3://b/10.parquet" not in said


def test_a_deletion_vector_is_named_with_its_offset() -> None:
    one = conflict(
        "dv-conflict", "m", update=0, files=[ConflictFile("s3://b/x.puffin", content_offset=4)]
    )
    _, said, _ = explain(json.dumps(ValidationError("m", [one.document()]).body()))
    assert "s3://b/x.puffin at offset 4" in said


BODY = json.dumps(refusal("required-data-files"))


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        json.dumps(json.loads(BODY)["error"]),
        f"HTTP/1.1 409 Conflict\r\ncontent-type: application/json\r\n\r\n{BODY}",
        f"HTTP/1.1 409 Conflict\ncontent-type: application/json\n\n{BODY}\n",
    ],
    ids=["body", "error", "http-crlf", "http-lf"],
)
def test_what_was_saved_may_be_the_body_or_the_whole_answer(tmp_path: Path, text: str) -> None:
    saved = tmp_path / "conflict.json"
    saved.write_text(text, newline="")
    done = CliRunner().invoke(app, ["explain", str(saved)])
    assert done.exit_code == 0
    assert "required-data-files" in done.stdout
    assert explain(text)[1] == done.stdout == explain(text, "-")[1]


def test_json_keeps_what_the_server_said() -> None:
    code, said, _ = explain(BODY, "--output", "json")
    assert code == 0
    document = json.loads(said)
    assert document["type"] == "ValidationException"
    (found,) = document["conflicts"]
    original = json.loads(BODY)["error"]["conflicts"][0]
    assert original.items() <= found.items()
    assert found["remedies"] == list(CLAUSES["required-data-files"].remedies)
    assert found["meaning"] == CLAUSES["required-data-files"].meaning


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CommitFailed("main has moved"), "rebuild the commit"),
        (CommitStateUnknown("nobody answered"), "Delete no file"),
        (TooManyRequests("later"), "send the same request again after a pause"),
    ],
)
def test_other_errors_get_their_advice(error: CommitFailed, words: str) -> None:
    code, said, _ = explain(json.dumps(error.body()))
    assert code == 0
    assert error.message in said
    assert words in said


def test_a_clause_of_a_later_version_is_still_shown() -> None:
    body = refusal("required-data-files")
    body["error"]["conflicts"][0]["clause"] = "something-new"
    code, said, _ = explain(json.dumps(body))
    assert code == 0
    assert "(something-new)" in said
    assert "does not know the clause" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no JSON in it"),
        ("<html>", "there is no JSON in it"),
        ("[]", "there is no error.message in it"),
        ('{"metadata-location": "x"}', "there is no error.message in it"),
        ('{"error": {"message": "m", "conflicts": 3}}', "error.conflicts must be a list"),
    ],
)
def test_what_is_no_conflict_is_a_usage_error(text: str, message: str) -> None:
    code, said, err = explain(text)
    assert (code, said) == (2, "")
    assert message in err
    code, said, err = explain(text, "-o", "json")
    assert (code, said) == (2, "")
    assert message in json.loads(err)["error"]["message"]


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["explain", str(tmp_path / "none.json")])
    assert done.exit_code == 2
    assert "none.json cannot be read" in done.stderr
