"""Builders like those of PySpark: `session.read…table(…)` and `session.write_to(…)…`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame

from frazil.spark.core.context import setting_text
from frazil.spark.core.statement_runs import Result
from frazil.spark.inspection.metadata_tables import metadata_frame
from frazil.spark.reading.frame_scans import scan_of, snapshot_of
from frazil.spark.sql import table_creation
from frazil.spark.sql.statement_tables import frame_of_view
from frazil.spark.sql.table_names import (
    METADATA,
    Selector,
    SqlSession,
    identifier_of,
    load,
    name_of,
    possible_identifier,
    target_of,
)
from frazil.spark.table import SparkTable
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.wire.errors import BadRequest, NoSuchTable
from frazil.wire.expressions import Expression

_READ_OPTIONS: Final = {
    "snapshot-id": "snapshot",
    "versionasof": "snapshot",
    "as-of-timestamp": "timestamp",
    "timestampasof": "timestamp",
    "branch": "ref",
    "tag": "ref",
    "start-snapshot-id": "from_snapshot",
    "end-snapshot-id": "to_snapshot",
}
_IDS: Final = frozenset({"snapshot", "from_snapshot", "to_snapshot"})
_SNAPSHOT_PROPERTY: Final = "snapshot-property."
_WRITE_OPTIONS: Final = (
    "branch",
    "mergeSchema",
    "target-file-size-bytes",
    "distribution-mode",
    "isolation-level",
    "zorder",
    "engine",
    f"{_SNAPSHOT_PROPERTY}<name>",
)
_FORMATS: Final = frozenset({"iceberg", "frazil"})
_SHOWN_COLUMN: Final = re.compile(r"Column<'(.*)'>", re.DOTALL)


@dataclass(frozen=True)
class FrameReader:
    """Reads a table; each method but `table` returns a new reader."""

    session: SqlSession
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Values by the option's name in lower case."""

    def option(self, key: str, value: Any) -> FrameReader:
        if key.lower() not in _READ_OPTIONS:
            raise BadRequest(f"option {key} is not known; there are {', '.join(_READ_OPTIONS)}")
        return replace(self, chosen={**self.chosen, key.lower(): value})

    def options(self, **options: Any) -> FrameReader:
        reader = self
        for key, value in options.items():
            reader = reader.option(key, value)
        return reader

    def table(self, name: str) -> DataFrame:
        loaded = load(self.session, name_of(name))
        if loaded is None:
            identifier = possible_identifier(self.session, name_of(name))
            view = None if identifier is None else frame_of_view(self.session, identifier)
            if view is None:
                raise NoSuchTable(f"Table does not exist: {name}")
            if self.chosen:
                raise BadRequest(f"{name} is a view, so it has no option {', '.join(self.chosen)}")
            return view
        table, selector = loaded
        if selector is not None and selector.kind == METADATA:
            context, moment = self.session.context, self._moment(selector.moment)
            if moment.keys() & {"from_snapshot", "to_snapshot"}:
                raise BadRequest(f"{name}: a metadata table shows one snapshot")
            snapshot_id = snapshot_of(context, table, **moment) if moment else None
            return metadata_frame(context, table, selector.value, snapshot_id)
        return scan_of(self.session.context, table, **self._moment(selector))

    def _moment(self, selector: Selector | None) -> dict[str, Any]:
        moment: dict[str, Any] = {}
        for key, value in self.chosen.items():
            argument = _READ_OPTIONS[key]
            if argument in moment:
                raise BadRequest(f"option {key} names a snapshot that another option names too")
            moment[argument] = _moment_value(key, argument, value)
        if selector is not None:
            if moment:
                raise BadRequest("the table's name names a snapshot, and so does an option")
            return selector.scan_option
        return moment


def _moment_value(key: str, argument: str, value: Any) -> Any:
    if argument in _IDS:
        return _whole(key, value)
    if argument == "timestamp" and not isinstance(value, datetime):
        return int(value) if str(value).isdigit() else str(value)
    return value


