"""Entries of one manifest carried into another by the bytes of their `data_file`.

A manifest that loses entries, or is merged with others, is written anew; the files that stay are
not decoded for it. Where the manifest was written by another schema, fields with the same bytes are
still copied, and only the others are translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from frazil.format.avro_files import MANIFEST_LIMITS, AvroLimits, open_avro
from frazil.format.avro_schema import required_field
from frazil.format.avro_types import Field, Record, UnreadableAvro
from frazil.format.content_files import DATA_CONTENT
from frazil.format.manifest_encoder import BLOCK_SIZE_BYTES, ManifestEncoder
from frazil.format.manifest_list import ManifestFile
from frazil.format.manifests import Manifest, ManifestEntry, inherited
from frazil.values.single_value import decimal_from_unscaled
from frazil.values.types import DecimalType, Type, TypeId

_DATA_FILE: Final = 2
_PARTITION: Final = 102
_BLOCK_SIZE: Final = 105
_CONTENT: Final = 134
_FIRST_ROW_ID: Final = 142

_DEFAULTS: Final[Mapping[int, int]] = {_CONTENT: DATA_CONTENT, _BLOCK_SIZE: BLOCK_SIZE_BYTES}
"""What required fields are that another version's manifests do not have."""


@dataclass(frozen=True, slots=True)
class CopiedEntry:
    """A live entry of another manifest on its way into a new one."""

    entry: ManifestEntry
    """With what it inherits: a copy lies in another manifest and inherits nothing any more."""
    data_file: bytes
    partition: tuple[Any, ...]
    """Iceberg's internal values in the order of the encoder's spec."""


def copied_entries(
    content: bytes,
    manifest: Manifest,
    listed: ManifestFile,
    encoder: ManifestEncoder,
    limits: AvroLimits = MANIFEST_LIMITS,
) -> Iterator[CopiedEntry]:
    """The live entries of a manifest, encoded for the manifests of `encoder`.

    `manifest` is what reading `content` gave, now or when it was cached. Raises UnreadableAvro.
    """
    file = open_avro(content, limits)
    copy = _data_file_copier(file.schema.record, encoder)
    with_row_id = _row_id_setter(encoder)
    internal = _partition_reader(manifest, encoder)
    raw_entries = (
        (own, raw)
        for own, (_, raw) in zip(
            manifest.entries, file.records(_skipper(file.schema.record)), strict=True
        )
        if own.is_live
    )
    for entry, (own, raw) in zip(inherited(manifest, listed), raw_entries, strict=True):
        data_file = copy(raw)
        if entry.first_row_id != own.first_row_id:
            data_file = with_row_id(data_file, entry.first_row_id)
        yield CopiedEntry(entry, data_file, internal(entry.partition))


def _skipper(record: Record) -> Callable[[bytes, int], tuple[None, int]]:
    return lambda data, at: (None, record.skip(data, at))


def _data_file(record: Record) -> tuple[int, Record]:
    """The position of the field `data_file` and its type."""
    field = required_field(record, _DATA_FILE, Record)
    if not isinstance(field.node, Record):
        raise UnreadableAvro("the schema's field data_file can be null")
    return record.fields.index(field), field.node


def _data_file_copier(source: Record, encoder: ManifestEncoder) -> Callable[[bytes], bytes]:
    """Takes the bytes of an entry, gives those of its `data_file` by the encoder's schema."""
    position, own = _data_file(source)
    _, target = _data_file(encoder.schema.record)
    before = source.fields[:position]
    is_last = position == len(source.fields) - 1

    def copy(raw: bytes) -> bytes:
        at = 0
        for field in before:
            at = field.node.skip(raw, at)
        return raw[at:] if is_last else raw[at : own.skip(raw, at)]

    if own.layout == target.layout:
        return copy
    translate = _translator(own, target)
    return lambda raw: translate(copy(raw))


def _translator(source: Record, target: Record) -> Callable[[bytes], bytes]:
    found = [_counterpart(source, field) for field in target.fields]

    def translate(raw: bytes) -> bytes:
        spans = source.spans(raw, 0)
        parts: list[bytes] = []
        for field, position in zip(target.fields, found, strict=True):
            if position is None:
                parts.append(_encoded(field, _DEFAULTS.get(field.field_id or -1)))
                continue
            start, end = spans[position]
            own = source.fields[position]
            same = own.node.layout == field.node.layout
            parts.append(raw[start:end] if same else _translated(own, field, raw, start))
        return b"".join(parts)

    return translate


def _counterpart(source: Record, target: Field) -> int | None:
    return next(
        (at for at, own in enumerate(source.fields) if own.field_id == target.field_id), None
    )


def _translated(own: Field, target: Field, raw: bytes, start: int) -> bytes:
    value, _ = own.node.read(raw, start)
    if target.field_id == _PARTITION:
        if not isinstance(own.node, Record) or not isinstance(target.node, Record):
            raise UnreadableAvro("the schema's field partition can be null")
        by_id = {field.field_id: value[field.name] for field in own.node.fields}
        value = {field.name: by_id.get(field.field_id) for field in target.node.fields}
    if value is None:
        value = _DEFAULTS.get(target.field_id or -1)
    return _encoded(target, value)


def _encoded(target: Field, value: Any) -> bytes:
    try:
        return target.encoded(value)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableAvro(f"{target.name} cannot be written: {error}") from None


def _row_id_setter(encoder: ManifestEncoder) -> Callable[[bytes, int | None], bytes]:
    """Writes the first row id that an entry had inherited (spec, "First Row ID Inheritance")."""
    _, record = _data_file(encoder.schema.record)
    field = record.by_id(_FIRST_ROW_ID)
    if field is None:
        return lambda data_file, _: data_file
    return lambda data_file, first_row_id: record.spliced(
        data_file, 0, {_FIRST_ROW_ID: field.encoded(first_row_id)}
    )


def _partition_reader(
    manifest: Manifest, encoder: ManifestEncoder
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Avro's values of a partition tuple as Iceberg's, in the order of the encoder's spec."""
    positions = {field.field_id: at for at, field in enumerate(manifest.partition_fields)}
    plan = [
        (positions.get(field.field_id), _internal_value(field.type))
        for field in encoder.partition_type.fields
    ]
    if all(read is None for _, read in plan) and [at for at, _ in plan] == list(range(len(plan))):
        return lambda values: values

    def internal(values: tuple[Any, ...]) -> tuple[Any, ...]:
        picked = ((None if at is None else values[at], read) for at, read in plan)
        return tuple(
            value if value is None or read is None else read(value) for value, read in picked
        )

    return internal


def _internal_value(type_: Type) -> Callable[[bytes], Any] | None:
    """Where Iceberg's value is not the one that Avro has: decimals and uuids."""
    if isinstance(type_, DecimalType):
        scale = type_.scale
        return lambda data: decimal_from_unscaled(int.from_bytes(data, "big", signed=True), scale)
    if type_.type_id is TypeId.UUID:
        return lambda data: UUID(bytes=data)
    return None
