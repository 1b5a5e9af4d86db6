"""What an INSERT writes: the query's columns under the table's names, and what they replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.spark.ddl.partition_editing import VOID
from frazil.spark.parse.parsed_statements import Insert
from frazil.spark.parse.table_references import quoted
from frazil.spark.sql.defaults_in_text import DefaultValues
from frazil.spark.sql.statement_tables import Reading
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from frazil.spark.session import Session

MODE_SETTING: Final = "spark.sql.sources.partitionOverwriteMode"


class Insertion:
    def __init__(self, session: Session, table: Table, statement: Insert) -> None:
        self._session = session
        self._table = table
        self._statement = statement
        self._static = {
            self._column(name): text for name, text in statement.partition if text is not None
        }
        self._check_partition()

    def frame(self, reading: Reading) -> DataFrame:
        """The rows, with columns by name."""
        statement = self._statement
        if statement.by_name:
            return self._with_static(reading.query(statement.query))
        names = self._positions()
        text = DefaultValues(self._table).in_rows(statement.query, names)
        frame = reading.query(text)
        found = frame.columns
        if len(found) != len(names) and not (statement.merge_schema and len(found) > len(names)):
            raise BadRequest(
                f"{self._table} takes {len(names)} columns here ({', '.join(names)}), "
                f"the query has {len(found)} ({', '.join(found)})"
            )
        return self._with_static(frame.toDF(*names, *found[len(names) :]))

    @property
    def replaces_partitions(self) -> bool:
        """As Spark decides it: dynamic, unless PARTITION (…) says all values."""
        mode = str(self._session.spark.conf.get(MODE_SETTING, "static"))
        fields = [one for one in self._table.spec()["fields"] if one["transform"] != VOID]
        return mode.lower() == "dynamic" and len(fields) > len(self._static)

    @property
    def static_condition(self) -> str | None:
        """What PARTITION (…) says of the rows that go; None: all of them."""
        parts = [
            f"{quoted(name)} IS NULL"
            if text.strip().upper() == "NULL"
            else f"{quoted(name)} = {text}"
            for name, text in self._static.items()
        ]
        return " AND ".join(parts) or None

    # --- how --------------------------------------------------------------------------------------

    def _positions(self) -> list[str]:
        """The columns that the query gives, in its order."""
        if self._statement.columns:
            return [self._column(name) for name in self._statement.columns]
        return [one.name for one in self._table.schema.fields if one.name not in self._static]

    def _with_static(self, frame: DataFrame) -> DataFrame:
        for name, text in self._static.items():
            frame = frame.withColumn(name, fn.expr(text))
        return frame

    def _column(self, name: str) -> str:
        fields = self._table.schema.fields
        for known in fields:
            if known.name.lower() == name.lower():
                return known.name
        known_names = ", ".join(one.name for one in fields)
        raise BadRequest(f"{self._table} has no column {name}; it has {known_names}")

    def _check_partition(self) -> None:
        sources = {one.field_id: one.name for one in self._table.schema.fields}
        identity = {
            sources.get(one["source-id"])
            for one in self._table.spec()["fields"]
            if one["transform"] == "identity"
        }
        for name, _ in self._statement.partition:
            if self._column(name) not in identity:
                known = ", ".join(sorted(one for one in identity if one)) or "none"
                raise BadRequest(
                    f"PARTITION ({name}): {self._table} is not partitioned by that column itself; "
                    f"columns that it is partitioned by: {known}"
                )
