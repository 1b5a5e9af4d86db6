"""The live files of a snapshot, read from the table's own manifests.

The catalog's protocol has no list of files, so the manifests are read here, by the server's own
readers. Where those are not installed, or the store cannot be reached from this machine,
FilesUnavailable says why, and the commands fall back to what the snapshots' summaries tell.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table
    from frazil.format.manifest.manifest_columns import ManifestColumns
    from frazil.format.manifest.manifest_list import ManifestFile
    from frazil.read.manifest_cache import ManifestReader
    from frazil.store.store_router import RoutingStore

CONTENTS: Final = ("data", "position-deletes", "equality-deletes")
DELETION_VECTOR: Final = "deletion-vector"
_BATCH: Final = 16

Advance = Callable[[int, int], None]
"""Told how many manifests are read, and of how many."""


class FilesUnavailable(Exception):
    """The manifests cannot be read here; the message says why, `fix` what to do about it."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class LiveFile:
    content: str
    """One of CONTENTS, or DELETION_VECTOR."""
    file_path: str
    spec_id: int
    partition: str
    """As Java's partitionToPath writes it; empty in an unpartitioned spec."""
    record_count: int
    size_bytes: int
    """Of the file; of a deletion vector its own part of the Puffin file."""
    content_offset: int | None = None
    referenced_data_file: str | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """One Puffin file holds many deletion vectors, so the path alone names none of them."""
        return self.file_path, self.content_offset

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "content": self.content,
            "file-path": self.file_path,
            "spec-id": self.spec_id,
            "partition": self.partition,
            "record-count": self.record_count,
            "size-in-bytes": self.size_bytes,
        }
        if self.content_offset is not None:
            found["content-offset"] = self.content_offset
        if self.referenced_data_file is not None:
            found["referenced-data-file"] = self.referenced_data_file
        return found


@dataclass(frozen=True, slots=True)
class FileChanges:
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
        with _explained(self._table):
            return self._files(self._manifests(snapshot))

    def changes(self, old: Snapshot | None, new: Snapshot | None) -> FileChanges:
        """What is live in one of two snapshots and not in the other.

        A manifest never changes, so what both snapshots list needs no reading.
        """
        with _explained(self._table):
            before, after = self._manifests(old), self._manifests(new)
            shared = {one.manifest_path for one in before} & {one.manifest_path for one in after}
            gone = [one for one in before if one.manifest_path not in shared]
            came = [one for one in after if one.manifest_path not in shared]
            count = len(gone) + len(came)
            left = self._files(gone, 0, count)
            right = self._files(came, len(gone), count)
        return FileChanges(added=_minus(right, left), removed=_minus(left, right))

    def _manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        from frazil.format.manifest.manifest_list import may_have_live

        if snapshot is None:
            return []
        listed = self._reader.manifest_list(_whole(self._table, snapshot)).manifests
        return [one for one in listed if may_have_live(one)]

    def _files(
        self, listed: Sequence[ManifestFile], done: int = 0, count: int | None = None
    ) -> list[LiveFile]:
        files: list[LiveFile] = []
        total = len(listed) if count is None else count
        for start in range(0, len(listed), _BATCH):
            batch = listed[start : start + _BATCH]
            for one, columns in zip(batch, self._reader.columns_of(batch), strict=True):
                files += self._of_manifest(one.partition_spec_id, columns)
            self._advance(done + start + len(batch), total)
        return files

    def _of_manifest(self, spec_id: int, columns: ManifestColumns) -> Iterator[LiveFile]:
        text = self._partition_texts.get(spec_id)
        if text is None:
            text = self._partition_texts[spec_id] = _partition_text(self._table, spec_id)
        partitions = [text(values) for values in columns.partitions]
        deletes = columns.deletes
        # One by one, numpy's values cost more than all the rest.
        contents, sizes = columns.content.tolist(), columns.file_size_in_bytes.tolist()
        records, places = columns.record_count.tolist(), columns.partition.tolist()
        for row in columns.live().nonzero()[0].tolist():
            offset = -1 if deletes is None else int(deletes.content_offset[row])
            content, size = CONTENTS[contents[row]], sizes[row]
            if deletes is not None and offset >= 0:
                content, size = DELETION_VECTOR, int(deletes.content_size_in_bytes[row])
            yield LiveFile(
                content=content,
                file_path=columns.path(row),
                spec_id=spec_id,
                partition=partitions[places[row]],
                record_count=records[row],
                size_bytes=size,
                content_offset=offset if offset >= 0 else None,
                referenced_data_file=None if deletes is None else deletes.referenced_data_file[row],
            )


