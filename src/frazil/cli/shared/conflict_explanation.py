"""`frazil explain`: why a commit was refused, and what to do about it.

The error contains everything needed, so neither the catalog nor the table is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import typer

from frazil.cli.shared.printing import count_text, plain, print_json
from frazil.cli.shared.setting_options import USAGE_ERROR, Output, fail

_MAX_LISTED: Final = 10
_VALIDATION: Final = "ValidationException"


@dataclass(frozen=True, slots=True)
class Clause:
    """Explains a validation clause to a reader who does not know the specification."""

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
    "If concurrently added rows do not matter, snapshot isolation is enough: "
    "--isolation snapshot, or the table property write.delete.isolation-level (update, merge)."
)
_OTHER_BASE: Final = (
    "If the change was read from a later snapshot, name that snapshot as the base (--base)."
)

CLAUSES: Final[Mapping[str, Clause]] = {
    "not-allowed-added-data-files": Clause(
        "data files were added since the base",
        "Since this change read the table, other commits have added data files that may contain "
        "rows matching its filter. With those rows the change could have been different.",
        (_READ_AGAIN, _NARROW, _SNAPSHOT_ISOLATION, _OTHER_BASE),
    ),
    "not-allowed-added-delete-files": Clause(
        "rows were deleted since the base",
        "Since this change read the table, other commits have deleted rows that may match its "
        "filter. The change could bring deleted rows back.",
        (_READ_AGAIN, _NARROW, _OTHER_BASE),
    ),
    "required-data-files": Clause(
        "data files that the change relies on are gone",
        "The change relies on data files that are not live on the branch. Other commits have "
        "removed or rewritten them, for example by a compaction or a delete, or a path is wrong.",
        (
            _READ_AGAIN,
            "Compare the paths with those of `frazil ls`.",
            "Find the new files with the same rows with `frazil diff`.",
        ),
    ),
    "required-delete-files": Clause(
        "delete files that the change relies on are gone",
        "Other commits have removed or rewritten delete files or deletion vectors that the change "
        "relies on.",
        (_READ_AGAIN,),
    ),
    "not-allowed-new-deletes-for-data-files": Clause(
        "the files to be replaced have new deletes",
        "Since the base, other commits have deleted rows of the data files that this change "
        "removes or rewrites. Its new files still contain those rows, so the deletes would be "
        "lost.",
        (
            "Read those files again with their new deletes, write new files, and commit them with "
            "the newest snapshot as the base.",
            _NARROW,
        ),
    ),
    "duplicate-file": Clause(
        "an added file is in the table already",
        "The paths are live on this branch. If added again, their rows would be read twice.",
        (
            "If an earlier attempt has committed them, nothing is left to do; `frazil log` shows "
            "the commit.",
            "Leave these paths out, or write new files under new names.",
            "Set frazil.commit.reject-duplicate-files=false on the table if this is intended.",
        ),
    ),
    "removed-file-not-live": Clause(
        "a file to be removed is not in the table",
        "Every removed path must be live on the branch. These are not: they were removed or "
        "rewritten, they are on another branch, or the path is written differently.",
        (
            "Compare with `frazil ls ns.table`, which prints the exact paths.",
            _READ_AGAIN,
            "Set frazil.commit.ignore-missing-removals=true on the table to ignore such paths.",
        ),
    ),
    "replace-adds-rows": Clause(
        "a replace would add rows",
        "A replace moves rows to other files, so it cannot add more rows than it removes. The "
        "declared record counts are higher.",
        (
            "Check the record counts, and check that every replaced file is listed.",
            "If there are new rows, use overwrite instead of replace.",
        ),
    ),
    "partial-row-filter": Clause(
        "the delete filter matches only some rows of a file",
        "A commit removes whole files. By their statistics, these files may also contain rows "
        "that do not match the filter and must stay.",
        (
            "Use a filter on partition columns, which matches whole files.",
            "Rewrite the files: remove them by path and add new files with the remaining rows.",
            "Or delete the rows with delete files or deletion vectors (row_delta).",
        ),
    ),
    "base-not-ancestor": Clause(
        "the base is not in the branch's history",
        "The base snapshot is on another branch, has expired, or the branch was rolled back past "
        "it, so the changes since then are unknown.",
        (
            "Choose the right branch (--branch), or a base from `frazil log ns.table@branch`.",
            _READ_AGAIN,
        ),
    ),
    "dv-conflict": Clause(
        "another commit deletes rows of the same data file",
        "A data file has one deletion vector. Another commit has written one for this file since "
        "the base, and the new one would undo its deletes.",
        (
            "Read the existing deletion vector, put its positions into the new one, and remove the "
            "existing one in the same update.",
            "Or let the server do that: send rebase-deletion-vectors. Then only rows that both "
            "commits have deleted are a conflict.",
        ),
    ),
    "cherry-pick": Clause(
        "the staged snapshot cannot be published",
        "It is published already, other commits have changed its partitions, or this kind of "
        "change cannot be applied to a branch with newer commits.",
        (
            "`frazil log ns.table` shows whether it is published: look for source-snapshot-id or "
            "published-wap-id.",
            "Create the change again on the branch's head.",
        ),
    ),
    "file-being-deleted": Clause(
        "a declared file is being deleted",
        "No snapshot named the file, and its time in quarantine is over, or the intent of its "
        "writer has ended. The file may be gone already.",
        (
            "Write the rows to a new file, and commit that one.",
            "Renew the intent of a slow writer in time, or declare it for longer.",
        ),
    ),
}

_UNKNOWN_CLAUSE: Final = Clause(
    "a check of the server",
    "This version of Frazil does not know the clause; see the server's message.",
    (_READ_AGAIN,),
)


class NotAConflict(ValueError):
    """The text is not the error of a refused commit; the message says why."""


def run(source: str, output: Output) -> None:
    """Print the explanation of a saved error."""
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


# --- reading --------------------------------------------------------------------------------------


def error_object(text: str) -> dict[str, Any]:
    """Return the error in a text: its JSON, or a whole HTTP response with the JSON as body."""
    value = _json(text)
    if value is None:
        # The headers of `curl -i` end at the first empty line.
        _, _, body = text.replace("\r\n", "\n").partition("\n\n")
        value = _json(body)
    if value is None:
        raise NotAConflict(
            "there is no JSON in it: give the body of the server's response, the whole response, "
            "or a file of --save-conflict"
        )
    error = value.get("error", value) if isinstance(value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise NotAConflict(
            "there is no error.message in it: the answer of a refused commit has one"
        )
    conflicts = error.get("conflicts", [])
    if not isinstance(conflicts, list) or not all(isinstance(each, dict) for each in conflicts):
        raise NotAConflict("error.conflicts must be a list of objects")
    return error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# --- explaining -----------------------------------------------------------------------------------


def document(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the explanation as JSON."""
    return {
        "type": error.get("type"),
        "message": error["message"],
        "advice": _advice(error),
        "conflicts": [_explained(conflict) for conflict in error.get("conflicts", [])],
    }


