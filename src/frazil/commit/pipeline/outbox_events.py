"""Creates outbox rows, which are written in the transaction of the change that they describe."""

from __future__ import annotations

from typing import Any

import msgspec

from frazil.commit.pipeline.pending_requests import Context
from frazil.commit.snapshot.stream_epochs import CommittedSnapshot, committed_json
from frazil.db.base import EventRow, Relation


def event(context: Context, relation: Relation, operation: str, payload: bytes) -> EventRow:
    """Return the event of a change. It has the version that the relation has after the change."""
    return EventRow(
        uuid=relation.uuid,
        version=relation.version,
        kind=relation.kind,
        operation=operation,
        identifier=relation.identifier,
        principal=context.principal,
        request_id=context.request_id,
        payload=payload,
    )


def pointer_payload(metadata_location: str) -> bytes:
    return msgspec.json.encode({"metadata-location": metadata_location})


def rename_payload(source: str, destination: str) -> bytes:
    return msgspec.json.encode({"from": source, "to": destination})


def commit_payload(
    request: Any, committed: tuple[CommittedSnapshot, ...], metadata_location: str
) -> bytes:
    """Return the payload of a commit event: the kinds of updates and the snapshots they made."""
    actions = [type(update).__struct_config__.tag for update in request.updates]
    return msgspec.json.encode(
        {
            "metadata-location": metadata_location,
            "updates": actions,
            "committed": msgspec.Raw(committed_json(committed)),
        }
    )
