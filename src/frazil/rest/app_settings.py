"""Settings of the REST application."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_SECRET = re.compile(r"secret|token|password|credential|access-key|account-key|sas", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Settings of the REST application; the server fills them from its own settings."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    """Names of principals and the SHA-256 of their tokens in hex. If empty, no token is needed."""

    config_defaults: Mapping[str, str] = field(default_factory=dict)
    config_overrides: Mapping[str, str] = field(default_factory=dict)
    """Properties that `/v1/config` returns to clients."""

    table_config: Mapping[str, str] = field(default_factory=dict)
    """Properties for access to a table's files, such as `s3.endpoint`; never a secret."""

    idempotency_key_lifetime: str = "PT30M"
    """How long a client may repeat a request with its key, in ISO 8601."""

    max_request_bytes: int = 256 << 20
    """The largest body after decompression."""

    max_bytes_in_flight: int = 1 << 30
    """The largest total size of the bodies of all running requests."""

    max_requests_in_flight: int = 1000
    body_timeout_s: float = 60.0
    """How long a body may take to arrive after the headers."""

    ready_timeout_s: float = 5.0
    worker_threads: int = 16
    """Threads for blocking calls of the catalog."""

    planning_threads: int = 8
    """Threads for planning scans and for pages of scan tasks."""

    default_page_size: int = 1000
    """The size of a page if the client does not ask for one."""

    max_page_size: int = 10_000

    def __post_init__(self) -> None:
        for name, digest in self.tokens.items():
            if not _SHA256_HEX.fullmatch(digest):
                raise ValueError(f"token {name!r}: the SHA-256 must be 64 lower-case hex digits")
        for properties in (self.config_defaults, self.config_overrides, self.table_config):
            for key in properties:
                if _SECRET.search(key):
                    raise ValueError(f"{key} looks like a secret, and clients would receive it")
        if self.max_bytes_in_flight < self.max_request_bytes:
            raise ValueError("max_bytes_in_flight must be at least max_request_bytes")
