"""Checks declared files before they are committed, if the table asks for it.

By default the server trusts the declarations. The table property `frazil.commit.verify-files`
makes it check files, in parallel:

    none     nothing is checked
    exists   every file exists and has the declared size
    footer   also, for Parquet: the number of rows is correct, the columns fit the table's schema,
             and the statistics do not disprove the partition; for a deletion vector: it can be
             read, and it deletes the declared number of rows of its data file. For ORC and Avro
             files the same as `exists`.

A file that does not match raises a BadRequest that names the file and the field. An unreachable
store raises a StoreError, because nothing is known about the files.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from frazil.commit.snapshot.stored_vectors import read_puffin_footer
from frazil.extras import install_command, is_missing
from frazil.format.declared.declared_metrics import FIRST_RESERVED_ID, Misfit
from frazil.format.metadata.content_files import EQUALITY_DELETES, ContentFile, DataFile, DeleteFile
from frazil.format.metadata.partition_spec import PartitionField as SpecField
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.object_store import ObjectMissing, Store
from frazil.values import puffin
from frazil.values.column_matching import (
    ColumnMisfit,
    MatchedColumn,
    TableColumns,
    match_columns,
    match_equality_deletes,
    match_position_deletes,
    with_field_ids,
)
from frazil.values.deletion_vectors import InvalidDeletionVector, read_deletion_vector
from frazil.values.footer_statistics import column_statistics
from frazil.values.name_mapping import (
    NAME_MAPPING_PROPERTY,
    InvalidNameMapping,
    NameMapping,
    parse_name_mapping,
)
from frazil.values.parquet_columns import FileColumn, all_columns, columns_of_footer
from frazil.values.partition_proof import (
    Disproven,
    PartitionField,
    contradiction,
    examine,
    result_text,
)
from frazil.values.puffin import InvalidPuffin
from frazil.values.transforms import IDENTITY
from frazil.values.types import Type, fields_by_id
from frazil.wire.errors import BadRequest
from frazil.wire.frazil_properties import VERIFY_FILES, Verification

logger = logging.getLogger("frazil.commit")

_WORKERS: Final = 16
_WINDOW: Final = 8 * _WORKERS
"""The number of checks that are queued at once, so that a large commit does not queue all its
files."""
_FIRST_READ_BYTES: Final = 64 << 10
"""Nearly every footer fits into the first read from the end of a file."""

T = TypeVar("T")


def verification(metadata: TableMetadata) -> Verification:
    """Return the level of verification that the table asks for."""
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
    json_path: str = "",
    spec_ids: Sequence[int] = (),
) -> None:
    """Check that files match their declarations. Raises the error of the first file that does
    not.

    `json_path` is the prefix of the list names in messages, such as `updates[0].`. `spec_ids` are
    the specs of the data files and then of the delete files, by default the table's default spec.
    Without an executor the function creates its own threads.
    """
    level = verification(metadata)
    if level is Verification.NONE or not (data_files or delete_files):
        return
    verifier = _Verifier(metadata, store, level)
    specs = iter(spec_ids or [metadata.default_spec_id] * (len(data_files) + len(delete_files)))
    jobs = [*_jobs(data_files, f"{json_path}add-data-files", specs)]
    jobs += _jobs(delete_files, f"{json_path}add-delete-files", specs)
    if level is Verification.FOOTER and any(job.format_name == "parquet" for job in jobs):
        require_pyarrow()
    if executor is not None:
        _run(verifier, jobs, executor)
        return
    with ThreadPoolExecutor(min(_WORKERS, len(jobs)), "frazil-verify") as threads:
        _run(verifier, jobs, threads)


def require_pyarrow() -> None:
    """Raise an error that names the missing package before any file is read."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        if not is_missing(error, "parquet"):
            raise
        # The command has a path of this machine, which is not for clients.
        logger.warning("%s: footer needs pyarrow: %s", VERIFY_FILES, install_command("parquet"))
        raise BadRequest(
            f"properties.{VERIFY_FILES}: footer needs pyarrow, which is not installed on the "
            "server: set the property to exists, or add the extra parquet to the server, as its "
            "log says"
        ) from None


@dataclass(frozen=True, slots=True)
class _Declared:
    file: ContentFile
    json_path: str
    spec_id: int

    def refused(self, field: str, problem: str) -> BadRequest:
        return BadRequest(f"{self.json_path} ({self.file.file_path}).{field}: {problem}")


@dataclass(frozen=True, slots=True)
class _Job:
    """The declarations about one object: one file, or all vectors of one Puffin file."""

    declared: tuple[_Declared, ...]

    @property
    def location(self) -> str:
        return self.declared[0].file.file_path

    @property
    def format_name(self) -> str:
        return self.declared[0].file.file_format.lower()


