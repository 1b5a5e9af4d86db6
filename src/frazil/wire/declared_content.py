"""Data files and delete files as a commit declares them, in the JSON of the REST specification.

Values (partition, bounds) stay JSON values, because only the table knows their types and a `day`
partition value may be a date or a number. Only what needs no table is checked here. Known
differences between writers are accepted: enums in lower and in upper case (Java up to 1.10), a
partition as an array in the order of the spec's fields or as an object with field ids, statistics
and `referenced-data-file` on delete files (Java writes them, the schema of the specification does
not have them).

The checks of an object raise ValueError while it is decoded. `frazil.wire.json_bodies.decode` turns
it into a BadRequest that names the JSON path of the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct

from frazil.wire.rest_updates import Int32

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
FilePath: TypeAlias = Annotated[str, Meta(min_length=1)]
Hex: TypeAlias = Annotated[str, Meta(pattern="^([0-9A-Fa-f]{2})*$")]
FieldId: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]

Primitive: TypeAlias = bool | int | float | str
"""A JSON single value that has no type yet."""

Partition: TypeAlias = tuple[Primitive | None, ...] | dict[FieldId, Any]

FileFormat: TypeAlias = Literal[
    "avro", "orc", "parquet", "puffin", "AVRO", "ORC", "PARQUET", "PUFFIN"
]

NULL: Final = Raw(b"null")
"""The default of an optional object that stays raw JSON."""


def optional_raw(raw: Raw) -> Raw | None:
    """Return an optional raw object, or None if the client left it out or sent null."""
    return None if bytes(raw) == b"null" else raw


# --- maps of field ids --------------------------------------------------------------------------


class _FieldMap(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A map as two lists of the same length, because keys of JSON objects are strings."""

    keys: tuple[FieldId, ...]
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        keys = self.keys
        if len(keys) != len(self.values) or keys not in _distinct_keys:
            _check_map(keys, self.values)


class CountMap(_FieldMap, frozen=True, gc=False):
    """Counts or sizes by field id."""

    values: tuple[Count, ...]

    def get(self, field_id: int, /) -> int | None:
        keys = self.keys
        return self.values[keys.index(field_id)] if field_id in keys else None

    def items(self) -> Iterable[tuple[int, int]]:
        return zip(self.keys, self.values, strict=True)

    def __len__(self) -> int:
        return len(self.keys)


class ValueMap(_FieldMap, frozen=True, gc=False):
    """Lower or upper bounds by field id. A column without a bound is left out."""

    values: tuple[Primitive, ...]


# Lists of field ids that are known to be distinct. Nearly all files of a table have the same list.
_distinct_keys: set[tuple[int, ...]] = set()
_MAX_DISTINCT_KEYS: Final = 1 << 10


def _check_map(keys: tuple[int, ...], values: Sequence[Any]) -> None:
    if len(keys) != len(values):
        raise ValueError(
            f"keys and values must be of one length, but there are {len(keys)} keys "
            f"and {len(values)} values"
        )
    if len(set(keys)) != len(keys):
        raise ValueError(f"keys: field id {first_duplicate(keys)} stands twice")
    if len(_distinct_keys) >= _MAX_DISTINCT_KEYS:
        _distinct_keys.clear()
    _distinct_keys.add(keys)


# --- files that are added -----------------------------------------------------------------------


class DeclaredContentFile(
    Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    tag_field="content",
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
):
    """The fields that data files and delete files share.

    The garbage collector does not track these objects: a request may have a hundred thousand of
    them, and none can be part of a cycle.
    """

    spec_id: Int32
    partition: Partition
    file_path: FilePath
    file_format: FileFormat
    file_size_in_bytes: Count
    record_count: Count
    key_metadata: Hex | None = None
    split_offsets: tuple[Count, ...] | None = None
    sort_order_id: Int32 | None = None
    column_sizes: CountMap | None = None
    value_counts: CountMap | None = None
    null_value_counts: CountMap | None = None
    nan_value_counts: CountMap | None = None
    lower_bounds: ValueMap | None = None
    upper_bounds: ValueMap | None = None
    bounds_encoding: Literal["hex"] | None = None
    """`hex` if both bounds are binary single values in hexadecimal. It must be given explicitly: a
    string can be valid both ways, and a wrong guess would prune live rows."""

    @property
    def format_name(self) -> str:
        """Return the file format in lower case, as today's manifests have it."""
        return self.file_format.lower()

    def __post_init__(self) -> None:
        if isinstance(self.partition, dict):
            _check_partition(self.partition)
        if self.bounds_encoding is not None:
            _check_hex("lower-bounds", self.lower_bounds)
            _check_hex("upper-bounds", self.upper_bounds)
        offsets = self.split_offsets
        if offsets is not None and len(offsets) > 1 and list(offsets) != sorted(offsets):
            raise ValueError("split-offsets: must be in ascending order")


