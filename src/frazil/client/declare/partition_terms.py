"""Build partition specs and sort orders from the terms of SQL, and edit partition specs.

Terms look like `partitioned_by=["day(ts)", "bucket(16, id)"]` and
`sorted_by=["ts desc nulls last", "id"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from frazil.client.declare.schema_updates import next_id
from frazil.client.declare.text_cursor import quoted
from frazil.values.transforms import InvalidTransform, Unknown, nearest_transform, parse_transform
from frazil.values.types import NestedField, StructType, fields_by_id
from frazil.wire.errors import BadRequest
from frazil.wire.near_names import no_column

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

VOID: Final = "void"
_FIRST_PARTITION_ID: Final = 1000
_CALL: Final = re.compile(r"\s*([A-Za-z_]+)\s*\(\s*(.*?)\s*\)\s*\Z", re.DOTALL)
_DIRECTION: Final = re.compile(
    r"(?P<term>.*?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_TIMES: Final = ("year", "month", "day", "hour")
_ALIASES: Final = {**{f"{time}s": time for time in _TIMES}, "date": "day", "date_hour": "hour"}
_PARAMETER: Final = re.compile(r"(\w+)\[(\d+)\]")
_SINGLE_NAME: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+)\s*\Z")
_SUFFIXES: Final = {"truncate": "trunc"}
_WITH_PARAMETER: Final = frozenset({"bucket", "truncate"})


def partition_spec(
    schema: StructType, terms: Iterable[str], *, option: str = "partitioned_by"
) -> dict[str, Any]:
    """Return the JSON of the partition spec of a new table; messages name the `option`."""
    fields = []
    for position, term in enumerate(terms):
        transform, source, name = _term(schema, term, option)
        fields.append(
            {
                "source-id": source.field_id,
                "field-id": _FIRST_PARTITION_ID + position,
                "transform": transform,
                "name": partition_name(transform, name),
            }
        )
    return {"spec-id": 0, "fields": fields}


def spec_terms(table: Table) -> list[str]:
    """Return the default spec as terms of CREATE TABLE; the inverse of `partition_spec`."""
    columns = fields_by_id(table.schema)
    return [
        term_text(str(field["transform"]), columns[field["source-id"]].name)
        for field in table.spec()["fields"]
        if field["transform"] != VOID
    ]


def term_text(transform: str, source: str) -> str:
    """Return a transform of a column as text."""
    column = ".".join(part if part.isidentifier() else quoted(part) for part in source.split("."))
    if transform == "identity":
        return column
    matched = _PARAMETER.fullmatch(transform)
    if matched is not None:
        return f"{matched[1]}({matched[2]}, {column})"
    return f"{transform}s({column})" if transform in _TIMES else f"{transform}({column})"


def sort_order(
    schema: StructType, terms: Iterable[str], *, order_id: int = 1, option: str = "sorted_by"
) -> dict[str, Any]:
    """Return the JSON of a sort order. Without terms it is the unsorted order, whose ID is 0."""
    fields = []
    for text in terms:
        matched = _DIRECTION.match(text)
        assert matched is not None
        transform, source, _ = _term(schema, matched["term"], option)
        direction = (matched["direction"] or "asc").lower()
        nulls = (matched["nulls"] or ("first" if direction == "asc" else "last")).lower()
        fields.append(
            {
                "transform": transform,
                "source-id": source.field_id,
                "direction": direction,
                "null-order": f"nulls-{nulls}",
            }
        )
    return {"order-id": order_id if fields else 0, "fields": fields}


def partition_name(transform: str, column: str) -> str:
    """Return the name that Iceberg's PartitionSpec.Builder gives a field."""
    kind = transform.partition("[")[0]
    return column if kind == "identity" else f"{column}_{_SUFFIXES.get(kind, kind)}"


def _term(schema: StructType, text: str, name: str) -> tuple[str, NestedField, str]:
    """Return Iceberg's name of the transform, the column, and the column's full name."""
    transform, column_text = _transform_and_column(text, name)
    source, column = _column(schema, column_text, name)
    _check(transform, source, text, name)
    return transform, source, column


def _transform_and_column(text: str, name: str) -> tuple[str, str]:
    matched = _CALL.match(text)
    if matched is None:
        return "identity", text
    kind = matched[1].lower()
    kind = _ALIASES.get(kind, kind)
    arguments = [part.strip() for part in matched[2].split(",")]
    if kind not in _WITH_PARAMETER:
        _refuse_unknown(kind, text, name)
        if len(arguments) != 1:
            raise BadRequest(f"{name}: {text!r}: {kind} takes one column")
        return kind, arguments[0]
    width = next((part for part in arguments if part.isdigit()), None)
    columns = [part for part in arguments if part != width]
    if width is None or len(columns) != 1:
        raise BadRequest(f"{name}: {text!r}: {kind} takes a number and a column: {kind}(16, id)")
    return f"{kind}[{int(width)}]", columns[0]


def _refuse_unknown(kind: str, text: str, name: str) -> None:
    """Refuse a misspelled transform before its arguments are judged."""
    if isinstance(parse_transform(kind), Unknown):
        near = nearest_transform(kind)
        known = "known transforms are identity, bucket, truncate, year, month, day, hour, void"
        hint = known if near is None else f"did you mean {near.partition('[')[0]!r}?"
        raise BadRequest(f"{name}: {text!r}: {kind} is not a transform; {hint}")


