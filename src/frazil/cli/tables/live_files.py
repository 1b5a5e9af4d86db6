"""Read the live files of a snapshot from the table's manifests.

The REST protocol cannot list files, so the server's own readers read the manifests here. If they
are not installed, or this machine cannot access the store, FilesUnavailable is raised, and the
commands use the snapshot summaries instead.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from frazil.cli.shared.catalog_command import progress
from frazil.extras import install_command
from frazil.wire.errors import BadRequest, ValidationError

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table
    from frazil.format.manifest.manifest_columns import ManifestColumns
    from frazil.format.manifest.manifest_list import ManifestFile
    from frazil.read.manifest_cache import ManifestReader
    from frazil.store.store_router import RoutingStore

CONTENTS: Final = ("data", "position-deletes", "equality-deletes")
DELETION_VECTOR: Final = "deletion-vector"
_MANIFESTS_PER_BATCH: Final = 16

Advance = Callable[[int, int], None]
"""Called with the number of manifests read and the number of all."""


class FilesUnavailable(Exception):
    """The manifests cannot be read here; the message says why, and `fix` what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class LiveFile(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """A live data file, delete file or deletion vector."""

    content: str
    """One of CONTENTS, or DELETION_VECTOR."""
    file_path: str
    spec_id: int
    partition: str
    """The partition in the form of Java's partitionToPath; empty if unpartitioned."""
    record_count: int
    size_in_bytes: int
    """The size of the file, or of a deletion vector's part of its Puffin file."""
    content_offset: int | None = None
    referenced_data_file: str | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """Return path and offset, because one Puffin file contains many deletion vectors."""
        return self.file_path, self.content_offset


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that differ between two snapshots."""

    added: tuple[LiveFile, ...]
    removed: tuple[LiveFile, ...]


class FileReader:
    """Reads the live files of one table's snapshots."""

    def __init__(self, table: Table, reader: ManifestReader, advance: Advance) -> None:
        self._table = table
        self._reader = reader
        self._advance = advance
        self._partition_texts: dict[int, Callable[[Sequence[Any]], str]] = {}

    def live(self, snapshot: Snapshot | None) -> list[LiveFile]:
        """Return the live files of a snapshot."""
        with _explain_errors(self._table):
            return self._files(self._manifests(snapshot))

    def changes(self, old: Snapshot | None, new: Snapshot | None) -> FileChanges:
        """Return the files that are live in only one of two snapshots.

        Manifests never change, so those that both snapshots list are not read.
        """
        with _explain_errors(self._table):
            before, after = self._manifests(old), self._manifests(new)
            shared = {each.manifest_path for each in before}
            shared &= {each.manifest_path for each in after}
            only_before = [each for each in before if each.manifest_path not in shared]
            only_after = [each for each in after if each.manifest_path not in shared]
            count = len(only_before) + len(only_after)
            old_files = self._files(only_before, 0, count)
            new_files = self._files(only_after, len(only_before), count)
        return FileChanges(
            added=_difference(new_files, old_files), removed=_difference(old_files, new_files)
        )

    def _manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        from frazil.format.manifest.manifest_list import may_have_live

        if snapshot is None:
            return []
        listed = self._reader.manifest_list(_parsed_snapshot(self._table, snapshot)).manifests
        return [manifest for manifest in listed if may_have_live(manifest)]

    def _files(
        self, listed: Sequence[ManifestFile], done: int = 0, count: int | None = None
    ) -> list[LiveFile]:
        files: list[LiveFile] = []
        total = len(listed) if count is None else count
        for start in range(0, len(listed), _MANIFESTS_PER_BATCH):
            batch = listed[start : start + _MANIFESTS_PER_BATCH]
            for manifest, columns in zip(batch, self._reader.columns_of(batch), strict=True):
                files += self._of_manifest(manifest.partition_spec_id, columns)
            self._advance(done + start + len(batch), total)
        return files

    def _of_manifest(self, spec_id: int, columns: ManifestColumns) -> Iterator[LiveFile]:
        text = self._partition_texts.get(spec_id)
        if text is None:
            text = self._partition_texts[spec_id] = _partition_text(self._table, spec_id)
        partitions = [text(values) for values in columns.partitions]
        deletes = columns.deletes
        # Converting numpy values one by one would be slow.
        contents, sizes = columns.content.tolist(), columns.file_size_in_bytes.tolist()
        records, partition_rows = columns.record_count.tolist(), columns.partition.tolist()
        for row in columns.live().nonzero()[0].tolist():
            offset = -1 if deletes is None else int(deletes.content_offset[row])
            content, size = CONTENTS[contents[row]], sizes[row]
            if deletes is not None and offset >= 0:
                content, size = DELETION_VECTOR, int(deletes.content_size_in_bytes[row])
            yield LiveFile(
                content=content,
                file_path=columns.path(row),
                spec_id=spec_id,
                partition=partitions[partition_rows[row]],
                record_count=records[row],
                size_in_bytes=size,
                content_offset=offset if offset >= 0 else None,
                referenced_data_file=None if deletes is None else deletes.referenced_data_file[row],
            )


def _difference(files: Sequence[LiveFile], others: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
    """Subtract files, counting paths, because a path may be live twice in a table."""
    known = Counter(file.key for file in others)
    remaining = []
    for file in files:
        if known[file.key]:
            known[file.key] -= 1
        else:
            remaining.append(file)
    return tuple(remaining)


def _parsed_snapshot(table: Table, snapshot: Snapshot) -> Any:
    """Parse a snapshot for the server's readers; old tables list their manifests in it."""
    from frazil.format.metadata.snapshots import parse_snapshot

    raw = next(
        each for each in table.metadata["snapshots"] if each["snapshot-id"] == snapshot.snapshot_id
    )
    return parse_snapshot(msgspec.json.encode(raw))


def _partition_text(table: Table, spec_id: int) -> Callable[[Sequence[Any]], str]:
    from frazil.format.metadata.partition_spec import (
        parse_partition_spec,
        partition_path,
        partition_type,
    )
    from frazil.format.metadata.schema import parse_schema

    spec = parse_partition_spec(msgspec.json.encode(table.spec(spec_id)))
    current = table.metadata["current-schema-id"]
    # If a source column was dropped, an older schema has its type.
    schemas = sorted(table.metadata["schemas"], key=lambda schema: schema["schema-id"] != current)
    parsed = [parse_schema(msgspec.json.encode(schema)) for schema in schemas]
    sources = {part.source_id for part in spec.fields}
    complete = (each for each in parsed if all(each.find_type(source) for source in sources))
    kind = partition_type(spec, next(complete, parsed[0]))
    return lambda values: partition_path(spec, kind, values)


# --- opening --------------------------------------------------------------------------------------


@contextmanager
def open_files(table: Table) -> Iterator[FileReader]:
    """Open a reader of the table's files, with a progress bar; may raise FilesUnavailable."""
    with _explain_errors(table):
        from frazil.read.manifest_cache import ManifestCache, ManifestReader

        store = _open_store(table.config)
    try:
        with progress("reading manifests") as advance:
            reader = ManifestReader(ManifestCache(), store, lambda location: None)
            yield FileReader(table, reader, advance)
    finally:
        store.close()


def _open_store(properties: Mapping[str, str]) -> RoutingStore:
    """Open the store with the properties of catalog and table, which have PyIceberg's names.

    Missing keys come from AWS's usual sources.
    """
    from frazil.store.object_store import StoreError
    from frazil.store.s3_settings import S3Settings
    from frazil.store.store_router import open_store

    credentials = {
        "AWS_ACCESS_KEY_ID": properties.get("s3.access-key-id"),
        "AWS_SECRET_ACCESS_KEY": properties.get("s3.secret-access-key"),
        "AWS_SESSION_TOKEN": properties.get("s3.session-token"),
    }
    keys = {name: value for name, value in credentials.items() if value}
    environ = {**os.environ, **keys}
    if keys and "AWS_SESSION_TOKEN" not in keys:
        environ.pop("AWS_SESSION_TOKEN", None)
    path_style = properties.get("s3.path-style-access")
    try:
        settings = S3Settings.completed(
            properties.get("s3.endpoint"),
            properties.get("s3.region") or properties.get("client.region"),
            None if path_style is None else path_style.lower() == "true",
            environ,
        )
    except ValueError as error:
        raise StoreError(str(error)) from error
    return open_store(settings, environ)


@contextmanager
def _explain_errors(table: Table) -> Iterator[None]:
    """Turn errors into FilesUnavailable with a fix."""
    from frazil.store.object_store import StoreError
    from frazil.store.s3_settings import ProfileError

    try:
        yield
    except ModuleNotFoundError as error:
        raise FilesUnavailable(
            f"reading manifests needs {error.name}, which is not installed",
            install_command("server"),
        ) from error
    except BadRequest as error:
        raise FilesUnavailable(
            f"the files of {table} cannot be read: {error}",
            "only local files and S3 are read by this command",
        ) from error
    except ValidationError as error:
        raise FilesUnavailable(
            f"the files of {table} cannot be read: {error}",
            "run this where the table's location can be read "
            f"({table.location}), for example on the server's machine",
        ) from error
    except (StoreError, ProfileError) as error:
        raise FilesUnavailable(
            f"the store of {table} cannot be reached: {error}",
            "check its keys and endpoint: AWS_* variables, or s3.* properties of the catalog",
        ) from error
