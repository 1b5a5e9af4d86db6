"""Changes that are one row and one transaction: creates, drops, renames, namespaces.

They share one loop: build the transaction from the rows as they are now, send it, and build it
again if the rows had moved on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from frazil.commit.pipeline.catalog_answers import Answer
from frazil.commit.pipeline.idempotency import Idempotency
from frazil.commit.pipeline.pending_requests import Context
from frazil.commit.pipeline.swap import send
from frazil.commit.snapshot.file_writer import FileWriter, not_written
from frazil.db.base import Committed, Database, KeysTaken, Refused, SwapLost, Transaction
from frazil.wire.errors import TooManyRequests

_GIVE_UP_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a simple change, and what to answer if it works."""

    transaction: Transaction
    answer: Callable[[], Answer]
    uuids: tuple[str, ...] = ()
    files: dict[str, Sequence[bytes]] = field(default_factory=dict)
    """Written before the transaction, deleted when it is proven not to have happened."""


class SimpleCommit:
    def __init__(self, database: Database, writer: FileWriter, idempotency: Idempotency) -> None:
        self._database = database
        self._writer = writer
        self._idempotency = idempotency

    def run(self, context: Context, prepare: Callable[[], Attempt]) -> Answer:
        """`prepare` reads the rows and may refuse; it is called again after a lost race."""
        give_up = time.monotonic() + _GIVE_UP_AFTER_S
        while time.monotonic() < give_up:
            attempt = prepare()
            self._write(attempt)
            with self._writer.discarded_if_not_done(attempt.files):
                outcome = send(self._database, self._database, attempt.transaction, attempt.uuids)
            match outcome:
                case Committed():
                    return attempt.answer()
                case SwapLost():
                    self._writer.discard(attempt.files)
                case KeysTaken(rows):
                    self._writer.discard(attempt.files)
                    return self._idempotency.replay(context, rows[0])
                case Refused(_, error):
                    self._writer.discard(attempt.files)
                    raise error
        raise TooManyRequests("too many others change the same row: send the request again")

    def _write(self, attempt: Attempt) -> None:
        failed = self._writer.write(attempt.files)
        if failed:
            self._writer.discard(attempt.files)
            cause = next(iter(failed.values()))
            raise not_written("a file could not be written", cause) from cause