def _jobs(files: Iterable[ContentFile], name: str, spec_ids: Iterator[int]) -> list[_Job]:
    by_location: dict[str, list[_Declared]] = {}
    for index, file in enumerate(files):
        declared = _Declared(file, f"{name}[{index}]", next(spec_ids))
        by_location.setdefault(file.file_path, []).append(declared)
    return [_Job(tuple(declared)) for declared in by_location.values()]


def _run(verifier: _Verifier, jobs: Sequence[_Job], executor: Executor) -> None:
    for window in _windows(jobs):
        futures = [executor.submit(verifier.verify, job) for job in window]
        # Wait for all of them, so that no thread still reads for a request that was already
        # answered.
        problems = [future.exception() for future in futures]
        for problem in problems:
            if problem is not None:
                raise problem


def _windows(items: Sequence[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while window := list(islice(rest, _WINDOW)):
        yield window


class _Verifier:
    """Checks one object at a time. Many threads share it."""

    def __init__(self, metadata: TableMetadata, store: Store, level: Verification) -> None:
        self._metadata = metadata
        self._store = store
        self._reads_footers = level is Verification.FOOTER
        if self._reads_footers:
            self._name_mapping = _name_mapping(metadata)
            self._columns = _table_columns(metadata)
            self._partition_fields = _partition_fields(metadata, self._columns)
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
            footer = _read_footer(
                lambda offset, length: self._store.get_range(location, offset, length), size
            )
            if footer.row_count != file.record_count:
                raise Misfit(
                    "record-count",
                    f"{file.record_count} is declared, but the file has {footer.row_count} rows",
                )
            columns = self._match_columns(file, footer.columns)
            fields = self._partition_fields.get(declared.spec_id, ())
            if fields and columns is not None:
                _check_partition(file, fields, columns, footer.metadata)
        except Misfit as misfit:
            raise declared.refused(misfit.field, misfit.problem) from None
        except (_InvalidParquet, ColumnMisfit) as error:
            problem = f"the Parquet file does not fit the table: {error}"
            raise declared.refused("file-path", problem) from None

    def _match_columns(
        self, file: ContentFile, columns: Sequence[FileColumn]
    ) -> Sequence[MatchedColumn] | None:
        """Return the columns of the table that the file has. Position deletes have none."""
        if isinstance(file, DeleteFile) and file.content != EQUALITY_DELETES:
            match_position_deletes(columns)
            return None
        columns = with_field_ids(columns, self._name_mapping, self._columns.schema)
        if isinstance(file, DeleteFile):
            matched = match_equality_deletes(columns, self._columns, file.equality_ids or ())
        else:
            matched = match_columns(columns, self._columns, self._from_partition)
        _refuse_unassigned_ids(columns, self._metadata.last_column_id)
        return matched

    # --- deletion vectors -------------------------------------------------------------------

    def _verify_vectors(self, job: _Job, size: int) -> None:
        try:
            footer = read_puffin_footer(self._store, job.location, size)
        except InvalidPuffin as error:
            problem = f"the Puffin file cannot be read: {error}"
            raise job.declared[0].refused("file-path", problem) from None
        blobs: dict[tuple[int | None, int | None], puffin.BlobMetadata]
        blobs = {(blob.offset, blob.length): blob for blob in footer.blobs}
        for declared in job.declared:
            assert isinstance(declared.file, DeleteFile)
            blob = blobs.get((declared.file.content_offset, declared.file.content_size_in_bytes))
            if blob is None:
                raise declared.refused(
                    "content-offset",
                    "the Puffin file's footer names no blob at that offset and of that size",
                )
            self._verify_vector(declared, declared.file, blob)

    def _verify_vector(
        self, declared: _Declared, file: DeleteFile, blob: puffin.BlobMetadata
    ) -> None:
        try:
            stored = self._store.get_range(file.file_path, blob.offset, blob.length)
            referenced, vector = read_deletion_vector(stored, blob)
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


# --- tables -----------------------------------------------------------------------------------


def _name_mapping(metadata: TableMetadata) -> NameMapping | None:
    text = metadata.properties.get(NAME_MAPPING_PROPERTY)
    try:
        return None if text is None else parse_name_mapping(text)
    except InvalidNameMapping as error:
        raise BadRequest(str(error)) from None


def _table_columns(metadata: TableMetadata) -> TableColumns:
    current = metadata.current_schema.struct

    def former_types(field_id: int) -> list[Type]:
        fields = (schema.find_field(field_id) for schema in metadata.schemas)
        return [field.type for field in fields if field is not None]

    return TableColumns(current, fields_by_id(current), metadata.format_version, former_types)


def _partition_fields(
    metadata: TableMetadata, columns: TableColumns
) -> Mapping[int, tuple[PartitionField, ...]]:
    """Return the fields of each spec with their source columns in the current schema."""

    def field(part: SpecField) -> PartitionField:
        source = columns.by_id.get(part.source_id)
        name, column = (None, None) if source is None else (source.name, source.field)
        return PartitionField(part.name, part.transform, part.source_id, name, column)

    return {spec.spec_id: tuple(map(field, spec.fields)) for spec in metadata.partition_specs}


def _check_partition(
    file: ContentFile,
    fields: Sequence[PartitionField],
    columns: Sequence[MatchedColumn],
    footer: Any,
) -> None:
    """Refuse partition values that the statistics of the source columns disprove. A footer does
    not count NaNs, so the statistics must hold with any number of them."""
    is_data = isinstance(file, DataFile)
    sources = {field.source_id for field in fields}
    known = [column for column in columns if column.field_id in sources]
    try:
        statistics = column_statistics(footer, known, lambda _: None, lambda _: True)
        by_field = [statistics.get(field.source_id) for field in fields]
        findings = [
            examine(field, own, is_data=is_data)
            for field, own in zip(fields, by_field, strict=True)
        ]
    except (OSError, ValueError, ArithmeticError):
        # Readers may read a file with invalid statistics, and such statistics prove nothing.
        return
    repeated = {column.field_id for column in known if column.is_repeated}
    for field, finding, value in zip(fields, findings, file.partition, strict=True):
        if field.source_id in repeated:
            continue
        reason = (
            finding.reason
            if isinstance(finding, Disproven)
            else contradiction(field, finding, value)
        )
        if reason is not None:
            shown = f"{result_text(field, value)} is declared, but {reason}"
            raise Misfit(f"partition.{field.name}", shown)


def _refuse_unassigned_ids(columns: Iterable[FileColumn], last_column_id: int) -> None:
    """Refuse ids that the table has not assigned yet, because other columns may get them later."""
    for column in all_columns(columns):
        if column.field_id is not None and last_column_id < column.field_id < FIRST_RESERVED_ID:
            raise ColumnMisfit(
                f"has the field id {column.field_id}, which no column of the table ever had",
                column.name,
            )


# --- footers of Parquet files -----------------------------------------------------------------

_MAX_FOOTER_BYTES: Final = 64 << 20
_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
_TAIL: Final = struct.Struct("<I4s")
"""The length of the footer and the magic bytes at the end of a file."""


class _InvalidParquet(ValueError):
    """The bytes are not the end of a valid Parquet file."""


@dataclass(frozen=True, slots=True)
class _ParquetFooter:
    metadata: Any
    """A `pyarrow.parquet.FileMetaData`."""
    columns: tuple[FileColumn, ...]

    @property
    def row_count(self) -> int:
        count: int = self.metadata.num_rows
        return count


def _read_footer(read: Callable[[int, int], bytes], size: int) -> _ParquetFooter:
    """Read the footer of a file of `size` bytes with at most two calls of `read`.

    `read` takes an offset and a length.
    """
    if size < len(_MAGIC) + _TAIL.size:
        raise _InvalidParquet(f"{size} bytes are too few for a Parquet file")
    tail = read(max(0, size - _FIRST_READ_BYTES), min(size, _FIRST_READ_BYTES))
    length, magic = _TAIL.unpack(tail[-_TAIL.size :])
    if magic == _ENCRYPTED_MAGIC:
        raise _InvalidParquet("its footer is encrypted")
    if magic != _MAGIC:
        raise _InvalidParquet(f"a Parquet file ends with {_MAGIC!r}, this one with {magic!r}")
    if length > _MAX_FOOTER_BYTES:
        raise _InvalidParquet(f"its footer of {length} bytes is above {_MAX_FOOTER_BYTES}")
    whole = length + _TAIL.size
    if whole > size - len(_MAGIC):
        raise _InvalidParquet(f"a footer of {length} bytes does not fit into {size}")
    if whole > len(tail):
        tail = read(size - whole, whole)
    return _parse_footer(tail[-whole:])


def _parse_footer(tail: bytes) -> _ParquetFooter:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # pyarrow locates the footer from the end, so it needs no other part of the file.
        metadata: Any = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
        return _ParquetFooter(metadata, columns_of_footer(metadata))
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _InvalidParquet(f"its footer cannot be read: {error}") from None
