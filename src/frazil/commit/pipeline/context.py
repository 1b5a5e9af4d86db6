"""Who asks, carried from the edge to logs, idempotency keys and events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's key and a hash over method, path and body of the request it came with."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Context:
    principal: str
    request_id: str
    key: IdempotencyKey | None = None
    request_bytes: int = 0
    """The decoded size of the body: queues are bounded by bytes too."""
