"""Drives Iceberg's Java library through PySpark's gateway, as the oracle and to read trees.

A call from Python to Java costs a tenth of a millisecond, and a class lookup ten times that. So
classes are looked up once, files and filters are passed as JSON, and Java returns the content of
a manifest as one text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from tests.oracle.commits.cases import LATER, SCHEMA, Doc, Key, Step, Table, delete_key, with_ids
from tests.oracle.commits.states import (
    Entry,
    Manifest,
    Snapshot,
    State,
    entries_of,
    manifests_of,
    metadata_json,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Refusal:
    """The exception that Java threw."""

    error: str
    """The simple name of the exception class."""
    message: str


class Java:
    """The Java classes that the tests use, looked up once."""

    def __init__(self, spark: SparkSession) -> None:
        jvm, gateway = spark._jvm, spark.sparkContext._gateway
        assert jvm is not None
        assert gateway is not None
        iceberg = jvm.org.apache.iceberg
        self.files = iceberg.ContentFileParser
        self.expressions = iceberg.expressions.ExpressionParser
        self.metadata = iceberg.TableMetadata
        self.metadata_json = iceberg.TableMetadataParser
        self.updates = iceberg.MetadataUpdateParser
        self.identifier = iceberg.catalog.TableIdentifier
        self.specs = iceberg.PartitionSpecParser
        self.schema = iceberg.SchemaParser.fromJson(json.dumps(SCHEMA))
        self.data_file_set = iceberg.util.DataFileSet
        self.delete_file_set = iceberg.util.DeleteFileSet
        self.array_list = jvm.java.util.ArrayList
        self.hash_map = jvm.java.util.HashMap
        guava = iceberg.relocated.com.google.common
        # Java polls its worker threads every ten milliseconds; a direct executor avoids the wait.
        self.in_place = guava.util.concurrent.MoreExecutors.newDirectExecutorService()
        self.copy = jvm.java.nio.file.Files.copy
        self.local_path = jvm.java.nio.file.Paths.get
        self.no_options = gateway.new_array(jvm.java.nio.file.CopyOption, 0)
        self.no_names = gateway.new_array(jvm.java.lang.String, 0)
        self.characters = jvm.java.lang.StringBuilder
        self.mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        self._joiner = guava.base.Joiner.on(", ")
        self._builder = jvm.java.lang.StringBuilder
        self._writer = jvm.java.io.StringWriter
        self._json = iceberg.util.JsonUtil.factory()
        self.read_data = iceberg.ManifestFiles.read
        self.read_deletes = iceberg.ManifestFiles.readDeleteManifest
        self.local_io = iceberg.hadoop.HadoopFileIO(spark._jsc.hadoopConfiguration())
        self.catalog = iceberg.inmemory.InMemoryCatalog()
        self.catalog.initialize("differential", self.hash_map())
        self.catalog.createNamespace(self.identifier.parse("ns.t").namespace())
        # A scan does not return deleted entries, and the method that returns all entries is not
        # public. So it is called by reflection.
        self.no_arguments = gateway.new_array(jvm.java.lang.Object, 0)
        no_classes = gateway.new_array(jvm.java.lang.Class, 0)
        reader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        reader = reader.loadClass("org.apache.iceberg.ManifestReader")
        self.entries = reader.getDeclaredMethod("entries", no_classes)
        self.entries.setAccessible(True)
        self.environment_keys = set(iceberg.EnvironmentContext.get())
        self.environment = iceberg.EnvironmentContext

    def joined(self, items: Any) -> str:
        """Return the items of an iterator as one text."""
        return _pieces(self._joiner.appendTo(self._builder(), items))

    def table_json(self, metadata: Any) -> str:
        writer = self._writer()
        generator = self._json.createGenerator(writer)
        self.metadata_json.toJson(metadata, generator)
        generator.flush()
        return _pieces(writer.getBuffer())

    def close(self) -> None:
        self.catalog.close()


def _pieces(builder: Any) -> str:
    """Return the builder's text in pieces: an answer above 8 KiB waits for a delayed ACK."""
    length = builder.length()
    return "".join(
        builder.substring(start, min(start + 4_000, length)) for start in range(0, length, 4_000)
    )


