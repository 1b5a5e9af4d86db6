"""The definition of a new table: columns from Arrow, text or JSON, partition and sort terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

import msgspec
from msgspec import Raw

from frazil.client.declare.column_changes import new_identifier_ids
from frazil.client.declare.column_definitions import schema_of_text
from frazil.client.declare.file_operations import check_options
from frazil.client.declare.partition_terms import partition_spec, sort_order, term_text
from frazil.client.declare.schema_editor import SchemaEditor
from frazil.client.declare.schema_updates import IDENTIFIER_FIELDS
from frazil.values.type_json import parse_struct, struct_to_json
from frazil.values.types import InvalidType, StructType
from frazil.wire.errors import BadRequest
from frazil.wire.filter_builders import Operand
from frazil.wire.identifiers import Identifier
from frazil.wire.rest_messages import CreateTableRequest

if TYPE_CHECKING:
    import pyarrow as pa

SchemaInput: TypeAlias = "str | Mapping[str, Any] | StructType | pa.Schema"
"""A pyarrow schema, text such as `id long not null, name string`, types by name, or JSON."""
PartitionTerm: TypeAlias = str | Operand
"""A column or a transform of one: `"day(at)"`, or `day("at")` of this package."""

_FORMAT_VERSION: Final = "format-version"
_DEFAULT_FORMAT_VERSION: Final = 2


class CreateOptions(TypedDict, total=False):
    """Optional parts of a new table."""

    partition_by: Iterable[PartitionTerm]
    """Terms such as `"day(at)"`, `"bucket(16, id)"` or a column."""
    sort_by: Iterable[str]
    """Terms such as `"id"` or `"at desc nulls last"`."""
    identifier_fields: Iterable[str | tuple[str, ...]]
    """Required columns that identify a row; `upsert` uses them as keys."""
    partition_spec: Mapping[str, Any] | None
    """The JSON of the specification, in place of `partition_by`."""
    write_order: Mapping[str, Any] | None
    """The JSON of the specification, in place of `sort_by`."""
    location: str | None
    properties: Mapping[str, str] | None
    format_version: int | None


def creation_request(
    identifier: Identifier, schema: SchemaInput, options: CreateOptions, *, stage: bool
) -> CreateTableRequest:
    """Return the request that creates a table."""
    check_options(options, CreateOptions)
    properties = _properties(options)
    document = schema_document(schema, properties)
    return CreateTableRequest(
        name=identifier.name,
        schema=_raw(_with_identifiers(document, options)),
        location=options.get("location"),
        partition_spec_json=_raw(_partition_spec(document, options)),
        write_order_json=_raw(_write_order(document, options)),
        stage_create=stage,
        properties=properties,
    )


def _properties(options: CreateOptions) -> dict[str, str]:
    properties = dict(options.get("properties") or {})
    version = options.get("format_version")
    if version is None:
        return properties
    if properties.get(_FORMAT_VERSION, str(version)) != str(version):
        raise BadRequest(f"format_version: the properties ask for {properties[_FORMAT_VERSION]}")
    return {**properties, _FORMAT_VERSION: str(version)}


# --- columns --------------------------------------------------------------------------------------


def schema_document(schema: SchemaInput, properties: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the JSON of a schema in any form; JSON stays as it is."""
    if isinstance(schema, Mapping) and isinstance(schema.get("fields"), list | tuple):
        return schema
    return {**struct_to_json(_struct(schema, properties)), "schema-id": 0}


def _struct(schema: Any, properties: Mapping[str, str]) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str | Mapping):
        return schema_of_text(schema)
    if type(schema).__module__.partition(".")[0] == "pyarrow":
        from frazil.datafiles.arrow.arrow_types import iceberg_schema

        version = properties.get(_FORMAT_VERSION, "")
        return iceberg_schema(
            schema, int(version) if version.isdigit() else _DEFAULT_FORMAT_VERSION
        )
    raise BadRequest(
        "schema: give a pyarrow schema, a text such as 'id long not null, name string', a mapping "
        f"from names to types, or Iceberg's JSON, not {type(schema).__name__}"
    )


def _with_identifiers(document: Mapping[str, Any], options: CreateOptions) -> Mapping[str, Any]:
    names = options.get("identifier_fields")
    if not names:
        return document
    if isinstance(names, str):
        raise BadRequest("identifier_fields: give a list of columns")
    paths = [tuple(name.split(".")) if isinstance(name, str) else name for name in names]
    ids = new_identifier_ids(_parsed(document), paths, SchemaEditor(case_sensitive=True))
    return {**document, IDENTIFIER_FIELDS: ids}


# --- partitions and order -------------------------------------------------------------------------


def partition_term(term: PartitionTerm) -> str:
    """Return the text of a partition term in any form."""
    if isinstance(term, str):
        return term
    if isinstance(term, Operand):
        transform = term.term.transform
        return term_text("identity" if transform is None else str(transform), term.term.name)
    raise BadRequest(f"partition term {term!r}: give text such as 'day(at)', or frazil.day('at')")


def _partition_spec(
    document: Mapping[str, Any], options: CreateOptions
) -> Mapping[str, Any] | None:
    spec = options.get("partition_spec")
    terms = _terms(options.get("partition_by"), "partition_by")
    if not terms:
        return spec
    if spec is not None:
        raise BadRequest("partition_by: the table has a partition_spec too, give one of them")
    return partition_spec(_parsed(document), map(partition_term, terms), option="partition_by")


def _write_order(document: Mapping[str, Any], options: CreateOptions) -> Mapping[str, Any] | None:
    order = options.get("write_order")
    terms = _terms(options.get("sort_by"), "sort_by")
    if not terms:
        return order
    if order is not None:
        raise BadRequest("sort_by: the table has a write_order too, give one of them")
    return sort_order(_parsed(document), terms, option="sort_by")


def _terms(terms: Iterable[Any] | None, option: str) -> list[Any]:
    if isinstance(terms, str | Operand):
        raise BadRequest(f"{option}: give a list of terms, such as [{terms!r}]")
    return list(terms or ())


def _parsed(document: Mapping[str, Any]) -> StructType:
    try:
        return parse_struct(document, "schema")
    except InvalidType as error:
        raise BadRequest(str(error)) from None


def _raw(document: Mapping[str, Any] | None) -> Raw:
    return Raw(msgspec.json.encode(document))
