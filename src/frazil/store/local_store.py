"""Objects as local files: durable when `put_new` returns, never torn under their name.

A `%` in a location is part of the file's name, as for Hadoop, PyIceberg and DuckDB
(see `frazil.store.locations`).
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TypeAlias

from frazil.store.locations import parse_location
from frazil.store.object_store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectTooLarge,
    StoreError,
    check_range,
)
from frazil.wire.errors import BadRequest, FrazilError

_IOV_MAX = min(1024, os.sysconf("SC_IOV_MAX"))
_SLICE_BYTES = 1 << 20
_PUT_THREADS = 6
_O_TMPFILE: int | None = getattr(os, "O_TMPFILE", None)

# How file systems and kernels say that they have no unnamed files, or no links to them.
_NO_UNNAMED_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS}
_NO_LINKS = {errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.ENOENT, errno.EXDEV, errno.EINVAL}


_Named: TypeAlias = tuple[str, str, Sequence[bytes]]
"""A file's name in its folder, its location and its content."""


class LocalStore:
    """Implements `Store` for `file:` locations and plain absolute paths."""

    def __init__(self) -> None:
        self._folders_lock = threading.Lock()

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        """Writes an unnamed file, syncs it, links it to its name, syncs the folder.

        So a crash or a full disk leaves nothing behind, and nobody who lists the folder meets a
        half-written file. It costs what an exclusive create costs when files are written one by
        one and up to a fifth more when several are written at once; a temporary name costs more
        than either (benchmarks/store_put_new.py). Where a file system has no unnamed files, the
        name is created exclusively and removed on failure: still safe, since nobody knows an
        object's name before the catalog's pointer names it.
        """
        folder, name = _folder_and_name(location)
        with _translated("write", location), self._opened_folder(folder) as folder_fd:
            _put(folder_fd, name, location, chunks)
            _sync_folder_or_remove(folder_fd, [name])

    def put_many(
        self, files: Mapping[str, Sequence[bytes]], executor: Executor
    ) -> dict[str, Exception]:
        """The files of a commit lie in one folder, which is then synced once and not for each."""
        failed: dict[str, Exception] = {}
        by_folder: dict[str, list[_Named]] = {}
        for location, chunks in files.items():
            try:
                folder, name = _folder_and_name(location)
            except (StoreError, FrazilError) as error:
                failed[location] = error
            else:
                by_folder.setdefault(folder, []).append((name, location, chunks))
        for folder, named in by_folder.items():
            failed.update(self._put_into(folder, named, executor))
        return failed

    def put_unsynced(self, location: str, chunks: Sequence[bytes]) -> None:
        folder, name = _folder_and_name(location)
        with _translated("write", location), self._opened_folder(folder) as folder_fd:
            _put(folder_fd, name, location, chunks)

    def sync(self, locations: Iterable[str]) -> None:
        """The files are synced already, their names in the folders not."""
        folders = {_local_path(location).rpartition("/")[0]: location for location in locations}
        for folder, location in folders.items():
            with _translated("write", location):
                _sync_path(folder or "/")

    def _put_into(
        self, folder: str, named: Sequence[_Named], executor: Executor
    ) -> dict[str, Exception]:
        locations = [location for _, location, _ in named]
        try:
            with _translated("write", locations[0]):
                folder_fd = self._open_folder(folder)
        except StoreError as error:
            return dict.fromkeys(locations, error)
        try:
            # A thread takes several: handing over costs as much as writing a small file.
            parts = [named[start::_PUT_THREADS] for start in range(min(_PUT_THREADS, len(named)))]
            futures = [executor.submit(_put_all, folder_fd, part) for part in parts[1:]]
            failed = _put_all(folder_fd, parts[0])
            for future in futures:
                failed.update(future.result())
            written = [name for name, location, _ in named if location not in failed]
            try:
                with _translated("write", locations[0]):
                    _sync_folder_or_remove(folder_fd, written)
            except StoreError as error:
                return dict.fromkeys(locations, error)
            return failed
        finally:
            os.close(folder_fd)

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        with _opened(location) as fd:
            return _read(fd, location, max_bytes)

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        with _opened(location) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ObjectMissing(location)
            return check_range(location, offset, length, _read_at(fd, offset, length))

    def size(self, location: str) -> int | None:
        with _translated("look at", location):
            try:
                found = os.stat(_local_path(location))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Follows no symlink below the prefix: it could lead out of the table."""
        root = _local_path(prefix)
        text = prefix.rstrip("/")
        folders = [""]
        while folders:
            below = folders.pop()
            with _translated("list", f"{text}{below}"):
                entries = _scan(f"{root.rstrip('/')}{below}/")
            for name, info in entries:
                if stat.S_ISDIR(info.st_mode):
                    folders.append(f"{below}/{name}")
                elif stat.S_ISREG(info.st_mode):
                    yield ObjectInfo(
                        f"{text}{below}/{name}", info.st_size, info.st_mtime_ns // 1_000_000
                    )

    def delete(self, locations: Iterable[str]) -> None:
        """Deletes all it can, then reports the first failure. Folders stay: clients such as
        DuckDB write into them without making them."""
        failed: list[StoreError] = []
        for location in locations:
            try:
                os.unlink(_local_path(location))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                failed.append(_failed("delete", location, error))
        if failed:
            raise failed[0]

    def make_folders(self, locations: Iterable[str]) -> None:
        for location in locations:
            with _translated("make the folder", location):
                self._make_folder(_local_path(location))

    def close(self) -> None:
        """Nothing is kept open between calls."""

    @contextmanager
    def _opened_folder(self, folder: str) -> Iterator[int]:
        folder_fd = self._open_folder(folder)
        try:
            yield folder_fd
        finally:
            os.close(folder_fd)

    def _open_folder(self, folder: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            fd = os.open(folder, flags)
        except FileNotFoundError:
            self._make_folder(folder)
            return os.open(folder, flags)
        if self._folders_lock.locked():
            # Another thread may have made this very folder a moment ago and not yet synced the
            # one it stands in; an object is not durable before its folder is.
            with self._folders_lock:
                pass
        return fd

    def _make_folder(self, folder: str) -> None:
        """Makes a folder and those above it; each is durable before the one below is made."""
        with self._folders_lock:
            missing: list[str] = []
            while folder != "/" and not os.path.isdir(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
            for folder in reversed(missing):
                # Another process may have been faster; a file of that name stays an error.
                with suppress(FileExistsError):
                    os.mkdir(folder)
                _sync_path(os.path.dirname(folder))
            if missing:
                os.stat(f"{missing[0]}/")


def _folder_and_name(location: str) -> tuple[str, str]:
    folder, _, name = _local_path(location).rpartition("/")
    if not name:
        raise StoreError(f"cannot write {location}: it is a folder")
    return folder or "/", name


def _put(folder_fd: int, name: str, location: str, chunks: Sequence[bytes]) -> None:
    """A file whose content is synced; its name is not."""
    if not _put_unnamed(folder_fd, name, location, chunks):
        _put_exclusive(folder_fd, name, location, chunks)


def _put_unnamed(folder_fd: int, name: str, location: str, chunks: Sequence[bytes]) -> bool:
    """False, with nothing done, where the file system cannot do it so."""
    if _O_TMPFILE is None:
        return False
    try:
        fd = os.open(".", os.O_WRONLY | os.O_CLOEXEC | _O_TMPFILE, 0o666, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in _NO_UNNAMED_FILES:
            return False
        raise
    try:
        _write(fd, chunks)
        os.fsync(fd)
        # linkat(2) needs a privilege to link a descriptor itself; its name in /proc needs none.
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder_fd, follow_symlinks=True)
    except FileExistsError:
        raise ObjectExists(location) from None
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    finally:
        os.close(fd)
    return True


def _put_exclusive(folder_fd: int, name: str, location: str, chunks: Sequence[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, 0o666, dir_fd=folder_fd)
    except FileExistsError:
        raise ObjectExists(location) from None
    try:
        try:
            _write(fd, chunks)
            os.fsync(fd)
        finally:
            os.close(fd)
    except BaseException:
        _remove(folder_fd, name)
        raise


def _put_all(folder_fd: int, named: Sequence[_Named]) -> dict[str, Exception]:
    """Writes files whose folder is synced afterwards; what went wrong, by location."""
    failed: dict[str, Exception] = {}
    for name, location, chunks in named:
        try:
            with _translated("write", location):
                _put(folder_fd, name, location, chunks)
        except StoreError as error:
            failed[location] = error
    return failed


def _sync_folder_or_remove(folder_fd: int, names: Iterable[str]) -> None:
    """A name that may not survive a crash must not be found later: its writer was told no."""
    try:
        os.fsync(folder_fd)
    except OSError:
        for name in names:
            _remove(folder_fd, name)
        raise


def _remove(folder_fd: int, name: str) -> None:
    # The failure that led here is the one to report; what is left is an orphan for GC.
    with suppress(OSError):
        os.unlink(name, dir_fd=folder_fd)


def _write(fd: int, chunks: Sequence[bytes]) -> None:
    """All chunks, a slice at a time.

    The kernel is asked to begin writing each slice out while the next one is copied: the sync at
    the end then waits for the last of them and not for all: on 9 MB a quarter of the time less.
    """
    waiting = deque(memoryview(chunk) for chunk in chunks if chunk)
    offset = 0
    while waiting:
        written = os.writev(fd, _slice(waiting))
        if written == 0:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        if written >= _SLICE_BYTES and hasattr(os, "posix_fadvise"):
            # Only a hint; what is still dirty stays in memory until the sync.
            os.posix_fadvise(fd, offset, written, os.POSIX_FADV_DONTNEED)
        offset += written
        while waiting and written >= len(waiting[0]):
            written -= len(waiting.popleft())
        if written:
            waiting[0] = waiting[0][written:]


def _slice(waiting: deque[memoryview]) -> list[memoryview]:
    """As many buffers from the front as make a slice, or as one system call takes."""
    taken: list[memoryview] = []
    size = 0
    for buffer in islice(waiting, _IOV_MAX):
        taken.append(buffer)
        size += len(buffer)
        if size >= _SLICE_BYTES:
            break
    return taken


def _read(fd: int, location: str, max_bytes: int | None) -> bytes:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise ObjectMissing(location)
    if max_bytes is not None and found.st_size > max_bytes:
        raise ObjectTooLarge(location, max_bytes)
    # Objects do not change, so the size is the end. One byte more is asked for, so that a file
    # which somebody lets grow meanwhile is noticed and not read without bound.
    wanted = found.st_size + 1
    parts: list[bytes] = []
    while wanted > 0:
        part = os.read(fd, min(wanted, 1 << 30))
        if not part:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(part)
        wanted -= len(part)
    raise StoreError(f"cannot read {location}: it grew while it was read")


def _read_at(fd: int, offset: int, length: int) -> bytes:
    """The bytes of a part, fewer where the file ends."""
    parts: list[bytes] = []
    while length > 0:
        part = os.pread(fd, min(length, 1 << 30), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _scan(folder: str) -> list[tuple[str, os.stat_result]]:
    """The names in a folder; none where the folder is not there (any more)."""
    found: list[tuple[str, os.stat_result]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not _is_text(entry.name):
                    continue
                # A file deleted since the folder was read is simply not listed.
                with suppress(FileNotFoundError):
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return found


def _is_text(name: str) -> bool:
    """No Iceberg file can name a file whose name is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sync_path(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _local_path(location: str) -> str:
    address = parse_location(location)
    if address.scheme != "file":
        raise BadRequest(f"location {location!r} is not a local file: use file:///path")
    return address.path


@contextmanager
def _opened(location: str) -> Iterator[int]:
    """A descriptor to read from."""
    path = _local_path(location)
    with _translated("read", location):
        try:
            # Not blocking: a FIFO under that name must not hang the server.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissing(location) from None
        try:
            yield fd
        finally:
            os.close(fd)


@contextmanager
def _translated(action: str, location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _failed(action, location, error) from error


def _failed(action: str, location: str, error: OSError) -> StoreError:
    return StoreError(f"cannot {action} {location}: {error.strerror or error}")
