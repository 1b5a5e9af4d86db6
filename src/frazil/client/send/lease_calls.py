"""Leases of readers and intents of writers over REST, and what renews them.

`Lease` and `Intent` are for `with` blocks. One thread renews all of a client, each at half of its
time. The thread only reports: a lease that was lost raises an error where the reader checks it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote
from uuid import uuid4

import msgspec

from frazil.client.send.catalog_calls import (
    Calls,
    IdentifierName,
    decode,
    identifier_of,
    own_table_path,
)
from frazil.client.send.error_answers import LeaseLost
from frazil.client.send.http_transport import Request
from frazil.wire.errors import BadRequest, FrazilError, NotFound
from frazil.wire.identifiers import Identifier
from frazil.wire.leases import (
    BASE_LEASE_PREFIX,
    INTENT_TTL_MS,
    LEASE_TTL_MS,
    DeclareIntentRequest,
    IntentResponse,
    LeaseResponse,
    ListedIntent,
    ListedLease,
    ListIntentsResponse,
    ListLeasesResponse,
    RenewRequest,
    TakeLeaseRequest,
)

_LOGGER: Final = logging.getLogger("frazil.client")
LEASE_TTL_S: Final = LEASE_TTL_MS / 1000
INTENT_TTL_S: Final = INTENT_TTL_MS / 1000
_LONGEST_RETRY_S: Final = 30.0
_IDLE_S: Final = 60.0


class LeaseCalls:
    """The leases of one catalog, without a thread that renews them."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def take(
        self,
        table: IdentifierName,
        snapshot: str | int | None = None,
        *,
        ttl_s: float = LEASE_TTL_S,
        holder: str | None = None,
    ) -> LeaseResponse:
        """Take a lease on a snapshot: an id, a branch or a tag, by default the head of main."""
        snapshot_id = snapshot if isinstance(snapshot, int) else None
        ref = snapshot if isinstance(snapshot, str) else None
        request = TakeLeaseRequest(snapshot_id, ref, _ms(ttl_s), holder or this_process())
        path = f"{own_table_path(identifier_of(table))}/leases"
        with self._calls.hints(path):
            return decode(self._calls.post_read(path, _json(request)), LeaseResponse)

    def renew(
        self,
        table: IdentifierName,
        lease_id: str,
        *,
        ttl_s: float = LEASE_TTL_S,
        waits: bool = True,
    ) -> LeaseResponse:
        """Let a lease last `ttl_s` from now. Raises NotFound if it has ended."""
        body = _json(RenewRequest(_ms(ttl_s)))
        answer = self._calls.post_read(_lease_path(table, lease_id), body, waits=waits)
        return decode(answer, LeaseResponse)

    def release(self, table: IdentifierName, lease_id: str, *, waits: bool = True) -> None:
        """End a lease; one that has ended already is no error."""
        self._calls.cancel(_lease_path(table, lease_id), waits=waits)

    def list(self, table: IdentifierName) -> tuple[ListedLease, ...]:
        """Return the leases on a table that have not ended, of all principals."""
        path = f"{own_table_path(identifier_of(table))}/leases"
        return decode(self._calls.get(path), ListLeasesResponse).leases


class IntentCalls:
    """The intents of one catalog, without a thread that renews them."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def declare(
        self,
        table: IdentifierName,
        prefix: str,
        *,
        ttl_s: float = INTENT_TTL_S,
        holder: str | None = None,
    ) -> IntentResponse:
        """Declare a folder that this write uses alone, below the table's folder of data."""
        request = DeclareIntentRequest(prefix, _ms(ttl_s), holder or this_process())
        path = f"{own_table_path(identifier_of(table))}/intents"
        post = Request("POST", self._calls.path(path), _json(request))
        with self._calls.hints(path):
            return decode(self._calls.submit(lambda: post).answer, IntentResponse)

    def renew(
        self,
        table: IdentifierName,
        intent_id: str,
        *,
        ttl_s: float = INTENT_TTL_S,
        waits: bool = True,
    ) -> IntentResponse:
        """Let an intent last `ttl_s` from now. Raises NotFound if it has ended."""
        body = _json(RenewRequest(_ms(ttl_s)))
        answer = self._calls.post_read(_intent_path(table, intent_id), body, waits=waits)
        return decode(answer, IntentResponse)

    def end(
        self, table: IdentifierName, intent_id: str, *, clean: bool = False, waits: bool = True
    ) -> None:
        """End an intent. `clean` says that only committed files are left in the folder."""
        query = {"clean": "true"} if clean else {}
        self._calls.cancel(_intent_path(table, intent_id), query, waits=waits)

    def list(self, table: IdentifierName) -> tuple[ListedIntent, ...]:
        """Return the intents on a table that have not ended, of all principals."""
        path = f"{own_table_path(identifier_of(table))}/intents"
        return decode(self._calls.get(path), ListIntentsResponse).intents


