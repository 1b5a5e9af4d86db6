"""How everything that can go wrong becomes an answer in the standard error shape."""

from __future__ import annotations

import logging

from frazil.commit.pipeline.answers import ReplayedError
from frazil.db.base import DatabaseUnavailable
from frazil.rest.reply import Reply
from frazil.rest.routing import Route
from frazil.store.base import StoreError
from frazil.wire.errors import CommitStateUnknown, FrazilError, ServiceUnavailable
from frazil.wire.json import encode

_log = logging.getLogger("frazil.rest")


def failure(error: Exception, route: Route | None, request_id: str) -> Reply:
    if isinstance(error, ReplayedError):
        return Reply(error.status, (error.body,), error_type="Replayed")
    known = error if isinstance(error, FrazilError) else _expected(error, route, request_id)
    headers = tuple(
        (name.lower().encode(), text.encode()) for name, text in known.headers().items()
    )
    return Reply(known.status, (encode(known.body()),), headers, known.type)


def _expected(error: Exception, route: Route | None, request_id: str) -> FrazilError:
    """What no room meant for a client. A client is told where to look, not what it was.

    A read can simply be sent again. After a change nothing is known about how far it came, so
    the answer is a 500, which Iceberg's clients read as 'unknown' on a commit; that holds for a
    commit that failed before it was submitted too, because here nobody can tell them apart.
    """
    changes = route is not None and route.changes
    if isinstance(error, DatabaseUnavailable | StoreError) and not changes:
        _log.warning("a read failed: %r", error, extra={"id": request_id})
        what = "database" if isinstance(error, DatabaseUnavailable) else "object store"
        return ServiceUnavailable(f"the {what} cannot be reached now: try again")
    _log.error("unexpected failure", exc_info=error, extra={"id": request_id})
    message = f"something failed inside the server; its log says what, by request id {request_id}"
    if route is not None and route.commits:
        return CommitStateUnknown(f"{message}. Whether the commit happened is not known")
    return FrazilError(message)
