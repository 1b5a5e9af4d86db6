"""Why a Parquet file cannot be declared: it cannot be read, does not fit, or proves no partition.

BadRequest
├── FileNotReadable        missing, forbidden, encrypted, or no Parquet file
└── FileDoesNotFit         its table cannot read it, or not as what it is declared to be
    └── PartitionNotProven its footer does not show which partition it belongs to
"""

from __future__ import annotations

from frazil.wire.errors import BadRequest


class FileNotReadable(BadRequest):
    """The file's footer cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FileDoesNotFit(BadRequest):
    """The file cannot be a file of the table."""

    def __init__(self, path: str, reason: str, column: str | None = None) -> None:
        where = path if column is None else f"{path}: {self._what} {column}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.column = column
        """The full name of the column, such as `location.latitude`; None where it is none's."""
        self.reason = reason

    _what = "column"


class PartitionNotProven(FileDoesNotFit):
    """`column` is the name of the partition field."""

    _what = "partition field"
