"""The columnar form of an entry equals the row reader's form."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as StockDataFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.manifest import ManifestEntry as StockEntry
from pyiceberg.partitioning import PartitionSpec as StockSpec
from pyiceberg.schema import Schema as StockSchema
from pyiceberg.typedef import Record as StockRecord

from frazil.format.avro.avro_files import MANIFEST_LIMITS, open_avro, write_avro
from frazil.format.avro.avro_schema import RecordSchema, record_schema
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest import entry_decoder
from frazil.format.manifest.manifest_columns import (
    ManifestColumns,
    content_files,
    data_files_of,
    decode_columns,
    metrics,
    path_hash,
    path_hashes,
)
from frazil.format.manifest.manifest_encoder import ManifestEncoder
from frazil.format.manifest.manifest_entries import inherited, read_manifest
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING, NO_SNAPSHOT, NONE
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DataFile,
    DeleteFile,
    FieldMap,
)
from tests.format.manifest_files import (
    LISTED,
    data_file,
    delete_file,
    encoder_of,
    long,
    manifest_of,
)
from tests.support.trees import avro_bytes, avro_records

TYPES = ("long", "string", "decimal(9, 2)", "uuid", "double", "boolean", "decimal(9, 2)")
VALUES: tuple[tuple[Any, ...], ...] = (
    (7, "eu", Decimal("1.25"), UUID(int=5), 0.5, True, Decimal("-3.00")),
    (None, None, None, None, None, None, None),
    (-1, "", Decimal("0.00"), UUID(int=1 << 127), -0.0, False, None),
)


def none(value: int, missing: int = NONE) -> int | None:
    return None if value == missing else value


def agree(columns: ManifestColumns, content: bytes, *lists: ManifestFile) -> None:
    """Check that every column has the values of the row reader."""
    manifest = read_manifest(content)
    assert len(columns) == len(manifest.entries)
    for row, entry in enumerate(manifest.entries):
        assert columns.status[row] == entry.status
        assert columns.content[row] == entry.content
        assert none(columns.snapshot_id[row], NO_SNAPSHOT) == entry.snapshot_id
        assert none(columns.sequence_number[row]) == entry.sequence_number
        assert none(columns.file_sequence_number[row]) == entry.file_sequence_number
        assert columns.record_count[row] == entry.record_count
        assert none(columns.file_size_in_bytes[row]) == entry.file_size_in_bytes
        assert none(columns.first_row_id[row]) == entry.first_row_id
        assert columns.path(row) == entry.file_path
        assert row in columns.find(entry.file_path)
    for listed in lists:
        found = columns.inherited(listed)
        live = np.flatnonzero(columns.live()).tolist()
        for row, entry in zip(live, inherited(manifest, listed), strict=True):
            assert none(found.snapshot_id[row], NO_SNAPSHOT) == entry.snapshot_id
            assert none(found.sequence_number[row]) == entry.sequence_number
            assert none(found.file_sequence_number[row]) == entry.file_sequence_number
            assert none(found.first_row_id[row]) == entry.first_row_id


# --- what the columns hold -------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_every_format_version_becomes_columns(version: int, codec: str) -> None:
    encoder = encoder_of(*TYPES, version=version)
    files = [data_file(number, VALUES[number % 3]) for number in range(1_100)]
    content = manifest_of(encoder, files, codec)
    columns = decode_columns(content)
    agree(
        columns,
        content,
        LISTED,
        replace(LISTED, sequence_number=0),
        replace(LISTED, first_row_id=1_000),
    )
    assert columns.content_kind == DATA
    assert columns.deletes is None
    assert columns.partition_field_ids == tuple(range(1000, 1007))
    assert [columns.partitions[index] for index in columns.partition] == [
        file.partition for file in files
    ]
    assert len(columns.partitions) == 3
    assert columns.size_bytes > len(content) // 10


def test_a_row_id_of_its_own_is_kept_and_the_others_are_counted_around_it() -> None:
    encoder = encoder_of(version=3)
    writer = RollingManifestWriter(encoder, new_path=lambda: "m", snapshot_id=None)
    for number, own in enumerate((None, 5_000, None, None)):
        writer.add(data_file(number, first_row_id=own))
    content = writer.finish()[0].file
    columns = decode_columns(content)
    listed = replace(LISTED, first_row_id=100)
    agree(columns, content, listed, LISTED)
    assert columns.inherited(listed).first_row_id.tolist() == [100, 5_000, 110, 122]
    assert columns.inherited(LISTED).first_row_id.tolist() == [NONE] * 4
    assert columns.inherited(listed).snapshot_id.tolist() == [5] * 4


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_have_their_own_columns(version: int) -> None:
    encoder = encoder_of(version=version, content=DELETES)
    path = {2147483546: b"s3://bucket/data/1.parquet"}
    files = [
        delete_file(1, POSITION_DELETES, referenced_data_file="s3://bucket/data/9.parquet"),
        delete_file(2, POSITION_DELETES, lower_bounds=path, upper_bounds=path),
        delete_file(3, POSITION_DELETES, lower_bounds=path, upper_bounds={2147483546: b"z"}),
        delete_file(4, EQUALITY_DELETES, equality_ids=[3, 1], lower_bounds=path, upper_bounds=path),
        delete_file(5, POSITION_DELETES, lower_bounds={1: b""}),
    ]
    if version == 3:
        vector = {"content_offset": 4, "content_size_in_bytes": 40, "referenced_data_file": "a"}
        files.append(delete_file(6, POSITION_DELETES, **vector))
    content = manifest_of(encoder, files)
    columns = decode_columns(content)
    agree(columns, content, replace(LISTED, content=DELETES))
    deletes = columns.deletes
    assert columns.content_kind == DELETES
    assert deletes is not None
    one, nine = "s3://bucket/data/1.parquet", "s3://bucket/data/9.parquet"
    more = ("a",) if version == 3 else ()
    assert deletes.referenced_data_file == (nine, one, None, None, None, *more)
    assert deletes.equality_ids == (None, None, None, (3, 1), None, *([None] * len(more)))
    assert deletes.content_offset.tolist() == [NONE] * 5 + [4] * len(more)
    assert deletes.content_size_in_bytes.tolist() == [NONE] * 5 + [40] * len(more)


def test_a_manifest_without_entries_says_its_kind_by_its_header() -> None:
    encoder = encoder_of(content=DELETES)
    empty = write_avro(encoder.schema, encoder.header, "deflate", [])
    columns = decode_columns(empty)
    assert (len(columns), columns.content_kind) == (0, DELETES)
    assert columns.find("x") == ()
    assert columns.may_hold(path_hashes(["x"])).tolist() == []


# --- look-ups --------------------------------------------------------------------------------


def test_paths_are_found_by_their_hash_and_verified() -> None:
    columns = decode_columns(manifest_of(encoder_of(), [data_file(n) for n in range(500)]))
    assert columns.find("s3://bucket/data/00123.parquet") == [123]
    assert columns.find("s3://bucket/data/00500.parquet") == ()
    forged = replace(columns, path_bytes=columns.path_bytes.replace(b"00123", b"x0123"))
    assert forged.find("s3://bucket/data/00123.parquet") == []


def test_one_path_can_have_many_rows() -> None:
    encoder = encoder_of(version=3, content=DELETES)
    files = [
        replace_path(delete_file(n, POSITION_DELETES, content_offset=n, content_size_in_bytes=1))
        for n in range(4)
    ]
    columns = decode_columns(manifest_of(encoder, files))
    assert columns.find("s3://bucket/vectors.puffin") == [0, 1, 2, 3]


def replace_path(file: DeleteFile) -> DeleteFile:
    values = {name: getattr(file, name) for name in file.__struct_fields__}
    return DeleteFile(**{**values, "file_path": "s3://bucket/vectors.puffin"})


def test_many_paths_are_looked_up_at_once() -> None:
    columns = decode_columns(manifest_of(encoder_of(), [data_file(n) for n in range(300)]))
    known = [f"s3://bucket/data/{n:05}.parquet" for n in (5, 299, 17)]
    few = path_hashes(["x", known[0], "y", known[1]])
    assert columns.may_hold(few).tolist() == [1, 3]
    many = path_hashes([*(f"x{n}" for n in range(1_000)), *known])
    assert columns.may_hold(many).tolist() == [1_000, 1_001, 1_002]
    ordered = np.unique(many)
    assert set(ordered[columns.may_hold(ordered)]) == set(path_hashes(known))


def test_hashes_are_the_same_in_every_process() -> None:
    assert path_hash("s3://bucket/a.parquet") == 16191114652656054008
    assert path_hashes(["s3://bucket/a.parquet"]).tolist() == [path_hash("s3://bucket/a.parquet")]


# --- rows ------------------------------------------------------------------------------------


def whole(found: FieldMap[Any] | None) -> dict[int, Any] | None:
    return None if found is None else dict(found.items())


def test_rows_are_read_back_at_their_place() -> None:
    encoder = encoder_of(*TYPES, version=3)
    files = [data_file(number, VALUES[number % 3]) for number in range(700)]
    content = manifest_of(encoder, files)
    columns = decode_columns(content)
    rows = [699, 0, 500]
    assert data_files_of(open_avro(content, MANIFEST_LIMITS), columns, rows) == [
        encoder.data_file(files[n]) for n in rows
    ]
    assert list(content_files(content, columns, rows)) == [files[n] for n in rows]
    found = list(metrics(content, columns, rows))
    assert [one.lower_bounds for one in found] == [files[n].lower_bounds for n in rows]
    assert [whole(one.nan_value_counts) for one in found] == [{}] * 3
    assert [one.record_count for one in found] == [files[n].record_count for n in rows]


METRICS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


@pytest.mark.parametrize("version", [1, 3])
def test_metrics_of_many_rows_are_those_of_each(version: int) -> None:
    """The order of the requested rows does not matter."""
    files = uneven_files(random.Random(5), 1_300)
    content = manifest_of(encoder_of("long", "string", version=version), files)
    columns = decode_columns(content)
    rows = list(range(0, 1_300, 3))
    for chosen in (rows, rows[::-1], rows[:50]):
        found = list(metrics(content, columns, chosen))
        assert [one.record_count for one in found] == [files[n].record_count for n in chosen]
        for one, file in zip(found, (files[n] for n in chosen), strict=True):
            for name in METRICS:
                own, kept = getattr(file, name), getattr(one, name)
                assert (own is None) == (kept is None)
                if own is not None:
                    assert dict(kept.items()) == own
                    assert len(kept) == len(own)
                    assert [kept.get(key) for key in (*own, -5)] == [*own.values(), None]


def test_metrics_of_very_wide_tables_are_read() -> None:
    wide = dict.fromkeys(range(20_000), 7)
    files = [data_file(n, value_counts=wide if n == 70 else {1: n}) for n in range(120)]
    content = manifest_of(encoder_of(), files)
    columns = decode_columns(content)
    for rows in (range(120), [70]):
        found = [whole(one.value_counts) for one in metrics(content, columns, rows)]
        assert found[min(70, len(found) - 1)] == wide


def test_maps_of_something_else_are_refused() -> None:
    encoder = encoder_of()
    text = encoder.schema.text.replace(
        '{"name":"value","type":"long","field-id":120}',
        '{"name":"value","type":"int","field-id":120}',
    )
    assert text != encoder.schema.text
    record = encoder.entry(ADDED, 1, None, None, encoder.data_file(data_file(1, value_counts={})))
    same = write_avro(record_schema(text), {}, "null", [record])
    assert [whole(one.value_counts) for one in metrics(same, decode_columns(same), [0])] == [{}]
    other = write_avro(record_schema(text.replace("int", "bytes")), {}, "null", [record])
    with pytest.raises(UnreadableAvro):
        list(metrics(other, decode_columns(other), [0]))


def test_delete_files_are_read_back_whole() -> None:
    encoder = encoder_of(version=3, content=DELETES)
    files = [
        delete_file(1, EQUALITY_DELETES, equality_ids=[1]),
        delete_file(2, POSITION_DELETES, content_offset=4, content_size_in_bytes=2),
    ]
    content = manifest_of(encoder, files)
    assert list(content_files(content, decode_columns(content), [0, 1])) == files


def test_rows_of_another_manifest_are_refused() -> None:
    small = manifest_of(encoder_of(), [data_file(1)])
    columns = decode_columns(manifest_of(encoder_of(), [data_file(n) for n in range(9)]))
    with pytest.raises(UnreadableAvro, match="not the one"):
        data_files_of(open_avro(small, MANIFEST_LIMITS), columns, [0])


def test_a_row_is_read_out_of_its_own_block_alone() -> None:
    files = [data_file(n) for n in range(1_400)]
    content = manifest_of(encoder_of(), files, "null")
    columns = decode_columns(content)
    assert len(columns.block_starts) == 3
    damaged = bytearray(content)
    other = damaged.index(b"s3://bucket/data/01200")
    damaged[other - 8 : other] = b"\xff" * 8
    found = list(content_files(bytes(damaged), columns, [600, 5]))
    assert found == [files[600], files[5]]


# --- other writers ---------------------------------------------------------------------------


def test_manifests_of_fastavro_become_columns() -> None:
    encoder = encoder_of("long", "decimal(9, 2)", version=3)
    files = [data_file(n, (n % 5, Decimal(n).scaleb(-2))) for n in range(50)]
    own = manifest_of(encoder, files)
    content = avro_bytes(encoder.schema.tree, avro_records(own), {"content": "data"})
    columns = decode_columns(content)
    agree(columns, content, LISTED)
    assert list(content_files(content, columns, range(50))) == files


def test_manifests_of_pyiceberg_become_columns(tmp_path: Path) -> None:
    column = {"id": 1, "name": "a", "required": False, "type": "long"}
    schema = StockSchema.model_validate({"type": "struct", "schema-id": 0, "fields": [column]})
    part = {"source-id": 1, "field-id": 1000, "name": "a", "transform": "identity"}
    spec = StockSpec.model_validate({"spec-id": 0, "fields": [part]})
    path = tmp_path / "m.avro"
    output = PyArrowFileIO().new_output(path.as_uri())
    with write_manifest(2, spec, schema, output, 77, "deflate") as writer:
        for number in range(20):
            file = StockDataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"s3://bucket/{number}.parquet",
                file_format=FileFormat.PARQUET,
                partition=StockRecord(number % 2),
                record_count=number,
                file_size_in_bytes=number,
                value_counts={1: number},
                lower_bounds={1: bytes(8)},
            )
            writer.add(
                StockEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=77, data_file=file
                )
            )
    content = path.read_bytes()
    columns = decode_columns(content)
    agree(columns, content, LISTED, replace(LISTED, sequence_number=0))
    assert columns.partitions == ((0,), (1,))
    assert [one.value_counts for one in metrics(content, columns, [3])] == [{1: 3}]


def reordered(schema: RecordSchema) -> RecordSchema:
    """Return the schema with reordered fields, reversed unions and unknown fields."""
    tree = schema.tree
    (file,) = (field["type"] for field in tree["fields"] if field["name"] == "data_file")
    for record in (tree, file):
        record["fields"].reverse()
        for field in record["fields"]:
            if isinstance(field["type"], list):
                field["type"].reverse()
                field.pop("default", None)
    nested = {"type": "array", "items": {"type": "map", "values": ["null", "double"]}}
    file["fields"].insert(2, {"name": "tags", "type": nested, "field-id": 9_001})
    choice = ["null", "string", {"type": "enum", "name": "e", "symbols": ["A", "B"]}]
    tree["fields"].insert(1, {"name": "extra", "type": choice})
    return record_schema(json.dumps(tree))


def test_any_order_of_fields_and_unknown_fields_are_read() -> None:
    encoder = encoder_of("string", "uuid", version=3)
    files = [data_file(n, ("x" * n, UUID(int=n))) for n in range(40)]
    schema = reordered(encoder.schema)
    records = avro_records(manifest_of(encoder, files))
    for number, record in enumerate(records):
        record["extra"] = (None, "text", "B")[number % 3]
        record["data_file"]["tags"] = [{"a": 0.5, "b": None}] * (number % 3)
    content = avro_bytes(schema.tree, records, {})
    columns = decode_columns(content)
    agree(columns, content, LISTED, replace(LISTED, first_row_id=9))
    assert list(content_files(content, columns, range(40))) == files


def test_arrays_in_sized_and_in_several_blocks_are_read() -> None:
    encoder = encoder_of()
    plain = encoder.data_file(data_file(1, value_counts={1: 2, 3: 4}, column_sizes=None))
    items = [long(1) + long(2), long(3) + long(4)]
    known = b"\x02" + long(2) + b"".join(items) + b"\x00"
    assert plain.count(known) == 1
    sized = b"\x02" + b"".join(long(-1) + long(len(i)) + i for i in items) + b"\x00"
    mixed = b"\x02" + long(1) + items[0] + long(-1) + long(2) + items[1] + b"\x00"
    for form in (sized, mixed):
        files = [plain, plain.replace(known, form), plain]
        records = [encoder.entry(ADDED, 1, None, None, file) for file in files]
        content = write_avro(encoder.schema, encoder.header, "deflate", records)
        columns = decode_columns(content)
        agree(columns, content, LISTED)
        assert data_files_of(open_avro(content, MANIFEST_LIMITS), columns, [0, 1, 2]) == files
        found = [one.value_counts for one in metrics(content, columns, [0, 1, 2])]
        assert found == [{1: 2, 3: 4}] * 3


# --- all at once and one after another --------------------------------------------------------

ARRAYS = (
    *("status", "content", "snapshot_id", "sequence_number", "file_sequence_number"),
    *("record_count", "file_size_in_bytes", "first_row_id", "partition"),
    *("data_file_at", "data_file_end", "first_row_id_at"),
    *("path_offsets", "sorted_hashes", "hash_order", "block_starts"),
)


def outcome(content: bytes) -> object:
    try:
        columns = decode_columns(content)
    except UnreadableAvro as error:
        return str(error)
    arrays = [getattr(columns, name).tolist() for name in ARRAYS]
    return arrays, columns.path_bytes, repr(columns.partitions), columns.content_kind


def one_by_one(content: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(entry_decoder, "_MIN_LOCKSTEP_ROWS", 1 << 60)
        return outcome(content)


def uneven_files(chance: random.Random, rows: int) -> list[DataFile]:
    """Return files with random metrics: none, some, any length, and numbers of every size."""

    def counts() -> dict[int, int] | None:
        found = {chance.randint(0, 1 << 20): 1 << chance.randint(0, 62) for _ in range(9)}
        return chance.choice((None, {}, found, dict(list(found.items())[: chance.randint(0, 9)])))

    def bounds() -> dict[int, bytes] | None:
        keys = range(chance.choice((1, 1, 1, 300)), 320, 40)
        made = {key: bytes(chance.randint(0, 90)) for key in keys}
        return chance.choice((None, made, made))

    return [
        data_file(
            number,
            (chance.choice((None, number % 4, -(1 << 62))), chance.choice((None, "", "ä" * 70))),
            file_path=f"s3://bucket/data/{number}" + "x" * chance.choice((1, 200)),
            record_count=1 << chance.randint(0, 62),
            column_sizes=counts(),
            value_counts=counts(),
            nan_value_counts=counts(),
            lower_bounds=bounds(),
            upper_bounds=bounds(),
            key_metadata=chance.choice((None, b"", bytes(100))),
            split_offsets=chance.choice((None, [], [4], list(range(70)))),
            sort_order_id=chance.choice((None, 0, 1 << 30)),
        )
        for number in range(rows)
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_entries_read_at_once_are_those_read_one_after_another(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoder_of("long", "string", version=version)
    content = manifest_of(encoder, uneven_files(random.Random(version), 1_200))
    columns = decode_columns(content)
    agree(columns, content, LISTED)
    assert outcome(content) == one_by_one(content, monkeypatch)
    monkeypatch.delattr(entry_decoder._Rows, "add_each")
    assert len(decode_columns(content)) == 1_200, "they were not read at once"


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_judged_alike_at_once_and_one_after_another(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    encoder = encoder_of("long", "string", version=3)
    content = manifest_of(encoder, uneven_files(chance, 120), "null")
    body = content.index(b"s3://")
    for _ in range(40):
        damaged = bytearray(content)
        at = chance.randrange(body, len(damaged))
        damaged[at] = chance.choice((0, 1, 2, 4, 0x7F, 0x80, 0xFF, damaged[at] ^ 1))
        assert outcome(bytes(damaged)) == one_by_one(bytes(damaged), monkeypatch)


def test_a_few_rows_with_many_values_are_read_one_after_another() -> None:
    """Decoding all rows together would take one step of all rows for each value."""
    encoder = encoder_of()
    files = [data_file(n) for n in range(150)]
    files[70] = data_file(70, value_counts=dict.fromkeys(range(9_000), 1))
    content = manifest_of(encoder, files)
    agree(decode_columns(content), content, LISTED)


def test_paths_that_do_not_begin_alike_are_read_one_after_another() -> None:
    files = [data_file(n, file_path=f"{n}://bucket/{n}") for n in range(300)]
    content = manifest_of(encoder_of(), files)
    agree(decode_columns(content), content, LISTED)


# --- hostile bytes ---------------------------------------------------------------------------


def hostile(content: bytes) -> None:
    try:
        columns = decode_columns(content)
        list(content_files(content, columns, range(len(columns))))
    except UnreadableAvro:
        pass


def test_truncated_manifests_are_refused() -> None:
    content = manifest_of(encoder_of("string"), [data_file(n, ("a",)) for n in range(3)], "null")
    whole = []
    for end in range(len(content)):
        try:
            whole.append(len(decode_columns(content[:end])))
        except UnreadableAvro:
            continue
    assert whole == [0], "only a file that ends after its header is a manifest, an empty one"


@pytest.mark.parametrize("kind", [DATA, DELETES])
def test_damaged_manifests_are_refused_or_read(kind: int) -> None:
    """After bit flips, cuts or repeats the only possible error is UnreadableAvro."""
    encoder = encoder_of("string", "decimal(9, 2)", version=3, content=kind)
    part = ("a", Decimal("1.00"))
    files: list[ContentFile] = (
        [data_file(n, part) for n in range(6)]
        if kind == DATA
        else [delete_file(n, POSITION_DELETES, partition=part) for n in range(6)]
    )
    content = bytearray(manifest_of(encoder, files, "null"))
    chance = random.Random(7)
    body = content.rindex(b"\x00", 0, content.index(b"s3://"))
    for _ in range(1_500):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(body if chance.random() < 0.9 else 0, len(damaged))
            damaged[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, damaged[at] ^ 1))
        if chance.random() < 0.2:
            at = chance.randrange(body, len(damaged))
            del damaged[at : at + chance.randint(1, 9)]
        hostile(bytes(damaged))


def block_of(encoder: ManifestEncoder, raw: bytes) -> bytes:
    return write_avro(encoder.schema, encoder.header, "null", [raw])


def test_values_that_no_entry_has_are_refused() -> None:
    encoder = encoder_of(version=3)
    good = encoder.data_file(data_file(1))
    size = long(1_000)
    cases = {
        "unknown status": b"\x06\x00\x00\x00" + good,
        "unknown content": b"\x02\x00\x00\x00\x06" + good[1:],
        "negative": b"\x02\x00" + b"\x02" + long(-5) + b"\x00" + good,
        "size": b"\x02\x00\x00\x00" + good.replace(size, long(-900), 1),
        "record count": b"\x02\x00\x00\x00" + good.replace(long(11), long(-2), 1),
        "branch": b"\x02\x08\x00\x00" + good,
        "64 bits": b"\x02\x02" + b"\xff" * 10 + b"\x01\x00\x00" + good,
        "not UTF-8": b"\x02\x00\x00\x00" + good.replace(b"s3://", b"s3:\xff/", 1),
        "after its last record": b"\x02\x00\x00\x00" + good + b"\x00",
    }
    assert decode_columns(block_of(encoder, b"\x02\x00\x00\x00" + good)).status.tolist() == [ADDED]
    for message, raw in cases.items():
        with pytest.raises(UnreadableAvro, match=message):
            decode_columns(block_of(encoder, raw))


def test_huge_claims_cost_nothing() -> None:
    tree = encoder_of().schema.tree
    fixed = {"type": "array", "items": {"type": "fixed", "name": "f", "size": 1}}
    tree["fields"].insert(0, {"name": "x", "type": fixed, "field-id": 9_000})
    schema = record_schema(json.dumps(tree))
    with pytest.raises(UnreadableAvro, match="more elements"):
        decode_columns(write_avro(schema, {}, "null", [long(1 << 60) + bytes(900)]))
    path = b"\x02\x00\x00\x00\x00" + long(1 << 62) + bytes(900)
    with pytest.raises(UnreadableAvro):
        decode_columns(block_of(encoder_of(), path))


def test_a_schema_with_thousands_of_fields_is_read() -> None:
    encoder = encoder_of()
    tree = encoder.schema.tree
    tree["fields"] += [
        {"name": f"x{n}", "type": ["null", "int"], "default": None} for n in range(3_000)
    ]
    raw = encoder.entry(EXISTING, 1, 2, 3, encoder.data_file(data_file(1))) + bytes(3_000)
    content = write_avro(record_schema(json.dumps(tree)), {}, "deflate", [raw])
    agree(decode_columns(content), content, LISTED)
    assert decode_columns(content).status.tolist() != [DELETED]
