"""Looking at declared files before they are committed, as far as the table asks for it.

Declared files are taken at their word by default. The table property `frazil.commit.verify-files`
makes the server look, in parallel:

    none     nothing is looked at
    exists   every file is there, with the declared size
    footer   also, for Parquet: the number of rows agrees, and the columns fit the table's schema;
             for a deletion vector: it can be read, and deletes that many rows of that data file.
             Of ORC and Avro files only existence is looked at.

What does not agree is a BadRequest that names the file and the field. A store that cannot be asked
is a StoreError: then nothing is known of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, TypeVar

from frazil.commit.snapshot.parquet_footer import InvalidParquet, check_installed, read_footer
from frazil.format.declared.declared_values import Misfit
from frazil.format.declared.file_columns import (
    NAME_MAPPING_PROPERTY,
    ColumnMisfit,
    FileColumn,
    check_columns,
    has_field_ids,
    parse_name_mapping,
)
from frazil.format.metadata.content_files import EQUALITY_DELETES, ContentFile, DataFile, DeleteFile
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.base import ObjectMissing, Store
from frazil.values import puffin
from frazil.values.deletion_vectors import InvalidDeletionVector, read_deletion_vector
from frazil.values.puffin import InvalidPuffin
from frazil.values.transforms import IDENTITY
from frazil.values.types import LONG, STRING, NestedField
from frazil.wire.errors import BadRequest

VERIFY_FILES: Final = "frazil.commit.verify-files"

_WORKERS: Final = 16
_WINDOW: Final = 8 * _WORKERS
"""How many files wait at once, so that a hundred thousand do not."""
_FIRST_READ_BYTES: Final = 64 << 10

_POSITION_DELETES: Final = (
    NestedField(2147483546, "file_path", STRING, required=True),
    NestedField(2147483545, "pos", LONG, required=True),
)
_POSITION_NAMES: Final = parse_name_mapping(
    '[{"field-id":2147483546,"names":["file_path"]},{"field-id":2147483545,"names":["pos"]}]'
)

T = TypeVar("T")


class Verification(StrEnum):
    NONE = "none"
    EXISTS = "exists"
    FOOTER = "footer"


def verification(metadata: TableMetadata) -> Verification:
    """What the table asks for."""
    text = metadata.properties.get(VERIFY_FILES, Verification.NONE)
    try:
        return Verification(text)
    except ValueError:
        raise BadRequest(
            f"properties.{VERIFY_FILES}: {text!r} is not one of {', '.join(Verification)}: set it "
            "to one of these"
        ) from None


def verify_files(
    metadata: TableMetadata,
    data_files: Sequence[DataFile],
    delete_files: Sequence[DeleteFile],
    store: Store,
    executor: Executor | None = None,
    place: str = "",
) -> None:
    """Refuses files that are not what they are declared to be. The first of the list is named.

    `place` stands before the lists' names, such as `updates[0].`. Without an executor threads are
    made for this call alone.
    """
    level = verification(metadata)
    if level is Verification.NONE or not (data_files or delete_files):
        return
    verifier = _Verifier(metadata, store, level)
    jobs = [*_jobs(data_files, f"{place}add-data-files")]
    jobs += _jobs(delete_files, f"{place}add-delete-files")
    if level is Verification.FOOTER and any(job.format_name == "parquet" for job in jobs):
        check_installed()
    if executor is not None:
        _run(verifier, jobs, executor)
        return
    with ThreadPoolExecutor(min(_WORKERS, len(jobs)), "frazil-verify") as threads:
        _run(verifier, jobs, threads)


@dataclass(frozen=True, slots=True)
class _Declared:
    file: ContentFile
    place: str

    def refused(self, field: str, problem: str) -> BadRequest:
        return BadRequest(f"{self.place} ({self.file.file_path}).{field}: {problem}")


@dataclass(frozen=True, slots=True)
class _Job:
    """What is declared of one object: one file, or the deletion vectors of one Puffin file."""

    declared: tuple[_Declared, ...]

    @property
    def location(self) -> str:
        return self.declared[0].file.file_path

    @property
    def format_name(self) -> str:
        return self.declared[0].file.file_format.lower()


def _jobs(files: Iterable[ContentFile], name: str) -> list[_Job]:
    by_location: dict[str, list[_Declared]] = {}
    for index, file in enumerate(files):
        declared = _Declared(file, f"{name}[{index}]")
        by_location.setdefault(file.file_path, []).append(declared)
    return [_Job(tuple(declared)) for declared in by_location.values()]


def _run(verifier: _Verifier, jobs: Sequence[_Job], executor: Executor) -> None:
    for window in _windows(jobs):
        futures = [executor.submit(verifier.verify, job) for job in window]
        # All are waited for: no thread goes on reading for a request that has been answered.
        problems = [future.exception() for future in futures]
        for problem in problems:
            if problem is not None:
                raise problem


def _windows(items: Sequence[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while window := list(islice(rest, _WINDOW)):
        yield window


class _Verifier:
    """Looks at one object at a time; used by many threads."""

    def __init__(self, metadata: TableMetadata, store: Store, level: Verification) -> None:
        self._metadata = metadata
        self._store = store
        self._reads_footers = level is Verification.FOOTER
        text = metadata.properties.get(NAME_MAPPING_PROPERTY) if self._reads_footers else None
        self._name_mapping = None if text is None else parse_name_mapping(text)
        self._from_partition = frozenset(
            part.source_id
            for spec in metadata.partition_specs
            for part in spec.fields
            if part.transform == IDENTITY
        )

    def verify(self, job: _Job) -> None:
        size = self._store.size(job.location)
        for declared in job.declared:
            _check_size(declared, size)
        if not self._reads_footers or size is None:
            return
        try:
            if job.format_name == "puffin":
                self._verify_vectors(job, size)
            elif job.format_name == "parquet":
                for declared in job.declared:
                    self._verify_parquet(declared, size)
        except ObjectMissing:
            raise _missing(job.declared[0]) from None

    # --- Parquet ----------------------------------------------------------------------------

    def _verify_parquet(self, declared: _Declared, size: int) -> None:
        file = declared.file
        location = file.file_path
        try:
            footer = read_footer(
                lambda offset, length: self._store.get_range(location, offset, length), size
            )
            if footer.row_count != file.record_count:
                raise Misfit(
                    "record-count",
                    f"{file.record_count} is declared, but the file has {footer.row_count} rows",
                )
            self._check_columns(file, footer.columns)
        except Misfit as misfit:
            raise declared.refused(misfit.field, misfit.problem) from None
        except (InvalidParquet, ColumnMisfit) as error:
            problem = f"the Parquet file does not fit the table: {error}"
            raise declared.refused("file-path", problem) from None

    def _check_columns(self, file: ContentFile, columns: tuple[FileColumn, ...]) -> None:
        if not isinstance(file, DeleteFile):
            self._check(self._with_ids(columns), self._metadata.current_schema.struct.fields)
        elif file.content == EQUALITY_DELETES:
            self._check(self._with_ids(columns), self._equality_fields(file))
        elif has_field_ids(columns):
            self._check(columns, _POSITION_DELETES)
        else:
            self._check(_POSITION_NAMES.apply(columns), _POSITION_DELETES)

    def _with_ids(self, columns: tuple[FileColumn, ...]) -> tuple[FileColumn, ...]:
        """Java gives the columns of a file without ids those of their positions, which is a guess;
        other readers refuse the file."""
        if has_field_ids(columns):
            return columns
        if self._name_mapping is None:
            raise ColumnMisfit(
                "its columns have no field ids: write them, or set the table property "
                f"{NAME_MAPPING_PROPERTY}"
            )
        return self._name_mapping.apply(columns)

    def _equality_fields(self, file: DeleteFile) -> list[NestedField]:
        """All that decide equality must be there, whether or not the table requires a value."""
        found = map(self._metadata.current_schema.find_field, file.equality_ids or ())
        return [
            NestedField(field.field_id, field.name, field.type, required=True)
            for field in found
            if field is not None
        ]

    def _check(self, columns: tuple[FileColumn, ...], fields: Iterable[NestedField]) -> None:
        check_columns(
            columns,
            fields,
            last_column_id=self._metadata.last_column_id,
            from_partition=self._from_partition,
        )

    # --- deletion vectors -------------------------------------------------------------------

    def _verify_vectors(self, job: _Job, size: int) -> None:
        try:
            footer = self._puffin_footer(job.location, size)
        except InvalidPuffin as error:
            problem = f"the Puffin file cannot be read: {error}"
            raise job.declared[0].refused("file-path", problem) from None
        places: dict[tuple[int | None, int | None], puffin.BlobMetadata]
        places = {(blob.offset, blob.length): blob for blob in footer.blobs}
        for declared in job.declared:
            assert isinstance(declared.file, DeleteFile)
            blob = places.get((declared.file.content_offset, declared.file.content_size_in_bytes))
            if blob is None:
                raise declared.refused(
                    "content-offset", "the Puffin file's footer names no blob of that place"
                )
            self._verify_vector(declared, declared.file, blob)

    def _puffin_footer(self, location: str, size: int) -> puffin.FileMetadata:
        length = min(size, _FIRST_READ_BYTES)
        tail = self._store.get_range(location, size - length, length) if length else b""
        whole = puffin.footer_bytes(tail, size)
        if whole > length:
            tail = self._store.get_range(location, size - whole, whole)
        return puffin.read_footer(tail, size)

    def _verify_vector(
        self, declared: _Declared, file: DeleteFile, blob: puffin.BlobMetadata
    ) -> None:
        try:
            stored = self._store.get_range(file.file_path, blob.offset, blob.length)
            referenced, vector = read_deletion_vector(puffin.decode_blob(stored, blob), blob)
        except (InvalidPuffin, InvalidDeletionVector) as error:
            problem = f"the deletion vector cannot be read: {error}"
            raise declared.refused("content-offset", problem) from None
        if vector.cardinality != file.record_count:
            raise declared.refused(
                "record-count",
                f"{file.record_count} is declared, but the vector deletes {vector.cardinality} "
                "rows",
            )
        if referenced != file.referenced_data_file:
            raise declared.refused(
                "referenced-data-file",
                f"{file.referenced_data_file} is declared, but the vector is of {referenced}",
            )


def _check_size(declared: _Declared, size: int | None) -> None:
    if size is None:
        raise _missing(declared)
    expected = declared.file.file_size_in_bytes
    if size != expected:
        raise declared.refused(
            "file-size-in-bytes", f"{expected} is declared, but the file has {size} bytes"
        )


def _missing(declared: _Declared) -> BadRequest:
    return declared.refused("file-path", "there is no such file: write it before declaring it")
