"""Request and response bodies of commits, and their errors as PyIceberg's exceptions.

    ValidationError         both PyIceberg's ValidationException and Frazil's ValidationError
    └── DuplicateFilesError also a ValueError, which PyIceberg raises for existing files
    Unreachable             Frazil's CatalogUnreachable, PyIceberg's ServiceUnavailableError and
                            a ConnectionError of `requests`
    UnknownOutcome          Frazil's CommitStateUnknown, PyIceberg's CommitStateUnknownException
                            and a ConnectionError of `requests`

Code that catches PyIceberg's exceptions needs no others. The `conflicts` of a ValidationError give
the reasons why the server refused the commit.

A request contains PyIceberg's own updates and staged changes, in the order of staging. Nearly all
snapshots of a response were in the previous response too. A snapshot never changes, so each is
validated once and then found by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec
from pyiceberg import exceptions
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate

from frazil.client.send.error_answers import CatalogUnreachable
from frazil.pyiceberg.catalog_session import UnknownOutcome, Unreachable
from frazil.pyiceberg.staged_changes import StagedChange, StagedRef
from frazil.wire import errors
from frazil.wire.conflicts import duplicate_paths
from frazil.wire.errors import FrazilError
from frazil.wire.file_actions import CommitValidation, FileUpdate


def commit_body(requirements: Iterable[TableRequirement], updates: Iterable[TableUpdate]) -> bytes:
    """Return the bytes of a CommitTableRequest."""
    raw = msgspec.Raw
    return msgspec.json.encode(
        {
            "requirements": [raw(each.model_dump_json().encode()) for each in requirements],
            "updates": _updates_json(updates),
        }
    )


def _updates_json(updates: Iterable[TableUpdate]) -> list[msgspec.Raw]:
    seen: set[tuple[object, ...]] = set()
    documents: list[msgspec.Raw] = []
    for update in updates:
        if isinstance(update, StagedRef):
            continue
        if isinstance(update, StagedChange):
            change = _without_repeated_clauses(update.wire, seen)
            documents.append(msgspec.Raw(msgspec.json.encode(change)))
        else:
            documents.append(msgspec.Raw(update.model_dump_json().encode()))
    return documents


def _without_repeated_clauses(change: FileUpdate, seen: set[tuple[object, ...]]) -> FileUpdate:
    """Drop clauses that an earlier update of the request contains: all check the same history."""
    kept: list[CommitValidation] = []
    for clause in change.validations:
        base = change.base_snapshot_id
        key = (change.branch, base, change.case_sensitive, msgspec.json.encode(clause))
        if clause.filter is None or key not in seen:
            kept.append(clause)
        seen.add(key)
    if len(kept) == len(change.validations):
        return change
    return msgspec.structs.replace(change, commit_validations=tuple(kept))


_MAX_CACHED_SNAPSHOTS: Final = 4096
_SNAPSHOTS: Final = "snapshots"


class _Answer(msgspec.Struct, rename="kebab"):
    metadata: dict[str, msgspec.Raw]
    metadata_location: str


def commit_response(body: bytes) -> CommitTableResponse:
    """Decode the response to a commit."""
    answer = msgspec.json.decode(body, type=_Answer)
    # Validating the response would validate its metadata a second time.
    return CommitTableResponse.model_construct(
        metadata=_metadata(answer.metadata), metadata_location=answer.metadata_location
    )


def _metadata(fields: dict[str, msgspec.Raw]) -> TableMetadata:
    document: dict[str, Any] = {
        name: msgspec.json.decode(raw) for name, raw in fields.items() if name != _SNAPSHOTS
    }
    if _SNAPSHOTS in fields:
        snapshots = msgspec.json.decode(fields[_SNAPSHOTS], type=list[msgspec.Raw] | None)
        document[_SNAPSHOTS] = [_snapshot(bytes(raw)) for raw in snapshots or ()]
    return TableMetadataUtil.parse_obj(document)


@lru_cache(_MAX_CACHED_SNAPSHOTS)
def _snapshot(raw: bytes) -> Snapshot:
    return Snapshot.model_validate_json(raw)


# --- errors -------------------------------------------------------------------------------------


class ValidationError(exceptions.ValidationException, errors.ValidationError):
    """The change conflicts with other commits; `conflicts` lists them."""


class DuplicateFilesError(ValidationError, ValueError):
    """Files to add are already in the table."""


_TRANSLATIONS: Final[tuple[tuple[type[FrazilError], type[Exception]], ...]] = (
    (errors.Conflict, exceptions.CommitFailedException),
    (errors.NoSuchNamespace, exceptions.NoSuchNamespaceError),
    (errors.NotFound, exceptions.NoSuchTableError),
    (errors.BadRequest, exceptions.BadRequestError),
    (errors.NotAuthorized, exceptions.UnauthorizedError),
    (errors.Forbidden, exceptions.ForbiddenError),
    (errors.TooManyRequests, exceptions.TooManyRequestsError),
    (errors.ServiceUnavailable, exceptions.ServiceUnavailableError),
)


def translated(error: FrazilError) -> Exception:
    """Return PyIceberg's exception for an error of Frazil."""
    if isinstance(error, errors.ValidationError):
        return _validation_error(error)
    if isinstance(error, CatalogUnreachable):
        return Unreachable(error.message)
    if isinstance(error, errors.CommitStateUnknown):
        return UnknownOutcome(error.message)
    for kind, exception in _TRANSLATIONS:
        if isinstance(error, kind):
            return exception(f"{error.type}: {error.message}")
    return exceptions.RESTError(f"{error.type}: {error.message}")


def proves_rejection(error: BaseException | None) -> bool:
    """Check that nothing was committed, so that written files may be deleted.

    A status of 500 or above proves nothing, but a failed connection does.
    """
    return isinstance(error, FrazilError) and (
        isinstance(error, CatalogUnreachable) or error.status < 500
    )


def _validation_error(error: errors.ValidationError) -> ValidationError:
    paths = list(duplicate_paths(error.conflicts))
    if not paths:
        return ValidationError(error.message, error.conflicts)
    return DuplicateFilesError(
        "Cannot add files that are already referenced by table, files: " + ", ".join(paths),
        error.conflicts,
    )
