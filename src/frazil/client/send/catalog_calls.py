"""Requests to one catalog: reads, which may be repeated freely, and changes, which carry a key.

The paths of namespaces and tables are made of their names here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from frazil.client.send.http_transport import Answer, Request, Transport
from frazil.client.send.outages import OUTAGE_TIMEOUT_S, OutagePolicy, Outages
from frazil.client.send.retry_policy import Clock, RetryBudget, RetryPolicy
from frazil.client.send.submit import Accepted, SubmitPolicy, read, submit
from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier, Namespace, check_identifier, check_namespace

T = TypeVar("T")

NamespaceName: TypeAlias = "str | tuple[str, ...]"
IdentifierName: TypeAlias = "str | tuple[str, ...] | Identifier"

PAGE_SIZE: Final = 1_000
NAMESPACE_SEPARATOR: Final = "\x1f"


class CatalogConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The response of `/v1/config`."""

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
        """Return the lifetime of idempotency keys; None if the catalog does not support them."""
        try:
            return msgspec.convert(self.idempotency_key_lifetime, timedelta).total_seconds()
        except msgspec.ValidationError:
            return None


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
        address: str | None = None,
        outage_timeout_s: float | None = None,
        outage_default_s: float = OUTAGE_TIMEOUT_S,
    ) -> None:
        """Create the calls; `address` names the catalog in the log."""
        self._outages = Outages(address, OutagePolicy.of(outage_timeout_s, outage_default_s))
        self.clock = clock or Clock()
        self._page_size = page_size
        self._transport = transport
        self._warehouse = warehouse
        self._configured_prefix = prefix
        self._retry = retry
        self._config: CatalogConfig | None = None
        self._config_lock = threading.Lock()

    @property
    def config(self) -> CatalogConfig:
        """Return the catalog's configuration, which is requested once."""
        with self._config_lock:
            if self._config is None:
                query = {} if self._warehouse is None else {"warehouse": self._warehouse}
                answer = self._read(Request("GET", "config", query=query))
                self._config = decode(answer, CatalogConfig)
            return self._config

    @property
    def total_timeout_s(self) -> float:
        """Return how long to wait for work that the catalog has not finished."""
        return (self._retry or RetryPolicy()).total_timeout_ms / 1000

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        return self._read(Request("GET", self.path(path), headers=headers or {}, query=query or {}))

    def post_read(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        waits: bool = True,
    ) -> Answer:
        """Send a POST that changes nothing; without `waits`, fail at once if the server is away."""
        return self._read(Request("POST", self.path(path), body, headers or {}), waits=waits)

    def cancel(self, path: str) -> None:
        """Send a DELETE that is safe to repeat."""
        self._read(Request("DELETE", self.path(path)), missing_is_answer=True)

    def exists(self, path: str) -> bool:
        answer = self._read(Request("HEAD", self.path(path)), missing_is_answer=True)
        return answer.status != 404

    def pages(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the documents of a list, page by page."""
        page_query = {**(query or {}), "pageToken": "", "pageSize": str(self._page_size)}
        while True:
            page: dict[str, Any] = decode(self.get(path, page_query), dict[str, Any])
            yield page
            token = page.get("next-page-token")
            if not token:
                return
            page_query["pageToken"] = token

    def submit(
        self,
        build: Callable[[], Request],
        properties: Mapping[str, str] | None = None,
        *,
        rebuilds: bool = False,
    ) -> Accepted:
        """Send a change until its outcome is known; see `frazil.client.send.submit`.

        `properties` are those of the table, whose retry settings apply unless the client has its
        own.
        """
        policy = SubmitPolicy(
            self._retry or RetryPolicy.of(properties or {}),
            RetryPolicy.of_status_checks(properties or {}),
            self.config.key_lifetime_s,
            self.clock,
            self._outages,
        )
        return submit(self._transport, build, policy, rebuilds=rebuilds)

    def retry_budget(self, properties: Mapping[str, str]) -> RetryBudget:
        """Return the retries of a statement on a table with these properties."""
        return RetryBudget(self._retry or RetryPolicy.of(properties), self.clock)

    def path(self, path: str) -> str:
        """Return the path with the catalog's prefix."""
        prefix = self._configured_prefix
        return f"{self.config.prefix if prefix is None else f'{prefix}/' if prefix else ''}{path}"

    def _read(
        self, request: Request, *, missing_is_answer: bool = False, waits: bool = True
    ) -> Answer:
        return read(
            self._transport,
            request,
            self._retry or RetryPolicy(),
            self.clock,
            self._outages if waits else Outages(policy=OutagePolicy(0.0)),
            missing_is_answer=missing_is_answer,
        )


def decode(answer: Answer, kind: type[T], failure: type[FrazilError] = FrazilError) -> T:
    """Decode the body of a response; raise `failure` if it has another shape.

    After a change `failure` is CommitStateUnknown: something answered, but not as the catalog does.
    """
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise failure(f"the catalog's answer is not what was asked for: {error}") from error


# --- names and paths ----------------------------------------------------------------------------


def namespace_of(name: NamespaceName) -> Namespace:
    """Parse `a.b` or `("a", "b")`; levels with dots need the second form."""
    return check_namespace(tuple(name.split(".")) if isinstance(name, str) else tuple(name))


def identifier_of(name: IdentifierName) -> Identifier:
    """Parse `a.b.t` or `("a", "b", "t")`, whose last part is the table."""
    if isinstance(name, Identifier):
        return name
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    return check_identifier(parts[:-1], parts[-1] if parts else "", "table")


def namespace_path(namespace: Namespace) -> str:
    return f"namespaces/{quote(NAMESPACE_SEPARATOR.join(namespace), safe='')}"


def tables_path(namespace: Namespace) -> str:
    return f"{namespace_path(namespace)}/tables"


def table_path(identifier: Identifier) -> str:
    return f"{tables_path(identifier.namespace)}/{quote(identifier.name, safe='')}"


def views_path(namespace: Namespace) -> str:
    return f"{namespace_path(namespace)}/views"


def view_path(identifier: Identifier) -> str:
    return f"{views_path(identifier.namespace)}/{quote(identifier.name, safe='')}"
