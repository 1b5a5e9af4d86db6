"""Leases of readers and intents of writers: the requests and responses of their routes.

A lease names a snapshot whose files must stay. An intent names a folder that a writer writes to.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from frazil.wire.rest_messages import Request, Response
from frazil.wire.rest_updates import Int64

MIN_TTL_MS: Final = 1_000
MAX_TTL_MS: Final = 7 * 24 * 3600 * 1000
LEASE_TTL_MS: Final = 3600 * 1000
INTENT_TTL_MS: Final = 24 * 3600 * 1000

PLAN_LEASE_HEADER: Final = "X-Frazil-Lease"
"""Gives a plan a lease of its own, with a UUID that the client has drawn, for LEASE_TTL_MS. The
client renews and releases it. Without it, the plan leases its snapshot for a day."""

BASE_LEASE_PREFIX: Final = "base:"
"""Stands before the UUID if the snapshot is the base of a change. Then the snapshots after it do
not expire either, because the commit of the change is checked against them."""

Ttl: TypeAlias = Annotated[int, Meta(ge=MIN_TTL_MS, le=MAX_TTL_MS)]
Holder: TypeAlias = Annotated[str, Meta(max_length=200)]
"""Says to people who holds it, such as `nightly-report on host7`."""


class TakeLeaseRequest(Request, frozen=True, omit_defaults=True):
    """Names a snapshot by its id or by a branch or tag; by default the head of main."""

    snapshot_id: Int64 | None = None
    ref: Annotated[str, Meta(min_length=1)] | None = None
    ttl_ms: Ttl | None = None
    holder: Holder | None = None


class DeclareIntentRequest(Request, frozen=True, omit_defaults=True):
    prefix: Annotated[str, Meta(min_length=1)]
    ttl_ms: Ttl | None = None
    holder: Holder | None = None


class RenewRequest(Request, frozen=True, omit_defaults=True):
    ttl_ms: Ttl | None = None


class LeaseResponse(Response, frozen=True):
    lease_id: str
    snapshot_id: int
    expires_at_ms: int


class ListedLease(Response, frozen=True):
    lease_id: str
    snapshot_id: int
    principal: str
    holder: str
    created_at_ms: int
    expires_at_ms: int


class ListLeasesResponse(Response, frozen=True):
    leases: tuple[ListedLease, ...]


class IntentResponse(Response, frozen=True):
    intent_id: str
    prefix: str
    expires_at_ms: int


class ListedIntent(Response, frozen=True):
    intent_id: str
    prefix: str
    principal: str
    holder: str
    created_at_ms: int
    expires_at_ms: int


class ListIntentsResponse(Response, frozen=True):
    intents: tuple[ListedIntent, ...]
