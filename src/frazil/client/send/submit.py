"""Send requests to the catalog until their outcome is known: the client's only retry loops.

`read` repeats a request that changes nothing after every failure that may pass.

`submit` sends a change. How it retries depends on the failure:

    a failed requirement (409 CommitFailed)       rebuild on fresh metadata, with a new key
    429                                           same bytes and same key, after the pause
    500                                           same bytes and same key
    no connection, a lost response, 502 to 504    same bytes and same key, see `outages`

The idempotency key makes the last two safe: the server answers a finished key from its record, and
executes the request only if the key has not been used. Any other error is final and raised at once,
above all a ValidationError. If the outcome is still unknown when the retries or the time are used
up, CommitStateUnknown is raised. It never means that nothing happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from frazil.client.send.error_answers import CatalogUnreachable, error_of
from frazil.client.send.http_transport import (
    Answer,
    AnswerLost,
    NotSent,
    Request,
    SendFailure,
    Transport,
)
from frazil.client.send.outages import AWAY_STATUSES, Outages, OutageWait
from frazil.client.send.retry_policy import Clock, RetryBudget, RetryPolicy
from frazil.wire.errors import CommitFailed, CommitStateUnknown, FrazilError

KEY_HEADER: Final = "Idempotency-Key"
_RETRIED_READ_STATUSES: Final = frozenset({429, 500})
_INCONCLUSIVE_STATUSES: Final = frozenset({401, 403, 404, 405, 413, 415, 422})
"""Statuses that do not show what happened to an earlier attempt whose response was lost. The server
sends them before it looks up the key, or because the table has been dropped since."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The response to a change that the server has executed once."""

    answer: Answer
    attempts: int
    """How often a request was sent; 1 without retries."""


@dataclass(frozen=True, slots=True)
class SubmitPolicy:
    """How long to try: first the retries, then the status checks for unknown outcomes only."""

    retries: RetryPolicy = field(default_factory=RetryPolicy)
    status_checks: RetryPolicy = field(
        default_factory=lambda: RetryPolicy.of_status_checks({}),
    )
    key_lifetime_s: float | None = 1_800.0
    """How long the server remembers a key; None if it does not support keys."""
    clock: Clock = field(default_factory=Clock)
    outages: Outages = field(default_factory=Outages)


def read(
    transport: Transport,
    request: Request,
    retries: RetryPolicy,
    clock: Clock,
    outages: Outages,
    *,
    missing_is_answer: bool = False,
) -> Answer:
    """Send a request that changes nothing; with `missing_is_answer` a 404 is returned too."""
    budget = RetryBudget(retries, clock)
    outage = OutageWait(outages, retries, clock)
    while True:
        try:
            answer = outage.answer(lambda: transport.send(request))
        except SendFailure as error:
            raise CatalogUnreachable(outage.text_of(error)) from None
        if answer.status < 300 or (missing_is_answer and answer.status == 404):
            return answer
        failure = error_of(answer)
        if answer.status not in _RETRIED_READ_STATUSES or not budget.wait(
            failure.retry_after_s or 0.0, failure.message
        ):
            raise failure


def submit(
    transport: Transport,
    build: Callable[[], Request],
    policy: SubmitPolicy,
    *,
    rebuilds: bool = True,
) -> Accepted:
    """Send the request that `build` returns until it is executed or refused.

    After a failed requirement `build` is called again, so it must read the metadata itself. Set
    `rebuilds` to False if building again would give the same request.
    """
    budget = RetryBudget(policy.retries, policy.clock)
    attempts = 0
    while True:
        delivery = _Delivery(transport, build(), policy, budget)
        try:
            answer = delivery.outcome()
        except CommitFailed:
            if not rebuilds or not budget.wait():
                raise
            attempts += delivery.attempts
            continue
        return Accepted(answer, attempts + delivery.attempts)


