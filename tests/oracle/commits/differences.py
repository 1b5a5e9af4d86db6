"""Lists where our catalog deliberately differs from Iceberg's Java library.

Each entry decides from the case alone when it applies, and which pair of outcomes it allows. A
difference that no entry explains is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.oracle.commits.cases import Step, Table
from tests.oracle.commits.compare import Difference
from tests.oracle.commits.java_side import Refusal
from tests.oracle.commits.own_side import Rejection
from tests.oracle.commits.states import Entry, Snapshot, State
from tests.oracle.commits.synthetic import FILE_PATH_ID

_FAILS_ON_MISSING: Final = {
    "validateFilesExist",
    "validateNoConflictingData",
    "validateNoConflictingDeletes",
    "validateDeletedFiles",
}


@dataclass(frozen=True)
class Context:
    """A step and its outcome on both sides."""

    table: Table
    step: Step
    before: State
    """The state of both sides before the step."""
    refusal: Refusal | None
    rejection: Rejection | None
    java: State | None = None
    own: State | None = None
    """Our state after the step, if both sides accepted it."""

    def only_rejected(self, *clauses: str) -> bool:
        """Return whether Java accepts and we reject, for no reasons other than these."""
        return (
            self.refusal is None
            and self.rejection is not None
            and self.rejection.clauses <= set(clauses)
        )

    def only_refused(self, start: str) -> bool:
        """Return whether we accept and Java refuses with a message that starts like this."""
        return (
            self.rejection is None
            and self.refusal is not None
            and self.refusal.message.startswith(start)
        )

    def live_paths(self) -> set[str]:
        return {entry.path for entry in self.before.live(self.step.branch)}


@dataclass(frozen=True)
class Listed:
    name: str
    why: str
    explains: Callable[[Context, Difference], bool]


def _dv_against_dv(context: Context, difference: Difference) -> bool:
    """Java looks for other vectors only in a row delta.

    It considers only vectors within the conflict filter that were added since the base.
    """
    targets = {doc["referenced-data-file"] for doc in _vectors(context.step)}
    if difference.where != "verdict" or not context.only_rejected("dv-conflict"):
        return False
    state = context.before
    taken = {
        target
        for snapshot in state.snapshots.values()
        for entry in snapshot.live()
        if entry.content_offset is not None and (target := _referenced(entry.file)) in targets
    }
    return bool(taken)


def _vectors(step: Step) -> list[dict[str, str]]:
    return [dict(doc) for doc in step.add_deletes if "content-offset" in doc]


def _referenced(file: str) -> str:
    return file.partition("referenced_data_file=")[2].partition(",")[0]


def _never_seen(context: Context, difference: Difference) -> bool:
    """Java's row delta accepts a required file that was already removed before the base."""
    return (
        difference.where == "verdict"
        and context.step.kind == "row-delta"
        and context.only_rejected("required-data-files")
        and not set(context.step.referenced) <= context.live_paths()
    )


def _missing_removals(context: Context, difference: Difference) -> bool:
    step = context.step
    removed = {*step.remove_data, *(path for path, _ in step.remove_deletes)}
    ignored = context.table.properties.get("frazil.commit.ignore-missing-removals") == "true"
    return (
        difference.where == "verdict"
        and step.kind in ("delete", "overwrite", "row-delta")
        and not step.calls & _FAILS_ON_MISSING
        and not ignored
        and context.only_rejected("removed-file-not-live")
        and not removed <= context.live_paths()
    )


def _base_not_ancestor(context: Context, difference: Difference) -> bool:
    """We reject for this reason alone, whatever else Java may report."""
    state = context.before
    return (
        difference.where == "verdict"
        and context.rejection is not None
        and context.rejection.clauses == {"base-not-ancestor"}
        and context.step.base is not None
        and context.step.base not in state.ancestors(state.head(context.step.branch))
    )


def _delete_of_removed(context: Context, difference: Difference) -> bool:
    return (
        difference.where == "verdict"
        and context.only_rejected("required-data-files")
        and bool(_named(context.step) & {*context.step.remove_data})
    )