def _explained(conflict: Mapping[str, Any]) -> dict[str, Any]:
    clause = CLAUSES.get(str(conflict.get("clause")), _UNKNOWN_CLAUSE)
    return {**conflict, **asdict(clause)}


def _advice(error: Mapping[str, Any]) -> str:
    kind = error.get("type")
    if kind == _VALIDATION:
        return "The refusal is final: nothing was committed, and the same request would fail again."
    if kind == "CommitFailedException":
        return (
            "A requirement did not hold on the table's head: nothing was committed. Load the "
            "table again, rebuild the commit and send it with a new Idempotency-Key."
        )
    if kind == "CommitStateUnknownException":
        return (
            "The outcome of the commit is unknown. Delete no file; look with `frazil log`, or "
            "send the same request again with the same Idempotency-Key."
        )
    if kind == "TooManyRequestsException":
        return "Nothing has happened: send the same request again after a pause."
    return "The server gives no more details."


def explanation(error: Mapping[str, Any]) -> str:
    """Return the explanation as text."""
    conflicts: Sequence[Mapping[str, Any]] = error.get("conflicts", [])
    title = plain(f"{error.get('type') or 'error'}: {error['message']}")
    lines = [title, "", _advice(error)]
    for number, conflict in enumerate(conflicts, 1):
        lines += ["", *_paragraph(number, len(conflicts), conflict, error["message"])]
    return "\n".join(lines)


def _paragraph(number: int, count: int, conflict: Mapping[str, Any], title: str) -> list[str]:
    name = str(conflict.get("clause"))
    clause = CLAUSES.get(name, _UNKNOWN_CLAUSE)
    message = str(conflict.get("message") or "")
    # The message of the error repeats that of the first conflict.
    is_new = bool(message) and not title.startswith(message)
    return [
        f"{number} of {count}: {clause.failed} ({plain(name)})",
        f"  where      {_where(conflict)}",
        *([f"  server     {plain(message)}"] if is_new else []),
        f"  meaning    {clause.meaning}",
        *_listed("snapshots", [_snapshot(each) for each in conflict.get("snapshots", [])]),
        *_listed(
            "files", [_file(each) for each in conflict.get("files", [])], conflict.get("file-count")
        ),
        "  what to do",
        *(f"    - {remedy}" for remedy in clause.remedies),
    ]


def _where(conflict: Mapping[str, Any]) -> str:
    update, validation = conflict.get("update"), conflict.get("validation")
    if validation is None:
        return f"updates[{update}], always checked"
    return f"updates[{update}].commit-validations[{validation}]"


def _snapshot(snapshot: Mapping[str, Any]) -> str:
    return plain(f"{snapshot.get('snapshot-id')} ({snapshot.get('operation')})")


def _file(file: Mapping[str, Any]) -> str:
    offset = file.get("content-offset")
    return plain(f"{file.get('file-path')}" + ("" if offset is None else f" at offset {offset}"))


def _listed(what: str, items: Sequence[str], count: Any = None) -> list[str]:
    """List the first items and the number of all."""
    if not items:
        return []
    total = count if isinstance(count, int) else len(items)
    lines = [f"  {what:<10} {count_text(total, what.removesuffix('s'))}"]
    lines += [f"    {item}" for item in items[:_MAX_LISTED]]
    if total > _MAX_LISTED:
        lines.append(f"    … and {total - _MAX_LISTED:,} more")
    return lines
