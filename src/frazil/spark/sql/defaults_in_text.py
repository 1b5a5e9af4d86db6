"""DEFAULT where a value could stand, as the literal that it means."""

from __future__ import annotations

from frazil.client.declare.client_table import Table
from frazil.spark.parse.sql_literals import string_literal
from frazil.spark.parse.sql_tokens import Cursor
from frazil.spark.schema.spark_types import spark_type
from frazil.values.single_value import to_json
from frazil.values.types import NestedField, TypeId
from frazil.wire.errors import BadRequest

DEFAULT = "DEFAULT"


class DefaultValues:
    """The write defaults of a table's columns."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._fields = {one.name.lower(): one for one in table.schema.fields}

    def value(self, column: str, text: str) -> str | None:
        """The default's text, where the word is all that the text has."""
        if text.strip().upper() != DEFAULT:
            return None
        known = self._fields.get(column.lower())
        if known is None:
            raise BadRequest(f"{self._table} has no column {column} that could have a default")
        return literal_of_default(known)

    def in_rows(self, query: str, columns: list[str]) -> str:
        """VALUES with the defaults put in; any other query as it is."""
        cursor = Cursor(query)
        if not cursor.accept("VALUES"):
            return query
        edits: list[tuple[int, int, str]] = []
        while True:
            if cursor.at("("):
                edits += self._in_row(cursor, columns)
            else:
                cursor.until("a row", ",")
            if not cursor.accept(","):
                break
        for start, end, new in reversed(edits):
            query = query[:start] + new + query[end:]
        return query

    def _in_row(self, cursor: Cursor, columns: list[str]) -> list[tuple[int, int, str]]:
        cursor.expect("(")
        edits = []
        place = 0
        while True:
            first = cursor.peek()
            text = cursor.until("a value", ",")
            if text.upper() == DEFAULT and place < len(columns):
                assert first is not None
                new = self.value(columns[place], text)
                assert new is not None
                edits.append((first.start, first.end, new))
            place += 1
            if not cursor.accept(","):
                break
        cursor.expect(")")
        return edits


def literal_of_default(known: NestedField) -> str:
    """NULL for a column that has none, as in Spark."""
    if known.type.is_nested or known.type.type_id is TypeId.UNKNOWN:
        return "NULL"
    kind = spark_type(known.type).simpleString()
    if known.write_default is None:
        return f"CAST(NULL AS {kind})"
    if known.type.type_id in (TypeId.BINARY, TypeId.FIXED):
        return f"X'{known.write_default.hex()}'"
    value = to_json(known.type, known.write_default)
    return f"CAST({string_literal(str(value))} AS {kind})"
