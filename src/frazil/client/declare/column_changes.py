"""Changes of a table's columns, partition fields, sort order and identifier fields.

Each function takes a table as it was loaded and returns updates of its metadata, with requirements
that nobody else has changed the same part since. SQL's ALTER TABLE and the client's methods share
them. If a requirement fails, the change is built again on fresh metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from frazil.client.declare.metadata_updates import LAST_ADDED, MetadataUpdates
from frazil.client.declare.partition_terms import VOID, SpecEditor, sort_order
from frazil.client.declare.schema_editor import Path, Position, SchemaEditor, promoted
from frazil.client.declare.schema_updates import (
    IDENTIFIER_FIELDS,
    identifier_field_ids,
    next_id,
    property_updates,
    schema_requirements,
    schema_updates,
)
from frazil.values.types import NestedField, StructType, Type, TypeId, fields_by_id
from frazil.wire.errors import BadRequest
from frazil.wire.near_names import no_column

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

_DISTRIBUTION_PROPERTY: Final = "write.distribution-mode"
_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})


# --- columns --------------------------------------------------------------------------------------


def changed_schema(table: Table, schema: StructType) -> MetadataUpdates:
    """Make an edited schema the current one."""
    if schema == table.schema:
        return (), ()
    _check_dropped(table, schema)
    updates = [*schema_updates(table, schema), *property_updates(table, schema)]
    return updates, schema_requirements(table)


def with_columns(
    table: Table,
    editor: SchemaEditor,
    columns: Iterable[tuple[Path, NestedField, Position | None]],
) -> StructType:
    """Return the schema with new columns, whose fields have no IDs yet."""
    ids = count(int(table.metadata["last-column-id"]) + 1)
    schema = table.schema
    for path, field, position in columns:
        schema = editor.add(schema, path, field, ids, position)
    return schema


def altered_schema(
    table: Table,
    editor: SchemaEditor,
    path: Path,
    change: Callable[[NestedField], NestedField],
    position: Position | None = None,
) -> StructType:
    """Return the schema with one column changed, moved or both."""
    schema = table.schema
    if position is not None:
        schema = editor.move(schema, path, position)
    return editor.change(schema, path, change)


def with_type(field: NestedField, type_: Type | None, path: Path) -> NestedField:
    return field if type_ is None else promoted(field, type_, path)


def with_requirement(
    table: Table, field: NestedField, required: bool | None, path: Path
) -> NestedField:
    """Return the column as required or optional; None changes nothing."""
    if required is None or required == field.required:
        return field
    if required and table.snapshots:
        raise BadRequest(
            f"column {'.'.join(path)}: rows that are there already may be null, so that it cannot "
            "become NOT NULL; Iceberg allows that only in a table without snapshots"
        )
    return replace(field, required=required)


def _check_dropped(table: Table, schema: StructType) -> None:
    """Refuse to drop columns that partition or sort the table or identify its rows."""
    kept = fields_by_id(schema)
    old = fields_by_id(table.schema)
    for field in table.spec()["fields"]:
        if field["source-id"] not in kept and field["transform"] != VOID:
            raise BadRequest(
                f"column {old[field['source-id']].name} is in the table's partition fields: "
                f"first drop the partition field {field['name']}"
            )
    for field in table.sort_order()["fields"]:
        if field["source-id"] not in kept and field["transform"] != VOID:
            raise BadRequest(
                f"column {old[field['source-id']].name} is in the table's sort fields: "
                "first set another sort order, or none"
            )
    for field_id in identifier_field_ids(table):
        if field_id not in kept:
            name = old[field_id].name
            raise BadRequest(
                f"column {name} is an identifier field: first set other identifier fields, or none"
            )


# --- identifier fields ----------------------------------------------------------------------------


def identifier_fields(
    table: Table, editor: SchemaEditor, columns: Sequence[Path], *, drop: bool = False
) -> MetadataUpdates:
    """Make columns the identifier fields, or remove columns from them."""
    if drop:
        known = identifier_field_ids(table)
        dropped = [_existing(table.schema, editor, path).field_id for path in columns]
        for path, field_id in zip(columns, dropped, strict=True):
            if field_id not in known:
                raise BadRequest(f"column {'.'.join(path)} is no identifier field")
        ids = [field_id for field_id in known if field_id not in dropped]
    else:
        ids = new_identifier_ids(table.schema, columns, editor)
    (added, *others) = schema_updates(table, table.schema)
    document = {key: part for key, part in added["schema"].items() if key != IDENTIFIER_FIELDS}
    if ids:
        document[IDENTIFIER_FIELDS] = ids
    return [{**added, "schema": document}, *others], schema_requirements(table)


def new_identifier_ids(
    schema: StructType, columns: Sequence[Path], editor: SchemaEditor
) -> list[int]:
    """Return the IDs of columns that may be identifier fields."""
    ids = []
    for path in columns:
        field = _existing(schema, editor, path)
        check_identifier(field, ".".join(path))
        ids.append(field.field_id)
    return ids


def _existing(schema: StructType, editor: SchemaEditor, path: Path) -> NestedField:
    field = editor.field(schema, path)
    if field is None:
        known = (column.name for column in fields_by_id(schema).values())
        raise BadRequest(no_column(".".join(path), known))
    return field


def check_identifier(field: NestedField, name: str) -> None:
    """Refuse columns that the specification does not allow as identifier fields."""
    if not field.required:
        raise BadRequest(f"column {name} may be null, so that it cannot identify rows")
    if not field.type.is_primitive or field.type.type_id in _FLOATS:
        raise BadRequest(f"column {name}: a {field.type} cannot identify rows")


# --- partitions and order -------------------------------------------------------------------------


def partition_fields(
    table: Table, *, dropped: str | None = None, added: str | None = None, name: str | None = None
) -> MetadataUpdates:
    """Drop a partition field, add one, or both; `name` is that of the added field."""
    editor = SpecEditor(table)
    if dropped is not None:
        editor.drop(dropped)
    if added is not None:
        editor.add(added, name)
    metadata = table.metadata
    updates: list[dict[str, Any]] = [
        {"action": "add-spec", "spec": editor.document()},
        {"action": "set-default-spec", "spec-id": LAST_ADDED},
    ]
    requirements = [
        {"type": "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"]},
        {
            "type": "assert-last-assigned-partition-id",
            "last-assigned-partition-id": metadata["last-partition-id"],
        },
    ]
    return updates, requirements


def write_order(
    table: Table, terms: Sequence[str], distribution: str | None = None, option: str = "sorted_by"
) -> MetadataUpdates:
    """Sort new files by terms; without terms they have no order."""
    order_id = next_id(table, "sort-orders", "order-id")
    order = sort_order(table.schema, terms, order_id=order_id, option=option)
    updates: list[dict[str, Any]] = [
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": LAST_ADDED},
    ]
    if distribution is not None:
        updates.append(
            {"action": "set-properties", "updates": {_DISTRIBUTION_PROPERTY: distribution}}
        )
    requirement = {
        "type": "assert-default-sort-order-id",
        "default-sort-order-id": table.metadata["default-sort-order-id"],
    }
    return updates, [requirement]
