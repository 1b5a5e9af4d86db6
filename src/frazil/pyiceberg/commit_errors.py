"""What a commit through Frazil can raise, in PyIceberg's own exceptions.

    ValidationError         PyIceberg's ValidationException and Frazil's ValidationError in one
    └── DuplicateFilesError also a ValueError, as PyIceberg raises for files that are there already

Whoever catches PyIceberg's exceptions needs to know no others; whoever wants to know why a commit
was refused finds the server's `conflicts` in the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyiceberg import exceptions

from frazil.client.send.error_answers import CatalogUnreachable
from frazil.wire import errors
from frazil.wire.errors import FrazilError

DUPLICATE_FILE: Final = "duplicate-file"


class ValidationError(exceptions.ValidationException, errors.ValidationError):
    """What others have committed stands against this change; `conflicts` says what and where."""


class DuplicateFilesError(ValidationError, ValueError):
    """Files that were to be added are in the table already."""


_TRANSLATIONS: Final[tuple[tuple[type[FrazilError], type[Exception]], ...]] = (
    (errors.Conflict, exceptions.CommitFailedException),
    (errors.CommitStateUnknown, exceptions.CommitStateUnknownException),
    (errors.NoSuchNamespace, exceptions.NoSuchNamespaceError),
    (errors.NotFound, exceptions.NoSuchTableError),
    (errors.BadRequest, exceptions.BadRequestError),
    (errors.NotAuthorized, exceptions.UnauthorizedError),
    (errors.Forbidden, exceptions.ForbiddenError),
    (errors.TooManyRequests, exceptions.TooManyRequestsError),
    (CatalogUnreachable, exceptions.ServiceUnavailableError),
    (errors.ServiceUnavailable, exceptions.ServiceUnavailableError),
)


def translated(error: FrazilError) -> Exception:
    """PyIceberg's exception for a refusal; Frazil's own goes along as its cause."""
    if isinstance(error, errors.ValidationError):
        return _validation_error(error)
    for kind, exception in _TRANSLATIONS:
        if isinstance(error, kind):
            return exception(f"{error.type}: {error.message}")
    return exceptions.RESTError(f"{error.type}: {error.message}")


def proves_rejection(error: BaseException | None) -> bool:
    """Whether it is certain that nothing was committed, so that written files may go.

    A 5xx proves nothing, whoever sent it; that no connection was made does.
    """
    return isinstance(error, FrazilError) and (
        isinstance(error, CatalogUnreachable) or error.status < 500
    )


def duplicate_paths(conflicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The files that the server says are in the table already."""
    for conflict in conflicts:
        if conflict.get("clause") == DUPLICATE_FILE:
            for file in conflict.get("files", ()):
                yield str(file["file-path"])


def _validation_error(error: errors.ValidationError) -> ValidationError:
    paths = list(duplicate_paths(error.conflicts))
    if not paths:
        return ValidationError(error.message, error.conflicts)
    return DuplicateFilesError(
        "Cannot add files that are already referenced by table, files: " + ", ".join(paths),
        error.conflicts,
    )
