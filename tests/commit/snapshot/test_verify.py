"""Declared files are verified to the level that the table requires: real Parquet, real Puffin."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.commit.snapshot.file_verification import (
    verification,
    verify_files,
)
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    DataFile,
    DeleteFile,
)
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.local_store import LocalStore
from frazil.store.object_store import Store, StoreError
from frazil.store.s3_store import S3Store
from frazil.values.deletion_vectors import DeletionVector, deletion_vector_blob
from frazil.values.puffin import BlobMetadata, write_puffin
from frazil.wire.errors import BadRequest
from frazil.wire.frazil_properties import VERIFY_FILES, Verification
from tests.support.memory_store import MemoryStore
from tests.support.s3 import S3Server, start_s3
from tests.support.tables import apply, update

ROOT = Path(__file__).resolve().parents[3]
ROWS = 3


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    server = start_s3()
    yield server
    server.stop()


@dataclass(frozen=True)
class Place:
    store: Store
    root: str

    def write(self, name: str, content: bytes) -> str:
        location = f"{self.root}/{name}"
        self.store.put_new(location, [content])
        return location


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.process)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    store: Store
    if request.param == "local":
        store, root = LocalStore(), f"file://{tmp_path}"
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = server.create_bucket(f"verify-{uuid.uuid4().hex[:12]}")
        store, root = S3Store(environ=server.environ()), bucket
    yield Place(store, root)
    store.close()


@pytest.fixture
def memory() -> Place:
    return Place(MemoryStore(), "memory://verify")


def column(field_id: int, name: str, kind: Any, required: bool = False, **more: Any) -> Any:
    return {"id": field_id, "name": name, "required": required, "type": kind, **more}


COLUMNS = [column(1, "id", "long", True), column(2, "name", "string")]


def table(
    level: str = "footer",
    columns: Sequence[Any] = COLUMNS,
    spec: Sequence[tuple[int, str]] = (),
    version: int = 2,
    name_mapping: str | None = None,
) -> TableMetadata:
    parts = [
        {"source-id": source, "field-id": 1000 + at, "name": f"p{at}", "transform": transform}
        for at, (source, transform) in enumerate(spec)
    ]
    properties = {"format-version": str(version), VERIFY_FILES: level}
    if name_mapping is not None:
        properties["schema.name-mapping.default"] = name_mapping
    return new_table(
        schema=json.dumps({"type": "struct", "fields": list(columns)}).encode(),
        spec=json.dumps({"spec-id": 0, "fields": parts}).encode(),
        order=None,
        location="memory://verify/table",
        properties=properties,
        uuid=str(uuid.uuid4()),
        now_ms=0,
    )


def field(name: str, type_: pa.DataType, field_id: int | None = None, **more: Any) -> pa.Field:
    metadata = None if field_id is None else {"PARQUET:field_id": str(field_id)}
    return pa.field(name, type_, metadata=metadata, **more)


FIELDS = [field("id", pa.int64(), 1, nullable=False), field("name", pa.string(), 2)]
VALUES: list[list[Any]] = [[1, 2, 3], ["a", None, "c"]]


def parquet(
    fields: Sequence[pa.Field] = FIELDS, values: Sequence[Any] = VALUES, **options: Any
) -> bytes:
    arrays = [pa.array(column, one.type) for one, column in zip(fields, values, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), sink, **options)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def nulls(fields: Sequence[pa.Field]) -> bytes:
    """Return a Parquet file with the given columns; its values do not matter."""
    return parquet([one.with_nullable(True) for one in fields], [[None] * ROWS] * len(fields))


def data_file(path: str, size: int, rows: int = ROWS, **more: Any) -> DataFile:
    return DataFile(
        file_path=path,
        file_format=more.pop("file_format", "parquet"),
        record_count=rows,
        file_size_in_bytes=size,
        **more,
    )


def written(place: Place, content: bytes, name: str = "a.parquet") -> DataFile:
    return data_file(place.write(name, content), len(content))


def refusal(metadata: TableMetadata, place: Place, *files: Any) -> str:
    data = [file for file in files if isinstance(file, DataFile)]
    deletes = [file for file in files if isinstance(file, DeleteFile)]
    with pytest.raises(BadRequest) as caught:
        verify_files(metadata, data, deletes, place.store, json_path="updates[0].")
    return caught.value.message


# --- the property -------------------------------------------------------------------------------


def test_nothing_is_looked_at_by_default(memory: Place) -> None:
    metadata = table("none")
    missing = data_file("memory://verify/nothing", 5)
    verify_files(metadata, [missing], [], memory.store)
    plain = msgspec.structs.replace(metadata, properties={})
    assert verification(plain) is Verification.NONE
    verify_files(plain, [missing], [], memory.store)


@pytest.mark.parametrize("value", ["all", "", "Exists", "true"])
def test_another_value_is_refused(memory: Place, value: str) -> None:
    properties = {VERIFY_FILES: value}  # A registered table may have it; nobody can set it.
    registered = msgspec.structs.replace(table(), properties=properties)
    message = refusal(registered, memory, data_file("memory://verify/nothing", 5))
    assert message.startswith(f"properties.{VERIFY_FILES}: {value!r} is not one of none, exists, ")


# --- exists -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["exists", "footer"])
def test_a_file_must_be_there_with_its_size(place: Place, level: str) -> None:
    content = parquet()
    good = written(place, content)
    verify_files(table(level), [good], [], place.store)
    missing = data_file(f"{place.root}/b.parquet", 5)
    message = refusal(table(level), place, good, missing)
    assert message.startswith(f"updates[0].add-data-files[1] ({missing.file_path}).file-path: ")
    shorter = data_file(good.file_path, len(content) - 1)
    message = refusal(table(level), place, shorter)
    assert f"({good.file_path}).file-size-in-bytes: {len(content) - 1} is declared" in message
    assert f"{len(content)} bytes" in message


@pytest.mark.parametrize("name", ["orc", "avro"])
def test_of_other_formats_only_existence_is_looked_at(memory: Place, name: str) -> None:
    path = memory.write(f"a.{name}", b"12345")
    verify_files(table(), [data_file(path, 5, file_format=name)], [], memory.store)
    assert "file-size-in-bytes" in refusal(table(), memory, data_file(path, 4, file_format=name))


def test_existence_alone_does_not_look_inside(memory: Place) -> None:
    path = memory.write("a.parquet", b"12345")
    verify_files(table("exists"), [data_file(path, 5)], [], memory.store)


# --- Parquet ------------------------------------------------------------------------------------


def test_the_number_of_rows_must_agree(place: Place) -> None:
    good = written(place, parquet())
    verify_files(table(), [good], [], place.store)
    wrong = msgspec.structs.replace(good, record_count=4)
    message = refusal(table(), place, wrong)
    assert f"({good.file_path}).record-count: 4 is declared, but the file has 3 rows" in message


@pytest.mark.parametrize(
    "content",
    [b"", b"12345", bytes(100), b"PAR1" + bytes(100) + b"PAR1", b"PAR1" + b"\xff" * 8 + b"PARE"],
    ids=["empty", "short", "zeros", "no footer", "encrypted"],
)
def test_what_is_no_parquet_file_is_refused(memory: Place, content: bytes) -> None:
    message = refusal(table(), memory, written(memory, content))
    assert ".file-path: the Parquet file does not fit the table: " in message


def test_a_damaged_footer_never_gets_past_us_as_another_error(memory: Place) -> None:
    content = parquet()
    refused = []
    for number, at in enumerate(range(len(content) - 200, len(content) - 8, 7)):
        damaged = bytearray(content)
        damaged[at : at + 6] = b"\xff" * 6
        file = written(memory, bytes(damaged), f"{number}.parquet")
        with suppress(BadRequest):
            verify_files(table(), [file], [], memory.store)
            continue
        refused.append(file)
    assert refused


def test_a_long_footer_is_read_with_a_second_request(place: Place) -> None:
    columns = [column(number, f"c{number}", "long") for number in range(1, 1501)]
    fields = [field(f"c{number}", pa.int64(), number) for number in range(1, 1501)]
    content = parquet(fields, [[1] * ROWS] * 1500)
    assert int.from_bytes(content[-8:-4], "little") > 64 << 10
    verify_files(table(columns=columns), [written(place, content)], [], place.store)


TIMES = [
    ("timestamp", pa.timestamp("us"), True),
    ("timestamp", pa.timestamp("ms"), True),
    ("timestamp", pa.timestamp("us", "UTC"), False),
    ("timestamp", pa.timestamp("ns"), False),
    ("timestamptz", pa.timestamp("us", "UTC"), True),
    ("timestamptz", pa.timestamp("us"), False),
    ("timestamp_ns", pa.timestamp("ns"), True),
    ("timestamptz_ns", pa.timestamp("ns", "UTC"), True),
    ("timestamp", pa.date32(), True),
    ("timestamptz", pa.date32(), False),
    ("time", pa.time64("us"), True),
    ("time", pa.int64(), False),
    ("date", pa.date32(), True),
    ("date", pa.int32(), False),
]
NUMBERS = [
    ("boolean", pa.bool_(), True),
    ("int", pa.int32(), True),
    ("int", pa.int16(), True),
    ("int", pa.int64(), False),
    ("long", pa.int64(), True),
    ("long", pa.int32(), True),
    ("long", pa.uint32(), False),
    ("long", pa.float64(), False),
    ("float", pa.float32(), True),
    ("float", pa.float64(), False),
    ("double", pa.float64(), True),
    ("double", pa.float32(), True),
    ("decimal(10, 2)", pa.decimal128(10, 2), True),
    ("decimal(10, 2)", pa.decimal128(5, 2), True),
    ("decimal(10, 2)", pa.decimal128(11, 2), False),
    ("decimal(10, 2)", pa.decimal128(10, 3), False),
]
TEXTS = [
    ("string", pa.string(), True),
    ("string", pa.large_string(), True),
    ("string", pa.dictionary(pa.int32(), pa.string()), True),
    ("string", pa.binary(), True),
    ("string", pa.int64(), False),
    ("binary", pa.binary(), True),
    ("binary", pa.string(), False),
    ("uuid", pa.binary(16), True),
    ("uuid", pa.binary(15), False),
    ("uuid", pa.uuid(), True),
    ("fixed[5]", pa.binary(5), True),
    ("fixed[5]", pa.binary(6), False),
    ("geometry", pa.binary(), True),
    ("unknown", pa.int32(), True),
    ("string", pa.null(), True),
]


@pytest.mark.parametrize(("kind", "type_", "fits"), [*NUMBERS, *TIMES, *TEXTS])
def test_a_column_must_be_readable_as_the_tables_type(
    memory: Place, kind: str, type_: pa.DataType, fits: bool
) -> None:
    metadata = table(columns=[column(1, "x", kind)], version=3)
    # Other readers do not use the Arrow schema that Arrow stores in the file.
    for store_schema in (True, False):
        content = parquet([field("x", type_, 1)], [[None] * ROWS], store_schema=store_schema)
        file = written(memory, content, f"{uuid.uuid4()}.parquet")
        if fits:
            verify_files(metadata, [file], [], memory.store)
        else:
            message = refusal(metadata, memory, file)
            assert "column x: the file has " in message
            assert f"for field id 1, which cannot be read as {kind}" in message


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_timestamps_of_96_bits_are_either_kind(memory: Place, kind: str) -> None:
    fields = [field("x", pa.timestamp("ns"), 1)]
    content = parquet(fields, [[0] * ROWS], use_deprecated_int96_timestamps=True)
    metadata = table(columns=[column(1, "x", kind)])
    verify_files(metadata, [written(memory, content)], [], memory.store)


NESTED = [
    column(1, "s", {"type": "struct", "fields": [column(2, "a", "int"), column(3, "b", "string")]}),
    column(4, "l", {"type": "list", "element-id": 5, "element": "long", "element-required": False}),
    column(
        6,
        "m",
        {
            "type": "map",
            "key-id": 7,
            "key": "string",
            "value-id": 8,
            "value": {"type": "struct", "fields": [column(9, "x", "double")]},
            "value-required": False,
        },
    ),
]


INT32, FLOAT32 = pa.int32(), pa.float32()


def nested_fields(
    element: pa.DataType = INT32,
    of_struct: pa.DataType = INT32,
    of_value: pa.DataType = FLOAT32,
) -> list[pa.Field]:
    return [
        field("s", pa.struct([field("b", pa.string(), 3), field("a", of_struct, 2)]), 1),
        field("l", pa.list_(field("element", element, 5)), 4),
        field(
            "m",
            pa.map_(
                field("key", pa.string(), 7, nullable=False),
                field("value", pa.struct([field("x", of_value, 9)]), 8),
            ),
            6,
        ),
    ]


def test_nested_columns_are_looked_into(memory: Place) -> None:
    metadata = table(columns=NESTED)
    assert {one.name for one in metadata.current_schema.struct.fields} == {"s", "l", "m"}
    fields = nested_fields()
    ids = renumbered(metadata)
    content = nulls([with_ids(one, ids) for one in fields])
    verify_files(metadata, [written(memory, content)], [], memory.store)
    for wrong, name in (
        (nested_fields(element=pa.string()), "l.element"),
        (nested_fields(of_struct=pa.int64()), "s.a"),
        (nested_fields(of_value=pa.string()), "m.value.x"),
    ):
        content = nulls([with_ids(one, ids) for one in wrong])
        file = written(memory, content, f"{uuid.uuid4()}.parquet")
        assert f"column {name}: the file has " in refusal(metadata, memory, file)
    flat = nulls([field("s", pa.int32(), 1)])
    assert "cannot be read as struct" in refusal(
        metadata, memory, written(memory, flat, "flat.parquet")
    )


def renumbered(metadata: TableMetadata) -> dict[str, int]:
    """Return the ids that a new table assigned to its columns, by their dotted names."""
    return {name: at for at, name in metadata.current_schema.full_names.items()}


def with_ids(one: pa.Field, ids: dict[str, int], prefix: str = "") -> pa.Field:
    name = f"{prefix}{one.name}"
    type_ = one.type
    if pa.types.is_map(type_):
        key = with_ids(type_.key_field, ids, f"{name}.")
        type_ = pa.map_(key, with_ids(type_.item_field, ids, f"{name}."))
    elif pa.types.is_list(type_):
        type_ = pa.list_(with_ids(type_.value_field, ids, f"{name}."))
    elif pa.types.is_struct(type_):
        type_ = pa.struct([with_ids(part, ids, f"{name}.") for part in type_])
    return field(one.name, type_, ids[name], nullable=one.nullable)


def test_required_columns_must_be_there(memory: Place) -> None:
    file = written(memory, parquet(FIELDS[1:], VALUES[1:]))
    message = refusal(table(), memory, file)
    assert "column id: is required, but the file has no column with field id 1" in message
    with_default = [column(1, "id", "long", True, **{"initial-default": 7}), COLUMNS[1]]
    verify_files(table(columns=with_default, version=3), [file], [], memory.store)
    optional = [column(1, "id", "long"), COLUMNS[1]]
    verify_files(table(columns=optional), [file], [], memory.store)
    in_partition = msgspec.structs.replace(file, partition=(1,))
    verify_files(table(spec=[(1, "identity")]), [in_partition], [], memory.store)
    assert "is required" in refusal(table(spec=[(1, "bucket[4]")]), memory, in_partition)


def test_field_ids_must_be_the_tables(memory: Place) -> None:
    foreign = [*FIELDS, field("later", pa.int64(), 3)]
    file = written(memory, parquet(foreign, [*VALUES, [1, 2, 3]]))
    assert "field id 3, which no column of the table ever had" in refusal(table(), memory, file)
    lineage = [*FIELDS, field("_row_id", pa.int64(), 2147483540)]
    file = written(memory, parquet(lineage, [*VALUES, [1, 2, 3]]), "b.parquet")
    verify_files(table(), [file], [], memory.store)


def test_files_without_field_ids_need_a_name_mapping(memory: Place) -> None:
    bare = [one.remove_metadata() for one in FIELDS]
    file = written(memory, parquet([bare[0].with_name("ID"), bare[1]], VALUES))
    assert "schema.name-mapping.default" in refusal(table(), memory, file)
    mapping = [{"field-id": 1, "names": ["id", "ID"]}, {"field-id": 2, "names": ["name"]}]
    mapped = table(name_mapping=json.dumps(mapping))
    verify_files(mapped, [file], [], memory.store)
    partly = table(name_mapping=json.dumps(mapping[1:]))
    assert "column id: is required" in refusal(partly, memory, file)
    for text in ("{}", "[5]", '[{"field-id": "1", "names": []}]', "nothing"):
        broken = table(name_mapping=text)
        assert "schema.name-mapping.default" in refusal(broken, memory, file)


def test_nested_columns_have_names_too(memory: Place) -> None:
    metadata = table(columns=NESTED)
    ids = renumbered(metadata)

    def mapped(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"field-id": ids[name], "names": [name.rpartition(".")[2]], "fields": list(parts)}

    mapping = [
        mapped("s", mapped("s.a"), mapped("s.b")),
        mapped("l", mapped("l.element")),
        mapped("m", mapped("m.key"), mapped("m.value", mapped("m.value.x"))),
    ]
    properties = dict(metadata.properties) | {"schema.name-mapping.default": json.dumps(mapping)}
    metadata = msgspec.structs.replace(metadata, properties=properties)
    content = nulls([without_ids(one) for one in nested_fields()])
    verify_files(metadata, [written(memory, content)], [], memory.store)
    content = nulls([without_ids(one) for one in nested_fields(of_value=pa.string())])
    message = refusal(metadata, memory, written(memory, content, "b.parquet"))
    assert "column m.value.x: the file has " in message


def without_ids(one: pa.Field) -> pa.Field:
    type_ = one.type
    if pa.types.is_map(type_):
        type_ = pa.map_(without_ids(type_.key_field), without_ids(type_.item_field))
    elif pa.types.is_list(type_):
        type_ = pa.list_(without_ids(type_.value_field))
    elif pa.types.is_struct(type_):
        type_ = pa.struct([without_ids(part) for part in type_])
    return pa.field(one.name, type_, one.nullable)


# --- delete files -------------------------------------------------------------------------------


def delete_file(file: DataFile, content: int, **more: Any) -> DeleteFile:
    return DeleteFile(
        file_path=file.file_path,
        file_format=file.file_format,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        content=content,
        **more,
    )


def test_position_deletes_have_their_two_columns(memory: Place) -> None:
    fields = [
        field("file_path", pa.string(), 2147483546),
        field("pos", pa.int64(), 2147483545),
    ]
    values = [["s3://b/a"] * ROWS, [1, 2, 3]]
    good = delete_file(written(memory, parquet(fields, values)), POSITION_DELETES)
    verify_files(table(), [], [good], memory.store)
    bare = [one.remove_metadata() for one in fields]
    named = written(memory, parquet(bare, values), "named.parquet")
    verify_files(table(), [], [delete_file(named, POSITION_DELETES)], memory.store)
    other = delete_file(written(memory, parquet(), "b.parquet"), POSITION_DELETES)
    message = refusal(table(), memory, other)
    assert message.startswith(f"updates[0].add-delete-files[0] ({other.file_path}).file-path: ")
    assert "column file_path: is required" in message


def test_equality_deletes_have_the_columns_they_compare(memory: Place) -> None:
    names = written(memory, parquet(FIELDS[1:], VALUES[1:]))
    by_name = delete_file(names, EQUALITY_DELETES, equality_ids=[2])
    verify_files(table(), [], [by_name], memory.store)
    by_both = delete_file(names, EQUALITY_DELETES, equality_ids=[1, 2])
    message = refusal(table(), memory, by_both)
    assert "column id: rows are deleted by it, but the file has no column" in message
    numbers = written(memory, parquet([field("name", pa.int64(), 2)], [[1, 2, 3]]), "b.parquet")
    by_number = delete_file(numbers, EQUALITY_DELETES, equality_ids=[2])
    assert "cannot be read as string" in refusal(table(), memory, by_number)


REFERENCED = "s3://bucket/data/a.parquet"


def puffin(*vectors: tuple[str, Sequence[int]]) -> tuple[bytes, list[BlobMetadata]]:
    return write_puffin(
        [
            deletion_vector_blob(DeletionVector.from_positions(positions), referenced)
            for referenced, positions in vectors
        ],
        {"created-by": "test"},
    )


def vector_file(path: str, size: int, blob: BlobMetadata, rows: int, **more: Any) -> DeleteFile:
    values: dict[str, Any] = {
        "file_path": path,
        "file_format": "puffin",
        "record_count": rows,
        "file_size_in_bytes": size,
        "content": POSITION_DELETES,
        "referenced_data_file": REFERENCED,
        "content_offset": blob.offset,
        "content_size_in_bytes": blob.length,
    }
    return DeleteFile(**(values | more))


def test_a_deletion_vector_must_be_what_it_is_declared_to_be(place: Place) -> None:
    content, (one, other) = puffin((REFERENCED, [1, 5]), ("s3://bucket/data/b", range(1000)))
    path, size = place.write("a.puffin", content), len(content)
    good = vector_file(path, size, one, 2)
    also = vector_file(path, size, other, 1000, referenced_data_file="s3://bucket/data/b")
    metadata = table(version=3)
    verify_files(metadata, [], [good, also], place.store)
    for wrong, field_name, problem in (
        (
            vector_file(path, size, one, 3),
            "record-count",
            "3 is declared, but the vector deletes 2",
        ),
        (vector_file(path, size, other, 1000), "referenced-data-file", "s3://bucket/data/b"),
        (vector_file(path, size, one, 2, content_offset=5), "content-offset", "no blob"),
        (vector_file(path, size + 1, one, 2), "file-size-in-bytes", "bytes"),
        (vector_file(f"{path}x", size, one, 2), "file-path", "no such file"),
    ):
        message = refusal(metadata, place, good, wrong)
        assert f"[1] ({wrong.file_path}).{field_name}: " in message
        assert problem in message


def test_a_damaged_deletion_vector_is_refused(memory: Place) -> None:
    content, (blob,) = puffin((REFERENCED, [1, 5]))
    metadata = table(version=3)
    damaged = bytearray(content)
    damaged[blob.offset + 12] ^= 1
    path = memory.write("a.puffin", bytes(damaged))
    message = refusal(metadata, memory, vector_file(path, len(content), blob, 2))
    assert ".content-offset: the deletion vector cannot be read: " in message
    path = memory.write("b.puffin", content[:-1] + b"?")
    message = refusal(metadata, memory, vector_file(path, len(content), blob, 2))
    assert ".file-path: the Puffin file cannot be read: " in message


def test_the_long_footer_of_many_vectors_is_read_with_a_second_request(memory: Place) -> None:
    vectors = [(f"s3://bucket/data/{number:0100}.parquet", [number]) for number in range(500)]
    content, blobs = puffin(*vectors)
    path = memory.write("a.puffin", content)
    files = [
        vector_file(path, len(content), blob, 1, referenced_data_file=referenced)
        for blob, (referenced, _) in zip(blobs, vectors, strict=True)
    ]
    verify_files(table(version=3), [], files, memory.store)
    wrong = msgspec.structs.replace(files[321], record_count=2)
    assert "add-delete-files[321] " in refusal(
        table(version=3), memory, *files[:321], wrong, *files[322:]
    )


# --- partitions -----------------------------------------------------------------------------------

DAY_MS = 86_400_000
DECIMAL = ("decimal(9, 2)", "truncate[50]", pa.decimal128(9, 2))
PROOFS = [
    # The type, transform, Arrow type, values, and a declared value with what is said of it. None
    # stands for a value that is accepted.
    ("long", "identity", pa.int64(), [5, 5], 5, None),
    ("long", "identity", pa.int64(), [5, 5], 6, "6 is declared, but the file's footer proves 5"),
    ("long", "identity", pa.int64(), [5, 5], None, "null is declared, but "),
    ("string", "identity", pa.string(), ["eu", "eu"], "eu", None),
    ("string", "identity", pa.string(), ["eu", "eu"], "us", "us is declared, "),
    ("string", "truncate[2]", pa.string(), ["eua", "euz"], "eu", None),
    ("string", "truncate[2]", pa.string(), ["eua", "euz"], "us", "footer proves eu"),
    ("date", "month", pa.date32(), [0, 30], 0, None),
    ("date", "month", pa.date32(), [0, 30], 1, "footer proves 0"),
    ("date", "year", pa.date32(), [-1, -365], -1, None),
    ("date", "year", pa.date32(), [-1, -365], 0, "footer proves -1"),
    ("timestamp", "day", pa.timestamp("ms"), [0, DAY_MS - 1], 0, None),
    ("timestamp", "day", pa.timestamp("ms"), [0, DAY_MS - 1], 1, "footer proves 1970-01-01"),
    ("timestamptz", "hour", pa.timestamp("us", "UTC"), [0, 1], 0, None),
    ("timestamptz", "hour", pa.timestamp("us", "UTC"), [0, 1], 1, "footer proves 0"),
    (
        "decimal(9, 2)",
        "truncate[50]",
        pa.decimal128(9, 2),
        [Decimal("1.60")],
        Decimal("1.50"),
        None,
    ),
    (*DECIMAL, [Decimal("1.60")], Decimal("1.50"), None),
    (*DECIMAL, [Decimal("1.60")], Decimal("2.00"), "footer proves 1.50"),
    ("int", "bucket[16]", pa.int32(), [34, 34], 3, None),
    ("int", "bucket[16]", pa.int32(), [34, 34], 4, "footer proves 3"),
    ("int", "bucket[16]", pa.int32(), [34, 35], 3, "which are two partitions"),
    ("int", "bucket[2]", pa.int32(), [30, 35], 1, None),
    ("int", "bucket[2]", pa.int32(), [30, 35], 0, "lies between 1 and 1"),
    ("int", "identity", pa.int32(), [None, None], None, None),
    ("int", "identity", pa.int32(), [None, None], 0, "0 is declared, but "),
    ("int", "bucket[4]", pa.int32(), [1, None], None, "is null in 1 of 2 rows"),
    ("int", "identity", pa.int32(), [1, 2], 1, "which are two partitions: write one file"),
    ("int", "void", pa.int32(), [1, None], None, None),
    ("int", "identity", pa.int32(), [], 1, None),
    # Readers accept small unsigned numbers.
    ("int", "identity", pa.uint8(), [200, 200], 200, None),
    ("int", "identity", pa.uint8(), [200, 200], -56, "footer proves 200"),
    # A footer counts no NaNs, but at least one row is within its bounds.
    ("double", "identity", pa.float64(), [1.5, 1.5], 1.5, None),
    ("double", "identity", pa.float64(), [1.5, 1.5], 2.5, "lies between 1.5 and 1.5"),
    ("double", "identity", pa.float64(), [1.5, math.nan], 1.5, None),
    ("double", "identity", pa.float64(), [1.5, math.nan], math.nan, "nan is declared"),
    ("double", "identity", pa.float64(), [math.nan] * 2, math.nan, None),
    ("double", "identity", pa.float64(), [math.nan] * 2, None, "not null"),
    ("double", "identity", pa.float64(), [0.0, 0.0], -0.0, None),
    ("double", "identity", pa.float64(), [0.0, 0.0], 1.0, "lies between"),
]


@pytest.mark.parametrize(("type_", "transform", "kind", "values", "declared", "problem"), PROOFS)
def test_a_partition_that_the_footer_disproves(
    memory: Place,
    type_: str,
    transform: str,
    kind: pa.DataType,
    values: list[Any],
    declared: Any,
    problem: str | None,
) -> None:
    metadata = table(columns=[column(1, "x", type_)], spec=[(1, transform)])
    file = msgspec.structs.replace(
        written(memory, parquet([field("x", kind, 1)], [values])),
        record_count=len(values),
        partition=(declared,),
    )
    if problem is None:
        verify_files(metadata, [file], [], memory.store)
        return
    message = refusal(metadata, memory, file)
    assert message.startswith(f"updates[0].add-data-files[0] ({file.file_path}).partition.p0: ")
    assert problem in message


def test_bounds_that_may_be_cut_disprove_only_null(memory: Place) -> None:
    content = parquet([field("x", pa.string(), 1)], [["a" * 64] * 2])
    assert content.count(b"parquet-cpp-arrow") == 1
    other_writer = content.replace(b"parquet-cpp-arrow", b"parquet-xyz-other")
    file = msgspec.structs.replace(written(memory, other_writer), record_count=2)
    metadata = table(columns=[column(1, "x", "string")], spec=[(1, "identity")])
    for value in ("a" * 64 + "b", "b"):
        kept = msgspec.structs.replace(file, partition=(value,))
        verify_files(metadata, [kept], [], memory.store)
    assert "not null" in refusal(metadata, memory, msgspec.structs.replace(file, partition=(None,)))


def test_each_file_is_checked_against_its_own_spec(memory: Place) -> None:
    evolved = apply(
        table(spec=[(1, "identity")]),
        update(
            "add-spec",
            spec={
                "fields": [
                    {"source-id": 1, "field-id": 1001, "name": "bucket", "transform": "bucket[16]"},
                ]
            },
        ),
        update("set-default-spec", spec_id=-1),
    )
    file = written(memory, parquet(FIELDS, [[34] * ROWS, ["a"] * ROWS]))
    by_id = msgspec.structs.replace(file, partition=(34,))
    by_bucket = msgspec.structs.replace(file, partition=(3,))
    verify_files(evolved, [by_id, by_bucket], [], memory.store, spec_ids=[0, 1])
    with pytest.raises(BadRequest, match=r"^add-data-files\[1\] .*\.partition\.bucket: 34 is decl"):
        verify_files(evolved, [by_id, by_id], [], memory.store, spec_ids=[0, 1])


def test_a_file_without_the_source_column(memory: Place) -> None:
    """Readers take an identity partition's value for the column, and null for others."""
    file = written(memory, parquet(FIELDS[:1], VALUES[:1]))
    region = msgspec.structs.replace(file, partition=("eu",))
    verify_files(table(spec=[(2, "identity")]), [region], [], memory.store)
    message = refusal(table(spec=[(2, "truncate[2]")]), memory, region)
    assert "eu is declared, but the file's footer proves null" in message