def _lease_path(table: IdentifierName, lease_id: str) -> str:
    return f"{own_table_path(identifier_of(table))}/leases/{quote(lease_id, safe='')}"


def _intent_path(table: IdentifierName, intent_id: str) -> str:
    return f"{own_table_path(identifier_of(table))}/intents/{quote(intent_id, safe='')}"


def _json(request: msgspec.Struct) -> bytes:
    return msgspec.json.encode(request)


def _ms(ttl_s: float) -> int:
    return round(ttl_s * 1000)


@cache
def _host() -> str:
    import socket

    return socket.gethostname()


def this_process() -> str:
    """Return the holder that people see in lists: the host and the process."""
    return f"{_host()[:150]} process {os.getpid()}"


# --- held in a block ------------------------------------------------------------------------------


class Keeper:
    """Renews what a client holds, on one thread that starts when something is held."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._held: dict[_Held, float] = {}
        """What is held, and when it is renewed next."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, held: _Held) -> None:
        with self._changed:
            self._held[held] = self._now_s() + held.ttl_s / 2
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._renew_all, name="frazil-leases", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def remove(self, held: _Held) -> None:
        with self._changed:
            self._held.pop(held, None)

    def close(self) -> None:
        """Forget what is held. The thread ends."""
        with self._changed:
            self._held.clear()
            self._thread = None
            self._changed.notify()

    def _renew_all(self) -> None:
        while (due := self._next_due()) is not None:
            wait_s = due.renewed()
            with self._changed:
                if due in self._held and wait_s is not None:
                    self._held[due] = self._now_s() + wait_s
                else:
                    self._held.pop(due, None)

    def _next_due(self) -> _Held | None:
        """Wait for the next renewal; return None if the thread is not needed any more."""
        with self._changed:
            while self._thread is threading.current_thread():
                if not self._held:
                    if not self._changed.wait(_IDLE_S) and not self._held:
                        break
                    continue
                held, due_s = min(self._held.items(), key=lambda item: item[1])
                wait_s = due_s - self._now_s()
                if wait_s <= 0:
                    return held
                self._changed.wait(wait_s)
            if self._thread is threading.current_thread():
                self._thread = None
            return None


class _Held(ABC):
    """Something that is held in a `with` block, and renewed until the block ends."""

    def __init__(self, keeper: Keeper, table: Identifier, ttl_s: float) -> None:
        self.table = table
        self.ttl_s = ttl_s
        self._keeper = keeper
        self._ends_s = 0.0
        """When it ends if it is not renewed, by the clock of this process."""
        self._lost: str | None = None

    @property
    @abstractmethod
    def _what(self) -> str:
        """What is held, for messages."""

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _renew(self) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...

    def __enter__(self) -> Self:
        began_s = time.monotonic()
        self._begin()
        self._ends_s = began_s + self.ttl_s
        self._keeper.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._keeper.remove(self)
        reason = self._reason_lost()
        if reason is None:
            # It ends by itself if the server is away now.
            with suppress(FrazilError):
                self._end()
        elif error is not None:
            error.add_note(reason)

    @property
    def is_lost(self) -> bool:
        """Whether it has ended before its block, so that files may be deleted."""
        return self._reason_lost() is not None

    def check(self) -> None:
        """Raise LeaseLost if it has ended before its block."""
        reason = self._reason_lost()
        if reason is not None:
            raise LeaseLost(reason)

    def renewed(self) -> float | None:
        """Renew it once. Return the seconds until the next time, or None if it is lost."""
        began_s = time.monotonic()
        try:
            self._renew()
        except NotFound as error:
            self._lost = f"{self._what} has ended before it was released: {error.message}"
            _LOGGER.warning("%s", self._lost)
            return None
        except FrazilError as error:
            _LOGGER.info("%s could not be renewed, trying again: %s", self._what, error.message)
            return min(self.ttl_s / 10, _LONGEST_RETRY_S)
        self._ends_s = began_s + self.ttl_s
        return self.ttl_s / 2

    def _reason_lost(self) -> str | None:
        if self._lost is None and self._ends_s and time.monotonic() > self._ends_s:
            return f"{self._what} was not renewed in time, because the server did not answer"
        return self._lost


