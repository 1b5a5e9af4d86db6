"""The client's only retry loop: a change is sent until its outcome is known.

What may be sent again, and how:

    a failed requirement (409 CommitFailed)       rebuilt on fresh metadata, with a new key
    429                                           the same bytes after the pause, the same key
    no connection, a lost answer, 5xx             the same bytes, the same key

The key makes the last safe: the server answers a key it has finished from its record, and judges a
request again only if that key has done nothing. Everything else is the server's last word and is
raised at once, above all a ValidationError. Where the outcome stays unknown after all patience,
CommitStateUnknown is raised, which never means that nothing happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from frazil.client.send.error_answers import CatalogUnreachable, error_of
from frazil.client.send.http_transport import Answer, AnswerLost, NotSent, Transport
from frazil.client.send.retry_policy import Clock, Patience, RetryPolicy
from frazil.wire.errors import CommitFailed, CommitStateUnknown, FrazilError

KEY_HEADER: Final = "Idempotency-Key"
_PROVES_NOTHING: Final = frozenset({401, 403, 404, 405, 413, 415, 422})
"""Answers that say nothing about an earlier sending whose answer was lost: they are given before
the key is looked up, or because the table has gone since."""


@dataclass(frozen=True, slots=True)
class Request:
    """The bytes of one attempt."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server has done it, once."""

    answer: Answer
    attempts: int
    """How often something was sent; 1 where nothing was retried."""
    rebuilt: int = 0
    """How often the request was made anew because a requirement did not hold."""


@dataclass(frozen=True, slots=True)
class Persistence:
    """How long to try: the retries, then for unknown outcomes alone the status checks."""

    retries: RetryPolicy = field(default_factory=RetryPolicy)
    status_checks: RetryPolicy = field(
        default_factory=lambda: RetryPolicy.of_status_checks({}),
    )
    key_lifetime_s: float | None = 1_800.0
    """How long the server remembers a key; None where it does not know keys at all."""
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def of(cls, properties: Mapping[str, str], key_lifetime_s: float | None) -> Persistence:
        return cls(
            RetryPolicy.of(properties), RetryPolicy.of_status_checks(properties), key_lifetime_s
        )


def submit(
    transport: Transport,
    build: Callable[[], Request],
    persistence: Persistence,
    *,
    rebuilds: bool = True,
) -> Accepted:
    """Sends what `build` makes until it is done or refused.

    `build` is called again after a failed requirement, so it must read the metadata it builds on by
    itself. `rebuilds` is False where building again could only give the same request.
    """
    patience = Patience(persistence.retries, persistence.clock)
    attempts = rebuilt = 0
    while True:
        delivery = _Delivery(transport, build(), persistence, patience)
        try:
            answer = delivery.outcome()
        except CommitFailed:
            if not rebuilds or not patience.wait():
                raise
            attempts += delivery.attempts
            rebuilt += 1
            continue
        return Accepted(answer, attempts + delivery.attempts, rebuilt)


class _Delivery:
    """One request with one key: the same bytes, as often as it takes."""

    def __init__(
        self, transport: Transport, request: Request, persistence: Persistence, patience: Patience
    ) -> None:
        self._transport = transport
        self._request = request
        self._persistence = persistence
        self._patience = patience
        self._status_checks: Patience | None = None
        self._key = str(new_key())
        self._first_sent_s = persistence.clock.now_s()
        self._in_doubt = False
        self.attempts = 0

    def outcome(self) -> Answer:
        while True:
            pause_s = 0.0
            self.attempts += 1
            try:
                answer = self._send()
            except NotSent as error:
                failure: FrazilError = CatalogUnreachable(str(error))
                failure.__cause__ = error
            except AnswerLost as error:
                self._in_doubt = True
                failure = CommitStateUnknown(f"the answer was lost: {error}")
                failure.__cause__ = error
            else:
                if answer.status < 300 and _is_catalogs(answer):
                    return answer
                failure = self._refused(answer)
                pause_s = failure.retry_after_s or 0.0
            if not self._again(pause_s):
                raise self._last_word(failure)

    def _send(self) -> Answer:
        request = self._request
        headers = dict(request.headers)
        if self._persistence.key_lifetime_s is not None:
            headers[KEY_HEADER] = self._key
        return self._transport.send(
            request.method, request.path, body=request.body, headers=headers, query=request.query
        )

    def _refused(self, answer: Answer) -> FrazilError:
        """What to retry; raises what is the server's last word."""
        if answer.status < 300:
            self._in_doubt = True
            return CommitStateUnknown("the answer is not one of the catalog's")
        error = error_of(answer)
        if answer.status == 429:
            return error
        if answer.status >= 500:
            # Also a 503 with Retry-After: a gateway may say it after it has passed the request on.
            self._in_doubt = True
            return error
        if self._in_doubt and answer.status in _PROVES_NOTHING:
            raise CommitStateUnknown(
                "an answer was lost, and the server could not be asked for the outcome "
                f"(HTTP status {answer.status}: {error.message})"
            ) from error
        raise error

    def _again(self, pause_s: float) -> bool:
        if not self._in_doubt:
            return self._patience.wait(pause_s)
        if not self._key_holds():
            return False
        if self._patience.wait(pause_s):
            return self._key_holds()
        if self._status_checks is None:
            checks = self._persistence.status_checks
            self._status_checks = Patience(checks, self._persistence.clock)
        return self._status_checks.wait(pause_s) and self._key_holds()

    def _key_holds(self) -> bool:
        """A key that the server may have forgotten would let the same change happen twice."""
        lifetime_s = self._persistence.key_lifetime_s
        passed_s = self._persistence.clock.now_s() - self._first_sent_s
        return lifetime_s is not None and passed_s < lifetime_s

    def _last_word(self, failure: FrazilError) -> FrazilError:
        if not self._in_doubt or isinstance(failure, CommitStateUnknown):
            return failure
        unknown = CommitStateUnknown(
            f"after {self.attempts} attempts the outcome is not known: {failure.message}"
        )
        unknown.__cause__ = failure
        return unknown


def _is_catalogs(answer: Answer) -> bool:
    """Whether a success can be the catalog's own, and not of something that sits before it."""
    return answer.status == 204 or answer.body.lstrip()[:1] == b"{"


def new_key() -> UUID:
    """A UUID of version 7, as the REST specification asks for: ordered by time, then chance."""
    number = int.from_bytes(os.urandom(16), "big")
    number &= (1 << 80) - 1
    number |= (time.time_ns() // 1_000_000) << 80
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    return UUID(int=number)