def _unnamed_delete_of_removed(context: Context, difference: Difference) -> bool:
    """Java learns from `validateDataFilesExist` which data files the new deletes apply to."""
    step = context.step
    return (
        difference.where == "verdict"
        and context.only_refused("Cannot delete data files")
        and bool({*step.referenced} & {*step.remove_data})
        and not _named(step) & {*step.remove_data}
    )


def _named(step: Step) -> set[str]:
    """Return the data files that new delete files name, by the field or by path bounds."""
    found = set()
    for doc in step.add_deletes:
        lower, upper = (doc.get(name, {}) for name in ("lower-bounds", "upper-bounds"))
        if "referenced-data-file" in doc:
            found.add(doc["referenced-data-file"])
        elif FILE_PATH_ID in lower.get("keys", []) and lower == upper:
            found.add(bytes.fromhex(lower["values"][0]).decode())
    return found


def _history_of_required_files(context: Context, difference: Difference) -> bool:
    """Java looks for a file that is removed by name only in the current state.

    It accepts an incomplete history, and a file that was removed and added again.
    """
    if difference.where != "verdict" or context.rejection is None:
        return False
    state, step = context.before, context.step
    ancestors = state.ancestors(state.head(step.branch))
    is_complete = bool(ancestors) and state.snapshots[ancestors[-1]].parent is None
    since = ancestors[: ancestors.index(step.base)] if step.base in ancestors else ancestors
    removed = {entry.path for number in since for entry in state.snapshots[number].deleted()}
    again = {*step.remove_data} <= context.live_paths() and bool({*step.remove_data} & removed)
    return context.rejection.clauses <= {"required-data-files", "required-delete-files"} and (
        again or (step.base is None and not is_complete)
    )


def _left_over_deletes(context: Context, difference: Difference) -> bool:
    """Both sides drop obsolete delete files only from manifests that they open anyway.

    They do not open the same ones. A delete file that only one side drops applies to no data
    file.
    """
    dropped = _dropped_on_one_side(context)
    if not dropped or context.java is None or not _about_deletes(difference.where):
        return False
    live = [entry for entry in context.java.snapshots[_newest(context)].live() if entry.is_data]
    least = min((entry.sequence_number or 0 for entry in live), default=1 << 62)
    paths = {entry.path for entry in live}
    return all(
        (entry.sequence_number or 0) < least
        if entry.content_offset is None
        else _referenced(entry.file) not in paths
        for entry in dropped
    )


def _deletes_of_rewritten_files(context: Context, difference: Difference) -> bool:
    """Java drops deletes that are older than the remaining data files.

    It ignores that the files it adds may have an older data sequence number, so it loses deletes
    that apply to their rows.
    """
    number = context.step.data_sequence_number
    dropped = _dropped_on_one_side(context)
    if number is None or not dropped or context.java is None:
        return False
    java = {entry.key for entry in context.java.snapshots[_newest(context)].deleted()}
    least = min(
        entry.sequence_number or 0
        for entry in context.java.snapshots[_newest(context)].live()
        if entry.is_data
    )
    return _about_deletes(difference.where) and all(
        entry.key in java and (entry.sequence_number or 0) >= least == number for entry in dropped
    )


def _newest(context: Context) -> int:
    assert context.java is not None
    return context.java.newest()


def _dropped_on_one_side(context: Context) -> list[Entry]:
    """Return the delete files that only one of the two sides removes in this step."""
    if context.own is None or context.java is None:
        return []
    number = _newest(context)
    sides = [
        {entry.key: entry for entry in state.snapshots[number].deleted() if not entry.is_data}
        for state in (context.java, context.own)
    ]
    keys = sides[0].keys() ^ sides[1].keys()
    return [side[key] for side in sides for key in side if key in keys]


def _about_deletes(where: str) -> bool:
    """Return whether the difference can follow from delete files that only one side removes."""
    return any(
        part in where
        for part in (
            ": live delete file",
            ": deleted delete file",
            "summary removed-",
            "summary total-",
            "summary changed-partition-count",
            "summary partition",
        )
    )


