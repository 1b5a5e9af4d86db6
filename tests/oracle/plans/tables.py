"""Draws tables with a history from a seed; our engine commits them, and Java some of their
files.

A model next to the table records the content of each snapshot: its data files with their rows,
and its delete files with what they delete.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from frazil.values.types import TypeId
from tests.commit.requests import Driver
from tests.oracle.plans.columns import Leaf, draw_value
from tests.oracle.plans.files import (
    DataFile,
    DeleteFile,
    Doc,
    Files,
    Key,
    Metrics,
    Row,
    Spec,
    is_json,
    partition_of,
    same_partition,
)
from tests.oracle.plans.schemas import Shape

MAIN = "main"


class ForeignWriter(Protocol):
    """Another library that commits files to the table at a metadata file."""

    def write(self, location: str, branch: str, data: Sequence[Doc], deletes: Sequence[Doc]) -> str:
        """Commit the files; return the new metadata file."""
        ...


@dataclass(frozen=True)
class Version:
    """The content of one snapshot, with data sequence numbers."""

    snapshot_id: int
    parent_id: int | None
    operation: str
    schema: Doc
    data: dict[str, tuple[DataFile, int]]
    deletes: dict[Key, tuple[DeleteFile, int]]
    added: frozenset[str]
    """The paths of the data files that this snapshot itself added."""


@dataclass
class PlannedTable:
    """One table: its location and its content."""

    name: str
    shape: Shape
    metadata_location: str
    versions: dict[int, Version]
    heads: dict[str, int]
    steps: list[str] = field(default_factory=list)
    values: dict[int, list[Any]] = field(default_factory=dict)
    """The values that rows are drawn from, by field id."""

    @property
    def current(self) -> Version | None:
        head = self.heads.get(MAIN)
        return None if head is None else self.versions[head]

    def data_file(self, path: str) -> DataFile:
        """Return a data file of any snapshot."""
        found = (version.data[path] for version in self.versions.values() if path in version.data)
        return next(found)[0]

    def delete_files(self) -> dict[Key, DeleteFile]:
        """Return the delete files of all snapshots."""
        return {
            key: delete
            for version in self.versions.values()
            for key, (delete, _) in version.deletes.items()
        }


class TableMaker:
    """Draws one table."""

    def __init__(
        self,
        random: Random,
        driver: Driver,
        name: str,
        foreign: ForeignWriter | None = None,
        shape: Shape | None = None,
    ) -> None:
        """Create the table, with a random shape if none is given."""
        self._random = random
        self._driver = driver
        self._foreign = foreign
        drawn = random.choice((1, 2, 2, 3, 3))
        self._nulls = random.choice((0.0, 0.1, 0.1, 0.4))
        self._names = 0
        # Java writes and reads fixed partition values with a length prefix that they must not have.
        shape = shape or Shape(random, drawn, fixed_partitions=foreign is None)
        properties = {"format-version": str(shape.format_version)}
        if random.random() < 0.4:
            # Merge manifests early, by the usual rules or never.
            least = random.choice(("2", "3", "1000"))
            properties["commit.manifest.min-count-to-merge"] = least
        driver.create_table(
            name,
            schema=shape.schema,
            partition_spec=shape.spec_json(0),
            properties=properties,
        )
        loaded = driver.load(name)
        assert loaded.metadata_location is not None
        shape.take(loaded.metadata)
        self.table = PlannedTable(name, shape, loaded.metadata_location, {}, {})
        truncate = random.choice((None, None, 1, 2, 16))
        metrics = Metrics(truncate, random.choice((0.0, 0.2, 0.5)))
        self.files = Files(random, loaded.metadata.location, metrics)

    def make(self) -> PlannedTable:
        self._append()
        for _ in range(self._random.randint(2, 9)):
            self._step()
        return self.table

    # --- steps ---

    def _step(self) -> None:
        deletes = 4 if self.table.shape.format_version > 1 else 0
        steps = (
            (self._append, 4),
            (self._delete_rows, deletes),
            (self._remove_files, 1),
            (self._evolve_schema, 2),
            (self._evolve_spec, 1),
            (self._upgrade, 0.4 if self.table.shape.format_version < 3 else 0),
        )
        kinds, weights = zip(*steps, strict=True)
        (step,) = self._random.choices(kinds, weights)
        step()

    def _append(self) -> None:
        spec_id = self._spec_id()
        count = self._random.choice((1, 1, 2, 3, 4))
        data = [self._data_file(spec_id) for _ in range(count)]
        self.commit("append", data, [], [])

    def _delete_rows(self) -> None:
        branch = self._branch()
        version = self._head(branch)
        if version is None or not version.data:
            return
        deletes: list[DeleteFile] = []
        usable = self._usable_specs()
        live = [file for file, _ in version.data.values() if file.spec_id in usable]
        if not live:
            return
        if self._random.random() < 0.5:
            deletes.append(self._equality_deletes(live))
        if not deletes or self._random.random() < 0.4:
            deletes += self._position_deletes(live, version)
        data = [self._data_file(self._spec_id())] if self._random.random() < 0.4 else []
        if data or deletes:
            self.commit("overwrite", data, deletes, [], branch)

    def _remove_files(self) -> None:
        version = self._head(MAIN)
        if version is None or len(version.data) < 2:
            return
        removed = self._random.sample(sorted(version.data), self._random.randint(1, 2))
        data = [self._data_file(self._spec_id())] if self._random.random() < 0.5 else []
        if all(is_json(file.doc) for file in data):
            self.commit("overwrite", data, [], removed, MAIN)

    def _evolve_schema(self) -> None:
        schema = self.table.shape.evolve_schema()
        if schema is not None:
            self.change(
                {"action": "add-schema", "schema": schema},
                {"action": "set-current-schema", "schema-id": -1},
            )

    def _evolve_spec(self) -> None:
        shape = self.table.shape
        known = max(shape.specs)
        spec_id = shape.evolve_spec()
        if spec_id is None:
            return
        updates: list[Doc] = [{"action": "set-default-spec", "spec-id": spec_id}]
        if spec_id > known:
            updates.insert(0, {"action": "add-spec", "spec": shape.spec_json(spec_id)})
        self.change(*updates)

    def _upgrade(self) -> None:
        shape = self.table.shape
        shape.format_version += 1
        self.change({"action": "upgrade-format-version", "format-version": shape.format_version})

    # --- files ---

    def _usable_specs(self) -> list[int]:
        """Return the specs whose columns the table still has."""
        live = {leaf.field_id for leaf in self.table.shape.leaves}
        return [
            spec_id
            for spec_id, spec in self.table.shape.specs.items()
            if all(part.source_id in live for part in spec)
        ]

    def _spec_id(self) -> int:
        shape, usable = self.table.shape, self._usable_specs()
        if len(usable) > 1 and self._random.random() < 0.2:
            return self._random.choice(usable)
        return shape.default_spec_id

    def _data_file(self, spec_id: int) -> DataFile:
        shape = self.table.shape
        return self.files.data_file(
            spec_id, shape.specs[spec_id], shape.leaves, self._draw_rows(shape.specs[spec_id])
        )

    def _draw_rows(self, spec: Spec) -> list[Row]:
        """Draw rows of one partition."""
        nulls = self._random.choice((0.0, self._nulls, self._nulls, 1.0))
        nans = self._random.choice((0.0, 0.0, 0.2, 1.0))
        first = self._draw_row(nulls, nans)
        if not self._is_foreign_able:
            first |= {
                part.source_id: 0.5
                for part in spec
                if isinstance(first[part.source_id], float)
                and not math.isfinite(first[part.source_id])
            }
        rows: list[Row] = [first]
        partition = partition_of(spec, first)
        for _ in range(self._random.choice((0, 1, 2, 4, 8))):
            row = self._draw_row(nulls, nans)
            if not same_partition(partition_of(spec, row), partition):
                # Copy the partition sources of the first row, so that the partition is the same.
                row = {**row, **{part.source_id: rows[0][part.source_id] for part in spec}}
            rows.append(row)
        return rows

    def _draw_row(self, nulls: float, nans: float) -> dict[int, Any]:
        return {leaf.field_id: self._draw(leaf, nulls, nans) for leaf in self.table.shape.leaves}

    def _draw(self, leaf: Leaf, nulls: float, nans: float) -> Any:
        if leaf.optional and self._random.random() < nulls:
            return None
        if leaf.type.type_id in (TypeId.FLOAT, TypeId.DOUBLE) and self._random.random() < nans:
            return math.nan
        values = self.table.values.setdefault(leaf.field_id, [])
        if len(values) < 6:
            values.append(draw_value(self._random, leaf.type))
        return self._random.choice(values)

    def _equality_deletes(self, live: list[DataFile]) -> DeleteFile:
        shape = self.table.shape
        target = self._random.choice(live)
        spec_id, spec = target.spec_id, shape.specs[target.spec_id]
        partition = target.partition
        everywhere = [own for own, other in shape.specs.items() if not other]
        if everywhere and self._random.random() < 0.5:
            spec_id, spec, partition = everywhere[0], (), ()
        count = self._random.choice((1, 1, 1, 2))
        chosen = self._random.sample(shape.leaves, min(count, len(shape.leaves)))
        rows = []
        for _ in range(self._random.randint(1, 3)):
            drawn = self._draw_row(self._nulls, 0.1)
            # Prefer values of an existing row, if its file has the columns, so that rows get
            # deleted.
            own = self._random.choice(target.rows)
            rows.append(own if all(leaf.field_id in own for leaf in chosen) else drawn)
        return self.files.equality_deletes(spec_id, spec, partition, chosen, rows)

    def _position_deletes(self, live: list[DataFile], version: Version) -> list[DeleteFile]:
        target = self._random.choice(live)
        if self.table.shape.format_version > 2:
            covered = {
                path
                for other, _ in version.deletes.values()
                if other.kind == "vector"
                for path, _ in other.positions
            }
            free = [file for file in live if file.path not in covered]
            count = min(len(free), self._random.randint(1, 3))
            return self.files.deletion_vectors(self._random.sample(free, count)) if free else []
        beside = [
            file
            for file in live
            if file.spec_id == target.spec_id and same_partition(file.partition, target.partition)
        ]
        targets = beside if self._random.random() < 0.4 else [target]
        return [self.files.position_deletes(targets)]

    # --- commits ---

    @property
    def _is_foreign_able(self) -> bool:
        """Return whether Java can write to the table: it cannot partition by a dropped column."""
        is_complete = len(self._usable_specs()) == len(self.table.shape.specs)
        return self._foreign is not None and is_complete

    def _branch(self) -> str:
        heads = self.table.heads
        if MAIN in heads and self._random.random() < 0.15:
            return "other"
        return MAIN

    def _head(self, branch: str) -> Version | None:
        heads = self.table.heads
        head = heads.get(branch, heads.get(MAIN))
        return None if head is None else self.table.versions[head]

    def commit(
        self,
        operation: str,
        data: list[DataFile],
        deletes: list[DeleteFile],
        removed: list[str],
        branch: str | None = None,
    ) -> None:
        branch = branch or self._branch()
        parent = self._head(branch)
        before = set(self.table.versions)
        docs = [file.doc for file in data] + [delete.doc for delete in deletes]
        only_foreign = not all(map(is_json, docs))
        if only_foreign and not self._is_foreign_able:
            return
        if only_foreign or (self._is_foreign_able and not removed and self._random.random() < 0.3):
            by = "java"
            self._write_foreign(branch, parent, data, deletes)
        else:
            by = "own"
            self._write_own(operation, branch, data, deletes, removed)
        loaded = self._driver.load(self.table.name)
        assert loaded.metadata_location is not None
        self.table.metadata_location = loaded.metadata_location
        (snapshot,) = (
            found for found in loaded.metadata.snapshots if found.snapshot_id not in before
        )
        number = snapshot.sequence_number or 0
        live = {} if parent is None else dict(parent.data)
        live_deletes = {} if parent is None else dict(parent.deletes)
        for path in removed:
            del live[path]
        live |= {file.path: (file, number) for file in data}
        live_deletes |= {delete.key: (delete, number) for delete in deletes}
        self.table.versions[snapshot.snapshot_id] = Version(
            snapshot.snapshot_id,
            None if parent is None else parent.snapshot_id,
            snapshot.operation or "",
            self.table.shape.schema,
            live,
            live_deletes,
            frozenset(file.path for file in data),
        )
        self.table.heads[branch] = snapshot.snapshot_id
        names = ", ".join(
            [
                *(file.path.rpartition("/")[2] for file in data),
                *(delete.key[0].rpartition("/")[2] for delete in deletes),
                *(f"-{path.rpartition('/')[2]}" for path in removed),
            ]
        )
        self._note(f"{by} {operation} on {branch}: {names} -> {snapshot.snapshot_id}")

    def _write_own(
        self,
        operation: str,
        branch: str,
        data: list[DataFile],
        deletes: list[DeleteFile],
        removed: list[str],
    ) -> None:
        update: Doc = {
            "action": operation,
            "branch": branch,
            "add-data-files": [_hex_bounds(file.doc) for file in data],
        }
        if deletes:
            update["add-delete-files"] = [_hex_bounds(delete.doc) for delete in deletes]
        if removed:
            update["remove-data-files"] = removed
        self._begin_branch(branch)
        self._driver.commit(self.table.name, [update])

    def _write_foreign(
        self,
        branch: str,
        parent: Version | None,
        data: list[DataFile],
        deletes: list[DeleteFile],
    ) -> None:
        assert self._foreign is not None
        self._begin_branch(branch)
        location = self._foreign.write(
            self._driver.load(self.table.name).metadata_location or "",
            branch,
            [file.doc for file in data],
            [delete.doc for delete in deletes],
        )
        self._driver.unregister(self.table.name)
        self._names += 1
        self.table.name = f"{self.table.name.partition('_by')[0]}_by{self._names}"
        self._driver.register(self.table.name, location)

    def _begin_branch(self, branch: str) -> None:
        """Start a branch at main's head."""
        heads = self.table.heads
        if branch != MAIN and branch not in heads:
            self.change(
                {
                    "action": "set-snapshot-ref",
                    "ref-name": branch,
                    "type": "branch",
                    "snapshot-id": heads[MAIN],
                }
            )

    def change(self, *updates: Doc) -> None:
        self._driver.commit(self.table.name, list(updates))
        location = self._driver.load(self.table.name).metadata_location
        assert location is not None
        self.table.metadata_location = location
        self._note(json.dumps(updates[0]))

    def _note(self, text: str) -> None:
        self.table.steps.append(text)


def _hex_bounds(doc: Doc) -> Doc:
    if "lower-bounds" in doc or "upper-bounds" in doc:
        return {**doc, "bounds-encoding": "hex"}
    return doc
