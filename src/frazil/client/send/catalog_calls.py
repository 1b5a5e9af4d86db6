"""Requests to one catalog: reads, which may be repeated freely, and changes, which carry a key.

The paths of namespaces and tables are made of their names here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote, unquote

import msgspec

from frazil.client.send.http_transport import Answer, Request, Transport
from frazil.client.send.outages import OUTAGE_TIMEOUT_S, OutagePolicy, Outages
from frazil.client.send.retry_policy import Clock, RetryBudget, RetryPolicy
from frazil.client.send.submit import Accepted, SubmitPolicy, read, submit
from frazil.wire.errors import FrazilError, NoSuchNamespace, NoSuchTable, NoSuchView
from frazil.wire.identifiers import Identifier, Namespace, check_identifier, check_namespace
from frazil.wire.near_names import near_name

T = TypeVar("T")

NamespaceName: TypeAlias = "str | tuple[str, ...]"
IdentifierName: TypeAlias = "str | tuple[str, ...] | Identifier"

PAGE_SIZE: Final = 1_000
NAMESPACE_SEPARATOR: Final = "\x1f"
OWN_ROUTES: Final = "/frazil/v1/"
"""Where the routes begin that the REST specification does not know."""


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
        request = Request("GET", self.path(path), headers=headers or {}, query=query or {})
        with self.hints(path):
            return self._read(request)

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

    def cancel(
        self, path: str, query: Mapping[str, str] | None = None, *, waits: bool = True
    ) -> None:
        """Send a DELETE that is safe to repeat."""
        request = Request("DELETE", self.path(path), query=query or {})
        self._read(request, missing_is_answer=True, waits=waits)

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
        """Return the path with the catalog's prefix, which Frazil's own routes do not have."""
        if path.startswith(OWN_ROUTES):
            return path
        prefix = self._configured_prefix
        return f"{self.config.prefix if prefix is None else f'{prefix}/' if prefix else ''}{path}"

    @contextmanager
    def hints(self, path: str) -> Iterator[None]:
        """Say in the error about a missing name of `path` which one was probably meant."""
        try:
            yield
        except (NoSuchNamespace, NoSuchTable, NoSuchView) as error:
            levels, kind, name = _names_of(path)
            try:
                if isinstance(error, NoSuchNamespace):
                    hint = self._near_namespace(levels)
                else:
                    hint = self._near_relation(levels, kind, name)
            except FrazilError:
                hint = ""  # The error itself matters more than its hint.
            error.message += hint
            error.args = (error.message,)
            raise

    def _near_relation(self, namespace: Namespace, kind: str, name: str) -> str:
        if not name:
            return ""
        other = {"tables": "views", "views": "tables"}[kind]
        path = self.path(f"{namespace_path(namespace)}/{other}/{quote(name, safe='')}")
        if self._read(Request("HEAD", path), missing_is_answer=True, waits=False).status != 404:
            return f": it is a {other.removesuffix('s')}"
        try:
            found = self._first_page(f"{namespace_path(namespace)}/{kind}")["identifiers"]
        except NoSuchNamespace as missing:
            return f": {missing.message}{self._near_namespace(namespace)}"
        return _did_you_mean(namespace, name, [each["name"] for each in found])

    def _near_namespace(self, levels: Namespace) -> str:
        if not levels:
            return ""
        *parent, name = levels
        query = {"parent": NAMESPACE_SEPARATOR.join(parent)} if parent else {}
        try:
            found = self._first_page("namespaces", query)["namespaces"]
        except NoSuchNamespace:
            return self._near_namespace(tuple(parent))
        return _did_you_mean(parent, name, [each[-1] for each in found])

    def _first_page(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the first names of a list, without a wait for them."""
        page = {**(query or {}), "pageToken": "", "pageSize": str(self._page_size)}
        answer = self._read(Request("GET", self.path(path), query=page), waits=False)
        return decode(answer, dict[str, Any])

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


def _names_of(path: str) -> tuple[Namespace, str, str]:
    """Return the namespace in a path, `tables` or `views`, and the name; empty if it has none."""
    parts = path.removeprefix(OWN_ROUTES).split("/")
    first, namespace, kind, name, *_ = [*parts, "", "", ""]
    if first != "namespaces" or not namespace:
        return (), "", ""
    return tuple(unquote(namespace).split(NAMESPACE_SEPARATOR)), kind, unquote(name)


def _did_you_mean(parent: Sequence[str], name: str, names: Sequence[str]) -> str:
    near = None if name in names else near_name(name, names)
    return "" if near is None else f": did you mean {'.'.join((*parent, near))!r}?"


def tables_path(namespace: Namespace) -> str:
    return f"{namespace_path(namespace)}/tables"


def table_path(identifier: Identifier) -> str:
    return f"{tables_path(identifier.namespace)}/{quote(identifier.name, safe='')}"


def own_table_path(identifier: Identifier) -> str:
    return f"{OWN_ROUTES}{table_path(identifier)}"


def views_path(namespace: Namespace) -> str:
    return f"{namespace_path(namespace)}/views"


def view_path(identifier: Identifier) -> str:
    return f"{views_path(identifier.namespace)}/{quote(identifier.name, safe='')}"
