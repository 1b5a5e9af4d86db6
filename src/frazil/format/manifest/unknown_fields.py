"""Fields of a foreign manifest's `data_file` that we do not know, kept when it is written anew.

The new manifest's schema is ours with those fields behind it, so that every reader of ours finds
what it knows, and the writer of those fields finds them again by their ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from frazil.format.avro.avro_schema import RecordSchema, named_types, record_schema
from frazil.format.avro.avro_types import Field
from frazil.format.manifest.manifest_encoder import ManifestEncoder
from frazil.format.manifest.manifest_fields import DATA_FILE, data_file_record

_KNOWN: Final = frozenset(range(100, 146))
"""The ids that the specification gives to the fields of `data_file`: those of older versions too,
which writers of a newer one leave out, as Java does."""
_ICEBERG_SCHEMA: Final = "iceberg.schema"


def encoder_keeping(encoder: ManifestEncoder, source: RecordSchema) -> ManifestEncoder:
    """An encoder whose manifests have also the unknown fields of manifests with the schema
    `source`; the same one where there are none, or where it has them already."""
    own = data_file_record(encoder.schema.record)
    known = {_key(field) for field in own.fields}
    unknown = [
        field
        for field in data_file_record(source.record).fields
        if field.field_id not in _KNOWN and _key(field) not in known
    ]
    if not unknown:
        return encoder
    schema = _extended(encoder.schema, source, unknown)
    added = data_file_record(schema.record).fields[len(own.fields) :]
    nulls = b"".join(field.encoded(None) for field in added)
    encode = encoder._encode
    # What Java says of the schema in Iceberg's own terms would no longer be true.
    header = {key: value for key, value in encoder.header.items() if key != _ICEBERG_SCHEMA}
    return replace(encoder, schema=schema, header=header, _encode=lambda file: encode(file) + nulls)


def _key(field: Field) -> int | str:
    return field.name if field.field_id is None else field.field_id


def _extended(schema: RecordSchema, source: RecordSchema, unknown: Sequence[Field]) -> RecordSchema:
    tree, foreign = schema.tree, source.tree
    named = named_types(foreign)
    declared = {field["name"]: field for field in _data_file(foreign, named)["fields"]}
    fields = _data_file(tree, {})["fields"]
    names = {field["name"] for field in fields}
    for field in unknown:
        kind = _nullable(_own_names(declared[field.name]["type"], named, f"u_{_key(field)}"))
        name = f"{field.name}_{_key(field)}" if field.name in names else field.name
        kept = {**declared[field.name], "name": name, "type": kind}
        if kind[0] == "null":
            kept["default"] = None
        else:
            kept.pop("default", None)
        fields.append(kept)
    return record_schema(json.dumps(tree, separators=(",", ":")))


def _data_file(tree: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    kind = next(f["type"] for f in tree["fields"] if f.get("field-id") == DATA_FILE)
    found = named[kind.rsplit(".", 1)[-1]] if isinstance(kind, str) else kind
    assert isinstance(found, dict)
    return found


def _own_names(kind: Any, named: Mapping[str, Any], prefix: str) -> Any:
    """A type with every type it names written out, under names that nothing else has."""
    if isinstance(kind, str):
        known = named.get(kind.rsplit(".", 1)[-1])
        return kind if known is None else _own_names(known, named, prefix)
    if isinstance(kind, list):
        return [_own_names(each, named, f"{prefix}_{n}") for n, each in enumerate(kind)]
    own = {key: value for key, value in kind.items() if key != "namespace"}
    if own.get("type") in ("record", "fixed", "enum"):
        own["name"] = prefix
        if "fields" in own:
            own["fields"] = [
                {**field, "type": _own_names(field["type"], named, f"{prefix}_{number}")}
                for number, field in enumerate(own["fields"])
            ]
        return own
    for key in ("type", "items", "values"):
        if key in own and not (key == "type" and own[key] in ("array", "map")):
            own[key] = _own_names(own[key], named, prefix)
    return own


def _nullable(kind: Any) -> list[Any]:
    branches = kind if isinstance(kind, list) else [kind]
    return branches if "null" in branches else ["null", *branches]
