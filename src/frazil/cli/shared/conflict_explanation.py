"""`frazil explain`: a refused commit in plain words, and what can be done about it.

Pure but for the reading of the file: the conflicts say everything, so neither the catalog nor the
table is asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from frazil.cli.shared.printing import count_text, plain, print_json
from frazil.cli.shared.setting_options import USAGE_ERROR, Output, fail

_SHOWN: Final = 10
_VALIDATION: Final = "ValidationException"


@dataclass(frozen=True, slots=True)
class Clause:
    """What a clause is there for, in words for somebody who has never read the specification."""

    failed: str
    meaning: str
    remedies: tuple[str, ...]


_READ_AGAIN: Final = (
    "Read the table again and build the change on its newest snapshot: the same request would be "
    "refused again."
)
_NARROW: Final = (
    "If the named files cannot matter to this change, narrow the conflict filter "
    "(--conflict-filter) to the rows that it depends on."
)
_SNAPSHOT_ISOLATION: Final = (
    "If rows that were added meanwhile may stay as they are, snapshot isolation is enough: "
    "--isolation snapshot, or the table property write.delete.isolation-level (update, merge)."
)
_OTHER_BASE: Final = (
    "If the change was in truth read from a later snapshot, name that one as the base (--base)."
)

CLAUSES: Final[Mapping[str, Clause]] = {
    "not-allowed-added-data-files": Clause(
        "data files were added since the base",
        "Since the snapshot that this change was read from, others have added data files which "
        "may hold rows that match its filter. Had they been there before, the change could have "
        "come out differently.",
        (_READ_AGAIN, _NARROW, _SNAPSHOT_ISOLATION, _OTHER_BASE),
    ),
    "not-allowed-added-delete-files": Clause(
        "rows were deleted since the base",
        "Since the snapshot that this change was read from, others have deleted rows which may "
        "match its filter. Committed on top, the change could bring deleted rows back.",
        (_READ_AGAIN, _NARROW, _OTHER_BASE),
    ),
    "required-data-files": Clause(
        "data files that the change relies on are gone",
        "The change relies on data files that others have removed or rewritten since, for "
        "example by a compaction or a delete.",
        (_READ_AGAIN, "Look for the new files of the same rows with `frazil diff`."),
    ),
    "required-delete-files": Clause(
        "delete files that the change relies on are gone",
        "The change relies on delete files or deletion vectors that others have removed or "
        "rewritten since.",
        (_READ_AGAIN,),
    ),
    "not-allowed-new-deletes-for-data-files": Clause(
        "the files to be replaced have new deletes",
        "Since the base, others have deleted rows of the very data files that this change "
        "removes or rewrites. Its new files still hold those rows, so the deletes would be lost.",
        (
            "Read those files again with their new deletes, write the new files anew, and commit "
            "them from the newest snapshot.",
            _NARROW,
        ),
    ),
    "duplicate-file": Clause(
        "an added file is in the table already",
        "The paths are live on this branch. Added twice, their rows would be read twice.",
        (
            "If an earlier attempt has committed them, there is nothing left to do: `frazil log` "
            "shows when.",
            "Leave these paths out, or write new files under new names.",
            "Set frazil.commit.reject-duplicate-files=false on the table if it is meant.",
        ),
    ),
    "removed-file-not-live": Clause(
        "a file to be removed is not in the table",
        "Every removed path must be live on the branch. These are not: somebody has removed or "
        "rewritten them, they are on another branch, or the path is spelled differently.",
        (
            "Compare with `frazil ls ns.table`, which prints each path as the table has it.",
            _READ_AGAIN,
            "Set frazil.commit.ignore-missing-removals=true on the table to pass over such paths.",
        ),
    ),
    "replace-adds-rows": Clause(
        "a replace would add rows",
        "A replace puts the same rows into other files, so it never adds more rows than it "
        "removes. The declared record counts say otherwise.",
        (
            "Check the record counts and that every replaced file is named.",
            "If rows are really new, use overwrite instead of replace.",
        ),
    ),
    "partial-row-filter": Clause(
        "the delete filter matches only some rows of a file",
        "A commit removes whole files. By their statistics, these files may also hold rows that "
        "do not match the filter, which must not go with them.",
        (
            "Choose a filter along the partitions, which matches whole files.",
            "Rewrite the files: remove them by path and add new ones with the rows that stay.",
            "Or delete the rows with delete files or deletion vectors (row_delta).",
        ),
    ),
    "base-not-ancestor": Clause(
        "the base is not in the branch's history",
        "The base snapshot is on another branch, has expired, or the branch was rolled back past "
        "it, so nobody can say what happened since.",
        (
            "Choose the right branch (--branch), or a base that `frazil log ns.table@branch` has.",
            _READ_AGAIN,
        ),
    ),
    "dv-conflict": Clause(
        "somebody else deletes rows of the same data file",
        "A data file has one deletion vector. Another commit has written one for this file since "
        "the base, and the new one would undo its deletes.",
        (
            "Read the existing deletion vector, put its positions into the new one, and remove the "
            "existing one in the same update.",
        ),
    ),
    "cherry-pick": Clause(
        "the staged snapshot cannot be published",
        "It has been published already, its partitions were written to since, or it is a kind of "
        "change that cannot be applied again on a branch that has moved on.",
        (
            "`frazil log ns.table` shows whether it is published: look for source-snapshot-id or "
            "published-wap-id.",
            "Write the change anew on the branch's head.",
        ),
    ),
}

_UNKNOWN_CLAUSE: Final = Clause(
    "a check of the server",
    "This version of Frazil does not know the clause; the server's message says what it means.",
    (_READ_AGAIN,),
)


class NotAConflict(ValueError):
    """The text holds no refused commit; the message says what it is instead."""


def run(source: str, output: Output) -> None:
    """Prints what a saved conflict means."""
    try:
        text = _read(source)
        error = error_object(text)
    except NotAConflict as problem:
        fail(str(problem), output, USAGE_ERROR)
    if output is Output.JSON:
        print_json(document(error))
    else:
        typer.echo(explanation(error))


def _read(source: str) -> str:
    if source == "-":
        return sys.stdin.read()
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotAConflict(f"{source} cannot be read: {error}") from None


# --- finding the error ----------------------------------------------------------------------------


def error_object(text: str) -> dict[str, Any]:
    """The error out of what was saved: its JSON, or a whole HTTP answer with the JSON as body."""
    found = _json(text)
    if found is None:
        # The headers of `curl -i` end at the first empty line.
        _, _, body = text.replace("\r\n", "\n").partition("\n\n")
        found = _json(body)
    if found is None:
        raise NotAConflict(
            "there is no JSON in it: give the body of the server's answer, the whole answer, or "
            "what --save-conflict has written"
        )
    error = found.get("error", found) if isinstance(found, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise NotAConflict('there is no error in it: the answer of a refused commit has "error"')
    conflicts = error.get("conflicts", [])
    if not isinstance(conflicts, list) or not all(isinstance(one, dict) for one in conflicts):
        raise NotAConflict("error.conflicts must be a list of objects")
    return error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# --- saying it ------------------------------------------------------------------------------------


def document(error: Mapping[str, Any]) -> dict[str, Any]:
    """The explanation for programs."""
    return {
        "type": error.get("type"),
        "message": error["message"],
        "advice": _advice(error),
        "conflicts": [_explained(conflict) for conflict in error.get("conflicts", [])],
    }


def _explained(conflict: Mapping[str, Any]) -> dict[str, Any]:
    clause = CLAUSES.get(str(conflict.get("clause")), _UNKNOWN_CLAUSE)
    return {
        **conflict,
        "failed": clause.failed,
        "meaning": clause.meaning,
        "remedies": list(clause.remedies),
    }


def _advice(error: Mapping[str, Any]) -> str:
    kind = error.get("type")
    if kind == _VALIDATION:
        return "The refusal is final: nothing was committed, and the same request fails again."
    if kind == "CommitFailedException":
        return (
            "A requirement did not hold on the table's head: nothing was committed. Load the "
            "table again, rebuild the commit and send it with a new Idempotency-Key."
        )
    if kind == "CommitStateUnknownException":
        return (
            "Nobody knows whether it was committed. Delete no file; look with `frazil log`, or "
            "send the same request again with the same Idempotency-Key."
        )
    if kind == "TooManyRequestsException":
        return "Nothing has happened: the same request may be sent again after a pause."
    return "The message is all that the server says about it."


def explanation(error: Mapping[str, Any]) -> str:
    """The explanation for people."""
    conflicts: Sequence[Mapping[str, Any]] = error.get("conflicts", [])
    said = plain(f"{error.get('type') or 'error'}: {error['message']}")
    lines = [said, "", _advice(error)]
    for number, conflict in enumerate(conflicts, 1):
        lines += ["", *_paragraph(number, len(conflicts), conflict, error["message"])]
    return "\n".join(lines)


def _paragraph(number: int, count: int, conflict: Mapping[str, Any], said_before: str) -> list[str]:
    name = str(conflict.get("clause"))
    clause = CLAUSES.get(name, _UNKNOWN_CLAUSE)
    said = str(conflict.get("message") or "")
    # The error's own message is that of the first conflict.
    new = bool(said) and not said_before.startswith(said)
    return [
        f"{number} of {count}: {clause.failed} ({plain(name)})",
        f"  where      {_where(conflict)}",
        *([f"  server     {plain(said)}"] if new else []),
        f"  meaning    {clause.meaning}",
        *_listed("snapshots", [_snapshot(one) for one in conflict.get("snapshots", [])]),
        *_listed(
            "files", [_file(one) for one in conflict.get("files", [])], conflict.get("file-count")
        ),
        "  what to do",
        *(f"    - {remedy}" for remedy in clause.remedies),
    ]


def _where(conflict: Mapping[str, Any]) -> str:
    update, validation = conflict.get("update"), conflict.get("validation")
    if validation is None:
        return f"updates[{update}], always checked"
    return f"updates[{update}].commit-validations[{validation}]"


def _snapshot(one: Mapping[str, Any]) -> str:
    return plain(f"{one.get('snapshot-id')} ({one.get('operation')})")


def _file(one: Mapping[str, Any]) -> str:
    offset = one.get("content-offset")
    return plain(f"{one.get('file-path')}" + ("" if offset is None else f" at offset {offset}"))


def _listed(what: str, items: Sequence[str], count: Any = None) -> list[str]:
    """The first few; how many there are is always said."""
    if not items:
        return []
    total = count if isinstance(count, int) else len(items)
    lines = [f"  {what:<10} {count_text(total, what.removesuffix('s'))}"]
    lines += [f"    {item}" for item in items[:_SHOWN]]
    if total > _SHOWN:
        lines.append(f"    … and {total - _SHOWN:,} more")
    return lines
