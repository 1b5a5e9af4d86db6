"""Finds which files snapshots reach, and which files nothing reaches that is kept.

What is kept is a set of hashes (`KeptFiles`), so that a path takes eight bytes. Files that removed
snapshots reach are compared with it one manifest at a time. Only manifests that no kept snapshot
lists are opened for that.

Each file that leads to other files is read once and cached nowhere, because the caches belong to
commits and scans.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import MANIFEST_LIST_LIMITS
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.named_files import (
    MANIFEST_LIMITS,
    ManifestListReader,
    NamedFiles,
    NamedManifest,
    named_files,
)
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.path_hashes import Hashes, HashSet, path_hashes, selected
from frazil.housekeeping.server_operations import JobCancelled, ServerTools
from frazil.store.object_store import ObjectMissing, ObjectReader, ObjectTooLarge
from frazil.values.path_keys import PathKeys
from frazil.wire.errors import FrazilError, ValidationError

logger = logging.getLogger("frazil.housekeeping")

Progress = Callable[[int, int], None]
"""Is called with what is done and with all that is to do."""
Cancelled = Callable[[], bool]

_READERS: Final = 16
_AHEAD: Final = 32
"""How many files are read before they are needed. More would need more memory."""
_MAX_KNOWN: Final = 200_000


class FileKind(StrEnum):
    """What a file is to its table, in the order of deletion."""

    UNKNOWN = "unknown"
    """Nothing has ever named it."""
    DATA = "data"
    POSITION_DELETES = "position-deletes"
    EQUALITY_DELETES = "equality-deletes"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest-list"
    STATISTICS = "statistics"
    METADATA = "metadata"


CONTENT_KINDS: Final = (FileKind.DATA, FileKind.POSITION_DELETES, FileKind.EQUALITY_DELETES)
"""The kinds by the `content` of a manifest entry."""


@dataclass(frozen=True, slots=True)
class Named:
    """What names files: snapshots, and the files that metadata names itself."""

    snapshots: tuple[Snapshot, ...] = ()
    statistics: tuple[str, ...] = ()
    metadata_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: str
    kind: FileKind


def named_by_table(metadata: TableMetadata, metadata_location: str | None = None) -> Named:
    """Return everything that the metadata of a table names. The current metadata file is the
    last."""
    statistics = (
        *(file.statistics_path for file in metadata.statistics),
        *(file.statistics_path for file in metadata.partition_statistics),
    )
    files = [entry.metadata_file for entry in metadata.metadata_log.bare_items()]
    if metadata_location is not None:
        files.append(metadata_location)
    return Named(tuple(metadata.snapshots.bare_items()), statistics, tuple(files))


class Unreadable(Exception):
    """A list or manifest that is missing, broken, encrypted, or not allowed to be read."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class Stopped(JobCancelled):
    """Somebody has cancelled the work. What is done stays done."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Reports progress, and stops the work if somebody has cancelled it."""

    progress: Progress = lambda done, total: None
    cancelled: Cancelled = lambda: False

    def step(self, done: int, total: int) -> None:
        if self.cancelled():
            raise Stopped
        self.progress(done, total)


UNWATCHED: Final = Watch()


class TreeReader:
    """Reads manifest lists and manifests. A store that fails otherwise than for a single file
    raises StoreError."""

    def __init__(self, store: ObjectReader, check_readable: Callable[[str], None]) -> None:
        self._store = store
        self._check_readable = check_readable
        self._lists = ManifestListReader()
        self._keys = PathKeys(decode=True)

    def hashes(self, paths: Iterable[str]) -> Hashes:
        """Return a hash of each path, which is equal for all spellings of it."""
        return path_hashes(self._keys, paths)

    def lists(
        self, snapshots: Sequence[Snapshot]
    ) -> Iterator[tuple[Snapshot, list[NamedManifest] | Unreadable]]:
        """Yield the manifests of each snapshot."""
        for own in snapshots:
            if own.manifest_list is None:
                yield own, [NamedManifest(path, 0, False) for path in own.manifests or ()]
        by_location = {own.manifest_list: own for own in snapshots if own.manifest_list is not None}
        for location, content in self._contents(by_location, MANIFEST_LIST_LIMITS.file_bytes):
            yield by_location[location], self._list(by_location[location], content)

    def _list(
        self, snapshot: Snapshot, content: bytes | Unreadable
    ) -> list[NamedManifest] | Unreadable:
        if isinstance(content, Unreadable):
            return content
        if snapshot.key_id is not None:
            return Unreadable(f"{snapshot.manifest_list} is encrypted")
        try:
            return self._lists.read(content)
        except UnreadableAvro as error:
            return Unreadable(f"{snapshot.manifest_list} cannot be read: {error}")

    def entries(
        self, manifests: Iterable[str]
    ) -> Iterator[tuple[str, Iterator[NamedFiles] | Unreadable]]:
        """Yield the entries of each manifest. Their iterator raises Unreadable too."""
        for location, content in self._contents(manifests, MANIFEST_LIMITS.file_bytes):
            if isinstance(content, Unreadable):
                yield location, content
            else:
                yield location, _entries(location, content)

    def _contents(
        self, locations: Iterable[str], max_bytes: int
    ) -> Iterator[tuple[str, bytes | Unreadable]]:
        """Yield files in order. Files of an object store are read ahead by other threads, local
        ones by this thread, because that takes less time than to hand them over."""
        waiting: deque[tuple[str, Future[bytes | Unreadable]]] = deque()
        with ThreadPoolExecutor(_READERS, "frazil-reachability") as pool:
            for location in locations:
                if location.startswith(("/", "file:")):
                    yield location, self._content(location, max_bytes)
                    continue
                waiting.append((location, pool.submit(self._content, location, max_bytes)))
                if len(waiting) >= _AHEAD:
                    first, content = waiting.popleft()
                    yield first, content.result()
            for location, content in waiting:
                yield location, content.result()

    def _content(self, location: str, max_bytes: int) -> bytes | Unreadable:
        try:
            self._check_readable(location)
            return self._store.get(location, max_bytes)
        except ObjectMissing:
            return Unreadable(f"{location} is missing", is_missing=True)
        except (ObjectTooLarge, FrazilError) as error:
            return Unreadable(f"{location} cannot be read: {error}")


