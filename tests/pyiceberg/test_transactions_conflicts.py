"""Which writes of two writers may overlap: one reads a state, and the other commits first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from frazil.pyiceberg import ValidationError
from frazil.wire import errors
from tests.pyiceberg.audit import audit
from tests.pyiceberg.recorded import Commits, clauses, data_files_on_disk
from tests.pyiceberg.tables import create, ids, partition_of, row, rows

SERIALIZABLE: dict[str, str] = {}
SNAPSHOT = {
    "write.delete.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.merge.isolation-level": "snapshot",
}

Act = Callable[[Table], Any]


def race(
    catalog: Catalog,
    namespace: str,
    first: Act,
    second: Act,
    *,
    partitioning: str = "unpartitioned",
    version: int = 2,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Let two writers read the same state with ids 1 to 8, and commit `first` before `second`."""
    table = create(catalog, f"{namespace}.t", partitioning, version, properties or {})
    table.append(rows(*range(1, 9)))
    stale = catalog.load_table(table.name())
    first(table)
    before = data_files_on_disk(table)
    snapshots = len(table.refresh().metadata.snapshots)
    try:
        second(stale)
    except Exception:
        assert data_files_on_disk(table) == before, "a refused change has left files"
        assert len(table.refresh().metadata.snapshots) == snapshots
        raise
    audit(table.refresh())
    return table


def other_partition(partitioning: str, number: int) -> int:
    """Return an id above 8 that is in another partition than the given id."""
    mine = partition_of(partitioning, row(number))
    return next(one for one in range(9, 99) if partition_of(partitioning, row(one)) != mine)


def same_partition(partitioning: str, number: int) -> int:
    mine = partition_of(partitioning, row(number))
    return next(one for one in range(9, 99) if partition_of(partitioning, row(one)) == mine)


CHANGES: dict[str, Act] = {
    "delete": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(rows(1, amount=5), "id = 1"),
    "upsert": lambda table: table.upsert(rows(1, amount=5)),
    "overwrite all": lambda table: table.overwrite(rows(1)),
}


# --- rows that came meanwhile -------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_serializable_refuses_when_matching_rows_came(
    frazil: Catalog, namespace: str, change: str
) -> None:
    with pytest.raises(ValidationError, match="conflicting files") as refused:
        race(frazil, namespace, lambda table: table.append(rows(1, 9)), CHANGES[change])
    (conflict,) = refused.value.conflicts
    assert conflict["clause"] == "not-allowed-added-data-files"
    assert conflict["file-count"] == 1
    assert isinstance(refused.value, ValidationException)
    assert isinstance(refused.value, errors.ValidationError)


@pytest.mark.parametrize("change", CHANGES)
def test_snapshot_isolation_leaves_rows_that_came(
    frazil: Catalog, namespace: str, change: str
) -> None:
    act = CHANGES[change]
    table = race(
        frazil, namespace, lambda table: table.append(rows(1, 9)), act, properties=SNAPSHOT
    )
    assert 9 in ids(table)
    assert ids(table).count(1) == (1 if change == "delete" else 2)


@pytest.mark.parametrize("partitioning", ["bucket", "truncate", "identity", "day"])
@pytest.mark.parametrize("change", ["delete", "overwrite", "upsert"])
def test_rows_of_another_partition_are_no_conflict(
    frazil: Catalog, namespace: str, change: str, partitioning: str
) -> None:
    """The change and the concurrent append affect different partitions."""
    away = other_partition(partitioning, 1)
    if partitioning in ("bucket", "truncate"):
        act = CHANGES[change]
    else:
        column = {"identity": "item = 'b'", "day": "at < '2026-05-03T00:00:00'"}[partitioning]
        act = {
            "delete": lambda table: table.delete(f"id = 1 and {column}"),
            "overwrite": lambda table: table.overwrite(rows(1), f"id = 1 and {column}"),
            "upsert": lambda table: table.upsert(rows(1, amount=5)),
        }[change]
    table = race(
        frazil,
        namespace,
        lambda table: table.append(rows(away)),
        act,
        partitioning=partitioning,
    )
    assert away in ids(table)


def test_rows_of_the_same_bucket_are_a_conflict(frazil: Catalog, namespace: str) -> None:
    near = same_partition("bucket", 1)
    with pytest.raises(ValidationError):
        race(
            frazil,
            namespace,
            lambda table: table.append(rows(1, near)),
            CHANGES["delete"],
            partitioning="bucket",
        )


