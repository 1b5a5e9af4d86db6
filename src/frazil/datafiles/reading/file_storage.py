"""Reads, writes and deletes files of tables on local disks and object stores.

A `Storage` can be sent to other processes: it only contains text, and filesystems are made where
they are needed.
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

_DELETE_THREADS: Final = 16
_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
"""Filesystems of pyarrow that have no folders of their own, only prefixes of paths."""


@dataclass(frozen=True)
class Storage:
    """Access to the files of a table."""

    config: tuple[tuple[str, str], ...] = ()
    """How the files are reached, by the properties of Iceberg's catalogs: `s3.endpoint` etc."""
    sealed_by: str | None = None
    """A local folder. Once it is deleted, no file can be created. So tasks that are still running
    after their write was aborted do not recreate what was removed."""

    @cached_property
    def _config(self) -> Mapping[str, str]:
        return dict(self.config)

    def __getstate__(self) -> dict[str, Any]:
        return {"config": self.config, "sealed_by": self.sealed_by}

    def filesystem(self, path: str) -> tuple[Any, str]:
        """Return a filesystem of pyarrow, and the path in the form that it expects."""
        return filesystem_of(path, self._config)

    # --- files ---------------------------------------------------------------------------------

    def open_input(self, path: str) -> pa.NativeFile:
        filesystem, inner = self.filesystem(path)
        return filesystem.open_input_file(inner)

    def open_output(self, path: str) -> pa.NativeFile:
        """Create a file, and the folders that it needs.

        In object stores the file exists only once it is closed, elsewhere from now on.
        """
        filesystem, inner = self.filesystem(path)
        if filesystem.type_name not in _OBJECT_STORES:
            if self.sealed_by is not None and not self.has_folder(self.sealed_by):
                raise FileNotFoundError(f"{self.sealed_by} is gone: its write was aborted")
            filesystem.create_dir(inner.rpartition("/")[0], recursive=True)
        return filesystem.open_output_stream(inner)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with self.open_input(path) as source:
            wanted = source.size() - offset if length is None else length
            return bytes(source.read_at(wanted, offset))

    def write(self, path: str, data: bytes) -> None:
        with self.open_output(path) as sink:
            sink.write(data)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing ones count as deleted."""
        wanted = list(paths)
        if len(wanted) <= 1:
            for path in wanted:
                self._delete(path)
            return
        with ThreadPoolExecutor(min(_DELETE_THREADS, len(wanted))) as pool:
            for _ in pool.map(self._delete, wanted):
                pass

    def _delete(self, path: str) -> None:
        filesystem, inner = self.filesystem(path)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(inner)

    # --- folders -------------------------------------------------------------------------------

    def list(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, in the style of the folder's own path."""
        filesystem, inner = self.filesystem(folder)
        inner = inner.rstrip("/")
        selector = pafs.FileSelector(inner, allow_not_found=True, recursive=True)
        outer = folder.rstrip("/")
        return sorted(
            outer + info.path[len(inner) :]
            for info in filesystem.get_file_info(selector)
            if info.type == pafs.FileType.File
        )

    def has_folder(self, folder: str) -> bool:
        filesystem, inner = self.filesystem(folder)
        return bool(filesystem.get_file_info(inner.rstrip("/")).type == pafs.FileType.Directory)

    def make_folder(self, folder: str) -> None:
        """Make a folder and its parents; object stores need none."""
        filesystem, inner = self.filesystem(folder)
        if filesystem.type_name not in _OBJECT_STORES:
            filesystem.create_dir(inner.rstrip("/"), recursive=True)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with everything in it; a missing one counts as deleted."""
        filesystem, inner = self.filesystem(folder)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(inner.rstrip("/"))

    def delete_empty_folders(self, folder: str) -> None:
        """Delete the folder and the folders below it, except those that contain files."""
        filesystem, inner = self.filesystem(folder)
        if filesystem.type_name in _OBJECT_STORES:
            return
        inner = inner.rstrip("/")
        infos = filesystem.get_file_info(
            pafs.FileSelector(inner, allow_not_found=True, recursive=True)
        )
        files = [info.path for info in infos if info.type == pafs.FileType.File]
        needed = {parent for path in files for parent in _parents(path)}
        folders = [info.path for info in infos if info.type == pafs.FileType.Directory]
        for path in [*folders, inner]:
            if path not in needed:
                self.delete_folder(path)


def is_local(path: str) -> bool:
    """Whether a path is in the machine's file system, or in one that is mounted there."""
    return scheme_of(path) in (None, "file")


def storage_of(*configs: Mapping[str, str]) -> Storage:
    """Make a storage of several configs, of which later ones override earlier ones."""
    merged = {name: value for config in configs for name, value in config.items()}
    return Storage(tuple(sorted(merged.items())))


def _parents(path: str) -> Iterable[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path
