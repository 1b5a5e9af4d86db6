"""Changes that a client makes through a faulty network, and their effect on the server."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog

from frazil.client.catalog_client import Client
from frazil.client.send.retry_policy import RetryPolicy
from frazil.wire.declared_content import DeclaredDataFile, ValueMap
from frazil.wire.errors import CommitStateUnknown, FrazilError
from tests.support.patience import HANG_S
from tests.support.proxy import Exchange, Fault, HoldAnswer, HoldRequest, Proxy

NAMESPACE: Final = "faults"
SCHEMA: Final = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}],
}
QUICK: Final = {
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "20",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "20",
}
"""Table properties that make retry waits very short."""

MARK: Final = "marked-by"
_numbers = itertools.count(1)


def quick_client(uri: str) -> Client:
    """Return a client that retries four times without waiting; it does not read
    `commit.retry.*`."""
    return Client(uri, timeout_s=HANG_S, retry=RetryPolicy(4, 1, 20, 1_000 * int(HANG_S)))


def impatient_client(uri: str) -> Client:
    """Return a client with a short timeout, for a proxy that delays messages.

    On a busy machine real responses may time out too, so the client retries until one arrives in
    time.
    """
    return Client(uri, timeout_s=0.5, retry=RetryPolicy(1_000, 1, 20, 1_000 * int(HANG_S)))


def hasty_client(uri: str) -> Client:
    """Return a client that does not wait long for a server that is away."""
    retries = RetryPolicy(4, 1, 20, 1_000 * int(HANG_S))
    return Client(uri, timeout_s=HANG_S, retry=retries, outage_timeout_s=0.05)


def client_for(faults: Iterable[Fault], uri: str) -> Client:
    held = any(isinstance(fault, HoldRequest | HoldAnswer) for fault in faults)
    return impatient_client(uri) if held else quick_client(uri)


def data_file(location: str, number: int) -> DeclaredDataFile:
    return DeclaredDataFile(
        spec_id=0,
        partition=(),
        file_path=f"{location}/data/{number}.parquet",
        file_format="parquet",
        file_size_in_bytes=100,
        record_count=1,
        lower_bounds=ValueMap(keys=(1,), values=(number,)),
        upper_bounds=ValueMap(keys=(1,), values=(number,)),
    )


class Truth:
    """The state of the catalog, read from the server directly and not through the proxy."""

    def __init__(self, uri: str) -> None:
        self.client = quick_client(uri)
        if not self.client.namespace_exists(NAMESPACE):
            self.client.create_namespace(NAMESPACE)
        self._catalog = RestCatalog("truth", uri=uri)

    def new_table(self, *, first_file: bool = False, properties: dict[str, str] = QUICK) -> str:
        name = f"{NAMESPACE}.t{next(_numbers)}"
        table = self.client.create_table(name, SCHEMA, properties=properties)
        if first_file:
            table.append_files([data_file(table.location, 0)])
        return name

    def live(self, name: str) -> list[str]:
        """Return the paths of the live data files from the manifests."""
        table = self._catalog.load_table(name)
        if table.current_snapshot() is None:
            return []
        paths: list[str] = table.inspect.data_files()["file_path"].to_pylist()
        return paths

    def versions(self, name: str) -> int:
        """Return how often the table was changed."""
        return len(self.client.load_table(name).metadata["metadata-log"])

    def marked(self, name: str, mark: str) -> int:
        """Return how many snapshots have the mark."""
        table = self.client.load_table(name)
        return sum(snapshot.summary.get(MARK) == mark for snapshot in table.snapshots)


# --- operations ------------------------------------------------------------------------------


class Operation(ABC):
    """A change that is prepared on the server, called through the proxy and counted afterwards."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.number = next(_numbers)
        self.mark = f"call-{self.number}"
        self.name = self.prepare()
        self.location = "" if not self.name else truth.client.load_table(self.name).location
        self.versions = truth.versions(self.name) if self.name else 0

    def prepare(self) -> str:
        return self.truth.new_table()

    @abstractmethod
    def call(self, client: Client) -> object: ...

    @abstractmethod
    def times(self) -> int:
        """Return how often the change was applied; fail if it was applied in part."""

    @property
    def new(self) -> DeclaredDataFile:
        return data_file(self.location, self.number)

    @property
    def old(self) -> str:
        return data_file(self.location, 0).file_path

    def _changed(self, name: str | None = None) -> int:
        return self.truth.versions(name or self.name) - self.versions


