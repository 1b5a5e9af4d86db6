"""Every clause with every action, after every kind of change since the base.

The table has x in bucket 0 and y in bucket 1. A change affects bucket 0 or x. Then every action
sends every clause twice: about bucket 0 and x, and about bucket 1 and y. The first is refused if
the table below says so, the second never. The actions are staged, so that all of them see the
same table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.commit.finegrained.conftest import TableFactory
from tests.commit.finegrained.requests import (
    Json,
    append,
    data_exists,
    delete,
    in_bucket,
    no_new_data,
    no_new_deletes,
    no_new_deletes_for,
    overwrite,
    replace,
    replace_partitions,
)
from tests.commit.finegrained.tables import Table

DATA, DELETES = "not-allowed-added-data-files", "not-allowed-added-delete-files"
REQUIRED = "required-data-files"
FOR_FILES = "not-allowed-new-deletes-for-data-files"


@dataclass(frozen=True)
class Event:
    """A change by another writer, and the clauses about bucket 0 and x that it violates."""

    commit: Callable[[Table, Json], Any]
    breaks: frozenset[str]
    versions: tuple[int, ...] = (1, 2, 3)


def event(
    commit: Callable[[Table, Json], Any], *breaks: str, versions: tuple[int, ...] = (1, 2, 3)
) -> Event:
    return Event(commit, frozenset(breaks), versions)


def _deletes_and_back(table: Table, x: Json) -> None:
    deletes = table.deletes("gone-again", x)
    table.overwrite(add_deletes=[deletes])
    table.delete(remove_deletes=[deletes])


EVENTS = {
    "nothing": event(lambda t, x: None),
    "append": event(lambda t, x: t.append(t.data("n", 0)), DATA),
    "append elsewhere": event(lambda t, x: t.append(t.data("n", 2))),
    "append by overwrite": event(lambda t, x: t.overwrite(add=[t.data("n", 0)]), DATA),
    "delete": event(lambda t, x: t.delete(x), REQUIRED),
    "delete by filter": event(lambda t, x: t.delete(row_filter=in_bucket("data", 0)), REQUIRED),
    "overwrite": event(lambda t, x: t.overwrite(remove=[x], add=[t.data("n", 0)]), DATA, REQUIRED),
    "overwrite by filter": event(
        lambda t, x: t.overwrite(row_filter=in_bucket("data", 0), add=[t.data("n", 0)]),
        DATA,
        REQUIRED,
    ),
    "replace": event(lambda t, x: t.replace(remove=[x], add=[t.data("n", 0)]), REQUIRED),
    "replace partitions": event(lambda t, x: t.replace_partitions(t.data("n", 0)), DATA, REQUIRED),
    "deletes by position": event(
        lambda t, x: t.overwrite(add_deletes=[t.deletes("d", x)]),
        DELETES,
        FOR_FILES,
        versions=(2, 3),
    ),
    "deletes by equality": event(
        lambda t, x: t.overwrite(add_deletes=[t.equality_deletes("e", 0)]),
        DELETES,
        FOR_FILES,
        versions=(2, 3),
    ),
    "deletes and rows": event(
        lambda t, x: t.overwrite(add_deletes=[t.deletes("d", x)], add=[t.data("n", 0)]),
        DATA,
        DELETES,
        FOR_FILES,
        versions=(2, 3),
    ),
    "deletes that went again": event(_deletes_and_back, DELETES, FOR_FILES, versions=(2, 3)),
    "staged append": event(lambda t, x: t.append(t.data("n", 0), stage_only=True)),
    "append on another branch": event(
        lambda t, x: t.commit({**append(t.data("n", 0)), "branch": "other"})
    ),
    "delete on another branch": event(lambda t, x: t.commit({**delete(x), "branch": "other"})),
}


def clauses(bucket: int, file: Json) -> dict[str, list[Json]]:
    """Return every clause for a bucket and for a file in it."""
    filtered = in_bucket("data", bucket)
    return {
        DATA: [no_new_data(filtered)],
        DELETES: [no_new_deletes(filtered)],
        REQUIRED: [
            data_exists(filter=filtered),
            data_exists(file),
            data_exists(file, filter=filtered),
        ],
        FOR_FILES: [no_new_deletes_for(file), no_new_deletes_for(file, filter=filtered)],
    }


def actions(table: Table, y: Json, base: int) -> dict[str, Json]:
    """Return one of each action; none of them affects bucket 0."""
    common: dict[str, Any] = {"base": base, "stage_only": True}
    return {
        "append": append(table.data("z", 5), **common),
        "delete": delete(y, **common),
        "delete by filter": delete(row_filter=in_bucket("data", 1), **common),
        "overwrite": overwrite(remove=[y], add=[table.data("z", 5)], **common),
        "replace": replace(remove=[y], add=[table.data("z", 5)], **common),
        "replace-partitions": replace_partitions(table.data("z", 5), **common),
    }


CASES = [
    pytest.param(version, name, id=f"v{version}-{name}")
    for name, happened in EVENTS.items()
    for version in happened.versions
]


def chosen(
    request: pytest.FixtureRequest, found: dict[str, Json], version: int
) -> list[tuple[str, Json]]:
    """Return two actions for each event and version, varied to cover all of them; under --full,
    return all."""
    items = list(found.items())
    if request.config.getoption("--full"):
        return items
    first = (list(EVENTS).index(request.node.callspec.params["name"]) + 2 * version) % len(items)
    return [items[first], items[(first + 3) % len(items)]]


@pytest.mark.parametrize(("version", "name"), CASES)
def test_every_clause_on_every_action(
    request: pytest.FixtureRequest, new_table: TableFactory, version: int, name: str
) -> None:
    table = new_table(version=version)
    x, y = table.data("x", 0), table.data("y", 1)
    base = table.append(x, y)["snapshot-id"]
    happened = EVENTS[name]
    happened.commit(table, x)
    for kind, action in chosen(request, actions(table, y, base), version):
        for clause, forms in clauses(0, x).items():
            for form in forms:
                judged(table, action, form, clause if clause in happened.breaks else None, kind)
        for forms in clauses(1, y).values():
            for form in forms:
                judged(table, action, form, None, kind)


def judged(table: Table, action: Json, clause: Json, broken: str | None, kind: str) -> None:
    update = action | {"commit-validations": [clause]}
    if broken is None:
        answer = table.post(update)
        assert answer.status == 200, (kind, clause, answer.body)
        return
    answer = table.post(update)
    assert answer.status == 409, (kind, clause, "was not refused")
    error = answer.body["error"]
    assert error["type"] == "ValidationException"
    (conflict,) = error["conflicts"]
    assert (conflict["clause"], conflict["validation"], conflict["update"]) == (broken, 0, 0)
    assert conflict["snapshots"], (kind, clause)
    assert conflict["files"], (kind, clause)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_what_happened_before_the_base_breaks_nothing(
    request: pytest.FixtureRequest, new_table: TableFactory, version: int, name: str
) -> None:
    """There is one exception: a required file that was removed before the base is still missing."""
    table = new_table(version=version)
    x, y = table.data("x", 0), table.data("y", 1)
    table.append(x, y)
    happened = EVENTS[name]
    happened.commit(table, x)
    base = table.head_id
    for kind, action in chosen(request, actions(table, y, base), version):
        for clause, forms in clauses(0, x).items():
            for form in forms:
                gone = clause == REQUIRED and REQUIRED in happened.breaks
                if gone and "file-paths" in form:
                    missing_without_snapshot(table, action, form, kind)
                else:
                    judged(table, action, form, None, kind)


def missing_without_snapshot(table: Table, action: Json, clause: Json, kind: str) -> None:
    """The file was not removed since the base, so the conflict cannot name a snapshot."""
    answer = table.post(action | {"commit-validations": [clause]})
    assert answer.status == 409, (kind, clause, "was not refused")
    (conflict,) = answer.body["error"]["conflicts"]
    assert conflict["clause"] == REQUIRED
    assert conflict["files"]