def _minus(files: Sequence[LiveFile], others: Iterable[LiveFile]) -> tuple[LiveFile, ...]:
    """Paths are counted, because a table may allow one to be live twice."""
    known = Counter(file.key for file in others)
    rest = []
    for file in files:
        if known[file.key]:
            known[file.key] -= 1
        else:
            rest.append(file)
    return tuple(rest)


def _whole(table: Table, snapshot: Snapshot) -> Any:
    """The snapshot as the server's readers take it: old tables name their manifests in it."""
    import msgspec

    from frazil.format.metadata.snapshots import parse_snapshot

    raw = next(
        one for one in table.metadata["snapshots"] if one["snapshot-id"] == snapshot.snapshot_id
    )
    return parse_snapshot(msgspec.json.encode(raw))


def _partition_text(table: Table, spec_id: int) -> Callable[[Sequence[Any]], str]:
    import msgspec

    from frazil.format.metadata.partition_spec import (
        parse_partition_spec,
        partition_path,
        partition_type,
    )
    from frazil.format.metadata.schema import parse_schema

    spec = parse_partition_spec(msgspec.json.encode(table.spec(spec_id)))
    current = table.metadata["current-schema-id"]
    # A dropped column keeps its type in the schema that still had it.
    schemas = sorted(table.metadata["schemas"], key=lambda one: one["schema-id"] != current)
    parsed = [parse_schema(msgspec.json.encode(schema)) for schema in schemas]
    sources = {part.source_id for part in spec.fields}
    fitting = (one for one in parsed if all(one.find_type(source) for source in sources))
    kind = partition_type(spec, next(fitting, parsed[0]))
    return lambda values: partition_path(spec, kind, values)


# --- opening --------------------------------------------------------------------------------------


@contextmanager
def open_files(
    table: Table, properties: Mapping[str, str], advance: Advance = lambda done, total: None
) -> Iterator[FileReader]:
    """A reader of the table's files; `properties` are those of the catalog. FilesUnavailable."""
    with _explained(table):
        from frazil.read.manifest_cache import ManifestCache, ManifestReader

        store = _open_store({**properties, **table.config})
    try:
        yield FileReader(
            table, ManifestReader(ManifestCache(), store, lambda location: None), advance
        )
    finally:
        store.close()


def _open_store(properties: Mapping[str, str]) -> RoutingStore:
    """The store by what catalog and table say, under the names that PyIceberg reads; keys that are
    not among them come from AWS's usual places."""
    from frazil.store.object_store import StoreError
    from frazil.store.s3_settings import S3Settings
    from frazil.store.store_router import open_store

    given = {
        "AWS_ACCESS_KEY_ID": properties.get("s3.access-key-id"),
        "AWS_SECRET_ACCESS_KEY": properties.get("s3.secret-access-key"),
        "AWS_SESSION_TOKEN": properties.get("s3.session-token"),
    }
    keys = {name: value for name, value in given.items() if value}
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
def _explained(table: Table) -> Iterator[None]:
    from frazil.store.object_store import StoreError
    from frazil.store.s3_settings import ProfileError
    from frazil.wire.errors import BadRequest, ValidationError

    try:
        yield
    except ModuleNotFoundError as error:
        raise FilesUnavailable(
            f"reading manifests needs {error.name}, which is not installed",
            "pip install 'frazil[server]'",
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