class _Delivery:
    """Sends one request with one key, the same bytes in each attempt."""

    def __init__(
        self, transport: Transport, request: Request, policy: SubmitPolicy, budget: RetryBudget
    ) -> None:
        self._transport = transport
        self._policy = policy
        self._budget = budget
        self._outage = OutageWait(policy.outages, policy.retries, policy.clock)
        self._status_checks: RetryBudget | None = None
        self._first_sent_s = 0.0
        self._in_doubt = False
        """An attempt may have been executed although its response is missing."""
        self.attempts = 0
        if policy.key_lifetime_s is not None:
            request = replace(request, headers={**request.headers, KEY_HEADER: str(new_key())})
        self._request = request

    def outcome(self) -> Answer:
        while True:
            try:
                answer = self._outage.answer(self._attempt)
            except NotSent as error:
                unreachable = CatalogUnreachable(self._outage.text_of(error))
                raise self._final_error(unreachable) from None
            except AnswerLost as error:
                raise CommitStateUnknown(
                    f"the answer was lost: {self._outage.text_of(error)}"
                ) from None
            if answer.status < 300 and _is_from_catalog(answer):
                return answer
            failure = self._retryable_failure(answer)
            if answer.status in AWAY_STATUSES or not self._may_retry(failure):
                raise self._final_error(failure)

    def _attempt(self) -> Answer:
        """Send once, and note whether the server may have executed the request."""
        if not self._in_doubt:
            self._first_sent_s = self._policy.clock.now_s()
        self.attempts += 1
        try:
            answer = self._transport.send(self._request)
        except AnswerLost:
            self._doubt()
            raise
        # Even a 503 with Retry-After: a gateway may send it after forwarding the request.
        if answer.status >= 500 or (answer.status < 300 and not _is_from_catalog(answer)):
            self._doubt()
        return answer

    def _doubt(self) -> None:
        self._in_doubt = True
        self._outage.needs_key_until(self._first_sent_s + (self._policy.key_lifetime_s or 0.0))

    def _retryable_failure(self, answer: Answer) -> FrazilError:
        """Return the error to retry after; raise errors that are final."""
        if answer.status < 300:
            return CommitStateUnknown("the answer is not one of the catalog's")
        error = error_of(answer)
        if answer.status == 429 or answer.status >= 500:
            return error
        if self._in_doubt and answer.status in _INCONCLUSIVE_STATUSES:
            raise CommitStateUnknown(
                "an answer was lost, and the server could not be asked for the outcome "
                f"(HTTP status {answer.status}: {error.message})"
            ) from error
        raise error

    def _may_retry(self, failure: FrazilError) -> bool:
        """Wait before the next attempt; return False if none is left or none is safe."""
        pause_s = failure.retry_after_s or 0.0
        if not self._in_doubt:
            return self._budget.wait(pause_s, failure.message)
        if not self._key_is_valid():
            return False
        if self._budget.wait(pause_s, failure.message):
            return self._key_is_valid()
        if self._status_checks is None:
            self._status_checks = RetryBudget(self._policy.status_checks, self._policy.clock)
        return self._status_checks.wait(pause_s, failure.message) and self._key_is_valid()

    def _key_is_valid(self) -> bool:
        """Check that the server still knows the key; otherwise a retry could repeat the change."""
        lifetime_s = self._policy.key_lifetime_s
        passed_s = self._policy.clock.now_s() - self._first_sent_s
        return lifetime_s is not None and passed_s < lifetime_s

    def _final_error(self, failure: FrazilError) -> FrazilError:
        if not self._in_doubt or isinstance(failure, CommitStateUnknown):
            return failure
        unknown = CommitStateUnknown(
            f"after {self.attempts} attempts the outcome is not known: {failure.message}"
        )
        unknown.__cause__ = failure
        return unknown


def _is_from_catalog(answer: Answer) -> bool:
    """Check that a success comes from the catalog, not from something in front of it."""
    return answer.status == 204 or answer.body.lstrip()[:1] == b"{"


def new_key() -> UUID:
    """Return a random UUID of version 7, which the REST specification asks for."""
    number = int.from_bytes(os.urandom(16), "big")
    number &= (1 << 80) - 1
    number |= (time.time_ns() // 1_000_000) << 80
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    return UUID(int=number)