class Append(Operation):
    def call(self, client: Client) -> object:
        return client.append_files(self.name, [self.new], summary={MARK: self.mark})

    def times(self) -> int:
        times = self._changed()
        assert self.truth.marked(self.name, self.mark) == times
        assert self.truth.live(self.name).count(self.new.file_path) == times
        return times


class Overwrite(Operation):
    """An overwrite that requires that its file is live and that no row of its filter was added
    since."""

    def prepare(self) -> str:
        return self.truth.new_table(first_file=True)

    def call(self, client: Client) -> object:
        return client.overwrite_files(
            self.name,
            add=[self.new],
            remove=[self.old],
            conflict_filter="id = 0",
            summary={MARK: self.mark},
        )

    def times(self) -> int:
        times = self._changed()
        assert self.truth.marked(self.name, self.mark) == times
        live = self.truth.live(self.name)
        assert (live.count(self.new.file_path), live.count(self.old)) == (times, 1 - times)
        return times


class Delete(Operation):
    def prepare(self) -> str:
        return self.truth.new_table(first_file=True)

    def call(self, client: Client) -> object:
        return client.delete_files(self.name, [self.old], summary={MARK: self.mark})

    def times(self) -> int:
        times = self._changed()
        assert self.truth.marked(self.name, self.mark) == times
        assert self.truth.live(self.name).count(self.old) == 1 - times
        return times


class NewBranch(Operation):
    """A change that requires that the branch does not exist."""

    def prepare(self) -> str:
        return self.truth.new_table(first_file=True)

    def call(self, client: Client) -> object:
        return client.create_branch(self.name, self.mark)

    def times(self) -> int:
        times = self._changed()
        assert (self.mark in self.truth.client.load_table(self.name).refs) == (times > 0)
        return times


class TwoTables(Operation):
    """A transaction that changes both tables or neither."""

    def prepare(self) -> str:
        self.other = self.truth.new_table()
        self.other_location = self.truth.client.load_table(self.other).location
        return self.truth.new_table()

    def call(self, client: Client) -> object:
        with client.transaction() as transaction:
            transaction.append_files(self.name, [self.new], summary={MARK: self.mark})
            other = data_file(self.other_location, self.number)
            transaction.append_files(self.other, [other], summary={MARK: self.mark})
        return transaction.commits

    def times(self) -> int:
        times = self._changed()
        assert self._changed(self.other) == times
        for name in (self.name, self.other):
            assert self.truth.marked(name, self.mark) == times
            assert len(self.truth.live(name)) == times
        return times


class NewTable(Operation):
    def prepare(self) -> str:
        self.created = f"{NAMESPACE}.created{self.number}"
        return ""

    def call(self, client: Client) -> object:
        return client.create_table(self.created, SCHEMA, properties=QUICK)

    def times(self) -> int:
        if not self.truth.client.table_exists(self.created):
            return 0
        assert self.truth.versions(self.created) == 0
        return 1


OPERATIONS: Final[tuple[type[Operation], ...]] = (
    Append,
    Overwrite,
    Delete,
    NewBranch,
    TwoTables,
    NewTable,
)


# --- the client's word -----------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The result or error that a call returned."""

    result: object = None
    error: FrazilError | None = None

    @property
    def possible(self) -> set[int]:
        """Return how often the change may have been applied according to the client."""
        if self.error is None:
            return {1}
        return {0, 1} if isinstance(self.error, CommitStateUnknown) else {0}


def call(operation: Operation, client: Client) -> Outcome:
    try:
        return Outcome(result=operation.call(client))
    except FrazilError as error:
        return Outcome(error=error)


def check_word(operation: Operation, outcome: Outcome) -> None:
    times = operation.times()
    assert times in outcome.possible, f"done {times} times, but the client says {outcome}"


def check_keys(changes: Iterable[Exchange]) -> None:
    """Check that equal requests have the same key and different requests have different keys."""
    keys: dict[Any, set[str | None]] = defaultdict(set)
    for change in changes:
        keys[change.method, change.path, change.body].add(change.key)
    for found in keys.values():
        assert None not in found
        assert len(found) == 1
    assert len({key for found in keys.values() for key in found}) == len(keys)


def through(
    proxy: Proxy,
    operation: Operation,
    faults: Iterable[Fault] = (),
    client: Client | None = None,
) -> Outcome:
    """Call the operation through the proxy and wait until all delayed messages have arrived."""
    with client or client_for(faults, proxy.url) as used:
        outcome = call(operation, used)
    proxy.settle()
    check_word(operation, outcome)
    check_keys(proxy.changes)
    return outcome
