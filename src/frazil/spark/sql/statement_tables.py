"""Read the tables that one statement names, each at one snapshot, as frames."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table, schema_of
from frazil.client.declare.client_view import View, ViewVersion
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    METADATA_FIELDS,
    MIN_FORMAT_VERSION,
    ROW_ID,
)
from frazil.spark.conditions.sql_conditions import filter_of
from frazil.spark.core.analysis_errors import UNRESOLVED_COLUMN, at_position
from frazil.spark.core.name_matching import quoted
from frazil.spark.inspection.metadata_tables import METADATA_TABLES, metadata_frame
from frazil.spark.parse.sql_literals import Arguments
from frazil.spark.parse.sql_tokens import Edit, Name, apply_edits, position_before
from frazil.spark.parse.table_references import (
    QueryNeeds,
    Reference,
    needs_of,
    qualifier_edits,
    qualifiers_of,
    references,
    replaced,
    table_edits,
)
from frazil.spark.reading.frame_scans import scan_of, snapshot_of
from frazil.spark.reading.view_columns import with_view_columns
from frazil.spark.sql.catalog_views import CatalogViews, view_name, with_names
from frazil.spark.sql.table_names import (
    METADATA,
    Selector,
    SqlSession,
    has_catalog,
    load,
    possible_identifier,
)
from frazil.spark.sql.temporary_views import TemporaryView, is_same, is_temporary, remembered
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NoSuchTable
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier
from frazil.wire.near_names import name_hint

_ALL_COLUMNS: Final = QueryNeeds()
_NAME_WIDTH: Final = 64
"""The width of the names that PySpark gives to frames in a text, padded, so that it is known."""
_Loaded: TypeAlias = "tuple[Table, Selector | None] | View | TemporaryView | None"
"""What a name means; None: nothing that the catalog has."""


class StatementTables:
    """The tables that one statement reads, as frames.

    Each table is loaded once, so that all parts of the statement see the same snapshot. Use it in a
    `with` block: expressions outside of queries need temporary views, which are dropped at the end.
    """

    def __init__(self, session: SqlSession, pinned: Table | None = None) -> None:
        """Create it; `pinned` is the statement's target, which is not loaded again."""
        self._session = session
        self._catalog = session.catalog_name
        self._loaded: dict[Name, _Loaded] = {}
        self._tables: dict[Identifier, Table] = {}
        if pinned is not None:
            self._tables[pinned.identifier] = pinned
        self._frames: dict[tuple[object, ...], DataFrame] = {}
        self._views: dict[int, str] = {}
        self.catalog_views = CatalogViews(session)

    def __enter__(self) -> StatementTables:
        return self

    def __exit__(self, *_: object) -> None:
        for view in self._views.values():
            self._session.spark.catalog.dropTempView(view)

    # --- texts ------------------------------------------------------------------------------------

    def statement(self, text: str, args: Arguments = None) -> DataFrame:
        """Return the frame of a query that is the whole statement."""
        return self._query(text, args, needs_of(text, references(text)), is_whole=True)

    def query(self, text: str) -> DataFrame:
        """Return the frame of a query that is a part of a statement, or the text of a view."""
        return self._query(text, None, needs_of(text, references(text)), is_whole=False)

    def _query(self, text: str, args: Arguments, needs: QueryNeeds, *, is_whole: bool) -> DataFrame:
        tables = references(text)
        frames = self._frames_of(tables, needs)
        arguments: Any = list(args) if isinstance(args, tuple) else args
        names = {reference: f"frazil_{number}" for number, reference in enumerate(frames)}
        named_frames: dict[str, Any] = {
            names[reference]: frame for reference, frame in frames.items()
        }
        full_names = {reference: self._full_name(reference) for reference in frames}

        def edits(name: Callable[[str], str]) -> list[Edit]:
            new = {reference: name(names[reference]) for reference in frames}
            return table_edits(text, new, full_names)

        def position(line: int, column: int) -> str:
            if not is_whole:
                return ""
            line, column = position_before(text, edits(lambda _: " " * _NAME_WIDTH), line, column)
            return f"; line {line} pos {column}"

        fields = edits(lambda name: f"{{{name}:{_NAME_WIDTH}}}")
        try:
            if not frames:
                return self._session.spark.sql(text, arguments)
            edited = apply_edits(text, fields, _with_double_braces)
            return self._session.spark.sql(edited, arguments, **named_frames)
        except ParseException:
            if frames:
                # Spark shows the text that it could not parse. It should be the user's.
                self._session.spark.sql(text, arguments)
            raise
        except AnalysisException as error:
            if needs == _ALL_COLUMNS or error.getCondition() not in UNRESOLVED_COLUMN:
                self._refuse_unknown_metadata_tables(tables)
                raise at_position(error, position) from None
        # Spark suggests columns, of which it has not seen those that the query does not name.
        return self._query(text, args, _ALL_COLUMNS, is_whole=is_whole)

    def relation(self, text: str) -> DataFrame:
        """Return the frame of a text that can follow FROM."""
        return self.query(f"SELECT * FROM {text}")

    def expression(self, text: str, target: Identifier) -> str:
        """Return an expression whose subqueries read temporary views.

        Columns of the statement's target are qualified with the table's own name only.
        """
        frames = self._frames_of(references(text))
        views = {reference: self._view(frame) for reference, frame in frames.items()}
        full_names = {reference: self._full_name(reference) for reference in frames}
        edited = replaced(text, views, full_names)
        names = qualifiers_of((self._catalog, *target.namespace, target.name))
        return apply_edits(edited, qualifier_edits(edited, names))

    def reads(self, identifier: Identifier, *texts: str | None, relation: str = "") -> bool:
        """Return whether one of the texts, or the text after FROM, names the table.

        It may also name it through views.
        """
        tables = [table for text in texts if text is not None for table in references(text)]
        tables += references(relation, relation=True) if relation else ()
        return any(self._reads(self._load(table), identifier) for table in tables)

    def _reads(self, loaded: _Loaded, identifier: Identifier) -> bool:
        if isinstance(loaded, View):
            with self.catalog_views.text_of(loaded) as text:
                return self.reads(identifier, text)
        if isinstance(loaded, TemporaryView):
            return self.reads(identifier, loaded.text)
        return loaded is not None and loaded[0].identifier == identifier

    # --- tables -----------------------------------------------------------------------------------

    def _frames_of(
        self, tables: Sequence[Reference], needs: QueryNeeds = _ALL_COLUMNS
    ) -> dict[Reference, DataFrame]:
        frames = {reference: self._frame(reference, needs) for reference in tables}
        return {reference: frame for reference, frame in frames.items() if frame is not None}

    def _frame(self, reference: Reference, needs: QueryNeeds) -> DataFrame | None:
        loaded = self._load(reference)
        if loaded is None:
            if has_catalog(self._session, reference.name):
                self._refuse_unknown_metadata_tables([reference])
                name = ".".join(reference.name)
                raise NoSuchTable(f"Table does not exist: {name}")
            return None
        if isinstance(loaded, View | TemporaryView):
            return self._rows_of_view(reference, loaded)
        table, selector = loaded
        if selector is not None and selector.kind == METADATA:
            return self._metadata(reference, table, selector)
        snapshot = _snapshot_options(self._session, reference, selector)
        key = (table.identifier, needs, *sorted(snapshot.items()))
        if key not in self._frames:
            options = {**snapshot, **self._column_options(table, snapshot, needs)}
            self._frames[key] = scan_of(self._session.context, table, **options)
        return self._frames[key]

    def _rows_of_view(self, reference: Reference, view: View | TemporaryView) -> DataFrame:
        if reference.version is not None or reference.timestamp is not None:
            raise BadRequest(f"{view} is a view, so it has no version or time to read")
        key = (str(view), type(view))
        if key not in self._frames:
            if isinstance(view, TemporaryView):
                self._frames[key] = view.with_columns(self.query(view.text))
            else:
                with self.catalog_views.text_of(view) as text:
                    rows = self._analyzed(text, view.identifier)
                self._frames[key] = with_view_columns(rows, view)
        return self._frames[key]

    def complete(self, text: str) -> str:
        """Return a query with complete names for what the catalog has."""
        names: dict[Reference, Name] = {}
        for reference in references(text):
            loaded = self._load(reference)
            if isinstance(loaded, View):
                names[reference] = view_name(self._session, loaded.identifier)
            elif isinstance(loaded, tuple):
                table, selector = loaded
                last = () if selector is None else reference.name[-1:]
                identifier = table.identifier
                names[reference] = (self._catalog, *identifier.namespace, identifier.name, *last)
        return with_names(text, names)

    def reads_temporary(self, name: Name, text: str) -> bool:
        """Return whether a text reads the temporary view of a name, also through others."""
        for reference in references(text):
            if is_same(reference.name, name):
                return is_temporary(self._session, name)
            loaded = self._load(reference)
            if isinstance(loaded, TemporaryView) and self.reads_temporary(name, loaded.text):
                return True
        return False

    def query_of_view(self, text: str, version: ViewVersion, identifier: Identifier) -> DataFrame:
        """Return the frame of a text that becomes the query of a view."""
        with self.catalog_views.reading(identifier):
            return self._analyzed(self.catalog_views.complete(text, version), identifier)

    def _analyzed(self, text: str, view: Identifier) -> DataFrame:
        try:
            frame = self.query(text)
            _ = frame.schema  # Spark Connect analyzes a query when its schema is requested.
        except AnalysisException as error:
            raise BadRequest(f"the query of view {view} fails: {error}") from error
        return frame

    def _metadata(self, reference: Reference, table: Table, selector: Selector) -> DataFrame:
        context = self._session.context
        moment = _snapshot_options(self._session, reference, selector.moment)
        snapshot_id = snapshot_of(context, table, **moment) if moment else None
        key = (table.identifier, selector, snapshot_id)
        if key not in self._frames:
            self._frames[key] = metadata_frame(context, table, selector.value, snapshot_id)
        return self._frames[key]

    def _column_options(
        self, table: Table, snapshot: Mapping[str, Any], needs: QueryNeeds
    ) -> dict[str, Any]:
        """Return the options of a scan that limit it to the columns and rows that are needed."""
        schema = _schema_at(table, snapshot)
        if schema is None:
            return {}
        known = [field.name for field in schema.fields]
        options: dict[str, Any] = {
            "columns": needs.columns(known),
            "metadata_columns": needs.metadata_columns(known, _metadata_columns(table)),
        }
        if needs.where is not None:
            options["filter"] = filter_of(
                self._session.context, table, needs.where, alias=needs.alias, schema=schema
            ).expression
        return options

    def _refuse_unknown_metadata_tables(self, tables: Sequence[Reference]) -> None:
        """Raise NoSuchTable if a name is that of a table with another part after it."""
        for name in (reference.name for reference in tables if self._load(reference) is None):
            found = self._lookup(name[:-1]) if len(name) > 1 else None
            if isinstance(found, tuple) and found[1] is None:
                hint = name_hint(name[-1], sorted(METADATA_TABLES), "metadata tables")
                raise NoSuchTable(f"{found[0]} has no metadata table {name[-1]}: {hint}")

    def _full_name(self, reference: Reference) -> Name:
        loaded = self._load(reference)
        if isinstance(loaded, View):
            return view_name(self._session, loaded.identifier)
        if not isinstance(loaded, tuple) or loaded[1] is not None:
            return reference.name
        return (self._catalog, *loaded[0].identifier.namespace, reference.name[-1])

    def _load(self, reference: Reference) -> _Loaded:
        name = reference.name
        if name not in self._loaded:
            self._loaded[name] = self._lookup(name)
        return self._loaded[name]

    def _lookup(self, name: Name) -> _Loaded:
        if is_temporary(self._session, name):
            return remembered(self._session, name)
        identifier = possible_identifier(self._session, name)
        if identifier in self._tables:
            return self._tables[identifier], None
        try:
            loaded = load(self._session, name)
        except BadRequest:
            return None  # For example parquet.`/a/../b`, which cannot be a table of the catalog.
        if loaded is None:
            return None if identifier is None else self.catalog_views.load(identifier)
        table, selector = loaded
        return self._tables.setdefault(table.identifier, table), selector

    def _view(self, frame: DataFrame) -> str:
        """Create a temporary view with a unique name."""
        key = id(frame)
        if key not in self._views:
            self._views[key] = f"_frazil_{uuid.uuid4().hex}"
            frame.createOrReplaceTempView(self._views[key])
        return self._views[key]


