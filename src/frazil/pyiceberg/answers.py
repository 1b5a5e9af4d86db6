"""The answer to a commit as PyIceberg's metadata.

Nearly all snapshots of an answer are those of the answer before. A snapshot never changes, so that
each is validated once and then known by its bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

_KNOWN_SNAPSHOTS: Final = 4096
_SNAPSHOTS: Final = "snapshots"


class _Answer(msgspec.Struct, rename="kebab"):
    metadata: dict[str, msgspec.Raw]
    metadata_location: str


def commit_response(body: bytes) -> CommitTableResponse:
    answer = msgspec.json.decode(body, type=_Answer)
    # Constructed, because validating a response would validate its metadata a second time.
    return CommitTableResponse.model_construct(
        metadata=_metadata(answer.metadata), metadata_location=answer.metadata_location
    )


def _metadata(fields: dict[str, msgspec.Raw]) -> TableMetadata:
    document: dict[str, Any] = {
        name: msgspec.json.decode(raw) for name, raw in fields.items() if name != _SNAPSHOTS
    }
    if _SNAPSHOTS in fields:
        snapshots = msgspec.json.decode(fields[_SNAPSHOTS], type=list[msgspec.Raw] | None)
        document[_SNAPSHOTS] = [_snapshot(bytes(raw)) for raw in snapshots or ()]
    return TableMetadataUtil.parse_obj(document)


@lru_cache(_KNOWN_SNAPSHOTS)
def _snapshot(raw: bytes) -> Snapshot:
    return Snapshot.model_validate_json(raw)
