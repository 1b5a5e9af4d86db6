"""Creates tables from create requests and from commits of staged creates."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from frazil.commit.snapshot.file_writer import NextFile, not_written, table_file
from frazil.commit.snapshot.table_locations import TableLocations, row_uuid
from frazil.db.base import DatabaseUnavailable, Kind, Relation
from frazil.db.changes import name_taken
from frazil.db.rows import Database
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.object_store import Store, StoreError
from frazil.wire.errors import CommitStateUnknown, FrazilError, NoSuchNamespace
from frazil.wire.identifiers import Identifier, namespace_text
from frazil.wire.rest_messages import CreateTableRequest


@dataclass(frozen=True, slots=True)
class CreatedTable:
    """The row and first metadata file of a table that does not exist yet."""

    relation: Relation
    file: NextFile[TableMetadata]
    locations: tuple[str, ...]


class TableCreation:
    def __init__(self, database: Database, store: Store, locations: TableLocations) -> None:
        self._database = database
        self._store = store
        self._locations = locations

    def check_name_is_free(self, identifier: Identifier) -> None:
        """Check early to give a clear message. The database checks again in the transaction."""
        row = self._database.relation(identifier)
        if row is not None:
            raise name_taken(Kind.TABLE, row.kind, identifier)
        if self._database.namespace_properties(identifier.namespace) is None:
            raise NoSuchNamespace(
                f"Namespace does not exist: {namespace_text(identifier.namespace)}"
            )

    def created(
        self, identifier: Identifier, metadata: TableMetadata, *, is_new_uuid: bool = False
    ) -> CreatedTable:
        """Return the first metadata file and the row of a table."""
        locations = self._locations.owned(metadata)
        self._locations.check_statistics(None, metadata)
        file = table_file(metadata, 0)
        # If the client chose a uuid that was used before, the version numbers continue.
        last_version = 0
        if metadata.table_uuid is not None and not is_new_uuid:
            last_version = self._database.last_version(metadata.table_uuid)
        relation = Relation(
            Kind.TABLE, identifier, row_uuid(metadata), file.location, last_version + 1
        )
        return CreatedTable(relation, file, locations)

    def make_folders(self, created: CreatedTable) -> None:
        """Create the table's folders before its row, because a client may write there once it
        sees the table.

        The owner of the location is checked first, so that a refused request leaves no folder in
        another table. The database checks again in the transaction.
        """
        for location in created.locations:
            self._database.check_location_is_free(location, created.relation.uuid)
        try:
            self._store.make_folders(_table_folders(created.file.metadata))
        except StoreError as error:
            self.remove_empty_folders(created.locations, created.relation.uuid)
            raise not_written("the table's folders could not be made", error) from error

    def remove_folders_if_failed(self, created: CreatedTable, done: Future[Any]) -> None:
        """Remove the folders if the table was certainly not created."""
        error = done.exception()
        if isinstance(error, FrazilError) and not isinstance(error, CommitStateUnknown):
            self.remove_empty_folders(created.locations, created.relation.uuid)

    def remove_empty_folders(self, locations: Iterable[str], uuid: str) -> None:
        """Remove the empty folders of a table that does not exist. If this fails, they are
        harmless."""
        with suppress(FrazilError, StoreError, DatabaseUnavailable):
            for location in locations:
                # Another table may have this location by now, and its writers expect its folders.
                self._database.check_location_is_free(location, uuid)
                self._store.remove_empty_folders(location)


def metadata_of_create(request: CreateTableRequest, location: str, now_ms: int) -> TableMetadata:
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


def _table_folders(metadata: TableMetadata) -> list[str]:
    """Return the folders in which clients write local files before the commit.

    The folders that the client chose are first. If one of them cannot be created, no other was
    created before.
    """
    base = metadata.location.rstrip("/")
    folders = {"write.data.path": f"{base}/data", "write.metadata.path": f"{base}/metadata"}
    chosen = {name: text for name, text in metadata.properties.items() if name in folders}
    return [*chosen.values(), *(folders[name] for name in folders if name not in chosen)]
