"""The catalog's tables that one statement reads: each at one snapshot, as frames under names that
Spark knows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    METADATA_FIELDS,
    MIN_FORMAT_VERSION,
    ROW_ID,
)
from frazil.spark.conditions.sql_conditions import convert, is_case_sensitive
from frazil.spark.parse.sql_tokens import Name
from frazil.spark.parse.table_references import (
    QueryNeeds,
    Reference,
    needs_of,
    qualifier_edits,
    qualifiers_of,
    references,
    replaced,
)
from frazil.spark.reading.frame_scans import scan_of, schema_of
from frazil.spark.sql.result_frames import metadata_frame
from frazil.spark.sql.table_names import (
    CATALOG,
    METADATA,
    Selector,
    has_catalog,
    load,
    possible_identifier,
)
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NoSuchTable
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.spark.session import Session


ALL: Final = QueryNeeds()


class Reading:
    """Loads each table once, so that all of a statement sees the same snapshot of it.

    In a `with` block, because expressions outside of queries need temporary views.
    """

    def __init__(self, session: Session, pinned: Table | None = None) -> None:
        """`pinned`: the statement's target, which is read as it was loaded."""
        self._session = session
        self._loaded: dict[Name, tuple[Table, Selector | None] | None] = {}
        self._tables: dict[Identifier, Table] = {}
        if pinned is not None:
            self._tables[pinned.identifier] = pinned
        self._frames: dict[tuple[object, ...], DataFrame] = {}
        self._views: dict[int, str] = {}

    def __enter__(self) -> Reading:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for view in self._views.values():
            self._session.spark.catalog.dropTempView(view)

    # --- texts ------------------------------------------------------------------------------------

    def query(self, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None) -> DataFrame:
        """The frame of a query."""
        named = references(text)
        found = self._frames_of(named, needs_of(text, named))
        names = {reference: f"frazil_{number}" for number, reference in enumerate(found)}
        spark = self._session.spark
        given: Any = list(args) if isinstance(args, tuple) else args
        if not found:
            return spark.sql(text, given)
        fields = {reference: f"{{{name}}}" for reference, name in names.items()}
        frames: dict[str, Any] = {name: found[reference] for reference, name in names.items()}
        full_names = {reference: self._full_name(reference) for reference in found}
        return spark.sql(replaced(text, fields, full_names, braces=True), given, **frames)

    def relation(self, text: str) -> DataFrame:
        """The frame of what could stand behind FROM."""
        return self.query(f"SELECT * FROM {text}")

    def expression(self, text: str, target: Identifier) -> str:
        """An expression whose queries read views, and whose columns call the statement's target by
        its own name alone."""
        found = self._frames_of(references(text))
        views = {one: self._view(frame) for one, frame in found.items()}
        edited = replaced(text, views, {one: self._full_name(one) for one in found})
        names = qualifiers_of((CATALOG, *target.namespace, target.name))
        for start, end, new in reversed(qualifier_edits(edited, names)):
            edited = edited[:start] + new + edited[end:]
        return edited

    def reads(self, identifier: Identifier, *texts: str | None, relation: str = "") -> bool:
        """Whether one of the texts, or what stands behind FROM, names the table."""
        named = [one for text in texts if text is not None for one in references(text)]
        named += references(relation, relation=True) if relation else ()
        return any(
            found is not None and found[0].identifier == identifier
            for found in (self._load(one) for one in named)
        )

    # --- tables -----------------------------------------------------------------------------------

    def _frames_of(
        self, named: Sequence[Reference], needs: QueryNeeds = ALL
    ) -> dict[Reference, DataFrame]:
        found = {reference: self._frame(reference, needs) for reference in named}
        return {one: frame for one, frame in found.items() if frame is not None}

    def _frame(self, reference: Reference, needs: QueryNeeds) -> DataFrame | None:
        found = self._load(reference)
        if found is None:
            if has_catalog(reference.name):
                name = ".".join(reference.name)
                raise NoSuchTable(f"Table does not exist: {name}")
            return None
        table, selector = found
        if selector is not None and selector.kind == METADATA:
            return self._metadata(reference, table, selector)
        moment = _moment(self._session, reference, selector)
        key = (table.identifier, needs, *sorted(moment.items()))
        if key not in self._frames:
            part = self._part(table, moment, needs)
            self._frames[key] = scan_of(self._session.context, table, **moment, **part)
        return self._frames[key]

    def _metadata(self, reference: Reference, table: Table, selector: Selector) -> DataFrame:
        if reference.version is not None or reference.timestamp is not None:
            raise BadRequest(f"{'.'.join(reference.name)}: only a table's rows have versions")
        key = (table.identifier, selector)
        if key not in self._frames:
            spark = self._session.spark
            self._frames[key] = metadata_frame(spark, table, selector.value)
        return self._frames[key]

    def _part(self, table: Table, moment: Mapping[str, Any], needs: QueryNeeds) -> dict[str, Any]:
        """What of the table must be read, as the options of a scan."""
        schema = _schema_at(table, moment)
        if schema is None:
            return {}
        known = [field.name for field in schema.fields]
        part: dict[str, Any] = {
            "columns": needs.columns(known),
            "metadata_columns": needs.metadata_columns(known, _metadata_columns(table)),
        }
        if needs.where is not None:
            context = self._session.context
            part["filter"] = convert(
                needs.where,
                schema,
                alias=needs.alias,
                case_sensitive=is_case_sensitive(context),
                time_zone=context.time_zone,
            ).expression
        return part

    def _full_name(self, reference: Reference) -> Name:
        found = self._load(reference)
        if found is None or found[1] is not None:
            return reference.name
        return (CATALOG, *found[0].identifier.namespace, reference.name[-1])

    def _load(self, reference: Reference) -> tuple[Table, Selector | None] | None:
        name = reference.name
        if name not in self._loaded:
            self._loaded[name] = self._found(name)
        return self._loaded[name]

    def _found(self, name: Name) -> tuple[Table, Selector | None] | None:
        if len(name) == 1 and self._is_view(name[0]):
            return None
        identifier = possible_identifier(self._session, name)
        if identifier in self._tables:
            return self._tables[identifier], None
        try:
            found = load(self._session, name)
        except BadRequest:
            return None  # Such as parquet.`/a/../b`: no name that the catalog could have.
        if found is None:
            return None
        table, selector = found
        return self._tables.setdefault(table.identifier, table), selector

    def _is_view(self, name: str) -> bool:
        """Spark's temporary views hide tables, as they do in Spark."""
        try:
            return bool(self._session.spark.catalog.getTable(name).isTemporary)
        except AnalysisException:
            return False

    def _view(self, frame: DataFrame) -> str:
        """Of a name that nobody else has."""
        key = id(frame)
        if key not in self._views:
            self._views[key] = f"_frazil_{uuid.uuid4().hex}"
            frame.createOrReplaceTempView(self._views[key])
        return self._views[key]