def _check(transform: str, source: NestedField, text: str, name: str) -> None:
    try:
        parsed = parse_transform(transform)
    except InvalidTransform as error:
        raise BadRequest(f"{name}: {text!r}: {error}") from None
    if not parsed.accepts(source.type):
        raise BadRequest(f"{name}: {text!r}: {transform} does not take a {source.type}")


def _column(schema: StructType, text: str, name: str) -> tuple[NestedField, str]:
    wanted = ".".join(part.strip("`") for part in text.strip().split("."))
    known: Mapping[str, NestedField] = {
        known.name: known.field for known in fields_by_id(schema).values()
    }
    if wanted in known:
        return known[wanted], wanted
    alike = [full for full in known if full.lower() == wanted.lower()]
    if len(alike) == 1:
        return known[alike[0]], alike[0]
    near = nearest_transform(wanted)
    hint = f"; a transform is written with its column: {near}(column)" if near in _TIMES else ""
    raise BadRequest(f"{name}: {no_column(wanted, known)}{hint}")


# --- changes of a spec ----------------------------------------------------------------------------


class SpecEditor:
    """Changes the fields of a table's default spec, like Java's `BaseUpdatePartitionSpec`.

    A field that a former spec had gets its old ID back. A version 1 table keeps the position of a
    dropped field, with the void transform.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._fields: list[dict[str, Any]] = [dict(field) for field in table.spec()["fields"]]
        self._last_id = int(table.metadata.get("last-partition-id", 999))
        self._former = [
            field for spec in table.metadata["partition-specs"] for field in spec["fields"]
        ]

    def document(self) -> dict[str, Any]:
        """Return the JSON of the new spec."""
        spec_id = next_id(self._table, "partition-specs", "spec-id")
        return {"spec-id": spec_id, "fields": self._fields}

    def add(self, term: str, name: str | None) -> None:
        """Add a field; without a name, it gets the name that Java would give it."""
        parsed = self._parsed(term)
        if self._same(self._fields, parsed) is not None:
            raise BadRequest(f"{self._table} is partitioned by {term} already")
        former = self._former_of(parsed, name)
        wanted = name or (self._name_of(parsed) if former is None else former["name"])
        if any(field["name"] == wanted for field in self._fields if field["transform"] != VOID):
            raise BadRequest(f"{self._table} has a partition field {wanted} already: name this one")
        for field in self._fields:
            if field["name"] == wanted:
                # In version 1, another field may take the name of a dropped one.
                field["name"] = f"{wanted}_{field['field-id']}"
        self._fields.append({**parsed, "field-id": self._id_of(former), "name": wanted})

    def drop(self, term: str) -> None:
        """Drop the field with this name, or this transform and column."""
        position = self._position(term)
        if self._table.format_version > 1:
            del self._fields[position]
        else:
            self._fields[position]["transform"] = VOID

    def _parsed(self, term: str) -> dict[str, Any]:
        (field,) = partition_spec(self._table.schema, [term], option="partition field")["fields"]
        return {"source-id": field["source-id"], "transform": field["transform"]}

    def _former_of(self, parsed: Mapping[str, Any], name: str | None) -> dict[str, Any] | None:
        """Return the same field of a former spec, whose ID and name are used again."""
        if self._table.format_version == 1:
            return None
        known = [field for field in self._former if name in (None, field["name"])]
        return self._same(known, parsed)

    def _id_of(self, former: Mapping[str, Any] | None) -> int:
        if former is not None:
            return int(former["field-id"])
        self._last_id += 1
        return self._last_id

    def _name_of(self, field: Mapping[str, Any]) -> str:
        """Return Java's name for an added field, with the number of buckets or the width."""
        source = fields_by_id(self._table.schema)[field["source-id"]].name
        transform = str(field["transform"])
        matched = _PARAMETER.fullmatch(transform)
        name = partition_name(transform, source)
        return name if matched is None else f"{name}_{matched[2]}"

    def _position(self, term: str) -> int:
        """Return the position of a field by its name, or by its transform and column."""
        matched = _SINGLE_NAME.match(term)
        if matched is not None:
            name = matched[1].strip("`").replace("``", "`")
            for position, field in enumerate(self._fields):
                if field["name"].lower() == name.lower() and field["transform"] != VOID:
                    return position
            if not any(field.name.lower() == name.lower() for field in self._table.schema.fields):
                raise self._unknown(term)
        same = self._same(self._fields, self._parsed(term))
        if same is None:
            raise self._unknown(term)
        return self._fields.index(same)

    def _unknown(self, term: str) -> BadRequest:
        names = [field["name"] for field in self._fields if field["transform"] != VOID]
        known = ", ".join(names) or "no fields"
        return BadRequest(f"{self._table} is not partitioned by {term}; it has {known}")

    @staticmethod
    def _same(fields: Iterable[dict[str, Any]], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        for field in fields:
            if all(field[key] == wanted[key] for key in ("source-id", "transform")):
                return field
        return None
