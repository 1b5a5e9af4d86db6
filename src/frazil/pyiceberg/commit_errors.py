"""Errors of commits through Frazil, as PyIceberg's exceptions.

    ValidationError         both PyIceberg's ValidationException and Frazil's ValidationError
    └── DuplicateFilesError also a ValueError, which PyIceberg raises for existing files

Code that catches PyIceberg's exceptions needs no others. The `conflicts` of a ValidationError give
the reasons why the server refused the commit.
"""

from __future__ import annotations

from typing import Final

from pyiceberg import exceptions

from frazil.client.send.error_answers import CatalogUnreachable
from frazil.wire import errors
from frazil.wire.conflicts import duplicate_paths
from frazil.wire.errors import FrazilError


class ValidationError(exceptions.ValidationException, errors.ValidationError):
    """The change conflicts with other commits; `conflicts` lists them."""


class DuplicateFilesError(ValidationError, ValueError):
    """Files to add are already in the table."""


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
    """Return PyIceberg's exception for an error of Frazil."""
    if isinstance(error, errors.ValidationError):
        return _validation_error(error)
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
