"""Builds view metadata from updates, as Java's `ViewMetadata.Builder` does.

The updates of a request change a draft. At the end the draft becomes metadata, and the rules about
the whole request are checked. A retry applies the same updates to newer metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec import Raw

from frazil.format.metadata import json_object
from frazil.format.metadata.schema import Schema, parse_schema, same_schema, with_schema_id
from frazil.format.metadata.view_metadata import (
    SUPPORTED_VIEW_FORMAT_VERSION,
    ViewHistoryEntry,
    ViewMetadata,
    ViewVersion,
    check_view_metadata,
    new_history_entry,
    parse_view_version,
)
from frazil.wire.errors import BadRequest, CommitFailed, IllegalArgument
from frazil.wire.frazil_properties import check_properties_of
from frazil.wire.rest_updates import (
    AddSchema,
    AddViewVersion,
    AssignUUID,
    RemoveProperties,
    SetCurrentViewVersion,
    SetLocation,
    SetProperties,
    UpgradeFormatVersion,
    ViewRequirement,
    ViewUpdate,
)

LAST_ADDED: Final = -1
FIRST_VERSION_ID: Final = 1
VERSION_HISTORY_SIZE: Final = "version.history.num-entries"
VERSION_HISTORY_SIZE_DEFAULT: Final = 10
REPLACE_DROP_DIALECT_ALLOWED: Final = "replace.drop-dialect.allowed"

_MAX_INT: Final = 2**31 - 1


def new_view(
    *,
    location: str,
    schema: bytes | Raw,
    view_version: bytes | Raw,
    properties: Mapping[str, str],
    uuid: str,
    now_ms: int,
) -> ViewMetadata:
    """Return a view with one version. The server assigns its ids (schema 0, version 1) and its
    time."""
    check_properties_of("view", properties, {})
    first_schema = with_schema_id(parse_schema(schema), 0)
    sent = parse_view_version(view_version)
    first = _with_fields(
        sent,
        {
            "version-id": FIRST_VERSION_ID,
            "schema-id": first_schema.schema_id,
            "timestamp-ms": now_ms,
        },
    )
    _check_representations(first)
    metadata = ViewMetadata(
        view_uuid=uuid,
        format_version=SUPPORTED_VIEW_FORMAT_VERSION,
        location=location,
        properties=dict(properties),
        schemas=(first_schema,),
        current_version_id=FIRST_VERSION_ID,
        versions=(first,),
        version_log=(new_history_entry(FIRST_VERSION_ID, now_ms),),
    )
    _history_size(metadata.properties)
    return metadata


def apply_view_updates(
    base: ViewMetadata, updates: Sequence[ViewUpdate], *, now_ms: int
) -> ViewMetadata:
    """Return the view after the updates, or the same object if they change nothing."""
    draft = _Draft.of(base)
    for update in updates:
        _APPLY[type(update)](draft, update)
    return _finish(base, draft, now_ms)


def check_view_requirements(
    metadata: ViewMetadata, requirements: Sequence[ViewRequirement]
) -> None:
    """Raise CommitFailed if a requirement fails."""
    for requirement in requirements:
        if requirement.uuid.lower() != metadata.view_uuid.lower():
            raise CommitFailed(
                "Requirement failed: view UUID does not match: "
                f"expected {metadata.view_uuid} != {requirement.uuid}"
            )


@dataclass(slots=True)
class _Draft:
    """View metadata while the updates of a request are applied."""

    uuid: str
    format_version: int
    location: str
    properties: dict[str, str]
    schemas: list[Schema]
    versions: list[ViewVersion]
    current_version_id: int
    last_added_schema_id: int | None = None
    last_added_version_id: int | None = None
    added_version_ids: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, base: ViewMetadata) -> _Draft:
        return cls(
            base.view_uuid,
            base.format_version,
            base.location,
            dict(base.properties),
            list(base.schemas),
            list(base.versions),
            base.current_version_id,
        )

    def version(self, version_id: int) -> ViewVersion | None:
        return next((known for known in self.versions if known.version_id == version_id), None)


def _assign_uuid(draft: _Draft, update: AssignUUID) -> None:
    if update.uuid != draft.uuid:
        raise BadRequest(f"Cannot reassign uuid: the view has {draft.uuid}")


def _upgrade_format_version(draft: _Draft, update: UpgradeFormatVersion) -> None:
    if update.format_version < draft.format_version:
        raise BadRequest(
            f"Cannot downgrade v{draft.format_version} view to v{update.format_version}"
        )
    if update.format_version > SUPPORTED_VIEW_FORMAT_VERSION:
        raise BadRequest(f"Unsupported format version: {update.format_version}")
    draft.format_version = update.format_version


def _set_location(draft: _Draft, update: SetLocation) -> None:
    draft.location = update.location


def _set_properties(draft: _Draft, update: SetProperties) -> None:
    check_properties_of("view", update.updates, draft.properties)
    draft.properties.update(update.updates)


def _remove_properties(draft: _Draft, update: RemoveProperties) -> None:
    for name in update.removals:
        draft.properties.pop(name, None)


def _add_schema(draft: _Draft, update: AddSchema) -> None:
    """Add a schema with a new id, or use an existing equal one.

    In the second case -1 means the existing schema. In Java a version with -1 then fails if another
    writer was faster with the same schema.
    """
    schema = parse_schema(update.schema)
    known = next((known for known in draft.schemas if same_schema(known, schema)), None)
    if known is None:
        next_id = max((known.schema_id for known in draft.schemas), default=-1) + 1
        if next_id > _MAX_INT:
            raise BadRequest(f"add-schema.schema: the view has used its highest id, {_MAX_INT}")
        known = with_schema_id(schema, max(next_id, 0))
        draft.schemas.append(known)
    draft.last_added_schema_id = known.schema_id


def _add_view_version(draft: _Draft, update: AddViewVersion) -> None:
    """Add a version. It keeps its id if that is above all others, and gets the next one otherwise.

    As for schemas, -1 means an existing equal version if there is one.
    """
    version = _with_schema(draft, parse_view_version(update.view_version))
    known = next((known for known in draft.versions if _same_version(known, version)), None)
    if known is not None:
        draft.last_added_version_id = known.version_id
        return
    if version.schema_id not in {schema.schema_id for schema in draft.schemas}:
        raise BadRequest(f"Cannot add version with unknown schema: {version.schema_id}")
    _check_representations(version)
    highest = max((known.version_id for known in draft.versions), default=0)
    version = _with_fields(version, {"version-id": max(version.version_id, highest + 1)})
    draft.versions.append(version)
    draft.added_version_ids.add(version.version_id)
    draft.last_added_version_id = version.version_id


def _with_schema(draft: _Draft, version: ViewVersion) -> ViewVersion:
    if version.schema_id != LAST_ADDED:
        return version
    if draft.last_added_schema_id is None:
        raise BadRequest("Cannot set last added schema: no schema has been added")
    return _with_fields(version, {"schema-id": draft.last_added_schema_id})


def _set_current_view_version(draft: _Draft, update: SetCurrentViewVersion) -> None:
    version_id: int | None = update.view_version_id
    if version_id == LAST_ADDED:
        version_id = draft.last_added_version_id
        if version_id is None:
            raise BadRequest("Cannot set last version id: no current version id has been set")
    if version_id is None or draft.version(version_id) is None:
        raise BadRequest(f"Cannot set current version to unknown version: {version_id}")
    draft.current_version_id = version_id


_APPLY: Final[Mapping[type, Callable[[_Draft, Any], None]]] = {
    AssignUUID: _assign_uuid,
    UpgradeFormatVersion: _upgrade_format_version,
    SetLocation: _set_location,
    SetProperties: _set_properties,
    RemoveProperties: _remove_properties,
    AddSchema: _add_schema,
    AddViewVersion: _add_view_version,
    SetCurrentViewVersion: _set_current_view_version,
}


def _same_version(left: ViewVersion, right: ViewVersion) -> bool:
    """Check whether two versions are equal except for id and time, as Java's `sameViewVersion`
    does."""
    return (
        left.schema_id == right.schema_id
        and left.summary == right.summary
        and left.default_catalog == right.default_catalog
        and left.default_namespace == right.default_namespace
        and left.representations == right.representations
    )


def _check_representations(version: ViewVersion) -> None:
    if not version.representations:
        raise BadRequest("view-version: 'representations' is empty: give at least one query")
    seen: set[str] = set()
    for dialect in version.dialects:
        if dialect in seen:
            raise IllegalArgument(
                f"Invalid view version: Cannot add multiple queries for dialect {dialect}"
            )
        seen.add(dialect)


def _with_fields(version: ViewVersion, fields: Mapping[str, int]) -> ViewVersion:
    value = json_object.decode_object(version.raw, "view-version")
    return parse_view_version(json_object.encode(value | dict(fields)))


def _finish(base: ViewMetadata, draft: _Draft, now_ms: int) -> ViewMetadata:
    metadata = replace(
        base,
        format_version=draft.format_version,
        location=draft.location,
        properties=draft.properties,
        schemas=tuple(draft.schemas),
        current_version_id=draft.current_version_id,
        versions=tuple(draft.versions),
        version_log=base.version_log + _new_entries(base, draft, now_ms),
    )
    if metadata == base:
        return base
    _check_dialects_kept(base, metadata)
    metadata = _expire_versions(metadata, draft.added_version_ids)
    check_view_metadata(metadata)
    return metadata


def _new_entries(base: ViewMetadata, draft: _Draft, now_ms: int) -> tuple[ViewHistoryEntry, ...]:
    """Return one history entry for the whole request, with the time of its own version."""
    current = draft.version(draft.current_version_id)
    if current is None or current.version_id == base.current_version_id:
        return ()
    added = current.version_id in draft.added_version_ids
    return (new_history_entry(current.version_id, current.timestamp_ms if added else now_ms),)


def _check_dialects_kept(base: ViewMetadata, metadata: ViewMetadata) -> None:
    allowed = metadata.properties.get(REPLACE_DROP_DIALECT_ALLOWED, "false")
    if allowed.lower() == "true":
        return
    previous, new = set(base.current_version.dialects), set(metadata.current_version.dialects)
    if not previous <= new:
        raise BadRequest(
            "Cannot replace view due to loss of view dialects "
            f"({REPLACE_DROP_DIALECT_ALLOWED}=false):\n"
            f"Previous dialects: {sorted(previous)}\nNew dialects: {sorted(new)}"
        )


def _expire_versions(metadata: ViewMetadata, added: set[int]) -> ViewMetadata:
    """Keep the newest versions by id, and always the current one and those that were just added."""
    keep = max(_history_size(metadata.properties), len(added | {metadata.current_version_id}))
    if len(metadata.versions) <= keep:
        return metadata
    others = {version.version_id for version in metadata.versions} - {metadata.current_version_id}
    kept = {metadata.current_version_id, *sorted(others, reverse=True)[: keep - 1]}
    return replace(
        metadata,
        versions=tuple(version for version in metadata.versions if version.version_id in kept),
        version_log=_known_history(metadata.version_log, kept),
    )


def _known_history(
    log: tuple[ViewHistoryEntry, ...], kept: set[int]
) -> tuple[ViewHistoryEntry, ...]:
    """Return the entries after the last expired version, because a history has no gaps."""
    known: list[ViewHistoryEntry] = []
    for entry in log:
        if entry.version_id in kept:
            known.append(entry)
        else:
            known.clear()
    return tuple(known)


def _history_size(properties: Mapping[str, str]) -> int:
    text = properties.get(VERSION_HISTORY_SIZE)
    if text is None:
        return VERSION_HISTORY_SIZE_DEFAULT
    try:
        size = int(text)
    except ValueError:
        raise BadRequest(f"{VERSION_HISTORY_SIZE} must be an integer but was {text!r}") from None
    if size <= 0:
        raise BadRequest(f"{VERSION_HISTORY_SIZE} must be positive but was {size}")
    return size
