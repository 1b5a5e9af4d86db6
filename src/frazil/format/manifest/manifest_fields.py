"""The fields of manifest entries by their Iceberg ids."""

from __future__ import annotations

import struct
from typing import Final

from frazil.format.avro.avro_schema import optional_field, required_field
from frazil.format.avro.avro_types import (
    Boolean,
    Bytes,
    Fixed,
    Floating,
    Integer,
    Null,
    Record,
    String,
    UnreadableAvro,
)

NONE: Final = -1
"""The value of a missing number in columns that are never negative."""
NO_SNAPSHOT: Final = -(1 << 63)
"""The value of a missing snapshot id. Any other number may be a snapshot id."""

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2

PARTITION_NODES: Final = (Boolean, Integer, Floating, String, Bytes, Fixed, Null)
"""The Avro types that partition values may have."""

STATUS: Final = 0
SNAPSHOT_ID: Final = 1
DATA_FILE: Final = 2
SEQUENCE_NUMBER: Final = 3
FILE_SEQUENCE_NUMBER: Final = 4
FILE_PATH: Final = 100
FILE_FORMAT: Final = 101
PARTITION: Final = 102
RECORD_COUNT: Final = 103
FILE_SIZE: Final = 104
COLUMN_SIZES: Final = 108
VALUE_COUNTS: Final = 109
NULL_VALUE_COUNTS: Final = 110
LOWER_BOUNDS: Final = 125
UPPER_BOUNDS: Final = 128
KEY_METADATA: Final = 131
SPLIT_OFFSETS: Final = 132
CONTENT: Final = 134
NAN_VALUE_COUNTS: Final = 137
SORT_ORDER_ID: Final = 140
FIRST_ROW_ID: Final = 142

METRICS: Final = {
    VALUE_COUNTS: "value_counts",
    NULL_VALUE_COUNTS: "null_value_counts",
    NAN_VALUE_COUNTS: "nan_value_counts",
    LOWER_BOUNDS: "lower_bounds",
    UPPER_BOUNDS: "upper_bounds",
}
"""The maps of a `data_file` that filters use."""

MALFORMED: Final = (IndexError, ValueError, struct.error, OverflowError)
"""The errors of reading malformed bytes, in addition to UnreadableAvro."""

ENTRY_NUMBERS: Final = {
    STATUS: ("status", NONE),
    SNAPSHOT_ID: ("snapshot_id", NO_SNAPSHOT),
    SEQUENCE_NUMBER: ("sequence_number", NONE),
    FILE_SEQUENCE_NUMBER: ("file_sequence_number", NONE),
}
"""Numbers of an entry: the name of the column and the number that stands for a missing value."""
FILE_NUMBERS: Final = {
    CONTENT: ("content", 0),
    RECORD_COUNT: ("record_count", NONE),
    FILE_SIZE: ("file_size_in_bytes", NONE),
    FIRST_ROW_ID: ("first_row_id", NONE),
}
"""Numbers of the `data_file` of an entry."""


def data_file_record(record: Record) -> Record:
    """Return the type of the field `data_file`."""
    node = required_field(record, DATA_FILE, Record).node
    if not isinstance(node, Record):
        raise UnreadableAvro("the schema's field data_file can be null")
    return node


def partition_record(data_file: Record) -> Record | None:
    """Return the type of the field `partition`."""
    field = optional_field(data_file, PARTITION, Record)
    if field is None:
        return None
    if not isinstance(field.node, Record):
        raise UnreadableAvro("the schema's field partition can be null")
    return field.node


def checked_data_file(record: Record) -> Record:
    """Return the type of `data_file` if the schema has everything that the columns need."""
    data_file = data_file_record(record)
    required_field(record, STATUS, Integer)
    required_field(data_file, FILE_PATH, String)
    required_field(data_file, RECORD_COUNT, Integer)
    partition_record(data_file)
    for field_id in ENTRY_NUMBERS:
        optional_field(record, field_id, Integer)
    for field_id in FILE_NUMBERS:
        optional_field(data_file, field_id, Integer)
    return data_file
