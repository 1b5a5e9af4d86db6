"""PyIceberg's REST catalog, with commits of declared files.

    load_catalog("prod", **{"py-catalog-impl": "frazil.pyiceberg.FrazilCatalog"})

Only commits differ. Sessions, authentication, namespaces, views and scans are PyIceberg's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
import pyiceberg.catalog
import requests
from pyiceberg.catalog import PY_CATALOG_IMPL, TOKEN, TYPE, URI, Catalog
from pyiceberg.catalog.rest import (
    AUTHORIZATION_HEADER,
    BEARER_PREFIX,
    CA_BUNDLE,
    SSL,
    Capability,
    Endpoints,
    RestCatalog,
    TableResponse,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.config import Config

from frazil.client.catalog_config import (
    CA_FILE_PROPERTY,
    CATALOG_VARIABLE,
    CLIENT_VARIABLES,
    URI_VARIABLE,
    outage_timeout_of,
    resolve_catalog,
)
from frazil.client.send.catalog_calls import CatalogConfig
from frazil.client.send.http_transport import DEFAULT_TIMEOUT_S, Request
from frazil.client.send.outages import OutagePolicy, Outages
from frazil.client.send.retry_policy import RetryPolicy
from frazil.client.send.submit import SubmitPolicy, submit
from frazil.pyiceberg.catalog_session import SessionTransport, make_patient
from frazil.pyiceberg.commit_messages import commit_body, commit_response, translated
from frazil.pyiceberg.frazil_transaction import (
    FrazilCreateTableTransaction,
    FrazilTable,
)
from frazil.pyiceberg.transaction_base import copy_as
from frazil.wire.errors import FrazilError
from frazil.wire.frazil_properties import REQUEST_TIMEOUT, check_catalog_properties

PREFIX: Final = "prefix"


class FrazilCatalog(RestCatalog):
    """The catalog for `py-catalog-impl: frazil.pyiceberg.FrazilCatalog`."""

    _key_lifetime_s: float | None = None
    """How long the server remembers an Idempotency-Key; None if it does not support keys."""

    def __init__(self, name: str, **properties: str) -> None:
        if PY_CATALOG_IMPL in properties and not _is_replaced_by_variables(name, properties):
            # PyIceberg's `load_catalog` passes the configured properties only to its own catalogs.
            properties = {**_configured(name), **properties}
        properties = {**_of_variables(properties), **properties}
        check_catalog_properties(properties)
        self._timeout_s = _timeout_s(properties)
        self._outages = Outages(properties.get(URI), OutagePolicy.of(outage_timeout_of(properties)))
        super().__init__(name, **properties)

    # --- tables ------------------------------------------------------------------------------

    def _response_to_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> Table:
        table = super()._response_to_table(identifier_tuple, table_response)
        return copy_as(FrazilTable, table)

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        table = super()._response_to_staged_table(identifier_tuple, table_response)
        table.config = table_response.config
        return table

    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        stock = super().create_table_transaction(
            identifier, schema, location, partition_spec, sort_order, properties
        )
        table = stock._table
        assert isinstance(table, StagedTable)
        return FrazilCreateTableTransaction(table)

    # --- commits -----------------------------------------------------------------------------

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Send a commit until its outcome is known, without ever applying it twice.

        A failed requirement is raised at once, because the same requirements would fail again.
        """
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        request = Request("POST", self._commit_path(table), commit_body(requirements, updates))
        try:
            policy = SubmitPolicy(
                RetryPolicy.of(table.metadata.properties),
                RetryPolicy.of_status_checks(table.metadata.properties),
                self._key_lifetime_s,
                outages=self._outages,
            )
            accepted = submit(self._transport(table), lambda: request, policy, rebuilds=False)
        except FrazilError as error:
            raise translated(error) from error
        return commit_response(accepted.answer.body)

    def _commit_path(self, table: Table) -> str:
        names = self._split_identifier_for_path(table.name())
        path = Endpoints.update_table.format(**names)
        prefix = self.properties.get(PREFIX, "").strip("/")
        return f"{prefix}/{path}" if prefix else path

    def _transport(self, table: Table) -> SessionTransport:
        token = table.config.get(TOKEN)
        headers = {AUTHORIZATION_HEADER: f"{BEARER_PREFIX} {token}"} if token else {}
        return SessionTransport(
            self._session,
            lambda path: self.url("", prefixed=False) + path,
            timeout_s=self._timeout_s,
            headers=headers,
            renew_token=self._refresh_token,
        )

    # --- the server's configuration ----------------------------------------------------------

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        session.hooks["response"].append(self._read_key_lifetime)
        make_patient(
            session,
            self._outages,
            base=lambda: self.url("", prefixed=False),
            timeout_s=self._timeout_s,
            key_lifetime_s=lambda: self._key_lifetime_s,
        )
        return session

    def _read_key_lifetime(self, answer: requests.Response, *_: Any, **__: Any) -> None:
        """Read the lifetime of idempotency keys, which PyIceberg ignores, from `/v1/config`."""
        if answer.status_code != 200 or not answer.url.split("?")[0].endswith("/v1/config"):
            return
        configuration = msgspec.json.decode(answer.content, type=CatalogConfig)
        self._key_lifetime_s = configuration.key_lifetime_s


def load_catalog(name: str | None = None, **properties: str | None) -> Catalog:
    """Load a catalog like PyIceberg, but also by the variables of Frazil's clients.

    A catalog without configuration is a FrazilCatalog at FRAZIL_URI. PyIceberg 0.12 reads
    `py-catalog-impl` only from the arguments; here the configuration may name it too.
    """
    if name is None:
        name = os.environ.get(CATALOG_VARIABLE) or Config().get_default_catalog_name()
    configured = _configured(name)
    implementation = configured.get(PY_CATALOG_IMPL)
    if not configured or _is_replaced_by_variables(name, properties):
        if not properties.keys() & {URI, TYPE, PY_CATALOG_IMPL}:
            return FrazilCatalog(name, **cast(dict[str, str], properties))
    elif implementation and PY_CATALOG_IMPL not in properties:
        properties = {**properties, PY_CATALOG_IMPL: implementation}
    return pyiceberg.catalog.load_catalog(name, **properties)


def _is_replaced_by_variables(name: str, properties: Mapping[str, object]) -> bool:
    """Return whether FRAZIL_URI wins over the configuration of this catalog.

    It wins over the default catalog, but not over one that the caller or FRAZIL_CATALOG names.
    """
    if URI in properties or not os.environ.get(URI_VARIABLE) or os.environ.get(CATALOG_VARIABLE):
        return False
    return bool(name == Config().get_default_catalog_name())


def _of_variables(properties: Properties) -> dict[str, Any]:
    """Return the address and what the variables of its server set, in PyIceberg's form."""
    resolved = resolve_catalog({URI: properties.get(URI)}).properties
    names = {each.property for each in CLIENT_VARIABLES}
    named: dict[str, Any] = {name: text for name, text in resolved.items() if name in names}
    ca_file = named.pop(CA_FILE_PROPERTY, None)
    return named if ca_file is None else {**named, SSL: {CA_BUNDLE: ca_file}}


def _configured(name: str) -> dict[str, Any]:
    """Return the properties of a catalog in the configuration file and the environment."""
    return dict(Config().get_catalog_config(name) or {})


def _timeout_s(properties: Properties) -> float:
    text = properties.get(REQUEST_TIMEOUT, DEFAULT_TIMEOUT_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{REQUEST_TIMEOUT}: {text!r} must be a number of seconds above 0")
    return seconds
