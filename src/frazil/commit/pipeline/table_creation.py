"""Tables that come into being: by a create, or by the commit of a staged create."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frazil.commit.pipeline.relation_kinds import NextFile, table_file
from frazil.commit.snapshot.apply_request import (
    Applied,
    AppliedTable,
    added_snapshots,
    committed_snapshots,
)
from frazil.commit.snapshot.commit_environment import Environment
from frazil.commit.snapshot.stream_epochs import branch_of, stream_row, summary_of
from frazil.commit.snapshot.table_locations import Territory, row_uuid
from frazil.commit.snapshot.updates import created
from frazil.db.base import Kind, Relation, StreamRow
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier
from frazil.wire.rest_messages import CommitTableRequest, CreateTableRequest
from frazil.wire.rest_updates import AssertCreate


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
    environment: Environment,
) -> CreatedTable:
    """The client chose the uuid, and it may have lived before: its versions are counted on."""
    result = created(request.updates, environment, summary_of(request.once))
    metadata = result.metadata
    classic = committed_snapshots(metadata, added_snapshots(request.updates))
    committed = (*classic, *result.committed)
    streams: tuple[StreamRow, ...] = ()
    if request.once is not None:
        branch = branch_of(request.updates)
        streams = (stream_row(row_uuid(metadata), request.once, branch, committed),)
    applied = Applied(metadata, committed, result.files, streams)
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


def table_folders(metadata: TableMetadata) -> list[str]:
    """Clients that write to local files before the commit expect these to be there. Those that
    the client chose come first: where one cannot be made, no other has been."""
    base = metadata.location.rstrip("/")
    folders = {"write.data.path": f"{base}/data", "write.metadata.path": f"{base}/metadata"}
    chosen = {name: text for name, text in metadata.properties.items() if name in folders}
    return [*chosen.values(), *(folders[name] for name in folders if name not in chosen)]