def _row_delta_operation(context: Context, difference: Difference) -> bool:
    """The request could also come from Java's OverwriteFiles, which records `delete`."""
    step = context.step
    return (
        difference.where.endswith(": operation")
        and step.kind == "row-delta"
        and not step.add_data
        and not step.add_deletes
        and bool(step.remove_data)
        and (difference.java, difference.own) == ("overwrite", "delete")
    )


def _clauses_first(context: Context, difference: Difference) -> bool:
    """Java looks for files that are removed by name when it builds the tree.

    We do so before any check that no clause asks for.
    """
    step = context.step
    named = {*step.remove_data, *step.referenced, *(path for path, _ in step.remove_deletes)}
    return (
        difference.where == "verdict"
        and context.refusal is not None
        and context.refusal.message.startswith(
            ("Cannot delete file where some, but not all", "Found concurrently added DV")
        )
        and context.rejection is not None
        and context.rejection.clauses <= {"required-data-files", "required-delete-files"}
        and not named <= context.live_paths()
    )


def _prefix_of_null(context: Context, difference: Difference) -> bool:
    """Java fails when it evaluates `starts-with` on a null partition value."""
    return (
        difference.where == "verdict"
        and context.refusal is not None
        and context.refusal.error == "NullPointerException"
        and "starts-with" in str((context.step.row_filter, context.step.conflict_filter))
        and any(_is_null(entry) for entry in context.before.live(context.step.branch))
    )


_ORDERED: Final = ("'lt", "'gt")


def _order_of_null(context: Context, difference: Difference) -> bool:
    """Java orders null before every value, so `<` selects the files of a null partition."""
    if not any(kind in str(context.step.row_filter) for kind in _ORDERED):
        return False
    if difference.where == "verdict":
        nulls = [entry for entry in context.before.live(context.step.branch) if _is_null(entry)]
        return context.only_refused("Cannot delete file where some") and any(
            entry.path in str(context.refusal) for entry in nulls
        )
    if context.own is None or context.java is None:
        return False
    number = _newest(context)
    kept = {entry.key for entry in context.own.snapshots[number].deleted()}
    taken = [entry for entry in context.java.snapshots[number].deleted() if entry.key not in kept]
    return bool(taken) and all(_is_null(entry) for entry in taken)


def _is_null(entry: Entry) -> bool:
    partition = entry.file.partition("partition=PartitionData{")[2].partition("}")[0]
    return "=null" in partition


def _transform_on_identity(context: Context, difference: Difference) -> bool:
    """Java projects a transformed term onto an identity field as if the term were the column."""
    return (
        difference.where == "verdict"
        and context.refusal is not None
        and context.refusal.message.startswith("Invalid value for conversion to type")
        and "bucket[3]" in str((context.step.row_filter, context.step.conflict_filter))
    )


def _duplicate_file(context: Context, difference: Difference) -> bool:
    added = {doc["file-path"] for doc in context.step.add_data}
    picked = context.before.snapshots.get(context.step.snapshot or 0)
    if picked is not None:
        added = {entry.path for entry in picked.added()}
    return (
        difference.where == "verdict"
        and context.only_rejected("duplicate-file")
        and bool(added & context.live_paths())
    )


def _revived_rows(context: Context, difference: Difference) -> bool:
    """Java lets a rewrite add as many rows as its files had before deletion vectors."""
    removed = set(context.step.remove_data)
    live = context.before.live(context.step.branch)
    has_vector = any(
        entry.content_offset is not None and _referenced(entry.file) in removed for entry in live
    )
    return (
        difference.where == "verdict"
        and context.step.kind == "rewrite"
        and context.only_rejected("replace-adds-rows")
        and has_vector
    )


