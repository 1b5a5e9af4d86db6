"""Read the views of the catalog: their texts, in which every name is complete.

By Iceberg's specification, names in the text of a view belong to the catalog and the namespace that
its version names, and not to those of the reader. Temporary views are never meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from frazil.client.declare.client_view import View, ViewVersion
from frazil.spark.core.name_matching import quoted
from frazil.spark.parse.sql_tokens import Name
from frazil.spark.parse.table_references import Reference, references, replaced
from frazil.spark.sql.table_names import SqlSession, has_catalog
from frazil.wire.errors import BadRequest, NoSuchNamespace, NoSuchView, NotFound
from frazil.wire.identifiers import Identifier, Namespace

MAX_DEPTH: Final = 100
"""As many as Spark follows by default."""
_SESSION_CATALOG: Final = "spark_catalog"


class CatalogViews:
    """The views that one statement reads, each loaded once."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._loaded: dict[Identifier, View | None] = {}
        self._path: list[Identifier] = []
        """The views that are being expanded, each read by the one before it."""

    def load(self, identifier: Identifier) -> View | None:
        """Return a view; None if the catalog has none of this name."""
        if identifier not in self._loaded:
            try:
                self._loaded[identifier] = self._session.client.load_view(identifier)
            except (NoSuchView, NoSuchNamespace):
                self._loaded[identifier] = None
        return self._loaded[identifier]

    @contextmanager
    def text_of(self, view: View) -> Iterator[str]:
        """Return the view's text with complete names, while what it reads is looked up."""
        with self.reading(view.identifier):
            yield self.complete(view.current_version.sql(), view.current_version)

    @contextmanager
    def reading(self, identifier: Identifier) -> Iterator[None]:
        """Add a view to the path; raise BadRequest if it reads itself."""
        path = [*self._path, identifier]
        if identifier in self._path:
            names = " -> ".join(str(view) for view in path[path.index(identifier) :])
            raise BadRequest(f"the view {identifier} reads itself: {names}")
        if len(path) > MAX_DEPTH:
            raise BadRequest(f"the view {path[0]} reads views through more than {MAX_DEPTH} others")
        self._path.append(identifier)
        try:
            yield
        except NotFound as error:
            raise type(error)(f"view {identifier}: {error.message}") from error
        finally:
            self._path.pop()

    def complete(self, text: str, version: ViewVersion) -> str:
        """Return a view's text with catalog and namespace before each table."""
        full_names: dict[Reference, Name] = {}
        for reference in references(text):
            name = self._full_name(reference.name, version)
            if name is not None:
                full_names[reference] = name
        return with_names(text, full_names)

    def _full_name(self, name: Name, version: ViewVersion) -> Name | None:
        """Return the name with catalog and namespace; None if it is complete."""
        own_catalog = self._session.catalog_name
        if has_catalog(self._session, name):
            # `frazil.t` can only mean a namespace frazil: no table is without a namespace.
            return None if len(name) > 2 else (own_catalog, *name)
        if len(name) > 1 and self._is_spark_catalog(name[0]):
            return None
        namespace: Namespace = version.default_namespace if len(name) == 1 else ()
        full = (*namespace, *name)
        catalog = version.default_catalog
        if catalog is None or catalog.lower() == own_catalog.lower():
            if len(full) == 1:
                raise NotFound(f"{name[0]} has no namespace, and the view has no default namespace")
            if len(name) > 2 and not self._session.client.namespace_exists(name[:1]):
                raise self._unknown_catalog(name, name[0])
            return (own_catalog, *full)
        if not self._is_spark_catalog(catalog):
            raise self._unknown_catalog(name, catalog)
        if catalog.lower() == _SESSION_CATALOG and len(full) > 2:
            raise self._unknown_catalog(name, name[0])
        return (catalog, *full)

    def _unknown_catalog(self, name: Name, catalog: str) -> NotFound:
        own_catalog = self._session.catalog_name
        return NotFound(
            f"{'.'.join(name)} belongs to the catalog {catalog}, which this session does not have. "
            f"If it is the one that is called {own_catalog} here, connect with "
            f"sql_catalog={catalog!r}; if it is another one, set spark.sql.catalog.{catalog}"
        )

    def _is_spark_catalog(self, name: str) -> bool:
        if name.lower() == _SESSION_CATALOG:
            return True
        return self._session.spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def with_names(text: str, names: Mapping[Reference, Name]) -> str:
    """Return a query with other names for its tables; columns may use the old ones."""
    new = {
        reference: quoted(*name) + text[reference.name_end : reference.end]
        for reference, name in names.items()
    }
    return replaced(text, new, names)


def view_name(session: SqlSession, identifier: Identifier) -> Name:
    """Return the complete name of a view."""
    return (session.catalog_name, *identifier.namespace, identifier.name)
