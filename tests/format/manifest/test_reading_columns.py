"""The columns for readers have the same values as the row reader."""

from __future__ import annotations

import random

import pytest

from frazil.format.avro.avro_files import MANIFEST_LIMITS, open_avro
from frazil.format.manifest import reading_columns
from frazil.format.manifest.manifest_columns import content_files, decode_columns
from frazil.format.manifest.reading_columns import ReadingColumns, decode_reading
from frazil.format.metadata.content_files import ContentFile
from tests.format.manifest_files import data_file, encoder_of, manifest_of

FORMATS = ("PARQUET", "parquet", "ORC")


def uneven(chance: random.Random, rows: int) -> list[ContentFile]:
    return [
        data_file(
            number,
            (number,),
            file_format=chance.choice(FORMATS),
            key_metadata=chance.choice((None, b"", bytes(100))),
            split_offsets=chance.choice((None, [], [4], list(range(70)))),
            sort_order_id=chance.choice((None, 0, 1 << 30)),
        )
        for number in range(rows)
    ]


def agree(reading: ReadingColumns, files: list[ContentFile]) -> None:
    for row, file in enumerate(files):
        assert reading.file_format[row] == file.file_format.lower()
        assert reading.key_metadata[row] == file.key_metadata
        offsets = None if file.split_offsets is None else tuple(file.split_offsets)
        assert reading.split_offsets[row] == offsets
        assert reading.sort_order_id[row] == file.sort_order_id


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 31, 700])
def test_every_row_is_told_as_it_was_written(version: int, rows: int) -> None:
    files = uneven(random.Random(rows), rows)
    content = manifest_of(encoder_of("long", version=version), files)
    columns = decode_columns(content)
    read = list(content_files(content, columns, range(rows)))
    agree(decode_reading(content, columns), read)


def test_rows_read_at_once_are_those_read_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = uneven(random.Random(7), 400)
    content = manifest_of(encoder_of("long", version=2), files)
    columns = decode_columns(content)
    agree(reading_columns._together(open_avro(content, MANIFEST_LIMITS), columns), files)
    monkeypatch.setattr(reading_columns, "_MIN_LOCKSTEP_ROWS", 1 << 60)
    agree(decode_reading(content, columns), files)


def test_what_all_files_share_takes_no_memory() -> None:
    files = [data_file(number, (number,), split_offsets=[4]) for number in range(5_000)]
    content = manifest_of(encoder_of("long", version=2), files)
    reading = decode_reading(content, decode_columns(content))
    assert reading.size_bytes < 1_000
    assert reading.split_offsets[4_999] == (4,)
