"""What the edge is told when it is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_SECRET = re.compile(r"secret|token|password|credential|access-key|account-key|sas", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AppSettings:
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Principal's name to the SHA-256 of its token in hex; empty: nobody is asked."""

    config_defaults: Mapping[str, str] = field(default_factory=dict)
    config_overrides: Mapping[str, str] = field(default_factory=dict)
    """What `/v1/config` hands to clients."""

    table_config: Mapping[str, str] = field(default_factory=dict)
    """What a client needs to reach a table's files, such as `s3.endpoint`; never a secret."""

    idempotency_key_lifetime: str = "PT30M"
    """ISO 8601: how long a client may send a request again under its key."""

    max_request_bytes: int = 256 << 20
    """The largest body, decoded."""

    max_bytes_in_flight: int = 1 << 30
    """What the bodies of all running requests may hold together."""

    max_requests_in_flight: int = 1000
    body_timeout_s: float = 60.0
    """How long a body may take to arrive once the head of its request has."""

    ready_timeout_s: float = 5.0
    worker_threads: int = 16
    """Threads for calls of the catalog that block."""

    planning_threads: int = 8
    """Threads for scans that are planned, and for pages of their tasks."""

    default_page_size: int = 1000
    """When a client asks for pages without saying how long."""

    max_page_size: int = 10_000

    def __post_init__(self) -> None:
        for name, digest in self.tokens.items():
            if not _SHA256_HEX.fullmatch(digest):
                raise ValueError(f"token {name!r}: the SHA-256 must be 64 lower-case hex digits")
        for handed_out in (self.config_defaults, self.config_overrides, self.table_config):
            for key in handed_out:
                if _SECRET.search(key):
                    raise ValueError(f"{key} looks like a secret, and clients would be told it")
        if self.max_bytes_in_flight < self.max_request_bytes:
            raise ValueError("max_bytes_in_flight must be at least max_request_bytes")