class TreeReader:
    """Reads the state of one table through Java; reads each manifest once."""

    def __init__(self, java: Java, io: Any) -> None:
        self._java = java
        self._io = io
        self._entries: dict[tuple[str, int | None], list[Entry]] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self.steps: dict[int, int] = {}
        """The step that created a snapshot, by snapshot id."""

    def paths(self, metadata: Any) -> list[str]:
        """Return the manifest lists and manifests of all snapshots."""
        listed = [str(snapshot.manifestListLocation()) for snapshot in metadata.snapshots()]
        manifests = [item for known in self._snapshots.values() for item in known.manifests]
        return [*listed, *sorted({manifest.path for manifest in manifests})]

    def ids(self) -> dict[int, int]:
        return {step: snapshot_id for snapshot_id, step in self.steps.items()}

    def state(self, metadata: Any, step: int) -> State:
        """Return the table's state after a step; new snapshots belong to this step."""
        document = metadata_json(self._java.table_json(metadata))
        new = [
            item["snapshot-id"]
            for item in document.get("snapshots", [])
            if item["snapshot-id"] not in self.steps
        ]
        for index, snapshot_id in enumerate(new):
            self.steps[snapshot_id] = step + index * LATER
        specs = metadata.specsById()
        snapshots = {}
        for item in document.get("snapshots", []):
            number = self.steps[item["snapshot-id"]]
            if number not in self._snapshots:
                self._snapshots[number] = self._snapshot(metadata, specs, item)
            snapshots[number] = self._snapshots[number]
        return State(
            format_version=document["format-version"],
            last_sequence_number=document.get("last-sequence-number", 0),
            next_row_id=document.get("next-row-id"),
            default_spec_id=document["default-spec-id"],
            refs={
                name: (ref["type"], self.steps[ref["snapshot-id"]])
                for name, ref in document.get("refs", {}).items()
            },
            log=tuple(self.steps.get(item["snapshot-id"], -1) for item in document["snapshot-log"]),
            snapshots=snapshots,
        )

    def _snapshot(self, metadata: Any, specs: Any, item: Doc) -> Snapshot:
        listed = metadata.snapshot(item["snapshot-id"]).allManifests(self._io)
        manifests = manifests_of(self._java.joined(listed.iterator()), self.steps)
        entries: list[Entry] = []
        for index, manifest in enumerate(manifests):
            key = (manifest.path, manifest.first_row_id)
            if key not in self._entries:
                self._entries[key] = self._read(listed.get(index), manifest, specs)
            entries += self._entries[key]
        summary = {
            key: value for key, value in item["summary"].items() if not self._is_environment(key)
        }
        parent = item.get("parent-snapshot-id")
        return Snapshot(
            step=self.steps[item["snapshot-id"]],
            parent=None if parent is None else self.steps.get(parent, -1),
            operation=summary.pop("operation"),
            summary=self._stepped(summary),
            sequence_number=item.get("sequence-number", 0),
            first_row_id=item.get("first-row-id"),
            added_rows=item.get("added-rows"),
            schema_id=item.get("schema-id"),
            manifests=tuple(manifests),
            entries=tuple(
                entry._replace(snapshot_id=self.steps[entry.snapshot_id]) for entry in entries
            ),
        )

    def _is_environment(self, key: str) -> bool:
        """Return whether the key describes the writer; our summaries use other keys."""
        return key in self._java.environment_keys

    def _stepped(self, summary: Mapping[str, str]) -> dict[str, str]:
        source = summary.get("source-snapshot-id")
        if source is None:
            return dict(summary)
        return {**summary, "source-snapshot-id": f"step {self.steps[int(source)]}"}

    def _read(self, manifest: Any, listed: Manifest, specs: Any) -> list[Entry]:
        read = self._java.read_data if listed.content == "DATA" else self._java.read_deletes
        reader = read(manifest, self._io, specs)
        entries = self._java.entries.invoke(reader, self._java.no_arguments)
        found = entries_of(self._java.joined(entries.iterator()))
        reader.close()
        return found