class Holds:
    """The leases and intents of a client that its thread renews."""

    def __init__(self, calls: Calls) -> None:
        self.leases = LeaseCalls(calls)
        self.intents = IntentCalls(calls)
        self._keeper = Keeper()

    def lease(
        self, table: Identifier, snapshot: str | int | None, *, ttl_s: float, holder: str | None
    ) -> Lease:
        return Lease(self.leases, self._keeper, table, snapshot, ttl_s=ttl_s, holder=holder)

    def plan_lease(self, table: Identifier, *, is_base: bool) -> PlanLease:
        return PlanLease(self.leases, self._keeper, table, is_base=is_base)

    def intent(self, table: Identifier, prefix: str, *, ttl_s: float, holder: str | None) -> Intent:
        return Intent(self.intents, self._keeper, table, prefix, ttl_s=ttl_s, holder=holder)

    def close(self) -> None:
        self._keeper.close()


class Lease(_Held):
    """A lease on a snapshot for a `with` block, renewed until the block ends.

    Until then no file of the snapshot is deleted. If the block fails and the lease was lost, the
    error has a note that says so.
    """

    def __init__(
        self,
        calls: LeaseCalls,
        keeper: Keeper,
        table: Identifier,
        snapshot: str | int | None,
        *,
        ttl_s: float = LEASE_TTL_S,
        holder: str | None = None,
    ) -> None:
        super().__init__(keeper, table, ttl_s)
        self._calls = calls
        self._snapshot = snapshot
        self._holder = holder
        self._taken: LeaseResponse | None = None

    @property
    def lease_id(self) -> str:
        return self._response.lease_id

    @property
    def snapshot_id(self) -> int:
        """The leased snapshot."""
        return self._response.snapshot_id

    @property
    def _response(self) -> LeaseResponse:
        if self._taken is None:
            raise BadRequest("the lease is not taken yet: use it in `with`")
        return self._taken

    @property
    def _what(self) -> str:
        return f"the lease on snapshot {self.snapshot_id} of {self.table}"

    def _begin(self) -> None:
        self._taken = self._calls.take(
            self.table, self._snapshot, ttl_s=self.ttl_s, holder=self._holder
        )

    def _renew(self) -> None:
        self._calls.renew(self.table, self.lease_id, ttl_s=self.ttl_s, waits=False)

    def _end(self) -> None:
        self._calls.release(self.table, self.lease_id, waits=False)


def plan_lease_id(*, is_base: bool) -> str:
    """Draw the id of a plan's lease. `is_base` says that a change will be made from the plan."""
    return f"{BASE_LEASE_PREFIX if is_base else ''}{uuid4()}"


class PlanLease(_Held):
    """The lease of a plan, which the catalog takes when it is given the id."""

    def __init__(
        self, calls: LeaseCalls, keeper: Keeper, table: Identifier, *, is_base: bool
    ) -> None:
        super().__init__(keeper, table, LEASE_TTL_S)
        self.lease_id = plan_lease_id(is_base=is_base)
        self._calls = calls

    @property
    def _what(self) -> str:
        return f"the lease of a plan of {self.table}"

    def _begin(self) -> None:
        """Do nothing, because the plan has taken the lease."""

    def _renew(self) -> None:
        self._calls.renew(self.table, self.lease_id, ttl_s=self.ttl_s, waits=False)

    def _end(self) -> None:
        self._calls.release(self.table, self.lease_id, waits=False)


class Intent(_Held):
    """An intent to write into a folder for a `with` block, renewed until the block ends.

    Until then no file in the folder is deleted. What is left there afterwards and was not committed
    is deleted by the server.
    """

    def __init__(
        self,
        calls: IntentCalls,
        keeper: Keeper,
        table: Identifier,
        prefix: str,
        *,
        ttl_s: float = INTENT_TTL_S,
        holder: str | None = None,
    ) -> None:
        super().__init__(keeper, table, ttl_s)
        self.prefix = prefix
        self.is_clean = False
        """Set it if only committed files are left in the folder."""
        self._calls = calls
        self._holder = holder
        self._declared: IntentResponse | None = None

    @property
    def intent_id(self) -> str:
        if self._declared is None:
            raise BadRequest("the intent is not declared yet: use it in `with`")
        return self._declared.intent_id

    @property
    def _what(self) -> str:
        return f"the intent to write to {self.prefix}"

    def _begin(self) -> None:
        self._declared = self._calls.declare(
            self.table, self.prefix, ttl_s=self.ttl_s, holder=self._holder
        )

    def _renew(self) -> None:
        self._calls.renew(self.table, self.intent_id, ttl_s=self.ttl_s, waits=False)

    def _end(self) -> None:
        self._calls.end(self.table, self.intent_id, clean=self.is_clean, waits=False)
