"""Signs and reads plan ids and task tokens, which any replica can answer.

A token contains everything that its answer depends on: the UUID of the table, the principal that
got it, the scan, and for a task a part of the scan. It names no file, so it gives access to nothing
beyond the scan.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import Final, Literal

import msgspec
from msgspec import Struct

from frazil.plan.scan_walk import Span

MAX_TOKEN_BYTES: Final = 1 << 20
"""The largest decompressed token. Only its filter can be large."""
_VERSION: Final = b"2"
_MAC_BYTES: Final = 16


class Token(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The content of a plan id or a plan task."""

    kind: Literal["plan", "task"]
    table_uuid: str
    principal: str
    request: bytes
    """The request for the scan as JSON, with its snapshot."""
    nonce: bytes = b""
    """Makes each plan id unique, so that cancelling one plan does not cancel another."""
    span: Span | None = None
    sequence_numbers: bool = False
    all_deletes: bool = False
    expires_ms: int = 0
    """When it ends, by the database's clock. Until then its snapshots are leased."""


class InvalidToken(Exception):
    """A token that was not signed here, or not for this table or principal."""


class Tokens:
    """Signs and reads tokens with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, token: Token) -> str | None:
        """Return the text of a token, or None if the scan is too large for one."""
        data = msgspec.msgpack.encode(token)
        if len(data) > MAX_TOKEN_BYTES:
            return None
        payload = _VERSION + zlib.compress(data, 6)
        return _text(payload + self._mac(payload))

    def read(self, text: str, kind: str, table_uuid: str, principal: str) -> Token:
        """Return the token if it was signed here for this table and principal."""
        try:
            padded = (text + "=" * (-len(text) % 4)).encode("ascii")
            signed = b64decode(padded, b"-_", validate=True)
        except (NotBase64, ValueError):
            raise InvalidToken from None
        payload, mac = signed[:-_MAC_BYTES], signed[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload)) or payload[:1] != _VERSION:
            raise InvalidToken
        # Only signed data is decompressed, and nothing larger is ever signed.
        try:
            data = zlib.decompressobj().decompress(payload[1:], MAX_TOKEN_BYTES)
            token = msgspec.msgpack.decode(data, type=Token)
        except (zlib.error, msgspec.DecodeError):
            raise InvalidToken from None
        if (token.kind, token.table_uuid, token.principal) != (kind, table_uuid, principal):
            raise InvalidToken
        return token

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, hashlib.sha256)[:_MAC_BYTES]


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