class JavaTable:
    """One table of Java's in-memory catalog and the operations on it."""

    def __init__(self, java: Java, name: str, location: str, table: Table) -> None:
        self._java = java
        spec = java.specs.fromJson(java.schema, json.dumps(table.spec_json()))
        properties = java.hash_map()
        for key, value in table.properties.items():
            properties.put(key, value)
        properties.put("format-version", str(table.format_version))
        self._identifier = java.identifier.parse(f"ns.{name}")
        self._table = java.catalog.createTable(
            self._identifier, java.schema, spec, location, properties
        )
        self._operations = self._table.operations()
        self._reader = TreeReader(java, self._operations.io())
        self._files: dict[Key, Any] = {}

    def drop(self) -> None:
        self._java.catalog.dropTable(self._identifier, False)

    @property
    def steps(self) -> dict[int, int]:
        return self._reader.steps

    def hand_over(self) -> str:
        """Write the tree to local disk at its own paths; return the metadata file."""
        metadata = self._operations.current()
        io, location = self._operations.io(), str(metadata.metadataFileLocation())
        for path in (*self._reader.paths(metadata), location):
            if not io.fileExists(path):
                # The file came from the other side and is already on disk.
                continue
            target = Path(path.removeprefix("file://"))
            if not target.exists():
                stream = io.newInputFile(path).newStream()
                local = self._java.local_path(str(target), self._java.no_names)
                self._java.copy(stream, local, self._java.no_options)
                stream.close()
        return location

    def take_over(self, metadata: str, files: Mapping[str, bytes], steps: dict[int, int]) -> None:
        """Continue with a tree of the other side."""
        io = self._operations.io()
        for path, content in files.items():
            io.addFile(path, bytearray(content))
        self.drop()
        self._table = self._java.catalog.registerTable(self._identifier, metadata)
        self._operations = self._table.operations()
        self._reader = TreeReader(self._java, self._operations.io())
        self._reader.steps.update(steps)

    def state(self, step: int) -> State:
        return self._reader.state(self._operations.current(), step)

    def attempt(self, step: Step, *, commit: bool) -> Refusal | None:
        """Apply a step; without `commit`, only validate it."""
        try:
            if step.kind == "metadata":
                self._change_metadata(step)
            elif step.kind == "transaction":
                self._transact(step, commit=commit)
            elif step.kind == "cherry-pick":
                self._cherry_pick(step, commit=commit)
            else:
                update = self._update(step)
                _ = update.commit() if commit else update.apply()
        except (Py4JJavaError, CapturedException) as error:
            # PySpark replaces some Java exceptions with its own.
            thrown = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
            assert thrown is not None
            return Refusal(thrown.getClass().getSimpleName(), str(thrown.getMessage()))
        return None

    def _change_metadata(self, step: Step) -> None:
        base = self._operations.refresh()
        builder = self._java.metadata.buildFrom(base)
        for update in with_ids(step.updates, self._reader.ids()):
            self._java.updates.fromJson(json.dumps(update)).applyTo(builder)
        self._operations.commit(base, builder.build())

    def _transact(self, step: Step, *, commit: bool) -> None:
        transaction = self._table.newTransaction()
        for part in step.together:
            self._update(part, transaction).commit()
        if commit:
            transaction.commitTransaction()

    def _cherry_pick(self, step: Step, *, commit: bool) -> None:
        assert step.snapshot is not None
        update = self._table.manageSnapshots()
        # Java validates a cherry-pick at once, unless it is part of a transaction.
        update = update.cherrypick(self._reader.ids()[step.snapshot])
        if commit:
            update.commit()

    # --- the operations ---------------------------------------------------------------------

    def _update(self, step: Step, source: Any = None) -> Any:
        """Build the operation on the table itself or on a transaction."""
        make, fill = _OPERATIONS[step.kind]
        update = fill(self, getattr(source or self._table, make)(), step)
        update.scanManifestsWith(self._java.in_place)
        update.writeManifestsWith(self._java.in_place, 2)
        if step.base is not None and step.kind not in ("append", "delete"):
            update.validateFromSnapshot(self._reader.ids()[step.base])
        if step.branch != "main":
            update.toBranch(step.branch)
        if step.stage_only:
            update.stageOnly()
        if not step.case_sensitive:
            update.caseSensitive(False)
        for key, value in step.summary.items():
            update.set(key, value)
        return update

    def _append(self, update: Any, step: Step) -> Any:
        for file in self._new(step.add_data):
            update.appendFile(file)
        return update

    def _delete(self, update: Any, step: Step) -> Any:
        for path in step.remove_data:
            # A string would match another overload, which takes the path of a file to delete
            # itself.
            update.deleteFile(self._java.characters(path))
        if step.row_filter is not None:
            update.deleteFromRowFilter(self._expression(step.row_filter))
        return self._called(update, step)

    def _overwrite(self, update: Any, step: Step) -> Any:
        for file in self._new(step.add_data):
            update.addFile(file)
        if step.remove_deletes:
            data, deletes = self._java.data_file_set.create(), self._java.delete_file_set.create()
            for path in step.remove_data:
                data.add(self._files[path, None])
            for key in step.remove_deletes:
                deletes.add(self._files[key])
            update.deleteFiles(data, deletes)
        else:
            for path in step.remove_data:
                update.deleteFile(self._files[path, None])
        if step.row_filter is not None:
            update.overwriteByRowFilter(self._expression(step.row_filter))
        return self._called(update, step)

    def _row_delta(self, update: Any, step: Step) -> Any:
        for file in self._new(step.add_data):
            update.addRows(file)
        for file in self._new(step.add_deletes):
            update.addDeletes(file)
        for path in step.remove_data:
            update.removeRows(self._files[path, None])
        for key in step.remove_deletes:
            update.removeDeletes(self._files[key])
        if step.referenced:
            paths = self._java.array_list()
            for path in step.referenced:
                paths.add(path)
            update.validateDataFilesExist(paths)
        return self._called(update, step)

    def _rewrite(self, update: Any, step: Step) -> Any:
        for path in step.remove_data:
            update.deleteFile(self._files[path, None])
        for key in step.remove_deletes:
            update.deleteFile(self._files[key])
        for file in self._new((*step.add_data, *step.add_deletes)):
            update.addFile(file)
        if step.data_sequence_number is not None:
            update.dataSequenceNumber(step.data_sequence_number)
        return update

    def _replace_partitions(self, update: Any, step: Step) -> Any:
        for file in self._new(step.add_data):
            update.addFile(file)
        return self._called(update, step)

    def _called(self, update: Any, step: Step) -> Any:
        if step.conflict_filter is not None:
            update.conflictDetectionFilter(self._expression(step.conflict_filter))
        for call in sorted(step.calls):
            getattr(update, call)()
        return update

    def _expression(self, document: Any) -> Any:
        return self._java.expressions.fromJson(json.dumps(document), self._java.schema)

    def _new(self, docs: Iterable[Doc]) -> list[Any]:
        """Return Java's files. Each is created once, because a later operation may remove it."""
        found = []
        for doc in docs:
            key = delete_key(doc)
            if key not in self._files:
                node = self._java.mapper.readTree(json.dumps(doc))
                self._files[key] = self._java.files.fromJson(node, self._table.specs())
            found.append(self._files[key])
        return found


_OPERATIONS = {
    "append": ("newAppend", JavaTable._append),
    "delete": ("newDelete", JavaTable._delete),
    "overwrite": ("newOverwrite", JavaTable._overwrite),
    "row-delta": ("newRowDelta", JavaTable._row_delta),
    "rewrite": ("newRewrite", JavaTable._rewrite),
    "replace-partitions": ("newReplacePartitions", JavaTable._replace_partitions),
}