def _branch_totals(context: Context, difference: Difference) -> bool:
    """Java counts totals from zero on a branch that a commit creates; later totals differ too."""
    if context.own is None or context.java is None or ": summary total-" not in difference.where:
        return False
    number = _newest(context)
    parent = context.own.snapshots[number].parent
    if parent is None or parent not in context.own.snapshots:
        return False
    key = difference.where.rpartition("summary ")[2]
    change = _change(context.own.snapshots[number], key)
    begins = context.step.branch not in context.before.refs
    before = "0" if begins else context.java.snapshots[parent].summary.get(key)
    own_before = context.own.snapshots[parent].summary.get(key)
    pair = _new_total(before, change), _new_total(own_before, change)
    return bool((difference.java, difference.own) == pair)


def _new_total(before: str | None, change: int) -> str | None:
    """Return the total, or None if it would be negative; every total after a None is also None."""
    return None if before is None or int(before) + change < 0 else str(int(before) + change)


def _total(snapshot: Snapshot, key: str) -> int:
    return int(snapshot.summary.get(key, 0))


_CHANGES: Final = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def _change(snapshot: Snapshot, key: str) -> int:
    added, removed = _CHANGES[key]
    return _total(snapshot, added) - _total(snapshot, removed)


LISTED: Final = (
    Listed(
        "dv-against-dv",
        "A deletion vector beside another one of the same data file is always refused.",
        _dv_against_dv,
    ),
    Listed(
        "required-file-never-seen",
        "A required data file that is not live is refused even if it was gone before the base.",
        _never_seen,
    ),
    Listed(
        "missing-removals",
        "Removing a file that is not live is refused unless the table says otherwise.",
        _missing_removals,
    ),
    Listed(
        "base-not-ancestor",
        "A base that is not an ancestor of the branch's head is refused, clauses or not.",
        _base_not_ancestor,
    ),
    Listed(
        "delete-of-removed-file",
        "A delete file for a data file that the same commit removes is refused.",
        _delete_of_removed,
    ),
    Listed(
        "unnamed-delete-of-removed-file",
        "Where the delete files do not name a data file, only Java's caller says which it is.",
        _unnamed_delete_of_removed,
    ),
    Listed(
        "history-of-required-files",
        "A required data file is looked for in the history since the base, which must be there.",
        _history_of_required_files,
    ),
    Listed(
        "left-over-deletes",
        "Delete files that no longer apply to anything leave on another occasion than in Java.",
        _left_over_deletes,
    ),
    Listed(
        "deletes-of-rewritten-files",
        "A rewrite with a data sequence number keeps the deletes that apply to what it adds.",
        _deletes_of_rewritten_files,
    ),
    Listed(
        "row-delta-operation",
        "A commit that only removes data files is a `delete`, whoever sends it.",
        _row_delta_operation,
    ),
    Listed(
        "transform-on-identity",
        "A filter on a transform is understood on a table partitioned by the column itself.",
        _transform_on_identity,
    ),
    Listed(
        "order-of-null",
        "A null partition value is neither less nor more than another value.",
        _order_of_null,
    ),
    Listed(
        "prefix-of-null",
        "A filter on a prefix is understood where a partition value is null.",
        _prefix_of_null,
    ),
    Listed(
        "clauses-first",
        "Where a required file is gone and something else is wrong, the clause is the reason.",
        _clauses_first,
    ),
    Listed(
        "duplicate-file",
        "A data file that is already live is not added again.",
        _duplicate_file,
    ),
    Listed(
        "revived-rows",
        "A rewrite adds no more rows than are live in its files under their deletion vectors.",
        _revived_rows,
    ),
    Listed(
        "branch-totals",
        "On a branch that a commit begins, totals go on from where the branch starts.",
        _branch_totals,
    ),
)


APART: Final = frozenset(
    {"left-over-deletes", "deletes-of-rewritten-files", "order-of-null", "row-delta-operation"}
)
"""After these differences the two tables are no longer equal, though both accepted the step."""


def explained(context: Context, difference: Difference) -> str | None:
    """Return the name of the listed difference that explains this one, or None."""
    return next((item.name for item in LISTED if item.explains(context, difference)), None)
