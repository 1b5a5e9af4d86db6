"""The reasons of failed operations of the stores.

A failed write is always a proof that the catalog did not change, because the files of a commit are
written before its transaction is sent. The object itself may exist, so it is deleted.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final

_DISK_FULL: Final = "its disk is full"
_NO_PERMISSION: Final = "this server has no permission"
_TOO_MANY_FILES: Final = "this server has too many open files"
_IO_ERROR: Final = "its disk reports an I/O error"

_LOCAL: Final[Mapping[int, str]] = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: "the quota of its disk is used up",
    errno.EFBIG: "a file would exceed the size that the system allows",
    errno.EROFS: "its file system is read-only",
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
    errno.EIO: _IO_ERROR,
    errno.ENXIO: _IO_ERROR,
    errno.ENODEV: _IO_ERROR,
    errno.ESTALE: "its network file system was lost",
    errno.ETIMEDOUT: "its network file system does not answer",
    errno.ENOMEM: "the system has too little memory",
}

_S3: Final[Mapping[str, str]] = {
    # obstore reports 5xx (503 SlowDown, 507), time-outs and lost connections alike.
    "GenericError": "the object store does not answer, or is overloaded or full",
    "PermissionDeniedError": "the object store refuses access (403)",
    "UnauthenticatedError": "the object store refuses the keys of this server (401)",
    "NotFoundError": "the bucket does not exist (404)",
    "FileNotFoundError": "the bucket does not exist (404)",
}


def of_local(error: OSError) -> str | None:
    """Return what an operator has to look at; None if the location itself is wrong."""
    return None if error.errno is None else _LOCAL.get(error.errno)


def of_s3(error: Exception) -> str | None:
    return _S3.get(type(error).__name__)
