"""Sending one transaction to the database and finding out how it ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from frazil.db.base import (
    Committed,
    Database,
    DatabaseUnavailable,
    OutcomeUnknown,
    SwapLost,
    Transaction,
    TransactionOutcome,
)
from frazil.wire.errors import CommitStateUnknown, TooManyRequests

logger = logging.getLogger("frazil.commit")

RESOLVE_TIMEOUT_S = 20.0


class Committer(Protocol):
    """A database, or a session that holds row locks."""

    def commit(self, transaction: Transaction) -> TransactionOutcome: ...


def send(
    database: Database, committer: Committer, transaction: Transaction, uuids: Sequence[str]
) -> TransactionOutcome:
    """Commits, and turns a lost answer into the truth.

    Raises TooManyRequests when it is proven that nothing happened, CommitStateUnknown when the
    truth could not be found in time: then no file of this commit may be deleted.
    """
    try:
        return committer.commit(transaction)
    except DatabaseUnavailable as error:
        raise TooManyRequests(f"the database is not available: {error}") from error
    except OutcomeUnknown as error:
        logger.warning("commit %s: the answer was lost (%s)", transaction.commit_id, error)
        return _resolve(database, transaction, uuids)


def _resolve(
    database: Database, transaction: Transaction, uuids: Sequence[str]
) -> TransactionOutcome:
    try:
        happened = database.resolve(transaction.commit_id, uuids, RESOLVE_TIMEOUT_S)
    except DatabaseUnavailable as error:
        raise CommitStateUnknown(
            "the database did not answer whether the commit took effect; "
            "read the table before you send it again"
        ) from error
    logger.warning(
        "commit %s: %s", transaction.commit_id, "took effect" if happened else "did not happen"
    )
    # A proven rejection is the same as a lost race: the intent is applied again.
    return Committed() if happened else SwapLost(0)
