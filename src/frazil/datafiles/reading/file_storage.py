"""The place where a table's files lie, as driver and executors reach it: local files and S3.

It travels to executors: what it holds is text, and filesystems are made where they are needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs as pafs

from frazil.datafiles.footers.parquet_files import filesystem_of, scheme_of

_DELETERS: Final = 16
_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
"""Filesystems of pyarrow whose folders are made by the files in them."""


@dataclass(frozen=True)
class Storage:
    config: tuple[tuple[str, str], ...] = ()
    """How the files are reached, in the words of Iceberg's catalogs: `s3.endpoint` and so on."""
    sealed_by: str | None = None
    """A local folder: when it is gone, no file can be made any more. So tasks that run on a while
    after their write was given up do not bring back what was removed."""

    @cached_property
    def _config(self) -> Mapping[str, str]:
        return dict(self.config)

    def __getstate__(self) -> dict[str, Any]:
        return {"config": self.config, "sealed_by": self.sealed_by}

    def filesystem(self, path: str) -> tuple[Any, str]:
        """A filesystem of pyarrow, and the path as it takes it."""
        return filesystem_of(path, self._config)

    # --- files ---------------------------------------------------------------------------------

    def open_input(self, path: str) -> pa.NativeFile:
        filesystem, inner = self.filesystem(path)
        return filesystem.open_input_file(inner)

    def open_output(self, path: str) -> pa.NativeFile:
        """A new file, with the folders that it needs.

        In object stores it exists when it is closed and not before; elsewhere from now on.
        """
        filesystem, inner = self.filesystem(path)
        if filesystem.type_name not in _OBJECT_STORES:
            if self.sealed_by is not None and not self.has_folder(self.sealed_by):
                raise FileNotFoundError(f"{self.sealed_by} is gone: its write was given up")
            filesystem.create_dir(inner.rpartition("/")[0], recursive=True)
        return filesystem.open_output_stream(inner)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with self.open_input(path) as source:
            wanted = source.size() - offset if length is None else length
            return bytes(source.read_at(wanted, offset))

    def write(self, path: str, data: bytes) -> None:
        with self.open_output(path) as sink:
            sink.write(data)

    def size(self, path: str) -> int:
        filesystem, inner = self.filesystem(path)
        found = filesystem.get_file_info(inner)
        if found.type != pafs.FileType.File:
            raise FileNotFoundError(path)
        return int(found.size)

    def delete(self, paths: Iterable[str]) -> None:
        """Files that are not there any more count as deleted."""
        wanted = list(paths)
        if len(wanted) <= 1:
            for path in wanted:
                self._delete(path)
            return
        with ThreadPoolExecutor(min(_DELETERS, len(wanted))) as pool:
            for _ in pool.map(self._delete, wanted):
                pass

    def _delete(self, path: str) -> None:
        filesystem, inner = self.filesystem(path)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(inner)

    # --- folders -------------------------------------------------------------------------------

    def list(self, folder: str) -> list[str]:
        """The paths of all files below a folder, in the style of the folder's own path."""
        filesystem, inner = self.filesystem(folder)
        inner = inner.rstrip("/")
        selector = pafs.FileSelector(inner, allow_not_found=True, recursive=True)
        outer = folder.rstrip("/")
        return sorted(
            outer + found.path[len(inner) :]
            for found in filesystem.get_file_info(selector)
            if found.type == pafs.FileType.File
        )

    def has_folder(self, folder: str) -> bool:
        filesystem, inner = self.filesystem(folder)
        return bool(filesystem.get_file_info(inner.rstrip("/")).type == pafs.FileType.Directory)

    def make_folder(self, folder: str) -> None:
        """With those above it; object stores have none to make."""
        filesystem, inner = self.filesystem(folder)
        if filesystem.type_name not in _OBJECT_STORES:
            filesystem.create_dir(inner.rstrip("/"), recursive=True)

    def delete_folder(self, folder: str) -> None:
        """A folder with everything in it; one that is not there counts as deleted."""
        filesystem, inner = self.filesystem(folder)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(inner.rstrip("/"))

    def delete_empty_folders(self, folder: str) -> None:
        """Those below a folder that hold no file, and the folder itself if it holds none."""
        filesystem, inner = self.filesystem(folder)
        if filesystem.type_name in _OBJECT_STORES:
            return
        inner = inner.rstrip("/")
        found = filesystem.get_file_info(
            pafs.FileSelector(inner, allow_not_found=True, recursive=True)
        )
        files = [one.path for one in found if one.type == pafs.FileType.File]
        needed = {parent for path in files for parent in _parents(path)}
        empty = [one.path for one in found if one.type == pafs.FileType.Directory]
        for path in [*empty, inner]:
            if path not in needed:
                self.delete_folder(path)


def is_local(path: str) -> bool:
    """Whether a path lies in the file system of the machine, or one that is mounted there."""
    return scheme_of(path) in (None, "file")


def storage_of(*configs: Mapping[str, str]) -> Storage:
    """What stands in a later one wins."""
    merged = {name: value for config in configs for name, value in config.items()}
    return Storage(tuple(sorted(merged.items())))


def _parents(path: str) -> Iterable[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path