def test_equality_deletes_are_checked_by_the_columns_that_they_have(memory: Place) -> None:
    content = parquet(FIELDS[:1], [[5]])
    deletes = DeleteFile(
        file_path=memory.write("deletes.parquet", content),
        file_format="parquet",
        record_count=1,
        file_size_in_bytes=len(content),
        content=EQUALITY_DELETES,
        equality_ids=[1],
        partition=(5, "eu"),
    )
    metadata = table(spec=[(1, "identity"), (2, "identity")])
    verify_files(metadata, [], [deletes], memory.store)
    wrong = msgspec.structs.replace(deletes, partition=(6, "eu"))
    assert ".partition.p0: 6 is declared" in refusal(metadata, memory, wrong)


# --- many files, stores that fail ---------------------------------------------------------------


class Counting(MemoryStore):
    """Records the objects whose size is requested."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def size(self, location: str) -> int | None:
        self.asked.append(location)
        return super().size(location)


@pytest.mark.parametrize("with_executor", [True, False])
def test_of_many_files_the_first_wrong_one_is_named(with_executor: bool) -> None:
    store = Counting()
    for number in range(400):
        store.put_new(f"memory://verify/{number}", [b"x" * number])
    files = [data_file(f"memory://verify/{number}", number) for number in range(400)]
    wrong = [
        replaced if number in (250, 251) else file
        for number, file in enumerate(files)
        for replaced in [msgspec.structs.replace(file, file_size_in_bytes=1)]
    ]
    with ThreadPoolExecutor(4) as threads:
        executor = threads if with_executor else None
        verify_files(table("exists"), files, [], store, executor)
        assert len(store.asked) == 400
        with pytest.raises(BadRequest, match=r"^add-data-files\[250\]"):
            verify_files(table("exists"), wrong, [], store, executor)
        assert len(store.asked) < 800, "nothing more is read once it is known"


class Down(MemoryStore):
    def size(self, location: str) -> int | None:
        raise StoreError("the store does not answer")


def test_a_store_that_does_not_answer_proves_nothing() -> None:
    with pytest.raises(StoreError):
        verify_files(table("exists"), [data_file("memory://verify/a", 1)], [], Down())


class Vanishing(MemoryStore):
    """Deletes an object after its size was requested."""

    def size(self, location: str) -> int | None:
        found = super().size(location)
        self.delete([location])
        return found


def test_a_file_that_vanishes_meanwhile_is_missing() -> None:
    place = Place(Vanishing(), "memory://verify")
    assert "there is no such file" in refusal(table(), place, written(place, parquet()))
