"""Compares the files in a table's data folder with those of its snapshots."""

from __future__ import annotations

from frazil.client.declare.client_table import Table
from frazil.datafiles.reading.file_storage import storage_of
from frazil.spark.session import Session
from frazil.spark.writing.write_commit import data_location


def files_of(session: Session, name: str) -> set[str]:
    """Return every file in the table's data folder, whoever wrote it."""
    table = session.client.load_table(name)
    storage = storage_of(session.context.properties, table.config)
    return set(storage.list(data_location(table)))


def declared_files(table: Table) -> set[str]:
    """Return the data and delete files of all snapshots."""
    found: set[str] = set()
    for snapshot in table.metadata.get("snapshots", ()):
        for task in table.plan(snapshot=snapshot["snapshot-id"]).tasks:
            found.add(task.data_file.file_path)
            found.update(file.file_path for file in task.delete_files)
    return found


def strays(session: Session, name: str) -> set[str]:
    """Return the files that belong to no snapshot."""
    return files_of(session, name) - declared_files(session.client.load_table(name))
