"""What lies in a table's data folder, held against what its snapshots have."""

from __future__ import annotations

from frazil.client.declare.client_table import Table
from frazil.datafiles.reading.file_storage import storage_of
from frazil.spark.session import Session
from frazil.spark.writing.write_commit import data_location


def files_of(session: Session, name: str) -> set[str]:
    """Every file in the table's data folder, whoever has put it there."""
    table = session.client.load_table(name)
    storage = storage_of(session.context.properties, table.config)
    return set(storage.list(data_location(table)))


def declared_files(table: Table) -> set[str]:
    """The data and delete files of all snapshots."""
    found: set[str] = set()
    for snapshot in table.metadata.get("snapshots", ()):
        for task in table.plan(snapshot=snapshot["snapshot-id"]).tasks:
            found.add(task.data_file.file_path)
            found.update(file.file_path for file in task.delete_files)
    return found


def strays(session: Session, name: str) -> set[str]:
    """Files that no snapshot has."""
    return files_of(session, name) - declared_files(session.client.load_table(name))
