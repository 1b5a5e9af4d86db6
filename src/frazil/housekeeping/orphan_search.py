"""Compares a listing with what a table needs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Self

import msgspec
import numpy as np

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.file_lists import Listed, ListedFile
from frazil.housekeeping.orphan_guards import Counts, Place, check_all_seen, share_refusal
from frazil.housekeeping.orphan_options import OrphanOptions, PrefixMismatchMode
from frazil.housekeeping.orphan_reachability import BATCH, Needed, NotingReader
from frazil.housekeeping.reachability import Watch
from frazil.store.locations import parse_location
from frazil.store.object_store import ObjectMissing, Store
from frazil.values.path_keys import PathKey, is_below
from frazil.wire.errors import BadRequest, Conflict, FrazilError

_SPOOL_BYTES: Final = 8 << 20


def list_files(store: Store, place: Place) -> Iterator[Listed]:
    for root in place.roots:
        yield from store.list(str(root))


class HiddenPaths:
    """Knows the files that Iceberg's own search ignores: a segment of their path begins with `_` or
    `.`, and is not the folder of a partition field with such a name."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._partitions = tuple(
            f"{field.name}="
            for spec in metadata.partition_specs
            for field in spec.fields
            if field.name.startswith(("_", "."))
        )

    def __contains__(self, relative_path: str) -> bool:
        return any(
            segment.startswith(("_", ".")) and not segment.startswith(self._partitions)
            for segment in relative_path.split("/")
        )


class OrphanSearch:
    """Compares a listing with what is needed."""

    def __init__(
        self,
        options: OrphanOptions,
        older_than_ms: int,
        reader: NotingReader,
        needed: Needed,
        hidden: HiddenPaths,
        watch: Watch,
    ) -> None:
        self.counts = Counts()
        self._options = options
        self._older_than_ms = older_than_ms
        self._reader = reader
        self._needed = needed
        self._hidden = hidden
        self._watch = watch
        self._named_files = needed.named_files

    def run(self, listing: Iterable[Listed], orphans: OrphanSpool) -> None:
        remaining = iter(listing)
        while batch := list(islice(remaining, BATCH)):
            for listed in self._not_needed(batch):
                file = _known(listed)
                if file is None:
                    self.counts.skipped += 1
                elif self._is_orphan(file):
                    self.counts.orphans += 1
                    self.counts.orphan_bytes += file.size or 0
                    orphans.add(file)
            self._watch.step(self.counts.listed, max(self._named_files, self.counts.listed))
        # A commit, an expiration or another search may have come since.
        self._needed.read()

    def _not_needed(self, batch: Sequence[Listed]) -> list[Listed]:
        hashes = self._reader.listed_hashes(file.location for file in batch)
        kept = self._needed.kept.has(hashes)
        recorded = self._needed.recorded.has(hashes) & ~kept
        counts = self.counts
        counts.listed += len(batch)
        counts.reachable += int(kept.sum())
        counts.recorded += int(recorded.sum())
        return [batch[at] for at in np.flatnonzero(~(kept | recorded)).tolist()]

    def _is_orphan(self, file: ListedFile) -> bool:
        counts = self.counts
        key = self._reader.keys.of(file.location)
        if self._is_skipped(file, key):
            counts.skipped += 1
            return False
        if file.modified_ms is None or file.modified_ms >= self._older_than_ms:
            counts.recent += 1
            return False
        if any(is_below(key, intent) for intent in self._needed.intents):
            counts.intended += 1
            return False
        mode = self._options.prefix_mismatch_mode
        if mode is not PrefixMismatchMode.DELETE:
            other = self._reader.other_prefix(file.location)
            if other is not None:
                counts.mismatched += 1
                counts.mismatched_example = f"{file.location} and {other}{key.path}"
                return False
        return True

    def _is_skipped(self, file: ListedFile, key: PathKey) -> bool:
        for root in self._reader.roots:
            if is_below(key, root):
                relative = key.path[len(root.path) :].lstrip("/")
                return (
                    relative in self._hidden or _is_folder(file, relative) or _is_odd(file.location)
                )
        return True

    def check(self, *, is_whole: bool, dry_run: bool) -> str | None:
        """Raise if the result cannot be right. A dry run returns the reason instead of a refusal
        that is only about the number of orphans."""
        counts, reader = self.counts, self._reader
        if counts.mismatched and self._options.prefix_mismatch_mode is PrefixMismatchMode.ERROR:
            raise BadRequest(
                f"options.prefix_mismatch_mode: {counts.mismatched} files have the path of a file "
                f"of the table, but another scheme or authority, such as "
                f"{counts.mismatched_example}: say which are equal with equal_schemes or "
                "equal_authorities, or choose IGNORE or DELETE"
            )
        if is_whole:
            check_all_seen(
                counts,
                self._named_files,
                has_inside=reader.has_inside,
                has_outside=reader.has_outside,
            )
        share = self._options.max_orphan_share
        refusal = share_refusal(counts, self._needed.table_bytes, share)
        if refusal is not None and not dry_run:
            raise Conflict(f"nothing was recorded: {refusal}")
        return refusal


def _known(file: Listed) -> ListedFile | None:
    """Return the file with its size and time, or None if it was deleted since it was listed."""
    try:
        return ListedFile(file.location, file.size, file.modified_ms)
    except ObjectMissing:
        return None


def _is_folder(file: ListedFile, relative: str) -> bool:
    """Return whether an empty object stands for a folder, as some tools of S3 create them. No file
    of Iceberg is empty."""
    return file.size == 0 and "." not in relative.rpartition("/")[2]


def _is_odd(path: str) -> bool:
    """Return whether the path is one that no store accepts, and no table can name."""
    try:
        parse_location(path)
    except FrazilError:
        return True
    return False


class OrphanSpool:
    """The orphans of a listing, on disk if they are many."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, file: ListedFile) -> None:
        self._file.write(msgspec.json.encode(file) + b"\n")

    def batches(self) -> Iterator[list[ListedFile]]:
        self._file.seek(0)
        decode = msgspec.json.Decoder(ListedFile).decode
        while batch := [decode(line) for line in islice(self._file, BATCH)]:
            yield batch