def _entries(location: str, content: bytes) -> Iterator[NamedFiles]:
    try:
        yield from named_files(content)
    except UnreadableAvro as error:
        raise Unreadable(f"{location} cannot be read: {error}") from None


def tree_reader(tools: ServerTools) -> TreeReader:
    return TreeReader(tools.store, tools.catalog.locations.check_readable)


class KeptFiles:
    """The files that are kept. Manifests are read only when their files are asked for.

    If a list or manifest cannot be read, nobody knows which files are kept. This raises
    ValidationError, so that nothing is deleted. After any error the object cannot be used.
    """

    def __init__(self, reader: TreeReader, watch: Watch = UNWATCHED) -> None:
        self._reader = reader
        self._watch = watch
        self._trees = HashSet()
        self._files = HashSet()
        self._unread: list[str] = []
        self._known: set[str] = set()
        """Some manifests that are in the set."""
        self._optional: set[str] = set()
        """Lists and manifests that only snapshots in quarantine name."""

    def __len__(self) -> int:
        """Return how many different files are kept."""
        self._read_manifests()
        return len(self._trees) + len(self._files)

    def add(self, named: Named, *, in_quarantine: bool = False) -> None:
        """Keep more files. What is already kept is not read again.

        Lists and manifests of snapshots in quarantine may be missing: stock clients that expire
        snapshots delete the files by themselves.
        """
        self.add_paths((*named.statistics, *named.metadata_files))
        lists = [own.manifest_list or "" for own in named.snapshots]
        is_new = self._trees.add(self._reader.hashes(lists))
        new = [
            own
            for own, first in zip(named.snapshots, is_new.tolist(), strict=True)
            if first or own.manifest_list is None or self._is_back(own, in_quarantine)
        ]
        if in_quarantine:
            self._optional.update(own.manifest_list for own in new if own.manifest_list is not None)
        for done, (_, manifests) in enumerate(self._reader.lists(new)):
            self._watch.step(done, len(new))
            if not isinstance(manifests, Unreadable):
                self._add_manifests(manifests, in_quarantine)
            elif not (in_quarantine and manifests.is_missing):
                raise _unknown(manifests)

    def _is_back(self, snapshot: Snapshot, in_quarantine: bool) -> bool:
        """Return whether the snapshot was in quarantine when its files were added."""
        return not in_quarantine and snapshot.manifest_list in self._optional

    def _add_manifests(self, manifests: Sequence[NamedManifest], in_quarantine: bool) -> None:
        if self._optional and not in_quarantine:
            again = self._optional.intersection(own.path for own in manifests)
            self._optional -= again
            self._unread += again
        unknown = [own for own in manifests if own.path not in self._known]
        if not unknown:
            return
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        self._known.update(own.path for own in unknown)
        is_new = self._trees.add(self._reader.hashes(own.path for own in unknown))
        for own, first in zip(unknown, is_new.tolist(), strict=True):
            if own.encrypted:
                raise _unknown(Unreadable(f"{own.path} is encrypted"))
            if first:
                self._unread.append(own.path)
                if in_quarantine:
                    self._optional.add(own.path)

    def add_paths(self, paths: Sequence[str]) -> None:
        """Keep files that lead to no others."""
        self._files.add(self._reader.hashes(paths))

    def hashes(self, paths: Iterable[str]) -> Hashes:
        """Return a hash of each path, for the questions below."""
        return self._reader.hashes(paths)

    def has_named(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which of these files are kept, if they are none that manifests name."""
        return self._trees.has(hashes) | self._files.has(hashes)

    def has(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which of these files are kept, whatever they are."""
        self._read_manifests()
        return self.has_named(hashes)

    def has_paths(self, paths: Sequence[str]) -> NDArray[np.bool_]:
        """Return which of these files are kept, whatever they are."""
        return self.has(self._reader.hashes(paths))

    def _read_manifests(self) -> None:
        for paths in self.live_paths():
            self._files.add(self._reader.hashes(paths))

    def live_paths(self) -> Iterator[list[str]]:
        """Read the manifests that are not read yet and yield the paths of their live files."""
        unread, self._unread = self._unread, []
        for done, (path, entries) in enumerate(self._reader.entries(unread)):
            self._watch.step(done, len(unread))
            try:
                if isinstance(entries, Unreadable):
                    raise entries
                for part in entries:
                    yield selected(part.paths, part.live)
            except Unreadable as error:
                if not (error.is_missing and path in self._optional):
                    raise _unknown(error) from None

    @property
    def unread(self) -> Sequence[str]:
        """The manifests that are not read yet."""
        return self._unread


def kept_paths(reader: TreeReader, named: Named, watch: Watch = UNWATCHED) -> Iterator[list[str]]:
    """Yield the paths of everything that must stay, as they are written.

    Raises ValidationError if a list or manifest cannot be read.
    """
    kept = KeptFiles(reader, watch)
    kept.add(named)
    lists = [own.manifest_list for own in named.snapshots if own.manifest_list is not None]
    yield [*named.statistics, *named.metadata_files, *lists]
    yield list(kept.unread)
    yield from kept.live_paths()


def _unknown(error: Unreadable) -> ValidationError:
    return ValidationError(
        f"{error}, but a snapshot that is kept reaches it: repair the table first, nothing was "
        "deleted"
    )


def log_problem(message: str) -> None:
    logger.warning("%s", message)


def unreachable_files(
    reader: TreeReader,
    removed: Named,
    kept: KeptFiles,
    is_own: Callable[[str], bool],
    *,
    problem: Callable[[str], None] = log_problem,
    watch: Watch = UNWATCHED,
) -> Iterator[FoundFile]:
    """Yield each file that `removed` reaches, that is not kept and that is the table's own, once.

    They come in the order of deletion: files that lead to others after those others. So a deletion
    that was interrupted finds the rest again. Entries of every status count, because the snapshot
    that had the file may be gone already. What cannot be read is reported to `problem`, and its
    files stay.
    """
    hashes = reader.hashes
    lists = [own.manifest_list for own in removed.snapshots if own.manifest_list is not None]
    gone = set(selected(lists, ~kept.has_named(hashes(lists))))
    snapshots = [
        own for own in removed.snapshots if own.manifest_list is None or own.manifest_list in gone
    ]
    manifests = _unreachable_manifests(reader, snapshots, kept, problem, watch)
    yield from _content_files(reader, manifests, kept, is_own, problem, watch)
    # A statistics file may be a Puffin file that has deletion vectors too.
    for kind, paths, is_kept in (
        (FileKind.MANIFEST, manifests, kept.has),
        (FileKind.MANIFEST_LIST, lists, kept.has_named),
        (FileKind.STATISTICS, removed.statistics, kept.has),
        (FileKind.METADATA, removed.metadata_files, kept.has_named),
    ):
        if paths:
            keys = hashes(paths)
            for path in selected(paths, HashSet().add(keys) & ~is_kept(keys)):
                if is_own(path):
                    yield FoundFile(path, kind)


def _unreachable_manifests(
    reader: TreeReader,
    snapshots: Sequence[Snapshot],
    kept: KeptFiles,
    problem: Callable[[str], None],
    watch: Watch,
) -> list[str]:
    found: dict[str, bool] = {}
    """Whether each manifest can be opened."""
    known: set[str] = set()
    for done, (_, manifests) in enumerate(reader.lists(snapshots)):
        watch.step(done, len(snapshots))
        if isinstance(manifests, Unreadable):
            problem(f"{manifests}: the files it leads to stay")
            continue
        unknown = [own for own in manifests if own.path not in known]
        known.update(own.path for own in unknown)
        paths = [own.path for own in unknown]
        are_kept = kept.has_named(reader.hashes(paths))
        for own, is_kept in zip(unknown, are_kept.tolist(), strict=True):
            if not is_kept:
                found[own.path] = not own.encrypted
                if own.encrypted:
                    problem(f"{own.path} is encrypted: the files it names stay")
    return list(found)


def _content_files(
    reader: TreeReader,
    manifests: Sequence[str],
    kept: KeptFiles,
    is_own: Callable[[str], bool],
    problem: Callable[[str], None],
    watch: Watch,
) -> Iterator[FoundFile]:
    seen = HashSet()
    for done, (_, entries) in enumerate(reader.entries(manifests)):
        watch.step(done, len(manifests))
        try:
            if isinstance(entries, Unreadable):
                raise entries
            for part in entries:
                keys = reader.hashes(part.paths)
                for at in np.flatnonzero(seen.add(keys) & ~kept.has(keys)).tolist():
                    if is_own(part.paths[at]):
                        yield FoundFile(part.paths[at], kind_of_content(int(part.content[at])))
        except Unreadable as error:
            problem(f"{error}: the files it names stay")


def kind_of_content(content: int) -> FileKind:
    """Return the kind of a file by the `content` of its entry."""
    return CONTENT_KINDS[content] if 0 <= content < len(CONTENT_KINDS) else FileKind.DATA
