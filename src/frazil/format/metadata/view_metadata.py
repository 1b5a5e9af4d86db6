"""View metadata: parsed, checked and written by the view specification. Unknown fields are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final
from uuid import uuid4

from msgspec import Raw

from frazil.format.metadata import json_object
from frazil.format.metadata.metadata_files import GZIP_MAGIC, WRITE_METADATA_PATH, inflate
from frazil.format.metadata.raw_json import InvalidMetadata
from frazil.format.metadata.schema import Schema, parse_schema
from frazil.wire.errors import BadRequest

SUPPORTED_VIEW_FORMAT_VERSION: Final = 1
MAX_VIEW_METADATA_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ViewRepresentation:
    """A representation of the view. Only SQL is specified; others are kept as they are."""

    type: str
    """In lower case, as in Java."""
    dialect: str | None
    """The dialect of an SQL representation."""
    members: Mapping[str, Any]
    """The whole JSON object. Representations are equal if their objects are."""


@dataclass(frozen=True, slots=True)
class ViewVersion:
    raw: bytes
    version_id: int
    schema_id: int
    timestamp_ms: int
    summary: Mapping[str, str]
    default_catalog: str | None
    default_namespace: tuple[str, ...]
    representations: tuple[ViewRepresentation, ...]

    @property
    def dialects(self) -> tuple[str, ...]:
        """Return the SQL dialects in lower case, in the order of the representations."""
        return tuple(
            part.dialect.lower() for part in self.representations if part.dialect is not None
        )


@dataclass(frozen=True, slots=True)
class ViewHistoryEntry:
    raw: bytes
    version_id: int
    timestamp_ms: int


@dataclass(frozen=True)
class ViewMetadata:
    view_uuid: str
    format_version: int
    location: str
    properties: Mapping[str, str]
    schemas: tuple[Schema, ...]
    current_version_id: int
    versions: tuple[ViewVersion, ...]
    version_log: tuple[ViewHistoryEntry, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Unknown top-level fields as decoded JSON."""

    @property
    def current_version(self) -> ViewVersion:
        return next(
            version for version in self.versions if version.version_id == self.current_version_id
        )

    @property
    def current_schema(self) -> Schema:
        schema_id = self.current_version.schema_id
        return next(schema for schema in self.schemas if schema.schema_id == schema_id)


_KNOWN: Final = frozenset(
    own.name.replace("_", "-") for own in fields(ViewMetadata) if own.name != "extra"
)


def parse_view_version(raw: bytes | Raw, what: str = "view-version") -> ViewVersion:
    return _version(json_object.decode_object(raw, what), what)


def _version(value: dict[str, Any], what: str) -> ViewVersion:
    for key in ("summary", "default-namespace"):
        if value.get(key) is None:
            raise BadRequest(f"{what}: '{key}' is missing")
    catalog = value.get("default-catalog")
    if catalog is not None and not isinstance(catalog, str):
        raise BadRequest(f"{what}: 'default-catalog' must be a string")
    namespace = json_object.get_list(value, "default-namespace", what)
    if not all(isinstance(level, str) for level in namespace):
        raise BadRequest(f"{what}: 'default-namespace' must be a list of strings")
    representations = json_object.get_list(value, "representations", what)
    return ViewVersion(
        json_object.encode(value),
        json_object.get_int(value, "version-id", what),
        json_object.get_int(value, "schema-id", what),
        json_object.get_long(value, "timestamp-ms", what),
        json_object.get_strings(value, "summary", what),
        catalog,
        tuple(namespace),
        tuple(
            _representation(item, f"{what}.representations[{position}]")
            for position, item in enumerate(representations)
        ),
    )


def _representation(value: object, what: str) -> ViewRepresentation:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} must be an object with type, sql and dialect")
    kind = json_object.get_str(value, "type", what).lower()
    if kind != "sql":
        return ViewRepresentation(kind, None, value)
    json_object.get_str(value, "sql", what)
    return ViewRepresentation(kind, json_object.get_str(value, "dialect", what), value)


def _history_entry(value: object, what: str) -> ViewHistoryEntry:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} must be an object with timestamp-ms and version-id")
    return ViewHistoryEntry(
        json_object.encode(value),
        json_object.get_int(value, "version-id", what),
        json_object.get_long(value, "timestamp-ms", what),
    )


