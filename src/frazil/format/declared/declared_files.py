"""Converts the files that a commit declares to entries of manifests, after checking them.

A file must fit the specs, partition values, format version and schema of its table. Anything else
is a BadRequest that names the file, the field and the fix. Some values that Java accepts unchecked
are refused here because they could only hide rows or break readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar, get_args

from frazil.format.declared.declared_metrics import Misfit, metrics_reader
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DataFile,
    DeleteFile,
)
from frazil.format.metadata.partition_spec import (
    PartitionField,
    PartitionSpec,
    has_unknown_transform,
    partition_type,
)
from frazil.format.metadata.schema import Schema
from frazil.format.metadata.sort_order import UNSORTED_ORDER_ID
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.values.single_value import InvalidValue, check_value, from_json
from frazil.values.transforms import Bucket, Day, Truncate, Void, apply
from frazil.values.types import INT, Type, TypeId
from frazil.wire import declared_content as wire
from frazil.wire.errors import BadRequest

WirePartition: TypeAlias = tuple[Any, ...] | Mapping[int, Any]
_Reader: TypeAlias = Callable[[Any], Any]

_FIELD: Final = "partition"
_MAX_CACHED_TUPLES: Final = 1 << 10


@lru_cache(maxsize=64)
def partition_reader(spec: PartitionSpec, schema: Schema) -> PartitionReader:
    """Return the shared reader of a spec; `schema` is the current one of the table."""
    return PartitionReader(spec, schema)


class PartitionReader:
    """Converts the partition tuples of one spec from JSON.

    Tuples are cached, because many files have the same partition. Tuples with floating point fields
    are not cached: 0.0 and -0.0 are the same key but two partitions.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._spec = spec
        types = [field.type for field in partition_type(spec, schema).fields]
        self._readers = [
            _reader(part, type_) for part, type_ in zip(spec.fields, types, strict=True)
        ]
        self._positions = {part.field_id: at for at, part in enumerate(spec.fields)}
        self._known: dict[Any, tuple[Any, ...]] | None = {}
        if any(type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) for type_ in types):
            self._known = None

    def read(self, partition: WirePartition) -> tuple[Any, ...]:
        """Return the tuple in the order of the spec's fields. Raise Misfit if it does not fit."""
        if not isinstance(partition, tuple):
            partition = self._in_order(partition)
        if self._known is None:
            return self._read(partition)
        # True, 1 and 1.0 are the same dict key, so the types are part of the key.
        key = (partition, *map(type, partition))
        known = self._known.get(key)
        if known is None:
            known = self._read(partition)
            if len(self._known) >= _MAX_CACHED_TUPLES:
                self._known.clear()
            self._known[key] = known
        return known

    def _in_order(self, partition: Mapping[int, Any]) -> tuple[Any, ...]:
        """Convert Java's older form, an object with field ids that leaves null values out."""
        values: list[Any] = [None] * len(self._readers)
        for field_id, value in partition.items():
            at = self._positions.get(field_id)
            if at is None:
                raise Misfit(
                    _FIELD,
                    f"{field_id} is not the id of a field of {self._shown()}",
                )
            values[at] = value
        return tuple(values)

    def _read(self, partition: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(partition) != len(self._readers):
            raise Misfit(
                _FIELD,
                f"there are {len(partition)} values, but {len(self._readers)} fields in "
                f"{self._shown()}: send one value, or null, for each field in their order",
            )
        values = []
        for read, part, value in zip(self._readers, self._spec.fields, partition, strict=True):
            try:
                values.append(None if value is None else read(value))
            except InvalidValue as error:
                raise Misfit(f"{_FIELD}.{part.name}", str(error)) from None
        return tuple(values)

    def _shown(self) -> str:
        fields = ", ".join(f"{part.field_id}: {part.name}" for part in self._spec.fields)
        return f"spec-id {self._spec.spec_id}" + (f" ({fields})" if fields else ", unpartitioned")


def _reader(part: PartitionField, type_: Type) -> _Reader:
    """Return a function that converts values of a field that are not null."""
    transform = part.transform
    match transform:
        case Void():
            return _refuses("a void transform has no other value than null")
        case Day():
            return _read_day
        case Bucket():
            return _bucket_reader(transform)
        case Truncate():
            return _truncated_reader(transform, type_)
    if type_.type_id is TypeId.UNKNOWN:
        return _refuses("the source column is not in the current schema: only null can be kept")
    return lambda value: from_json(type_, value)


def _refuses(why: str) -> _Reader:
    def refuse(value: Any) -> Any:
        raise InvalidValue(f"{value!r} is not allowed: {why}")

    return refuse


def _read_day(value: Any) -> Any:
    """Convert a day. Both forms are accepted: a date as in Java, or an int as in the spec."""
    if isinstance(value, int) and not isinstance(value, bool):
        check_value(INT, value)
        return value
    return from_json(Day().result_type(INT), value)


def _bucket_reader(transform: Bucket) -> _Reader:
    def read(value: Any) -> Any:
        bucket = from_json(INT, value)
        if not 0 <= bucket < transform.num_buckets:
            raise InvalidValue(
                f"{bucket} is not one of the buckets 0 to {transform.num_buckets - 1}"
            )
        return bucket

    return read


def _truncated_reader(transform: Truncate, type_: Type) -> _Reader:
    if type_.type_id is TypeId.UNKNOWN:
        return _refuses("the source column is not in the current schema: only null can be kept")

    def read(value: Any) -> Any:
        truncated = from_json(type_, value)
        if apply(transform, type_, truncated) != truncated:
            raise InvalidValue(f"{value!r} is not a result of {transform}")
        return truncated

    return read


_Wire = TypeVar("_Wire", bound=wire.DeclaredContentFile)
_File = TypeVar("_File", bound=ContentFile)

_FORMATS: Final = {name: name.lower() for name in get_args(wire.FileFormat)}
_DELETES_SINCE: Final = 2
_DELETION_VECTORS_SINCE: Final = 3


class DeclaredFiles:
    """Converts declared files for one state of a table.

    `json_path` is the path of a file or a list of files in the request, such as
    `updates[0].add-data-files`.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._metrics = metrics_reader(metadata.schemas, metadata.current_schema)
        self._partitions: dict[int, PartitionReader] = {}
        self._order_ids = {UNSORTED_ORDER_ID, *(order.order_id for order in metadata.sort_orders)}

    def data_files(self, files: Iterable[wire.DeclaredDataFile], json_path: str) -> list[DataFile]:
        """Convert the files of a list; `json_path` is that of the list."""
        return self._all(self._data_file, files, json_path)

    def delete_files(
        self, files: Iterable[wire.AddedDeleteFile], json_path: str
    ) -> list[DeleteFile]:
        return self._all(self._delete_file, files, json_path)

    def _all(
        self, convert: Callable[[_Wire], _File], files: Iterable[_Wire], json_path: str
    ) -> list[_File]:
        converted: list[_File] = []
        for index, file in enumerate(files):
            try:
                converted.append(convert(file))
            except Misfit as misfit:
                raise _refused(misfit, file, f"{json_path}[{index}]") from None
        return converted

    # --- all files ----------------------------------------------------------------

    def _partition(self, file: wire.DeclaredContentFile) -> tuple[Any, ...]:
        spec_id = file.spec_id
        return (self._partitions.get(spec_id) or self._spec(spec_id)).read(file.partition)

    def _check(self, file: wire.DeclaredContentFile, *, is_data: bool) -> None:
        """Check everything except the partition and the bounds, which are checked when they are
        read."""
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

    def _data_file(self, file: wire.DeclaredDataFile) -> DataFile:
        """Convert a data file without its `first-row-id`, because the commit assigns row ids."""
        return DataFile(**self._common_fields(file, is_data=True))

    def _common_fields(self, file: wire.DeclaredContentFile, *, is_data: bool) -> dict[str, Any]:
        self._check(file, is_data=is_data)
        lower_bounds, upper_bounds = self._metrics.bounds(file)
        return {
            "file_path": file.file_path,
            "file_format": _FORMATS[file.file_format],
            "partition": self._partition(file),
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            "column_sizes": file.column_sizes,
            "value_counts": file.value_counts,
            "null_value_counts": file.null_value_counts,
            "nan_value_counts": file.nan_value_counts,
            "lower_bounds": lower_bounds,
            "upper_bounds": upper_bounds,
            "key_metadata": _key_metadata(file),
            "split_offsets": file.split_offsets,
            "sort_order_id": file.sort_order_id,
        }

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
            return DeleteFile(
                content=EQUALITY_DELETES,
                equality_ids=file.equality_ids,
                **self._common_fields(file, is_data=False),
            )
        self._check_position_deletes(file, version)
        return DeleteFile(
            content=POSITION_DELETES,
            referenced_data_file=file.referenced_data_file,
            content_offset=file.content_offset,
            content_size_in_bytes=file.content_size_in_bytes,
            **self._common_fields(file, is_data=False),
        )

    def _check_equality_ids(self, equality_ids: Iterable[int]) -> None:
        """Refuse ids that are not in the current schema, because readers would fail."""
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


def _key_metadata(file: wire.DeclaredContentFile) -> bytes | None:
    return None if file.key_metadata is None else bytes.fromhex(file.key_metadata)


def _check_split_offsets(offsets: tuple[int, ...], file_size_in_bytes: int) -> None:
    # They are in ascending order. Java ignores all of them if the last one is past the end.
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


def _refused(misfit: Misfit, file: wire.DeclaredContentFile, json_path: str) -> BadRequest:
    return BadRequest(f"{json_path} ({file.file_path}).{misfit.field}: {misfit.problem}")
