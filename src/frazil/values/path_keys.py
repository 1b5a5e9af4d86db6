"""Compares paths of files, which clients write in several ways.

- `s3`, `s3a` and `s3n` are one scheme. A path without a scheme is a local file.
- Repeated and trailing slashes, and the segments `.` and `..`, do not count.
- Symlinks of local folders and files are resolved.
- Percent escapes are literal for the store and most clients, but some decode them. With `decode`
  they are decoded once, so that both readings of a path are equal. Whoever decides whether a file
  may be deleted compares like this, because a file with an equal path is kept.

Any text has a key, even one that no store accepts.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

EQUAL_SCHEMES: Final[Mapping[str, str]] = {"s3a": "s3", "s3n": "s3"}

_LOCAL: Final = "file"
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)\Z", re.DOTALL)
_UNUSUAL: Final = re.compile(r"//|%|/\.\.?(?:/|\Z)|/\Z")
_MAX_FOLDERS: Final = 100_000
_LISTED_AFTER: Final = 100
_NO_NAMES: Final = frozenset({"", ".", ".."})


class PathKey(NamedTuple):
    """What is compared of a path."""

    prefix: str
    """The scheme and the authority, such as `s3://bucket`."""
    path: str

    def __str__(self) -> str:
        return f"{self.prefix}{self.path}"


class _Folder:
    """A folder, and which files in it are symlinks. For few files each is looked at, for many the
    folder is listed."""

    def __init__(self, prefix: str, path: str) -> None:
        self.prefix = prefix
        self.path = path if path.endswith("/") else f"{path}/"
        self.special = None if prefix.startswith(_LOCAL) else _NO_NAMES
        """The names that are symlinks, or no names. None if the folder is not listed yet."""
        self._asked = 0

    def is_link(self, name: str) -> bool:
        if self.special is None:
            self._asked += 1
            if self._asked <= _LISTED_AFTER:
                return os.path.islink(self.path + name)
            self.special = _NO_NAMES | _links(self.path)
        return name in self.special


class PathKeys:
    """Computes the keys of paths. It remembers the symlinks of each folder, so an object serves one
    comparison."""

    def __init__(
        self,
        *,
        decode: bool,
        equal_schemes: Mapping[str, str] = EQUAL_SCHEMES,
        equal_authorities: Mapping[str, str] | None = None,
    ) -> None:
        self._decode = decode
        self._schemes = equal_schemes
        self._authorities = equal_authorities or {}
        self._folders: dict[str, _Folder] = {}

    def of(self, path: str) -> PathKey:
        """Return the key of a file's path."""
        folder_text, _, name = path.rpartition("/")
        if name in _NO_NAMES or ("%" in name and self._decode):
            return self._whole(path)
        folder = self._folders.get(folder_text) or self._folder(folder_text)
        if folder.is_link(name):
            return PathKey(folder.prefix, _real(folder.path + name))
        return PathKey(folder.prefix, folder.path + name)

    def hashes(self, paths: Iterable[str]) -> list[int]:
        """Return a hash of the key of each path. It is valid only in this process."""
        folders, decode, found = self._folders, self._decode, []
        for path in paths:
            folder_text, _, name = path.rpartition("/")
            folder = folders.get(folder_text)
            special = None if folder is None else folder.special
            if folder is None or special is None or name in special or (decode and "%" in name):
                found.append(hash(self.of(path)))
            else:
                # Most paths come here. Their hash is that of a PathKey, which is a tuple.
                found.append(hash((folder.prefix, folder.path + name)))
        return found

    def of_folder(self, location: str) -> PathKey:
        """Return the key of a folder, without a slash at its end."""
        return self._whole(location)

    def _folder(self, text: str) -> _Folder:
        if len(self._folders) >= _MAX_FOLDERS:
            self._folders.clear()
        folder = self._folders[text] = _Folder(*self._whole(text))
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
            real = _real(path)
            return PathKey(
                f"{scheme}://{authority}", _real(unquote(real)) if self._decode else real
            )
        if _UNUSUAL.search(path):
            path = _plain(unquote(path) if self._decode else path)
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