def new_history_entry(version_id: int, timestamp_ms: int) -> ViewHistoryEntry:
    raw = json_object.encode({"timestamp-ms": timestamp_ms, "version-id": version_id})
    return ViewHistoryEntry(raw, version_id, timestamp_ms)


def parse_view_metadata(data: bytes) -> ViewMetadata:
    """Parse a metadata file. It may be compressed, which is Java's default for views."""
    what = "view metadata"
    value = json_object.decode_object(_plain(data), what)
    metadata = ViewMetadata(
        view_uuid=json_object.get_str(value, "view-uuid", what),
        format_version=json_object.get_int(value, "format-version", what),
        location=json_object.get_str(value, "location", what),
        properties=json_object.get_strings(value, "properties", what),
        schemas=tuple(
            parse_schema(json_object.encode(item))
            for item in json_object.get_list(value, "schemas", what)
        ),
        current_version_id=json_object.get_int(value, "current-version-id", what),
        versions=tuple(_versions(json_object.get_list(value, "versions", what))),
        version_log=tuple(
            _history_entry(item, f"version-log[{position}]")
            for position, item in enumerate(json_object.get_list(value, "version-log", what))
        ),
        extra={key: item for key, item in value.items() if key not in _KNOWN},
    )
    check_view_metadata(metadata)
    return metadata


def _plain(data: bytes) -> bytes:
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        return inflate(data, MAX_VIEW_METADATA_BYTES)
    except InvalidMetadata as error:
        raise BadRequest(f"view metadata: {error}") from None


def _versions(items: list[Any]) -> Sequence[ViewVersion]:
    versions = []
    for position, item in enumerate(items):
        what = f"versions[{position}]"
        if not isinstance(item, dict):
            raise BadRequest(f"{what} must be an object")
        versions.append(_version(item, what))
    return versions


def check_view_metadata(metadata: ViewMetadata) -> None:
    """Check that a view has a known format version, unique ids and a current version."""
    if not 1 <= metadata.format_version <= SUPPORTED_VIEW_FORMAT_VERSION:
        raise BadRequest(f"Unsupported format version: {metadata.format_version}")
    version_ids = [version.version_id for version in metadata.versions]
    schema_ids = [schema.schema_id for schema in metadata.schemas]
    if len(set(version_ids)) != len(version_ids):
        raise BadRequest(f"Invalid view: version-id is used twice in versions: {version_ids}")
    if len(set(schema_ids)) != len(schema_ids):
        raise BadRequest(f"Invalid view: schema-id is used twice in schemas: {schema_ids}")
    if metadata.current_version_id not in version_ids:
        raise BadRequest(
            f"Cannot find current version {metadata.current_version_id} "
            f"in view versions: {version_ids}"
        )
    if metadata.current_version.schema_id not in schema_ids:
        raise BadRequest(
            f"Cannot find current schema with id {metadata.current_version.schema_id} "
            f"in schemas: {schema_ids}"
        )


def encode_view_metadata(metadata: ViewMetadata) -> bytes:
    """Return the JSON of the metadata file. The response to a load contains the same JSON."""
    value: dict[str, Any] = {
        "view-uuid": metadata.view_uuid,
        "format-version": metadata.format_version,
        "location": metadata.location,
    }
    if metadata.properties:
        value["properties"] = metadata.properties
    value["schemas"] = _raws(metadata.schemas)
    value["current-version-id"] = metadata.current_version_id
    value["versions"] = _raws(metadata.versions)
    value["version-log"] = _raws(metadata.version_log)
    return json_object.encode(value | dict(metadata.extra))


def _raws(parts: Sequence[Schema | ViewVersion | ViewHistoryEntry]) -> list[Raw]:
    return [Raw(part.raw) for part in parts]


def new_view_location(metadata: ViewMetadata, version: int) -> str:
    """Return a new location for the next metadata file, with a name as in Java."""
    folder = (
        metadata.properties.get(WRITE_METADATA_PATH) or f"{_trimmed(metadata.location)}/metadata"
    )
    return f"{_trimmed(folder)}/{version:05}-{uuid4()}.metadata.json"


def _trimmed(location: str) -> str:
    return location.rstrip("/")
