"""The operations of maintenance that the server runs, each as a function of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.commit.catalog.operations import Catalog
    from frazil.db.rows import Database
    from frazil.store.object_store import Store


@dataclass(frozen=True, slots=True)
class ServerTools:
    """What the operations work with."""

    database: Database
    store: Store
    catalog: Catalog


class JobCancelled(Exception):
    """The job ends because somebody has asked for it."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job."""

    identifier: Identifier
    """The name of the table when the job was started; it may have another one now."""
    uuid: str
    options: Mapping[str, str]
    dry_run: bool
    principal: str
    progress: Callable[[int, int], None]
    """Reports how much is done, and of how much."""
    cancelled: Callable[[], bool]
    """Says whether to stop: raise JobCancelled, or return what was done until now."""


ServerOperation: TypeAlias = Callable[[ServerTools, JobRun], Struct]

SERVER_OPERATIONS: Final[dict[str, ServerOperation]] = {}
"""By name. An operation that the server runs and that is missing here is refused."""