def _with_double_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def frame_of_view(session: SqlSession, identifier: Identifier) -> DataFrame | None:
    """Return the rows of a view; None if the catalog has no view of this name."""
    with StatementTables(session) as tables:
        if tables.catalog_views.load(identifier) is None:
            return None
        return tables.relation(quoted(*view_name(session, identifier)))


def _snapshot_options(
    session: SqlSession, reference: Reference, selector: Selector | None
) -> dict[str, Any]:
    """Return the options of a scan that choose the snapshot."""
    version, timestamp = reference.version, reference.timestamp
    if selector is not None:
        if version is not None or timestamp is not None:
            raise BadRequest(f"{'.'.join(reference.name)} names a snapshot twice")
        return selector.scan_option
    if isinstance(version, int):
        return {"snapshot": version}
    if version is not None:
        return {"snapshot": int(version)} if version.isdigit() else {"ref": version}
    if timestamp is not None:
        return {"timestamp": milliseconds_of(session, timestamp)}
    return {}


def _metadata_columns(table: Table) -> list[str]:
    lineage = table.format_version >= MIN_FORMAT_VERSION
    return [name for name in METADATA_FIELDS if lineage or name not in (ROW_ID, LAST_UPDATED)]


def _schema_at(table: Table, snapshot: Mapping[str, Any]) -> StructType | None:
    """Return the schema that a scan uses; None if the loaded metadata does not determine it."""
    if "timestamp" in snapshot:
        return None
    if "snapshot" in snapshot:
        return schema_of(table, snapshot["snapshot"])
    ref = table.refs.get(snapshot.get("ref", MAIN))
    if ref is not None and ref.type == "tag":
        return schema_of(table, ref.snapshot_id)
    return table.schema


def milliseconds_of(session: SqlSession, expression: str) -> int:
    """Evaluate a constant expression to milliseconds from 1970."""
    text = f"SELECT unix_millis(CAST(({expression}) AS TIMESTAMP))"
    (row,) = session.spark.sql(text).collect()
    if row[0] is None:
        raise BadRequest(f"{expression} is not a timestamp")
    return int(row[0])
