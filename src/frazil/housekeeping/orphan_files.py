"""Finds the files of a table that nothing needs and that no commit has named, by listing them.

The listing is compared, part by part, with a set of everything that the table needs. Three things
keep a file that a writer is about to commit:

- Its age: `older_than`.
- Its writer's intent, if it has one.
- The order of the steps. What the table needs is read before the listing, again after it, and
  compared again with the table's pointer in the transaction that records the orphans. So a file
  that was committed at any time before is no orphan. A commit that names a recorded file takes it
  back (`CheckAddedPaths`), and the sweep computes reachability once more before it deletes.

The search deletes nothing. Orphans are recorded, and the sweep deletes them when their quarantine
is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from frazil.db.base import Relation
from frazil.db.housekeeping_rows import DeletionState, database_now_ms, doomed_parameters
from frazil.db.rows import Database
from frazil.db.sql import Statements
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.file_lists import ListedFile, stored_file_list
from frazil.housekeeping.orphan_guards import Place, check_gc_enabled, checked_place
from frazil.housekeeping.orphan_options import MAX_LOCATIONS, OrphanFilesResult, OrphanOptions
from frazil.housekeeping.orphan_reachability import Needed, NotingReader
from frazil.housekeeping.orphan_search import HiddenPaths, OrphanSearch, OrphanSpool, list_files
from frazil.housekeeping.reachability import UNWATCHED, Watch
from frazil.housekeeping.server_operations import JobRun, ServerTools
from frazil.housekeeping.sweep import sweep_table
from frazil.values.path_keys import is_below
from frazil.wire.errors import NoSuchTable
from frazil.wire.frazil_properties import quarantine_ms

REASON: Final = "orphan"
COMMIT_MS: Final = 3_600_000
"""Longer than any commit takes from writing its files to the swap."""


def remove_orphan_files(tools: ServerTools, job: JobRun) -> OrphanFilesResult:
    """Record the orphan files of the table of a job, and delete them if it has no quarantine."""
    watch = Watch(job.progress, job.cancelled)
    options = OrphanOptions.from_texts(job.options)
    return remove_orphans(tools, job.uuid, options, dry_run=job.dry_run, watch=watch)


def remove_orphans(
    tools: ServerTools,
    uuid: str,
    options: OrphanOptions,
    *,
    dry_run: bool = False,
    watch: Watch = UNWATCHED,
) -> OrphanFilesResult:
    """Record the orphan files of a table, and delete them if it has no quarantine. A dry run only
    returns them.

    Raises BadRequest, ValidationError or Conflict if the search must not run or its result cannot
    be right; then nothing is recorded.
    """
    row = tools.database.relation_by_uuid(uuid)
    if row is None:
        raise NoSuchTable(f"there is no table with the uuid {uuid}")
    metadata = tools.catalog.metadata_at(row.metadata_location)
    quarantine = quarantine_ms(metadata.properties)
    result = _search(tools, row, metadata, options, quarantine, dry_run, watch)
    if dry_run or quarantine or not result.orphan_files_count:
        return result
    deleted = sweep_table(tools, uuid, watch=watch).deleted
    return replace(result, deleted_files_count=deleted.total)


def _search(
    tools: ServerTools,
    row: Relation,
    metadata: TableMetadata,
    options: OrphanOptions,
    quarantine: int,
    dry_run: bool,
    watch: Watch,
) -> OrphanFilesResult:
    check_gc_enabled(metadata)
    own = checked_place(tools, row.uuid, metadata)
    place = own if options.location is None else Place((own.inside(options.location, "location"),))
    older_than_ms = options.cutoff_ms(database_now_ms(tools.database), dry_run=dry_run)
    reader = NotingReader(tools, options, place)
    needed = Needed(tools, row, place, reader, watch)
    hidden = HiddenPaths(metadata)
    search = OrphanSearch(options, older_than_ms, reader, needed, hidden, watch)
    with OrphanSpool() as orphans:
        if options.file_list is None:
            search.run(list_files(tools.store, place), orphans)
        else:
            folder = own.inside(options.file_list, "file_list")
            search.run(stored_file_list(tools.store, str(folder)), orphans)
        refusal = search.check(is_whole=options.file_list is None, dry_run=dry_run)
        record = _Record(tools.database, needed, quarantine, dry_run)
        for batch in orphans.batches():
            record.add(batch)
            watch.step(record.files, search.counts.orphans)
    counts = search.counts
    return OrphanFilesResult(
        dry_run=dry_run,
        orphan_files_count=record.files,
        orphan_bytes=record.size_bytes,
        orphan_file_locations=record.locations,
        listed_files_count=counts.listed,
        reachable_files_count=counts.reachable,
        recorded_files_count=counts.recorded,
        recent_files_count=counts.recent,
        skipped_files_count=counts.skipped,
        intended_files_count=counts.intended,
        older_than_ms=older_than_ms,
        delete_after_ms=record.delete_after_ms,
        refusal=refusal,
    )


class _Record:
    """Writes orphans into the database."""

    def __init__(
        self, database: Database, needed: Needed, quarantine_ms: int, dry_run: bool
    ) -> None:
        self._database = database
        self._needed = needed
        self._quarantine_ms = quarantine_ms
        self._dry_run = dry_run
        self.files = 0
        self.size_bytes = 0
        self.locations: list[str] = []
        self.delete_after_ms: int | None = None

    def add(self, found: Sequence[ListedFile]) -> None:
        """Record the files that are still orphans at this moment."""
        files = self._needed.still_orphans(found)
        while not self._dry_run:
            recorded = self._database.run_rows(partial(self._insert, files=files))
            if recorded is not None:
                files = recorded
                break
            self._needed.read()
            files = self._needed.still_orphans(files)
        self.files += len(files)
        self.size_bytes += sum(file.size or 0 for file in files)
        room = MAX_LOCATIONS - len(self.locations)
        self.locations += [file.location for file in files[:room]]

    def _insert(self, sql: Statements, files: Sequence[ListedFile]) -> list[ListedFile] | None:
        """Insert the rows. Return None if the table has moved on: nothing is inserted then."""
        needed = self._needed
        pointer = sql.fetch("share_relation", {"uuid": needed.uuid})
        if not pointer or pointer[0][0] != needed.metadata_location:
            return None
        intents = needed.live_intents(sql)
        files = [
            file
            for file in files
            if not any(is_below(needed.key(file.location), intent) for intent in intents)
        ]
        now_ms = database_now_ms(sql)
        self.delete_after_ms = now_ms + self._quarantine_ms
        # A commit that has begun may still name a new file, as the server's own manifests.
        new = [file for file in files if (file.modified_ms or now_ms) > now_ms - COMMIT_MS]
        old = [file for file in files if (file.modified_ms or now_ms) <= now_ms - COMMIT_MS]
        for group, due_ms in (
            (old, self.delete_after_ms),
            (new, max(self.delete_after_ms, now_ms + COMMIT_MS)),
        ):
            doomed = [(file.location, REASON, file.size) for file in group]
            rows = doomed_parameters(needed.uuid, doomed, DeletionState.QUARANTINED, now_ms, due_ms)
            sql.execute_many("insert_doomed_file", rows)
        return files
