"""Requests to the catalog: reads that may be repeated freely, and changes that carry a key."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from frazil.client.send.error_answers import CatalogUnreachable, error_of
from frazil.client.send.http_transport import Answer, AnswerLost, NotSent, Transport
from frazil.client.send.retry_policy import Clock, Patience, RetryPolicy
from frazil.client.send.submit import Accepted, Persistence, Request, submit
from frazil.wire.errors import FrazilError

T = TypeVar("T")

_DURATION: Final = re.compile(
    r"P(?:(?P<d>[0-9.]+)D)?(?:T(?:(?P<h>[0-9.]+)H)?(?:(?P<m>[0-9.]+)M)?(?:(?P<s>[0-9.]+)S)?)?"
)
PAGE_SIZE: Final = 1_000
_REPEATABLE: Final = frozenset({429, 500, 502, 503, 504})


class CatalogConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """What `/v1/config` says."""

    defaults: dict[str, str] = {}
    overrides: dict[str, str] = {}
    endpoints: tuple[str, ...] | None = None
    idempotency_key_lifetime: str | None = None

    @property
    def prefix(self) -> str:
        prefix = self.overrides.get("prefix") or self.defaults.get("prefix") or ""
        return f"{prefix}/" if prefix else ""

    @property
    def key_lifetime_s(self) -> float | None:
        """None where the catalog does not know idempotency keys."""
        text = self.idempotency_key_lifetime
        match = None if text is None else _DURATION.fullmatch(text)
        if match is None:
            return None
        units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
        return sum(float(match[unit] or 0) * seconds for unit, seconds in units.items())


class Calls:
    """One catalog behind one transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        warehouse: str | None = None,
        prefix: str | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._page_size = page_size
        self._transport = transport
        self._warehouse = warehouse
        self._given_prefix = prefix
        self._retry = retry
        self._clock = clock or Clock()
        self._config: CatalogConfig | None = None
        self._asking = threading.Lock()

    @property
    def config(self) -> CatalogConfig:
        """Asked for once, at the first request."""
        with self._asking:
            if self._config is None:
                query = {} if self._warehouse is None else {"warehouse": self._warehouse}
                answer = self._read(Request("GET", "config", query=query))
                self._config = decode(answer, CatalogConfig)
            return self._config

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def total_timeout_s(self) -> float:
        """How long to wait for something that the catalog is still at."""
        return (self._retry or RetryPolicy()).total_timeout_ms / 1000

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        return self._read(Request("GET", self.path(path), headers=headers or {}, query=query or {}))

    def ask(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """A POST that changes nothing."""
        return self._read(Request("POST", self.path(path), body, headers or {}))

    def cancel(self, path: str) -> None:
        """Takes back something that was only asked for: doing it twice does no harm."""
        self._read(Request("DELETE", self.path(path)), missing=True)

    def exists(self, path: str) -> bool:
        answer = self._read(Request("HEAD", self.path(path)), missing=True)
        return answer.status != 404

    def pages(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """The documents of a list that comes in pages."""
        asked = {**(query or {}), "pageToken": "", "pageSize": str(self._page_size)}
        while True:
            page: dict[str, Any] = decode(self.get(path, asked), dict[str, Any])
            yield page
            token = page.get("next-page-token")
            if not token:
                return
            asked["pageToken"] = token

    def change(self, request: Request, properties: Mapping[str, str] | None = None) -> Accepted:
        """A change that is the same however often it is built."""
        return submit(
            self._transport, lambda: request, self.persistence(properties), rebuilds=False
        )

    def rebuild(
        self, build: Callable[[], Request], properties: Mapping[str, str] | None = None
    ) -> Accepted:
        """A change that is built again when a requirement does not hold."""
        return submit(self._transport, build, self.persistence(properties))

    def path(self, path: str) -> str:
        prefix = self._given_prefix
        return f"{self.config.prefix if prefix is None else f'{prefix}/' if prefix else ''}{path}"

    def persistence(self, properties: Mapping[str, str] | None) -> Persistence:
        given = properties or {}
        return Persistence(
            self._retry or RetryPolicy.of(given),
            RetryPolicy.of_status_checks(given),
            self.config.key_lifetime_s,
            self._clock,
        )

    def _read(self, request: Request, *, missing: bool = False) -> Answer:
        """Changes nothing, so whatever goes wrong on the way may simply be tried again."""
        patience = Patience(self._retry or RetryPolicy(), self._clock)
        while True:
            pause_s = 0.0
            try:
                answer = self._transport.send(
                    request.method,
                    request.path,
                    body=request.body,
                    headers=request.headers,
                    query=request.query,
                )
            except (NotSent, AnswerLost) as error:
                failure: FrazilError = CatalogUnreachable(str(error))
                failure.__cause__ = error
            else:
                if answer.status < 300 or (missing and answer.status == 404):
                    return answer
                failure = error_of(answer)
                if answer.status not in _REPEATABLE:
                    raise failure
                pause_s = failure.retry_after_s or 0.0
            if not patience.wait(pause_s):
                raise failure


def decode(answer: Answer, kind: type[T], failure: type[FrazilError] = FrazilError) -> T:
    """The answer's document; a catalog that answers something else is said so.

    After a change the failure is CommitStateUnknown: something said yes, but not to what.
    """
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise failure(f"the catalog's answer is not what was asked for: {error}") from error
