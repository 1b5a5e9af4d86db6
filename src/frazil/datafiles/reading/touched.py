"""Data files that a statement touches, with the positions of rows that go. Runs on executors."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import ScanTask


@dataclass(frozen=True, slots=True)
class Touched:
    task: ScanTask
    """Of the whole file, with all deletes that applied in the snapshot that was scanned."""
    positions: Positions
    """Rows that were live in that snapshot."""

    @property
    def file_path(self) -> str:
        return self.task.file_path


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    task: bytes
    positions: bytes


def encode_touched(touched: Touched) -> bytes:
    return msgspec.msgpack.encode(_Payload(touched.task.to_json(), touched.positions.serialize()))


def decode_touched(payload: bytes) -> Touched:
    decoded = msgspec.msgpack.decode(payload, type=_Payload)
    return Touched(ScanTask.from_json(decoded.task), Positions.deserialize(decoded.positions))
