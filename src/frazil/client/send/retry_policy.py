"""How often and how long to retry: Iceberg's table properties, with full jitter.

Full jitter (a wait drawn evenly between zero and the limit) spreads writers that failed together.
With a fixed wait and a little noise they would collide again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from frazil.wire.errors import BadRequest

_log = logging.getLogger("frazil.client")

COMMIT_RETRY = "commit.retry"
STATUS_CHECK = "commit.status-check"
_REPORTED_WAIT_S: Final = 2.0
"""A busy catalog asks for a second, which is no news."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and randomness, which tests replace."""

    now_s: Callable[[], float] = time.monotonic
    sleep_s: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The `commit.retry.*` properties of a table, with Iceberg's defaults."""

    num_retries: int = 4
    min_wait_ms: int = 100
    max_wait_ms: int = 60_000
    total_timeout_ms: int = 1_800_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RetryPolicy:
        """Read `commit.retry.*`."""
        return _read(properties, COMMIT_RETRY, cls())

    @classmethod
    def of_status_checks(cls, properties: Mapping[str, str]) -> RetryPolicy:
        """Read `commit.status-check.*`: how long to ask for an unknown outcome after the
        retries."""
        return _read(properties, STATUS_CHECK, cls(num_retries=3, min_wait_ms=1_000))

    def longest_wait_ms(self, retry: int) -> int:
        """Return the longest wait before a retry; the first retry is number 0."""
        # The exponent is limited so that the power stays small for any number of retries.
        return min(self.min_wait_ms << min(retry, 32), self.max_wait_ms)


FULL_JITTER: Final = (0.0, 1.0)
"""Wait between zero and the limit: for requests that do not depend on each other."""
AROUND_THE_LIMIT: Final = (0.5, 1.5)
"""Wait as long as the limit on average: for a swap that only one writer can win at a time, where an
early retry only fails."""


class RetryBudget:
    """The retries and the time that are left for one call."""

    def __init__(
        self, policy: RetryPolicy, clock: Clock, jitter: tuple[float, float] = FULL_JITTER
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._jitter = jitter
        self._deadline_s = clock.now_s() + policy.total_timeout_ms / 1000
        self.retries = 0

    def wait(self, at_least_s: float = 0.0, reason: str = "") -> bool:
        """Wait before the next retry; return False at once if none is left.

        `reason` says in the log why the server asks to wait for `at_least_s`.
        """
        if self.retries >= self._policy.num_retries:
            return False
        limit_s = self._policy.longest_wait_ms(self.retries) / 1000
        shortest, longest = self._jitter
        jitter_s = self._clock.uniform(shortest * limit_s, longest * limit_s)
        # First wait as long as the server asked; the jitter spreads clients that got the same
        # answer.
        wait_s = at_least_s + jitter_s
        if self._clock.now_s() + wait_s > self._deadline_s:
            return False
        self.retries += 1
        if at_least_s >= _REPORTED_WAIT_S:
            count = f"retry {self.retries} of {self._policy.num_retries}"
            _log.warning("%s; the catalog asks to wait %g s (%s)", reason, at_least_s, count)
        self._clock.sleep_s(wait_s)
        return True


def _read(properties: Mapping[str, str], prefix: str, defaults: RetryPolicy) -> RetryPolicy:
    def number(name: str, default: int) -> int:
        text = properties.get(f"{prefix}.{name}")
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise BadRequest(f"{prefix}.{name}: {text!r} is not a whole number") from None
        return max(0, value)

    return RetryPolicy(
        num_retries=number("num-retries", defaults.num_retries),
        min_wait_ms=number("min-wait-ms", defaults.min_wait_ms),
        max_wait_ms=number("max-wait-ms", defaults.max_wait_ms),
        total_timeout_ms=number("total-timeout-ms", defaults.total_timeout_ms),
    )