def test_an_overwrite_of_an_empty_table_sees_what_came(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    stale = frazil.load_table(table.name())
    table.append(rows(1))
    with pytest.raises(ValidationError, match="conflicting files"):
        stale.overwrite(rows(2))
    assert ids(table.refresh()) == [1]


# --- upserts ------------------------------------------------------------------------------------


def test_two_upserts_of_one_new_key_are_a_conflict(frazil: Catalog, namespace: str) -> None:
    with pytest.raises(ValidationError, match="conflicting files"):
        race(
            frazil,
            namespace,
            lambda table: table.upsert(rows(50)),
            lambda table: table.upsert(rows(50, amount=3)),
        )


def test_two_upserts_of_different_new_keys_are_none(frazil: Catalog, namespace: str) -> None:
    table = race(
        frazil,
        namespace,
        lambda table: table.upsert(rows(50)),
        lambda table: table.upsert(rows(51)),
    )
    assert ids(table) == [*range(1, 9), 50, 51]


def test_an_upsert_asks_for_its_keys_once(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    table.append(rows(*range(1, 9)))
    commits = Commits(frazil)
    table.upsert(rows(1, 50, amount=5))
    first, *others = commits.updates
    asked = clauses(first)["not-allowed-added-data-files"]
    assert asked["filter"] == {"type": "in", "term": "id", "values": [1, 50]}
    assert first["base-snapshot-id"] == table.metadata.snapshots[0].snapshot_id
    assert all("not-allowed-added-data-files" not in clauses(update) for update in others)


def test_upserts_have_an_isolation_level_of_their_own(frazil: Catalog, namespace: str) -> None:
    only_merge = {"write.merge.isolation-level": "snapshot"}
    upsert = CHANGES["upsert"]
    table = race(
        frazil, namespace, lambda table: table.append(rows(1)), upsert, properties=only_merge
    )
    assert ids(table).count(1) == 2


def test_an_unknown_isolation_level_is_named(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t", properties={})
    table.append(rows(1))
    # The server accepts such a value only in a registered table.
    table.metadata.properties["write.delete.isolation-level"] = "chaos"
    with pytest.raises(ValueError, match=r"write\.delete\.isolation-level"):
        table.delete("id = 1")


# --- files that went meanwhile ------------------------------------------------------------------


@pytest.mark.parametrize("properties", [SERIALIZABLE, SNAPSHOT], ids=["serializable", "snapshot"])
@pytest.mark.parametrize("change", ["delete", "overwrite", "upsert"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_is_rewritten_once(
    frazil: Catalog, namespace: str, change: str, version: int, properties: dict[str, str]
) -> None:
    """A second rewrite is refused under every isolation level, because it would restore the
    rows."""
    with pytest.raises(ValidationError) as refused:
        race(
            frazil,
            namespace,
            lambda table: table.delete("id = 2"),
            CHANGES[change],
            version=version,
            properties=properties,
        )
    found = {conflict["clause"] for conflict in refused.value.conflicts}
    assert found & {"required-data-files", "removed-file-not-live"}


def test_two_deletes_of_different_files_both_succeed(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    table.append(rows(*range(1, 9)))
    table.append(rows(*range(11, 19)))
    stale = frazil.load_table(table.name())
    table.delete("id = 1")
    stale.delete("id = 11")
    assert ids(stale) == [*range(2, 9), *range(12, 19)]
    audit(stale)


def test_a_rewrite_says_which_files_must_have_no_new_deletes(
    frazil: Catalog, namespace: str
) -> None:
    table = create(frazil, f"{namespace}.t")
    table.append(rows(*range(1, 9)))
    table.append(rows(11))
    commits = Commits(frazil)
    table.delete("id = 1 or id = 11")
    dropping, rewriting = commits.updates
    (dropped,) = dropping["remove-data-files"]
    (rewritten,) = rewriting["remove-data-files"]
    assert clauses(dropping)["required-data-files"]["file-paths"] == [dropped]
    assert "not-allowed-new-deletes-for-data-files" not in clauses(dropping)
    carried = clauses(rewriting)["not-allowed-new-deletes-for-data-files"]["file-paths"]
    assert carried == [rewritten]
    assert ids(table) == list(range(2, 9))


def test_files_of_the_transaction_itself_are_in_no_clause(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    table.append(rows(1))
    base = table.metadata.current_snapshot_id
    commits = Commits(frazil)
    with table.transaction() as transaction:
        transaction.append(rows(2, 3))
        transaction.delete("id = 2")
    _, rewriting = commits.updates
    assert list(clauses(rewriting)) == ["not-allowed-added-data-files"]
    assert rewriting["base-snapshot-id"] == base
    assert ids(table) == [1, 3]
    audit(table)


def test_replaced_partitions_are_kept_apart(frazil: Catalog, namespace: str) -> None:
    near, away = same_partition("bucket", 1), other_partition("bucket", 1)
    replace: Act = lambda table: table.dynamic_partition_overwrite(rows(1, amount=9))  # noqa: E731
    with pytest.raises(ValidationError):
        race(
            frazil,
            namespace,
            lambda table: table.append(rows(near)),
            replace,
            partitioning="bucket",
        )
    frazil.drop_table(f"{namespace}.t")
    table = race(
        frazil, namespace, lambda table: table.append(rows(away)), replace, partitioning="bucket"
    )
    assert away in ids(table)


def test_a_filter_of_everything_is_sent_as_such(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    table.append(rows(1))
    commits = Commits(frazil)
    table.overwrite(rows(2), AlwaysTrue())
    first, second = commits.updates
    assert clauses(first)["not-allowed-added-data-files"]["filter"] == {"type": "true"}
    assert clauses(second) == {}
