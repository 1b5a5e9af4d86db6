"""Draws random schemas and partition specs, and evolves them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_metadata_json import encode_table_metadata
from frazil.values.single_value import to_json
from frazil.values.transforms import parse_transform
from frazil.values.types import TypeId
from tests.oracle.plans.columns import (
    PROMOTIONS,
    TRANSFORMS,
    TYPES,
    V3_TYPES,
    Leaf,
    draw_value,
    leaves,
)
from tests.oracle.plans.files import Doc, Spec, SpecField


@dataclass
class Shape:
    """The schemas and specs of one table, as its writer knows them."""

    random: Random
    format_version: int
    fixed_partitions: bool = True
    """Whether a column of type fixed may be an identity partition source."""
    schema: Doc = field(default_factory=dict)
    specs: dict[int, Spec] = field(default_factory=dict)
    default_spec_id: int = 0
    last_column_id: int = 0
    names: int = 0
    last_partition_id: int = 999

    def __post_init__(self) -> None:
        if self.schema:
            self.specs.setdefault(0, ())
            return
        columns = [self._column() for _ in range(self.random.randint(4, 8))]
        if self.random.random() < 0.6:
            columns.append(self._struct())
        if self.random.random() < 0.2:
            columns.append(self._list())
        self.schema = {"type": "struct", "schema-id": 0, "fields": columns}
        self.specs[0] = self._spec(())

    def take(self, metadata: TableMetadata) -> None:
        """Adopt the ids that the catalog assigned to the columns of a new table."""
        document = json.loads(b"".join(encode_table_metadata(metadata)))
        (self.schema,) = document["schemas"]
        self.last_column_id = document["last-column-id"]
        self.last_partition_id = document["last-partition-id"]
        types = {leaf.field_id: leaf.type for leaf in self.leaves}
        (spec,) = document["partition-specs"]
        self.specs[0] = tuple(
            SpecField(
                item["source-id"],
                item["field-id"],
                item["name"],
                item["transform"],
                types[item["source-id"]],
            )
            for item in spec["fields"]
        )

    @property
    def leaves(self) -> list[Leaf]:
        return leaves(self.schema)

    @property
    def default_spec(self) -> Spec:
        return self.specs[self.default_spec_id]

    def spec_json(self, spec_id: int) -> Doc:
        return {"spec-id": spec_id, "fields": [part.json() for part in self.specs[spec_id]]}

    # --- schemas ---

    def _name(self, kind: str) -> str:
        self.names += 1
        word = kind.partition("(")[0].partition("[")[0]
        return f"{self.random.choice((word, word.title()))}_{self.names}"

    def _id(self) -> int:
        self.last_column_id += 1
        return self.last_column_id

    def _column(self, required: float = 0.2) -> Doc:
        kinds = TYPES + (V3_TYPES if self.format_version > 2 else ())
        kind = self.random.choice(kinds)
        return {
            "id": self._id(),
            "name": self._name(kind),
            "required": self.random.random() < required,
            "type": kind,
        }

    def _struct(self, depth: int = 0) -> Doc:
        own, name = self._id(), self._name("struct")
        inner = [self._column(0.5) for _ in range(self.random.randint(1, 2))]
        if depth == 0 and self.random.random() < 0.3:
            inner.append(self._struct(1))
        required = self.random.random() < 0.3
        type_ = {"type": "struct", "fields": inner}
        return {"id": own, "name": name, "required": required, "type": type_}

    def _list(self) -> Doc:
        own, element = self._id(), self._id()
        type_ = {
            "type": "list",
            "element-id": element,
            "element": self.random.choice(("int", "string")),
            "element-required": False,
        }
        return {"id": own, "name": self._name("list"), "required": False, "type": type_}

    def evolve_schema(self) -> Doc | None:
        """Return the schema after one random change, or None if that change is impossible."""
        schema: Doc = json.loads(json.dumps(self.schema))
        changes: list[Callable[[Doc], bool]] = [
            self._add,
            self._drop,
            self._rename,
            self._promote,
            self._promote,
            self._reorder,
            self._make_optional,
        ]
        if not self.random.choice(changes)(schema):
            return None
        schema["schema-id"] = self.schema["schema-id"] + 1
        self.schema = schema
        types = {leaf.field_id: leaf.type for leaf in self.leaves}
        for spec_id, spec in self.specs.items():
            self.specs[spec_id] = tuple(
                replace(part, type=types.get(part.source_id, part.type)) for part in spec
            )
        return schema

    def _add(self, schema: Doc) -> bool:
        column = self._column(0.0)
        column["required"] = False
        if self.format_version > 2 and self.random.random() < 0.5:
            (leaf,) = leaves({"fields": [column]})
            default = to_json(leaf.type, draw_value(self.random, leaf.type))
            if not isinstance(default, float):
                column["initial-default"] = column["write-default"] = default
        structs = [item for item in schema["fields"] if _is_struct(item)]
        if structs and self.random.random() < 0.4:
            self.random.choice(structs)["type"]["fields"].append(column)
        else:
            schema["fields"].insert(self.random.randint(0, len(schema["fields"])), column)
        return True

    def _drop(self, schema: Doc) -> bool:
        in_use = {part.source_id for part in self.default_spec}
        if self.random.random() < 0.7:
            in_use |= {part.source_id for spec in self.specs.values() for part in spec}
        free = [
            item for item in schema["fields"] if item["id"] not in in_use and not _is_struct(item)
        ]
        if len(free) < 2:
            return False
        schema["fields"].remove(self.random.choice(free))
        return True

    def _rename(self, schema: Doc) -> bool:
        item = self.random.choice(list(_fields(schema["fields"])))
        gone = item["name"]
        item["name"] = self._name("renamed")
        others = [other for other in _fields(schema["fields"]) if other is not item]
        if others and self.random.random() < 0.3:
            # Another column gets the old name, so a lookup by name finds the wrong column.
            self.random.choice(others)["name"] = gone
        return True

    def _promote(self, schema: Doc) -> bool:
        able = [
            item
            for item in _fields(schema["fields"])
            if isinstance(item["type"], str) and item["type"] in PROMOTIONS
        ]
        if not able:
            return False
        item = self.random.choice(able)
        item["type"] = PROMOTIONS[item["type"]]
        return True

    def _reorder(self, schema: Doc) -> bool:
        self.random.shuffle(schema["fields"])
        return True

    def _make_optional(self, schema: Doc) -> bool:
        able = [item for item in _fields(schema["fields"]) if item["required"]]
        if not able:
            return False
        self.random.choice(able)["required"] = False
        return True

    # --- specs ---

    def evolve_spec(self) -> int | None:
        """Return the id of the new default spec, or None if nothing changed."""
        spec = self._spec(self.default_spec)
        known = next((own for own, other in self.specs.items() if other == spec), None)
        if known is None:
            known = max(self.specs) + 1
            self.specs[known] = spec
        if known == self.default_spec_id:
            return None
        for part in spec:
            self.last_partition_id = max(self.last_partition_id, part.field_id)
        self.default_spec_id = known
        return known

    def _spec(self, before: Spec) -> Spec:
        if self.format_version == 1:
            return self._v1_spec(before)
        count = self.random.choice((0, 1, 1, 1, 2, 2, 3))
        drawn = [self.random.choice(self.leaves) for _ in range(count)]
        parts: list[SpecField] = []
        for leaf in drawn:
            transform = self.random.choice((*self._transforms(leaf), "void"))
            part = self._part(leaf, transform)
            if all(_kind(part) != _kind(other) for other in parts):
                parts.append(part)
        return tuple(parts)

    def _v1_spec(self, before: Spec) -> Spec:
        """Build a version 1 spec: removed fields become void, and new fields are appended."""
        live = {leaf.field_id for leaf in self.leaves}
        parts = [
            SpecField(part.source_id, part.field_id, f"{part.name}_void", "void", part.type)
            if part.transform != "void"
            and (self.random.random() < 0.4 or part.source_id not in live)
            else part
            for part in before
        ]
        leaf = self.random.choice(self.leaves)
        if not before or self.random.random() < 0.7:
            transform = self.random.choice(self._transforms(leaf))
            if all(
                (part.source_id, part.transform) != (leaf.field_id, transform) for part in parts
            ):
                self.names += 1
                name = f"part_{self.names}"
                parts.append(
                    SpecField(leaf.field_id, 1000 + len(parts), name, transform, leaf.type)
                )
        return tuple(parts)

    def _transforms(self, leaf: Leaf) -> Sequence[str]:
        known = TRANSFORMS[leaf.type.type_id]
        is_fixed = leaf.type.type_id is TypeId.FIXED
        return known[1:] if is_fixed and not self.fixed_partitions else known

    def _part(self, leaf: Leaf, transform: str) -> SpecField:
        """Return a field; one that the table had before keeps its id, and sometimes its name."""
        for part in (part for spec in self.specs.values() for part in spec):
            if (part.source_id, part.transform) == (leaf.field_id, transform):
                if self.random.random() < 0.3:
                    self.names += 1
                    name = f"part_{self.names}"
                    return SpecField(leaf.field_id, part.field_id, name, transform, part.type)
                return part
        self.names += 1
        self.last_partition_id += 1
        name = f"part_{self.names}"
        return SpecField(leaf.field_id, self.last_partition_id, name, transform, leaf.type)


def _kind(part: SpecField) -> tuple[int, str]:
    """Return what must be unique in a spec: a column and the kind of its transform."""
    transform = parse_transform(part.transform)
    by_time = part.transform in ("year", "month", "day", "hour")
    return part.source_id, "time" if by_time else type(transform).__name__


def _is_struct(item: Doc) -> bool:
    return isinstance(item["type"], dict) and item["type"]["type"] == "struct"


def _fields(fields: Sequence[Doc]) -> Iterator[Doc]:
    for item in fields:
        yield item
        if _is_struct(item):
            yield from _fields(item["type"]["fields"])