class DeclaredDataFile(DeclaredContentFile, frozen=True, kw_only=True, gc=False, tag="data"):
    first_row_id: Count | None = None
    """Accepted but not used: the server assigns row ids."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_puffin(self, "data")


class PositionDeleteFile(
    DeclaredContentFile, frozen=True, kw_only=True, gc=False, tag="position-deletes"
):
    """A file of position deletes, or one deletion vector inside a Puffin file."""

    content_offset: Count | None = None
    content_size_in_bytes: Count | None = None
    referenced_data_file: FilePath | None = None

    @property
    def is_deletion_vector(self) -> bool:
        return self.content_offset is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.content_offset is None) != (self.content_size_in_bytes is None):
            missing = "content-offset" if self.content_offset is None else "content-size-in-bytes"
            raise ValueError(
                f"{missing}: required, content-offset and content-size-in-bytes go together"
            )
        if self.content_offset is None:
            if self.format_name == "puffin":
                raise ValueError("content-offset: required for a deletion vector (format puffin)")
        elif self.format_name != "puffin":
            raise ValueError("file-format: must be puffin where content-offset is given")
        elif self.referenced_data_file is None:
            raise ValueError("referenced-data-file: required for a deletion vector")


class EqualityDeleteFile(
    DeclaredContentFile, frozen=True, kw_only=True, gc=False, tag="equality-deletes"
):
    equality_ids: Annotated[tuple[FieldId, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_puffin(self, "equality deletes")
        if len(set(self.equality_ids)) != len(self.equality_ids):
            raise ValueError(f"equality-ids: {first_duplicate(self.equality_ids)} stands twice")


class UpperCaseDataFile(DeclaredDataFile, frozen=True, kw_only=True, gc=False, tag="DATA"):
    """The same content with the name that Java up to 1.10 uses."""


class UpperCasePositionDeleteFile(
    PositionDeleteFile, frozen=True, kw_only=True, gc=False, tag="POSITION_DELETES"
):
    """The same content with the name that Java up to 1.10 uses."""


class UpperCaseEqualityDeleteFile(
    EqualityDeleteFile, frozen=True, kw_only=True, gc=False, tag="EQUALITY_DELETES"
):
    """The same content with the name that Java up to 1.10 uses."""


AddedDataFile: TypeAlias = DeclaredDataFile | UpperCaseDataFile
AddedDeleteFile: TypeAlias = (
    PositionDeleteFile
    | UpperCasePositionDeleteFile
    | EqualityDeleteFile
    | UpperCaseEqualityDeleteFile
)


def _refuse_puffin(file: DeclaredContentFile, what: str) -> None:
    if file.file_format in ("puffin", "PUFFIN"):
        raise ValueError(f"file-format: puffin holds deletion vectors, not {what}")


def _check_partition(partition: dict[int, Any]) -> None:
    for field_id, value in partition.items():
        if value is not None and not isinstance(value, Primitive):
            raise ValueError(
                f"partition: the value of field {field_id} must be a string, a number, a boolean "
                "or null"
            )


def _check_hex(name: str, bounds: ValueMap | None) -> None:
    if bounds is None:
        return
    for field_id, value in zip(bounds.keys, bounds.values, strict=True):
        if not _is_hex(value):
            raise ValueError(
                f"{name}: the bound of field {field_id} must be an even number of hexadecimal "
                "digits, because bounds-encoding is hex"
            )


def _is_hex(value: Primitive) -> bool:
    # bytes.fromhex skips white space, so the length is checked too.
    if not isinstance(value, str):
        return False
    try:
        return 2 * len(bytes.fromhex(value)) == len(value)
    except ValueError:
        return False


# --- files that are removed or named ------------------------------------------------------------


class _NamedFile(
    Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
):
    """A file of the table, identified by its path.

    A client may send the file as it was added, but only its identity is read. The partition is
    ignored on purpose: Java prunes manifests by it, so a wrong one would miss the file silently.
    """

    file_path: FilePath
    spec_id: Raw = NULL
    partition: Raw = NULL
    file_format: Raw = NULL
    file_size_in_bytes: Raw = NULL
    record_count: Raw = NULL
    key_metadata: Raw = NULL
    split_offsets: Raw = NULL
    sort_order_id: Raw = NULL
    column_sizes: Raw = NULL
    value_counts: Raw = NULL
    null_value_counts: Raw = NULL
    nan_value_counts: Raw = NULL
    lower_bounds: Raw = NULL
    upper_bounds: Raw = NULL
    bounds_encoding: Raw = NULL


class NamedDataFile(_NamedFile, frozen=True, kw_only=True, gc=False):
    content: Literal["data", "DATA"] | None = None
    first_row_id: Raw = NULL


class NamedDeleteFile(_NamedFile, frozen=True, kw_only=True, gc=False):
    """A delete file. A Puffin file without content-offset means all its live vectors."""

    content: (
        Literal["position-deletes", "POSITION_DELETES", "equality-deletes", "EQUALITY_DELETES"]
        | None
    ) = None
    content_offset: Count | None = None
    content_size_in_bytes: Count | None = None
    referenced_data_file: Raw = NULL
    equality_ids: Raw = NULL

    def __post_init__(self) -> None:
        if self.content_size_in_bytes is not None and self.content_offset is None:
            raise ValueError("content-offset: required where content-size-in-bytes is given")


class DeleteFileReference(
    Struct,
    frozen=True,
    rename="kebab",
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
):
    """A delete file that a validation clause names."""

    file_path: FilePath
    content_offset: Count | None = None


RemovedDataFile: TypeAlias = FilePath | NamedDataFile
RemovedDeleteFile: TypeAlias = FilePath | NamedDeleteFile


def data_file_path(file: str | NamedDataFile | DeclaredDataFile) -> str:
    """Return the path, which identifies a data file."""
    return file if isinstance(file, str) else file.file_path


def delete_file_key(
    file: str | NamedDeleteFile | DeleteFileReference | AddedDeleteFile,
) -> tuple[str, int | None]:
    """Return the identity of a delete file: its path and, for a deletion vector, its offset.

    In Iceberg the size of the content is a third part. It never matters, because two vectors of one
    file cannot begin at the same offset.
    """
    if isinstance(file, str):
        return file, None
    if isinstance(file, EqualityDeleteFile):
        return file.file_path, None
    return file.file_path, file.content_offset


def first_duplicate(items: Iterable[Any]) -> Any:
    """Return the first item that is repeated, or None."""
    seen = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None
