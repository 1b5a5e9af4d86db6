"""The error tree of Frazil.

Every error that a client can see is one of these classes. Each has its HTTP status, the name of the
Java exception that Iceberg's clients look for, and whether repeating the request can help. No code
in Frazil depends on the text of a message.

    FrazilError                      500  InternalServerError
    ├── BadRequest                   400  BadRequestException
    │   └── IllegalArgument          400  IllegalArgumentException
    ├── NotAuthorized                401  NotAuthorizedException
    ├── Forbidden                    403  ForbiddenException
    ├── NotFound                     404  NotFoundException          (a route or a file)
    │   ├── NoSuchNamespace          404  NoSuchNamespaceException
    │   ├── NoSuchTable              404  NoSuchTableException
    │   ├── NoSuchView               404  NoSuchViewException
    │   ├── NoSuchPlanId             404  NoSuchPlanIdException
    │   └── NoSuchPlanTask           404  NoSuchPlanTaskException
    ├── MethodNotAllowed             405  MethodNotAllowedException
    ├── UnsupportedOperation         406  UnsupportedOperationException
    ├── Conflict                     409  ConflictException
    │   ├── AlreadyExists            409  AlreadyExistsException
    │   ├── NamespaceNotEmpty        409  NamespaceNotEmptyException
    │   ├── CommitFailed             409  CommitFailedException      (rebuild and retry)
    │   └── ValidationError          409  ValidationException        (carries conflicts)
    ├── PayloadTooLarge              413  PayloadTooLargeException
    ├── UnsupportedMediaType         415  UnsupportedMediaTypeException
    ├── UnprocessableEntity          422  UnprocessableEntityException
    ├── TooManyRequests              429  TooManyRequestsException   (proven not done; Retry-After)
    ├── CommitStateUnknown           500  CommitStateUnknownException
    └── ServiceUnavailable           503  ServiceUnavailableException (never on a commit)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class FrazilError(Exception):
    """An internal error of the server."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "InternalServerError"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s

    def headers(self) -> dict[str, str]:
        """Return the headers of an answer with this error."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}

    def body(self) -> dict[str, Any]:
        """Return the error model of the REST specification."""
        return {"error": {"message": self.message, "type": self.type, "code": self.status}}


class BadRequest(FrazilError):
    """An invalid request. The message names the field and the fix."""

    status = 400
    type = "BadRequestException"


class IllegalArgument(BadRequest):
    """An invalid request for which Iceberg's clients expect Java's IllegalArgumentException."""

    type = "IllegalArgumentException"


class NotAuthorized(FrazilError):
    """A request without a valid credential."""

    status = 401
    type = "NotAuthorizedException"

    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class Forbidden(FrazilError):
    """A valid credential that does not allow the operation."""

    status = 403
    type = "ForbiddenException"


class NotFound(FrazilError):
    """A route or a file that does not exist."""

    status = 404
    type = "NotFoundException"


class NoSuchNamespace(NotFound):
    type = "NoSuchNamespaceException"


class NoSuchTable(NotFound):
    type = "NoSuchTableException"


class NoSuchView(NotFound):
    type = "NoSuchViewException"


class NoSuchPlanId(NotFound):
    type = "NoSuchPlanIdException"


class NoSuchPlanTask(NotFound):
    type = "NoSuchPlanTaskException"


class MethodNotAllowed(FrazilError):
    status = 405
    type = "MethodNotAllowedException"


class UnsupportedOperation(FrazilError):
    status = 406
    type = "UnsupportedOperationException"


class Conflict(FrazilError):
    """A request that does not fit the state of the catalog."""

    status = 409
    type = "ConflictException"


class AlreadyExists(Conflict):
    type = "AlreadyExistsException"


class NamespaceNotEmpty(Conflict):
    type = "NamespaceNotEmptyException"


class CommitFailed(Conflict):
    """A failed requirement: rebuild the commit on new metadata and try again."""

    type = "CommitFailedException"
    retryable = True


class ValidationError(Conflict):
    """A failed validation: sending the same commit again cannot help."""

    type = "ValidationException"

    def __init__(self, message: str, conflicts: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)

    def body(self) -> dict[str, Any]:
        """Return the error model, with the conflicts; `frazil explain` reads it."""
        body = super().body()
        if self.conflicts:
            body["error"]["conflicts"] = list(self.conflicts)
        return body


class PayloadTooLarge(FrazilError):
    status = 413
    type = "PayloadTooLargeException"


class UnsupportedMediaType(FrazilError):
    status = 415
    type = "UnsupportedMediaTypeException"


class UnprocessableEntity(FrazilError):
    status = 422
    type = "UnprocessableEntityException"


class TooManyRequests(FrazilError):
    """A request that was certainly not executed. The client may repeat it after the given time."""

    status = 429
    type = "TooManyRequestsException"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message, retry_after_s=retry_after_s)


class CommitStateUnknown(FrazilError):
    """A commit with an unknown outcome. Its files must not be deleted."""

    status = 500
    type = "CommitStateUnknownException"


class ServiceUnavailable(FrazilError):
    """A temporary failure of a route that changes nothing. For a commit it would mean 'unknown'."""

    status = 503
    type = "ServiceUnavailableException"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