def _moment(session: Session, reference: Reference, selector: Selector | None) -> dict[str, Any]:
    """Which snapshot, as the options of a scan."""
    version, timestamp = reference.version, reference.timestamp
    if selector is not None:
        if version is not None or timestamp is not None:
            raise BadRequest(f"{'.'.join(reference.name)} names a snapshot twice")
        if selector.kind == "snapshot_id":
            return {"snapshot": int(selector.value)}
        if selector.kind == "at_timestamp":
            return {"timestamp": int(selector.value)}
        return {"ref": selector.value}
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


def _schema_at(table: Table, moment: Mapping[str, Any]) -> StructType | None:
    """The columns that a query sees; None where that takes more than the table's metadata."""
    if "timestamp" in moment:
        return None
    if "snapshot" in moment:
        return schema_of(table, moment["snapshot"])
    ref = table.refs.get(moment.get("ref", MAIN))
    if ref is not None and ref.type == "tag":
        return schema_of(table, ref.snapshot_id)
    return table.schema


def milliseconds_of(session: Session, expression: str) -> int:
    """A constant expression as a moment."""
    text = f"SELECT unix_millis(CAST(({expression}) AS TIMESTAMP))"
    (row,) = session.spark.sql(text).collect()
    if row[0] is None:
        raise BadRequest(f"{expression} is not a timestamp")
    return int(row[0])
