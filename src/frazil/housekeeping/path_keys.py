"""Compares paths of files, to decide whether a table still needs a file.

Clients write the same path in several ways. Every rule here makes two spellings equal rather than
different, because a file with an equal path is kept:

- `s3`, `s3a` and `s3n` are one scheme; a path without a scheme is a local file.
- Repeated and trailing slashes, and the segments `.` and `..`, do not count.
- Percent escapes are decoded once, because some clients decode them and others do not.
- Symlinks of local folders and files are resolved.

A `PathSet` holds 64-bit hashes, 8 bytes for each path. Two paths with one hash count as equal,
which again only keeps a file. The hashes differ from process to process, so nobody can choose paths
that collide, and they are never stored.
"""

from __future__ import annotations

import os
import posixpath
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

EQUAL_SCHEMES: Final[Mapping[str, str]] = {"s3a": "s3", "s3n": "s3"}

_LOCAL: Final = "file"
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)\Z", re.DOTALL)
_UNUSUAL: Final = re.compile(r"//|%|/\.\.?(?:/|\Z)|/\Z")
_MAX_FOLDERS: Final = 100_000
_MIN_WAITING: Final = 1 << 16


class PathKey(NamedTuple):
    """What is compared of a path."""

    prefix: str
    """The scheme and the authority, such as `s3://bucket`."""
    path: str


class _Folder(NamedTuple):
    prefix: str
    path: str
    """Ends with a slash. Symlinks are resolved."""
    links: frozenset[str]
    """The names in a local folder that are symlinks."""


class PathKeys:
    """Computes the keys of paths. Symlinks are those at the first use of a folder, so an object
    serves one comparison."""

    def __init__(
        self,
        equal_schemes: Mapping[str, str] = EQUAL_SCHEMES,
        equal_authorities: Mapping[str, str] | None = None,
    ) -> None:
        self._schemes = equal_schemes
        self._authorities = equal_authorities or {}
        self._folders: dict[str, _Folder] = {}

    def of(self, path: str) -> PathKey:
        """Return the key of a file's path."""
        folder_text, _, name = path.rpartition("/")
        if not name or "%" in name or name in (".", ".."):
            return self._whole(path)
        folder = self._folders.get(folder_text) or self._folder(folder_text)
        if name in folder.links:
            return PathKey(folder.prefix, _real(folder.path + name))
        return PathKey(folder.prefix, folder.path + name)

    def of_folder(self, location: str) -> PathKey:
        """Return the key of a folder, without a slash at its end."""
        return self._whole(location)

    def _folder(self, text: str) -> _Folder:
        prefix, path = self._whole(text)
        links = _links(path) if prefix.startswith(_LOCAL) else frozenset[str]()
        if len(self._folders) >= _MAX_FOLDERS:
            self._folders.clear()
        folder = _Folder(prefix, path if path.endswith("/") else f"{path}/", links)
        self._folders[text] = folder
        return folder

    def _whole(self, text: str) -> PathKey:
        match = _URI.match(text)
        scheme, authority, path = match.groups() if match else (_LOCAL, "", text)
        scheme = scheme.lower()
        scheme = self._schemes.get(scheme, scheme)
        authority = authority or ""
        authority = self._authorities.get(authority, authority)
        if scheme == _LOCAL:
            authority = "" if authority.lower() == "localhost" else authority
            return PathKey(f"{scheme}://{authority}", _real(unquote(_real(path))))
        if _UNUSUAL.search(path):
            path = _plain(unquote(path))
        return PathKey(f"{scheme}://{authority}", path or "/")


def _plain(path: str) -> str:
    # `normpath` keeps two slashes at the beginning.
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _real(path: str) -> str:
    """Resolve symlinks. A path that no file can have stays as it is."""
    try:
        # `..` behind a symlink is the parent of its target, so only the system may resolve it.
        return os.path.realpath(path if "/.." in path else _plain(path))
    except ValueError:
        return path


def _links(folder: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_symlink())
    except (OSError, ValueError):
        return frozenset()


def is_below(key: PathKey, folder: PathKey) -> bool:
    """Return whether a path lies in a folder, at any depth."""
    if key.prefix != folder.prefix:
        return False
    return key.path.startswith(folder.path if folder.path.endswith("/") else f"{folder.path}/")


class PathSet:
    """A set of paths as sorted hashes, one array for each prefix."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, _Hashes] = {}

    def __len__(self) -> int:
        return sum(len(hashes.sorted()) for hashes in self._by_prefix.values())

    def add(self, keys: Iterable[PathKey]) -> None:
        for prefix, path in keys:
            hashes = self._by_prefix.get(prefix)
            if hashes is None:
                hashes = self._by_prefix[prefix] = _Hashes()
            hashes.add(hash(path))

    def holds(self, keys: Sequence[PathKey]) -> NDArray[np.bool_]:
        """Return for each key whether the set has it."""
        if len(self._by_prefix) <= 1:
            return self._holds_of_one_prefix(keys)
        return np.fromiter((self._has(key) for key in keys), np.bool_, len(keys))

    def other_prefix(self, key: PathKey) -> str | None:
        """Return another prefix under which the set has the path."""
        for prefix, hashes in self._by_prefix.items():
            if prefix != key.prefix and hashes.has(hash(key.path)):
                return prefix
        return None

    def _holds_of_one_prefix(self, keys: Sequence[PathKey]) -> NDArray[np.bool_]:
        for prefix, hashes in self._by_prefix.items():
            wanted = np.fromiter((hash(key.path) for key in keys), np.int64, len(keys))
            same = np.fromiter((key.prefix == prefix for key in keys), np.bool_, len(keys))
            return hashes.holds(wanted) & same
        return np.zeros(len(keys), np.bool_)

    def _has(self, key: PathKey) -> bool:
        hashes = self._by_prefix.get(key.prefix)
        return hashes is not None and hashes.has(hash(key.path))


class _Hashes:
    """A sorted array of hashes, and new ones that wait to be merged into it."""

    def __init__(self) -> None:
        self._sorted: NDArray[np.int64] = np.empty(0, np.int64)
        self._waiting = array("q")

    def add(self, value: int) -> None:
        self._waiting.append(value)
        if len(self._waiting) >= max(_MIN_WAITING, len(self._sorted) // 2):
            self.sorted()

    def sorted(self) -> NDArray[np.int64]:
        if self._waiting:
            self._sorted = np.union1d(self._sorted, np.frombuffer(self._waiting, np.int64))
            self._waiting = array("q")
        return self._sorted

    def holds(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        known = self.sorted()
        if not len(known):
            return np.zeros(len(values), np.bool_)
        found = np.searchsorted(known, values)
        found[found == len(known)] = 0
        return np.equal(known[found], values)

    def has(self, value: int) -> bool:
        known = self.sorted()
        position = int(np.searchsorted(known, value))
        return position < len(known) and int(known[position]) == value
