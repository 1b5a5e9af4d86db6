"""Tables that come into being: by a create, or by the commit of a staged create."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frazil.commit.apply import Applied, AppliedTable, added_snapshots, committed_snapshots
from frazil.commit.subjects import NextFile, table_file
from frazil.commit.territory import Territory
from frazil.db.base import Kind, Relation
from frazil.format.table_builder import create_from_updates, new_table
from frazil.format.table_metadata import TableMetadata
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier
from frazil.wire.requests import CommitTableRequest, CreateTableRequest
from frazil.wire.updates import AssertCreate


@dataclass(frozen=True, slots=True)
class CreatedTable:
    relation: Relation
    applied: AppliedTable
    file: NextFile[TableMetadata]
    locations: tuple[str, ...]


def is_create(request: CommitTableRequest) -> bool:
    """Whether a commit brings a table into being; it can then require nothing else."""
    create = any(isinstance(item, AssertCreate) for item in request.requirements)
    if create and not all(isinstance(item, AssertCreate) for item in request.requirements):
        raise BadRequest(
            "requirements: assert-create stands alone, because nothing else can hold for a "
            "table that does not exist yet"
        )
    return create


def created_by_commit(
    identifier: Identifier,
    request: CommitTableRequest,
    territory: Territory,
    last_version: Callable[[str], int],
    now_ms: int,
) -> CreatedTable:
    """The client chose the uuid, and it may have lived before: its versions are counted on."""
    metadata = create_from_updates(request.updates, now_ms=now_ms)
    added = added_snapshots(request.updates)
    applied = Applied(metadata, committed_snapshots(metadata, added))
    version = last_version(metadata.table_uuid) + 1 if metadata.table_uuid else 1
    return first_file(identifier, metadata, applied, territory, version)


def created_by_request(request: CreateTableRequest, location: str, now_ms: int) -> TableMetadata:
    properties: Mapping[str, str] = request.properties or {}
    return new_table(
        schema=bytes(request.schema),
        spec=None if request.partition_spec is None else bytes(request.partition_spec),
        order=None if request.write_order is None else bytes(request.write_order),
        location=location,
        properties=properties,
        uuid=str(uuid.uuid4()),
        now_ms=now_ms,
    )


def first_file(
    identifier: Identifier,
    metadata: TableMetadata,
    applied: AppliedTable,
    territory: Territory,
    version: int = 1,
) -> CreatedTable:
    """The first metadata file of a table, and its row."""
    locations = territory.owned(metadata)
    territory.check_statistics(None, metadata)
    file = table_file(metadata, 0)
    relation = Relation(Kind.TABLE, identifier, row_uuid(metadata), file.location, version)
    return CreatedTable(relation, applied, file, locations)


def row_uuid(metadata: TableMetadata) -> str:
    """The uuid of the table's row: its own, or one of ours for a version 1 table without."""
    if metadata.table_uuid is None:
        return str(uuid.uuid4())
    return check_uuid(metadata.table_uuid, "table-uuid")


def check_uuid(text: str, field: str) -> str:
    """Other texts may be of any length, and assign-uuid could never have set them."""
    try:
        proper = str(uuid.UUID(text)) == text.lower()
    except ValueError:
        proper = False
    if not proper:
        raise BadRequest(f"{field}: {text[:64]!r} is not a UUID")
    return text


def table_folders(metadata: TableMetadata) -> list[str]:
    """Clients that write to local files before the commit expect these to be there. Those that
    the client chose come first: where one cannot be made, no other has been."""
    base = metadata.location.rstrip("/")
    folders = {"write.data.path": f"{base}/data", "write.metadata.path": f"{base}/metadata"}
    chosen = {name: text for name, text in metadata.properties.items() if name in folders}
    return [*chosen.values(), *(folders[name] for name in folders if name not in chosen)]
