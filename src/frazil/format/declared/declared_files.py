"""Declared files made entries: what a commit says of its files, held against the table.

A file must fit the table that it is added to: its spec, its partition values, its format version,
its schema. Whatever does not fit is a BadRequest that names the file, the field and the fix. Where
Java takes a value on trust that could only hide rows or break readers, it is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, get_args

from frazil.format.declared.declared_metrics import metrics_reader
from frazil.format.declared.declared_partitions import PartitionReader, partition_reader
from frazil.format.declared.declared_values import Misfit
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DataFile,
    DeleteFile,
)
from frazil.format.metadata.partition_spec import has_unknown_transform
from frazil.format.metadata.sort_order import UNSORTED_ORDER_ID
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire import content_files as wire
from frazil.wire.errors import BadRequest

_Wire = TypeVar("_Wire", bound=wire.ContentFile)
_File = TypeVar("_File", bound=ContentFile)

_FORMATS: Final = {name: name.lower() for name in get_args(wire.FileFormat)}
_DELETES_SINCE: Final = 2
_DELETION_VECTORS_SINCE: Final = 3


class DeclaredFiles:
    """Converts declared files; made once for a table's state.

    `place` says where a file, or the list of files, stands in the request, such as
    `updates[0].add-data-files`.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._metrics = metrics_reader(metadata.schemas, metadata.current_schema)
        self._partitions: dict[int, PartitionReader] = {}
        self._order_ids = {UNSORTED_ORDER_ID, *(order.order_id for order in metadata.sort_orders)}

    def data_file(self, file: wire.DataFile, place: str) -> DataFile:
        return self._one(self._data_file, file, place)

    def delete_file(self, file: wire.AddedDeleteFile, place: str) -> DeleteFile:
        return self._one(self._delete_file, file, place)

    def data_files(self, files: Iterable[wire.DataFile], place: str) -> list[DataFile]:
        """All files of a list; `place` is that of the list."""
        return self._all(self._data_file, files, place)

    def delete_files(self, files: Iterable[wire.AddedDeleteFile], place: str) -> list[DeleteFile]:
        return self._all(self._delete_file, files, place)

    def _one(self, convert: Callable[[_Wire], _File], file: _Wire, place: str) -> _File:
        try:
            return convert(file)
        except Misfit as misfit:
            raise _refused(misfit, file, place) from None

    def _all(
        self, convert: Callable[[_Wire], _File], files: Iterable[_Wire], place: str
    ) -> list[_File]:
        converted: list[_File] = []
        for index, file in enumerate(files):
            try:
                converted.append(convert(file))
            except Misfit as misfit:
                raise _refused(misfit, file, f"{place}[{index}]") from None
        return converted

    # --- what all files have ----------------------------------------------------------------

    def _partition(self, file: wire.ContentFile) -> tuple[Any, ...]:
        spec_id = file.spec_id
        return (self._partitions.get(spec_id) or self._spec(spec_id)).read(file.partition)

    def _check(self, file: wire.ContentFile, *, is_data: bool) -> None:
        """Everything but the partition and the bounds, which are checked as they are read."""
        if file.sort_order_id is not None and file.sort_order_id not in self._order_ids:
            raise self._unknown_sort_order(file.sort_order_id)
        if file.split_offsets:
            _check_split_offsets(file.split_offsets, file.file_size_in_bytes)
        metrics = self._metrics
        metrics.check_ids("column-sizes", file.column_sizes)
        metrics.check_ids("value-counts", file.value_counts)
        metrics.check_ids("null-value-counts", file.null_value_counts)
        metrics.check_ids("nan-value-counts", file.nan_value_counts)
        metrics.check_counts(file, is_data=is_data)

    def _spec(self, spec_id: int) -> PartitionReader:
        spec = self._metadata.spec(spec_id)
        if spec is None:
            known = ", ".join(str(spec.spec_id) for spec in self._metadata.partition_specs)
            raise Misfit(
                "spec-id", f"{spec_id} is not a partition spec of the table: it has {known}"
            )
        if has_unknown_transform(spec):
            # Spec, "Partitioning": writers are not allowed to commit files with such a spec.
            raise Misfit(
                "spec-id",
                f"the partition spec {spec_id} has a transform that is not known, so that no file "
                "can be added with it: use another spec of the table",
            )
        reader = partition_reader(spec, self._metadata.current_schema)
        self._partitions[spec_id] = reader
        return reader

    def _unknown_sort_order(self, order_id: int) -> Misfit:
        known = ", ".join(map(str, sorted(self._order_ids)))
        return Misfit(
            "sort-order-id", f"{order_id} is not a sort order of the table: it has {known}"
        )

    # --- data files -------------------------------------------------------------------------

    def _data_file(self, file: wire.DataFile) -> DataFile:
        """The client's `first-row-id` is left out: row ids are assigned with the commit."""
        self._check(file, is_data=True)
        lower_bounds, upper_bounds = self._metrics.bounds(file)
        return DataFile(
            file_path=file.file_path,
            file_format=_FORMATS[file.file_format],
            partition=self._partition(file),
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            column_sizes=file.column_sizes,
            value_counts=file.value_counts,
            null_value_counts=file.null_value_counts,
            nan_value_counts=file.nan_value_counts,
            lower_bounds=lower_bounds,
            upper_bounds=upper_bounds,
            key_metadata=_key_metadata(file),
            split_offsets=file.split_offsets,
            sort_order_id=file.sort_order_id,
        )

    # --- delete files -----------------------------------------------------------------------

    def _delete_file(self, file: wire.AddedDeleteFile) -> DeleteFile:
        version = self._metadata.format_version
        if version < _DELETES_SINCE:
            raise Misfit(
                "content",
                "a table of format version 1 has no delete files: upgrade it to version 2 or "
                "rewrite the data files",
            )
        if isinstance(file, wire.EqualityDeleteFile):
            self._check_equality_ids(file.equality_ids)
            return self._deletes(file, content=EQUALITY_DELETES, equality_ids=file.equality_ids)
        self._check_position_deletes(file, version)
        return self._deletes(
            file,
            content=POSITION_DELETES,
            referenced_data_file=file.referenced_data_file,
            content_offset=file.content_offset,
            content_size_in_bytes=file.content_size_in_bytes,
        )

    def _deletes(self, file: wire.AddedDeleteFile, **more: Any) -> DeleteFile:
        self._check(file, is_data=False)
        lower_bounds, upper_bounds = self._metrics.bounds(file)
        return DeleteFile(
            file_path=file.file_path,
            file_format=_FORMATS[file.file_format],
            partition=self._partition(file),
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            column_sizes=file.column_sizes,
            value_counts=file.value_counts,
            null_value_counts=file.null_value_counts,
            nan_value_counts=file.nan_value_counts,
            lower_bounds=lower_bounds,
            upper_bounds=upper_bounds,
            key_metadata=_key_metadata(file),
            split_offsets=file.split_offsets,
            sort_order_id=file.sort_order_id,
            **more,
        )

    def _check_equality_ids(self, equality_ids: Iterable[int]) -> None:
        """Readers look the columns up in the current schema and fail where one is not there."""
        for field_id in equality_ids:
            if self._metadata.current_schema.find_field(field_id) is None:
                raise Misfit(
                    "equality-ids",
                    f"{field_id} is not the id of a column in the table's current schema",
                )

    def _check_position_deletes(self, file: wire.PositionDeleteFile, version: int) -> None:
        if file.is_deletion_vector:
            if version < _DELETION_VECTORS_SINCE:
                raise Misfit(
                    "file-format",
                    f"deletion vectors need format version {_DELETION_VECTORS_SINCE}, the table "
                    f"has {version}: send a position delete file",
                )
            _check_blob(file)
        elif version >= _DELETION_VECTORS_SINCE:
            raise Misfit(
                "file-format",
                f"a table of format version {version} takes no new position delete files: send a "
                "deletion vector in a Puffin file",
            )
        if file.sort_order_id:
            raise Misfit(
                "sort-order-id",
                "position deletes are ordered by file and position, never by a sort order of the "
                "table: remove it",
            )


def _key_metadata(file: wire.ContentFile) -> bytes | None:
    return None if file.key_metadata is None else bytes.fromhex(file.key_metadata)


def _check_split_offsets(offsets: tuple[int, ...], file_size_in_bytes: int) -> None:
    # They are in ascending order. Java ignores all of them where the last one is past the end.
    if offsets[-1] >= file_size_in_bytes:
        raise Misfit(
            "split-offsets",
            f"{offsets[-1]} is not inside the file of {file_size_in_bytes} bytes: correct it or "
            "leave split-offsets out",
        )


def _check_blob(file: wire.PositionDeleteFile) -> None:
    assert file.content_offset is not None
    assert file.content_size_in_bytes is not None
    end = file.content_offset + file.content_size_in_bytes
    if end > file.file_size_in_bytes:
        raise Misfit(
            "content-size-in-bytes",
            f"the deletion vector would end at byte {end} of a file of "
            f"{file.file_size_in_bytes} bytes",
        )


def _refused(misfit: Misfit, file: wire.ContentFile, place: str) -> BadRequest:
    return BadRequest(f"{place} ({file.file_path}).{misfit.field}: {misfit.problem}")
