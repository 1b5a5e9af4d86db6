"""Opens Parquet files on local disks, on S3, or in a filesystem of the caller.

The errors name the path and the fix, which pyarrow's errors do not:

BadRequest
├── FileNotReadable        missing, forbidden, encrypted, or no Parquet file
└── FileDoesNotFit         its table cannot read it, or not as what it is declared to be
    └── PartitionNotProven its footer does not show which partition it belongs to
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from frazil.wire.errors import BadRequest


class FileNotReadable(BadRequest):
    """The file's footer cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FileDoesNotFit(BadRequest):
    """The file cannot be a file of the table."""

    def __init__(self, path: str, reason: str, column: str | None = None) -> None:
        where = path if column is None else f"{path}: {self._what} {column}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.column = column
        """The full name of the column, such as `location.latitude`; None for the whole file."""
        self.reason = reason

    _what = "column"


class PartitionNotProven(FileDoesNotFit):
    """The footer does not prove the partition; `column` is the name of the partition field."""

    _what = "partition field"


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
_TAIL_BYTES: Final = 8
_MIN_BYTES: Final = len(_MAGIC) + _TAIL_BYTES


# --- paths --------------------------------------------------------------------------------------


def declared_path(
    path: str | os.PathLike[str], table_location: str | None, filesystem: Any = None
) -> str:
    """Return the absolute path to declare, in the style of the table's location."""
    text = os.fspath(path)
    if scheme_of(text) is not None:
        return text
    if filesystem is not None and filesystem.type_name != "local":
        return f"s3://{text}" if filesystem.type_name == "s3" else text
    absolute = os.path.abspath(text)
    if table_location is None or table_location.startswith("/"):
        return absolute
    short = table_location.startswith("file:/") and not table_location.startswith("file://")
    return f"file:{absolute}" if short else f"file://{absolute}"


def scheme_of(path: str) -> str | None:
    matched = _SCHEME.match(path)
    return None if matched is None else matched[1].lower()


def _split(path: str) -> tuple[str, str]:
    """Return the scheme, and the path in the form that a filesystem of pyarrow expects."""
    matched = _SCHEME.match(path)
    if matched is None:
        return "file", path
    scheme, rest = matched[1].lower(), matched[2]
    if scheme == "file":
        # An authority is ignored, because it is this host: file://localhost/tmp is /tmp.
        return scheme, "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest
    return scheme, rest.removeprefix("//")


# --- filesystems --------------------------------------------------------------------------------


def filesystem_of(path: str, config: Mapping[str, str]) -> tuple[Any, str]:
    """Return the filesystem of pyarrow for a path, and the path in the form that it expects."""
    scheme, inner = _split(path)
    if scheme == "file":
        return pafs.LocalFileSystem(), inner
    if scheme in _S3_SCHEMES:
        return _s3(_s3_settings(config, os.environ)), inner
    try:
        filesystem, inner = pafs.FileSystem.from_uri(path)
        return filesystem, inner
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileNotReadable(
            path, f"no filesystem is known for {scheme} ({error}): give one as filesystem="
        ) from None


def _s3_settings(
    config: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[tuple[str, Any], ...]:
    """Return the settings for S3; those of the catalog override those of the environment."""
    endpoint = (
        config.get("s3.endpoint")
        or environ.get("AWS_ENDPOINT_URL_S3")
        or environ.get("AWS_ENDPOINT_URL")
    )
    region = (
        config.get("s3.region")
        or config.get("client.region")
        or environ.get("AWS_REGION")
        or environ.get("AWS_DEFAULT_REGION")
    )
    # Other stores than AWS's rarely have a host name for each bucket.
    path_style = config.get("s3.path-style-access", "true" if endpoint else "false")
    settings: dict[str, Any] = {
        "access_key": config.get("s3.access-key-id"),
        "secret_key": config.get("s3.secret-access-key"),
        "session_token": config.get("s3.session-token"),
        "endpoint_override": endpoint,
        "region": region,
        "force_virtual_addressing": path_style.lower() != "true",
    }
    return tuple((name, value) for name, value in settings.items() if value is not None)


@lru_cache(maxsize=16)
def _s3(settings: tuple[tuple[str, Any], ...]) -> Any:
    """Share a filesystem and its connections among files; new keys make a new one."""
    return pafs.S3FileSystem(**dict(settings))


# --- opening ------------------------------------------------------------------------------------


@contextmanager
def open_parquet(
    path: str, config: Mapping[str, str], filesystem: Any = None
) -> Iterator[tuple[Any, int]]:
    """Open a file; return its `pyarrow.parquet.ParquetFile` and its size in bytes."""
    if filesystem is None:
        filesystem, inner = filesystem_of(path, config)
    else:
        inner = _split(path)[1]
    try:
        source = filesystem.open_input_file(inner)
    except (OSError, pa.ArrowException) as error:
        raise _not_opened(path, filesystem, inner, error) from None
    with source:
        try:
            size = source.size()
            parquet = pq.ParquetFile(source)
        except (OSError, pa.ArrowException) as error:
            raise _not_parquet(path, source, error) from None
        try:
            yield parquet, size
        except (OSError, pa.ArrowException) as error:
            raise FileNotReadable(path, f"its columns cannot be read ({error})") from None


def _not_opened(path: str, filesystem: Any, inner: str, error: Exception) -> FileNotReadable:
    if isinstance(error, FileNotFoundError):
        return FileNotReadable(
            path, "there is no such file: write it before it is committed, or correct the path"
        )
    if _is_directory(filesystem, inner):
        return FileNotReadable(path, "is a directory: name each of its files")
    if isinstance(error, PermissionError):
        return FileNotReadable(path, "no permission to read it: allow it to this user")
    return FileNotReadable(
        path, f"cannot be opened ({error}): check that it exists and can be read from here"
    )


def _is_directory(filesystem: Any, inner: str) -> bool:
    try:
        return bool(filesystem.get_file_info(inner).type == pafs.FileType.Directory)
    except (OSError, pa.ArrowException):
        return False


def _not_parquet(path: str, source: Any, error: Exception) -> FileNotReadable:
    """Explain why pyarrow could not read the file."""
    try:
        size = source.size()
        tail = source.read_at(_TAIL_BYTES, size - _TAIL_BYTES) if size >= _TAIL_BYTES else b""
    except (OSError, pa.ArrowException):
        return FileNotReadable(path, f"cannot be read ({error})")
    if size == 0:
        return FileNotReadable(path, "is empty: close the writer before the file is committed")
    if tail.endswith(_ENCRYPTED_MAGIC):
        return FileNotReadable(
            path, "its footer is encrypted: write it with a plaintext footer or declare it by hand"
        )
    if size < _MIN_BYTES or not tail.endswith(_MAGIC):
        return FileNotReadable(
            path,
            f"is not a Parquet file, or its writer was not closed: it does not end with "
            f"{_MAGIC.decode()}",
        )
    return FileNotReadable(path, f"its footer cannot be read ({error})")
