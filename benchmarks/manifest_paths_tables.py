"""Tables for `benchmarks.manifest_paths` in catalogs of this process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.commit.files import PARTITIONS, content_file, declared
from benchmarks.commit.trees import (
    METADATA_PROPERTIES,
    SNAPSHOT_ID,
    Tree,
    make_start,
    new_files_folder,
    partition_of,
    write_list,
    writer_of,
)
from benchmarks.histories import NAMESPACE, file_url, prepare
from frazil.commit.catalog.operations import Catalog
from frazil.commit.pipeline.pending_requests import Context
from frazil.db.connect import connect
from frazil.format.manifest.manifest_writer import WrittenManifest
from frazil.store.local_store import LocalStore
from frazil.store.locations import AllowedLocations
from frazil.wire.identifiers import Identifier
from frazil.wire.json_bodies import decode
from frazil.wire.rest_messages import CommitTableRequest, RegisterTableRequest

_TIMEOUT_S: Final = 300
_NO_MERGING: Final = {"commit.manifest-merge.enabled": "false"}


@dataclass(slots=True)
class Table:
    """A table, and requests that commit to it."""

    catalog: Catalog
    name: str
    location: str
    tree: Tree

    def append(self, first: int, files: int) -> bytes:
        """Return the body of a request that appends files, without sending it."""
        numbers = range(first, first + files)
        folder = f"{self.location}/data"
        added = [declared(folder, number, number % PARTITIONS) for number in numbers]
        return _body({"action": "append", "add-data-files": added})

    def remove(self, number: int) -> bytes:
        """Return the body of a request that removes one file by its path."""
        path = self.tree.path(number)
        return _body({"action": "delete", "remove-data-files": [{"file-path": path}]})

    def remove_by_filter(self, partition: int, value: int) -> bytes:
        """Return the body of a request that deletes by a partition and a value."""
        part = {"type": "eq", "term": "part", "value": partition}
        wanted = {"type": "eq", "term": "c2", "value": value}
        row_filter = {"type": "and", "left": part, "right": wanted}
        return _body({"action": "delete", "delete-row-filter": row_filter})

    def forget_manifests(self) -> None:
        """Empty the cache of manifests, as a restart does."""
        cache = self.catalog._manifests
        for location in list(cache._parsed._entries):
            cache._parsed.forget(location)

    def commit_all(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self.commit(body)

    def commit(self, body: bytes) -> None:
        request = decode(CommitTableRequest, body)
        identifier = Identifier((NAMESPACE,), self.name)
        answer: Future[Any] = self.catalog.commit_table(_context(), identifier, request)
        answer.result(_TIMEOUT_S)


def _body(update: dict[str, Any]) -> bytes:
    return json.dumps({"requirements": [], "updates": [update]}).encode()


def _context() -> Context:
    return Context("benchmark", str(uuid.uuid4()))


@contextmanager
def open_table(folder: Path, files: int, files_a_manifest: int) -> Iterator[Table]:
    """Open a catalog with one table of so many live files."""
    folder.mkdir(parents=True)
    tree = make_tree(folder, files, files_a_manifest)
    database = connect(f"sqlite:///{folder}/catalog.db")
    database.migrate()
    root = file_url(folder / "warehouse")
    catalog = Catalog(
        db=database,
        store=LocalStore(),
        warehouse=root,
        allowed_locations=AllowedLocations(root, (file_url(folder),)),
    )
    try:
        catalog.create_namespace(_context(), (NAMESPACE,), {})
        own = folder / "warehouse" / NAMESPACE / "t"
        location = file_url(own)
        properties = {**METADATA_PROPERTIES, **_NO_MERGING}
        made = prepare(make_start(tree, 1).history, own, location, properties)
        new_files_folder(own, location)
        request = RegisterTableRequest(made.name, made.metadata_location)
        catalog.register_table(_context(), Identifier((NAMESPACE,), made.name), request)
        yield Table(catalog, made.name, location, tree)
    finally:
        catalog.close()
        database.close()


def make_tree(folder: Path, files: int, files_a_manifest: int) -> Tree:
    """Write manifests of so many files each, in one snapshot."""
    metadata, data = folder / f"tree-{files}", f"{folder}/data-{files}"
    metadata.mkdir(parents=True)
    written: list[WrittenManifest] = []
    for start in range(0, files, files_a_manifest):
        writer = writer_of(metadata)
        for number in range(start, min(start + files_a_manifest, files)):
            writer.add(content_file(data, number, partition_of(number, files)))
        written += writer.finish()
    for manifest in written:
        Path(manifest.manifest_path).write_bytes(manifest.file)
    path = metadata / f"snap-{SNAPSHOT_ID}-1-{uuid.uuid4()}.avro"
    write_list(str(path), tuple(written))
    size = sum(manifest.manifest_length for manifest in written)
    return Tree(files, data, str(path), len(written), size)
