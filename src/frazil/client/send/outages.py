"""Wait for a server that is away, and report the wait in the log.

A server is away if no connection is possible, if a connection ends without an answer, if no answer
arrives in time, or if something in front of the server answers 502, 503 or 504. A call then sends
its request again until the server answers or the time is over. No other module waits for this.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol, TypeVar

from frazil.client.send.http_transport import AnswerLost, NotSent, SendFailure, Unusable
from frazil.client.send.retry_policy import Clock, RetryPolicy
from frazil.wire.errors import BadRequest

LOGGER: Final = logging.getLogger("frazil.client")

OUTAGE_TIMEOUT_S: Final = 30.0
"""The default of the client; a long job on Spark waits longer."""
AWAY_STATUSES: Final = frozenset({502, 503, 504})

_LONGEST_WAIT_MS: Final = 3_000
_LINE_EVERY_S: Final = 30.0


class HttpAnswer(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


A = TypeVar("A", bound=HttpAnswer)


@dataclass(frozen=True, slots=True)
class OutagePolicy:
    """How long a call waits for a server that is away."""

    timeout_s: float = OUTAGE_TIMEOUT_S
    is_chosen: bool = False
    """Whether the user has set the time. It then limits the wait for an unknown outcome too, which
    otherwise lasts as long as the server remembers the request's key."""

    @classmethod
    def of(cls, chosen_s: float | None, default_s: float = OUTAGE_TIMEOUT_S) -> OutagePolicy:
        if chosen_s is None:
            return cls(default_s)
        if not 0 <= chosen_s < inf:
            raise BadRequest(
                f"outage_timeout_s: {chosen_s!r} must be a number of seconds, 0 or more"
            )
        return cls(chosen_s, is_chosen=True)


class Outages:
    """The outages of one catalog, which all its calls share."""

    def __init__(self, address: str | None = None, policy: OutagePolicy | None = None) -> None:
        self._catalog = f"catalog at {address}" if address else "catalog"
        self.policy = policy or OutagePolicy()
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._next_line_s = inf

    def is_away(self, reason: str, remaining_s: float, now_s: float) -> None:
        """Log the begin of an outage, and from time to time that it lasts."""
        with self._lock:
            if self._since_s is None:
                self._since_s = now_s
                text = "does not answer"
            elif now_s >= self._next_line_s:
                text = f"has not answered for {seconds_text(now_s - self._since_s)}"
            else:
                return
            self._next_line_s = now_s + _LINE_EVERY_S
        LOGGER.warning(
            "%s %s (%s); waiting up to %s", self._catalog, text, reason, seconds_text(remaining_s)
        )

    def has_answered(self, now_s: float) -> None:
        if self._since_s is None:
            return
        with self._lock:
            since_s, self._since_s = self._since_s, None
        if since_s is not None:
            LOGGER.warning("%s answered after %s", self._catalog, seconds_text(now_s - since_s))

    def is_given_up(self) -> None:
        """Forget the outage, so that the next call that waits logs it again."""
        with self._lock:
            self._since_s = None


class OutageWait:
    """The time for which one call waits, however often it sends."""

    def __init__(self, outages: Outages, retries: RetryPolicy, clock: Clock) -> None:
        self._outages = outages
        self._first_wait_ms = retries.min_wait_ms
        self._clock = clock
        self._waits = 0
        self._began_s: float | None = None
        self._key_ends_s: float | None = None

    def needs_key_until(self, key_ends_s: float) -> None:
        """Wait for an unknown outcome: a resend is safe only while the server knows the key.

        Only the first call counts, because the first attempt may have been executed.
        """
        if self._key_ends_s is None:
            self._key_ends_s = key_ends_s

    @property
    def is_in_doubt(self) -> bool:
        """Whether an attempt may have been executed."""
        return self._key_ends_s is not None

    def answer(self, send: Callable[[], A]) -> A:
        """Call `send` until the server answers.

        When the time is over, return the last answer of a gateway or raise the last failure.
        """
        try:
            while True:
                try:
                    answer = send()
                except Unusable:
                    raise
                except (NotSent, AnswerLost) as failure:
                    if not self._wait(failure.reason):
                        raise
                else:
                    if answer.status not in AWAY_STATUSES:
                        self._outages.has_answered(self._clock.now_s())
                        return answer
                    if not self._wait(f"HTTP status {answer.status}", retry_after_s(answer) or 0):
                        return answer
        except BaseException:
            self._outages.is_given_up()
            raise

    def text_of(self, failure: SendFailure) -> str:
        """Return the message of the last failure, with the time that was waited."""
        if self._began_s is None or self._waits == 0:
            return str(failure)
        return f"{failure}; waited {seconds_text(self._clock.now_s() - self._began_s)}"

    def _wait(self, reason: str, at_least_s: float = 0.0) -> bool:
        """Wait before the next attempt; return False at once if the time is over."""
        now_s = self._clock.now_s()
        if self._began_s is None:
            self._began_s = now_s
        ends_s = self._ends_s(self._began_s)
        if now_s >= ends_s or now_s + at_least_s > ends_s:
            self._outages.is_given_up()
            return False
        # Full jitter, and a last attempt when the time ends. A policy that retries without a pause
        # must not send without a pause for minutes.
        limit_ms = min(max(1, self._first_wait_ms) << min(self._waits, 32), _LONGEST_WAIT_MS)
        wait_s = min(at_least_s + self._clock.uniform(0, limit_ms / 1000), ends_s - now_s)
        if self._key_ends_s is not None and now_s + wait_s >= self._key_ends_s:
            self._outages.is_given_up()
            return False
        self._outages.is_away(reason, ends_s - now_s, now_s)
        self._waits += 1
        self._clock.sleep_s(wait_s)
        return True

    def _ends_s(self, began_s: float) -> float:
        policy = self._outages.policy
        chosen_end_s = began_s + policy.timeout_s
        if self._key_ends_s is None:
            return chosen_end_s
        return min(chosen_end_s, self._key_ends_s) if policy.is_chosen else self._key_ends_s


def seconds_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def retry_after_s(answer: HttpAnswer) -> int | None:
    """Return the seconds in `Retry-After`; catalogs do not use its date form."""
    text = answer.headers.get("retry-after", "").strip()
    return int(text) if text.isdigit() else None
