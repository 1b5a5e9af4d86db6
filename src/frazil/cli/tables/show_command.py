"""`frazil show`: show a table, now or at a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import (
    heading,
    plain,
    print_json,
    print_pairs,
    print_table,
    time_text,
)
from frazil.cli.shared.typed_names import table_and_ref
from frazil.cli.tables.snapshot_text import (
    MAIN,
    find_snapshot,
    refs_by_snapshot,
    snapshot_document,
    total_text,
)

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table
    from frazil.values.types import NestedField, Type


def run(choice: CatalogChoice, name: str) -> None:
    identifier, ref = table_and_ref(name)
    with choice.connect() as client:
        table = client.load_table(identifier)
    snapshot = find_snapshot(table, ref or MAIN)
    # Branches use the table's current schema, tags and older snapshots their own.
    named = table.refs.get(ref or MAIN)
    at_branch = ref is None or (named is not None and named.type == "branch")
    own = None if at_branch or snapshot is None else snapshot.schema_id
    schema_id = table.metadata["current-schema-id"] if own is None else own
    if choice.as_json:
        print_json(_document(table, snapshot, schema_id))
    else:
        _print(table, snapshot, schema_id)


def _document(table: Table, snapshot: Snapshot | None, schema_id: int) -> dict[str, Any]:
    schema = next(each for each in table.metadata["schemas"] if each["schema-id"] == schema_id)
    refs = refs_by_snapshot(table)
    return {
        "table": str(table.identifier),
        "identifier": {
            "namespace": list(table.identifier.namespace),
            "name": table.identifier.name,
        },
        "table-uuid": table.uuid,
        "format-version": table.format_version,
        "location": table.location,
        "metadata-location": table.metadata_location,
        "last-updated-ms": table.metadata.get("last-updated-ms"),
        "schema": schema,
        "partition-spec": dict(table.spec()),
        "sort-order": dict(table.sort_order()),
        "properties": dict(table.properties),
        "refs": table.metadata.get("refs") or {},
        "snapshot": None
        if snapshot is None
        else snapshot_document(snapshot, refs.get(snapshot.snapshot_id, [])),
    }


def _print(table: Table, snapshot: Snapshot | None, schema_id: int) -> None:
    typer.echo(typer.style(str(table.identifier), bold=True))
    print_pairs(
        {
            "uuid": table.uuid,
            "format version": table.format_version,
            "location": table.location,
            "metadata": table.metadata_location,
        },
        "  ",
    )
    heading(f"Schema {schema_id}")
    fields = list(columns(table.schema_by_id(schema_id)))
    print_table(
        ("id", "column", "type", "required", "doc"),
        [
            (one.field_id, name, one.type.short_name, "yes" if one.required else "no", one.doc)
            for name, one in fields
        ],
        right=("id",),
    )
    names = {one.field_id: name for name, one in columns(table.schema)}
    heading(f"Partition spec {table.spec()['spec-id']}")
    typer.echo(f"  {_fields_text(table.spec(), names) or 'unpartitioned'}")
    heading(f"Sort order {table.sort_order()['order-id']}")
    typer.echo(f"  {_fields_text(table.sort_order(), names) or 'unsorted'}")
    if table.properties:
        heading("Properties")
        print_pairs(dict(sorted(table.properties.items())), "  ")
    if table.refs:
        heading("Refs")
        print_table(
            ("ref", "type", "snapshot"),
            [(name, ref.type, ref.snapshot_id) for name, ref in sorted(table.refs.items())],
        )
    _print_snapshot(snapshot)


def _print_snapshot(snapshot: Snapshot | None) -> None:
    if snapshot is None:
        typer.echo("\nno snapshot yet")
        return
    heading(f"Snapshot {snapshot.snapshot_id}")
    print_pairs(
        {
            "time": time_text(snapshot.timestamp_ms),
            "operation": snapshot.operation,
            "parent": snapshot.parent_snapshot_id,
            "sequence number": snapshot.sequence_number,
            "total": total_text(snapshot.summary),
        },
        "  ",
    )
    summary = {key: value for key, value in snapshot.summary.items() if key != "operation"}
    if summary:
        typer.echo("  summary")
        print_pairs(dict(sorted(summary.items())), "    ")


def columns(type_: Type, prefix: str = "") -> Iterator[tuple[str, NestedField]]:
    """Yield every field at any depth with its full name, parents first."""
    from frazil.values.types import child_fields

    for field in child_fields(type_):
        name = f"{prefix}{field.name}"
        yield name, field
        yield from columns(field.type, f"{name}.")


def _fields_text(spec: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """Return text such as `day(ts), bucket[16](id)`, for sort orders with direction and nulls."""
    return ", ".join(_field_text(field, names) for field in spec["fields"])


def _field_text(field: Mapping[str, Any], names: Mapping[int, str]) -> str:
    source_ids = field.get("source-ids") or [field.get("source-id")]
    source = ", ".join(names.get(one, f"#{one}") for one in source_ids)
    transform = field["transform"]
    text = source if transform == "identity" else f"{transform}({source})"
    if "name" in field and field["name"] != source:
        text += f" as {field['name']}"
    if "direction" in field:
        text += f" {field['direction']}, {field['null-order']}"
    return plain(text)