def _whole(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadRequest(f"option {key}: {value!r} is not a whole number") from None


@dataclass(frozen=True)
class TableWriter:
    """Writes a frame; each method but the last returns a new writer."""

    session: SqlSession
    frame: DataFrame
    table: str
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Options as the user has written them."""
    properties: Mapping[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()

    def using(self, provider: str) -> TableWriter:
        if provider.lower() not in _FORMATS:
            raise BadRequest(f"using {provider}: tables of this catalog are Iceberg's")
        return self

    def option(self, key: str, value: Any) -> TableWriter:
        return replace(self, chosen={**self.chosen, key: setting_text(value)})

    def options(self, **options: Any) -> TableWriter:
        writer = self
        for key, value in options.items():
            writer = writer.option(key, value)
        return writer

    def tableProperty(self, key: str, value: str) -> TableWriter:  # noqa: N802 - PySpark's name
        return replace(self, properties={**self.properties, key: str(value)})

    def partitionedBy(self, *terms: str | Column) -> TableWriter:  # noqa: N802 - PySpark's name
        """Set the partition: `"day(ts)"`, `"bucket(16, id)"`, or PySpark's `partitioning.days`."""
        return replace(self, partitioned_by=tuple(_term(term) for term in terms))

    def sortedBy(self, *terms: str) -> TableWriter:  # noqa: N802 - as the others
        """Set the table's sort order: `"ts desc"`, `"id"`."""
        return replace(self, sorted_by=terms)

    # --- writing ----------------------------------------------------------------------------------

    def append(self) -> Result:
        return self._write(SparkTable.append)

    def overwrite(self, condition: str | Column | Expression) -> Result:
        return self._write(SparkTable.overwrite, condition)

    def overwritePartitions(self) -> Result:  # noqa: N802 - PySpark's name
        return self._write(SparkTable.overwrite_partitions)

    def create(self) -> Result:
        return self._define(table_creation.create_table_as)

    def replace(self) -> Result:
        return self._define(table_creation.replace_table_as)

    def createOrReplace(self) -> Result:  # noqa: N802 - PySpark's name
        return self._define(partial(table_creation.replace_table_as, or_create=True))

    def _write(self, method: Callable[..., Result], *arguments: Any) -> Result:
        branch, merge_schema, options, commit_options = _parsed_options(self.chosen)
        target = target_of(self.session, name_of(self.table))
        branch = target.branch if branch is None else branch
        table = SparkTable(self.session.context, target.identifier, branch)
        arguments = (self.frame, *arguments)
        return method(
            table, *arguments, merge_schema=merge_schema, options=options, **commit_options
        )

    def _define(self, write_as: Callable[..., Result]) -> Result:
        _, _, options, commit_options = _parsed_options(self.chosen)
        definition = table_creation.Definition(
            partitioned_by=self.partitioned_by,
            sorted_by=self.sorted_by,
            location=self.properties.get("location"),
            properties={key: text for key, text in self.properties.items() if key != "location"},
        )
        identifier = identifier_of(self.session, name_of(self.table))
        return write_as(
            self.session.context,
            identifier,
            self.frame,
            definition,
            options=options,
            commit_options=commit_options,
        )


def _parsed_options(
    options: Mapping[str, str],
) -> tuple[str | None, bool, WriteOptions, dict[str, Any]]:
    """Return branch, mergeSchema, the options of the write, and those of the commit."""
    known = {key.lower(): text for key, text in options.items()}
    properties = {
        key[len(_SNAPSHOT_PROPERTY) :]: text
        for key, text in options.items()
        if key.lower().startswith(_SNAPSHOT_PROPERTY)
    }
    branch = known.pop("branch", None)
    merge = known.pop("mergeschema", known.pop("merge-schema", "false"))
    size = known.pop("target-file-size-bytes", None)
    zorder = known.pop("zorder", "")
    write_options = WriteOptions(
        engine=known.pop("engine", None),
        distribution=known.pop("distribution-mode", None),
        zorder=tuple(part.strip() for part in zorder.split(",") if part.strip()),
        target_file_size_bytes=None if size is None else _whole("target-file-size-bytes", size),
    )
    commit_options: dict[str, Any] = {"summary": properties} if properties else {}
    isolation = known.pop("isolation-level", None)
    if isolation is not None:
        commit_options["isolation"] = isolation
    unknown = [key for key in known if not key.startswith(_SNAPSHOT_PROPERTY)]
    if unknown:
        names = ", ".join(_WRITE_OPTIONS)
        raise BadRequest(f"option {', '.join(unknown)} is not known; there are {names}")
    return branch, merge.lower() == "true", write_options, commit_options


def _term(term: str | Column) -> str:
    if isinstance(term, str):
        return term
    matched = _SHOWN_COLUMN.fullmatch(repr(term))
    if matched is None:
        raise BadRequest(f"partitionedBy: {term!r}: give a text such as 'day(ts)'")
    return matched[1]
