"""A partition spec with a field more or less, by the rules of Java's `BaseUpdatePartitionSpec`.

A field that a former spec had already keeps its id. Tables of version 1 keep the place of a dropped
field, with the transform void.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.parquet_schema import fields_by_id
from frazil.spark.ddl.partition_terms import partition_spec
from frazil.wire.errors import BadRequest

VOID: Final = "void"
_NAME: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+)\s*\Z")
_WITH_PARAMETER: Final = re.compile(r"(\w+)\[(\d+)\]")


class SpecEditor:
    """Changes the table's default spec; `document` is the outcome."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._fields: list[dict[str, Any]] = [dict(one) for one in table.spec()["fields"]]
        self._last_id = int(table.metadata.get("last-partition-id", 999))
        self._former = [
            field for spec in table.metadata["partition-specs"] for field in spec["fields"]
        ]

    def document(self) -> dict[str, Any]:
        spec_id = max(spec["spec-id"] for spec in self._table.metadata["partition-specs"]) + 1
        return {"spec-id": spec_id, "fields": self._fields}

    def add(self, term: str, name: str | None) -> None:
        parsed = self._parsed(term)
        if self._same(self._fields, parsed) is not None:
            raise BadRequest(f"{self._table} is partitioned by {term} already")
        former = self._former_of(parsed, name)
        wanted = name or (self._name_of(parsed) if former is None else former["name"])
        if any(field["name"] == wanted for field in self._fields if field["transform"] != VOID):
            raise BadRequest(f"{self._table} has a partition field {wanted} already: name this one")
        for field in self._fields:
            if field["name"] == wanted:
                # The name of a dropped field of version 1 is free again.
                field["name"] = f"{wanted}_{field['field-id']}"
        self._fields.append({**parsed, "field-id": self._id_of(former), "name": wanted})

    def drop(self, term: str) -> None:
        position = self._position(term)
        if self._table.format_version > 1:
            del self._fields[position]
        else:
            self._fields[position]["transform"] = VOID

    def replace(self, old: str, term: str, name: str | None) -> None:
        self.drop(old)
        self.add(term, name)

    # --- how --------------------------------------------------------------------------------------

    def _parsed(self, term: str) -> dict[str, Any]:
        (field,) = partition_spec(self._table.schema, [term])["fields"]
        return {"source-id": field["source-id"], "transform": field["transform"]}

    def _former_of(self, parsed: Mapping[str, Any], name: str | None) -> dict[str, Any] | None:
        """The same field of a former spec, which comes back with its id and its name."""
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
        """As Java names fields that are added later: with the number of buckets or the width."""
        source = fields_by_id(self._table.schema)[field["source-id"]].name
        transform = str(field["transform"])
        if transform == "identity":
            return source
        matched = _WITH_PARAMETER.fullmatch(transform)
        if matched is None:
            return f"{source}_{transform}"
        return f"{source}_{ {'truncate': 'trunc'}.get(matched[1], matched[1]) }_{matched[2]}"

    def _position(self, term: str) -> int:
        """By the field's own name, or by its transform and column."""
        matched = _NAME.match(term)
        if matched is not None:
            name = matched[1].strip("`").replace("``", "`")
            for position, field in enumerate(self._fields):
                if field["name"].lower() == name.lower() and field["transform"] != VOID:
                    return position
            if not any(field.name.lower() == name.lower() for field in self._table.schema.fields):
                raise self._unknown(term)
        found = self._same(self._fields, self._parsed(term))
        if found is None:
            raise self._unknown(term)
        return self._fields.index(found)

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
