"""A small disk that only its own processes see: a tmpfs in a mount namespace of its own.

It needs no root where user namespaces are allowed, and it leaves no mount behind.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import HANG_S

_HOLD = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec cat'


@dataclass(frozen=True)
class SmallDisk:
    mount_point: Path
    """The path of the disk for processes that run with `command`."""
    holder: int

    @property
    def folder(self) -> Path:
        """The same folder for this process, which is in another namespace."""
        return Path(f"/proc/{self.holder}/root{self.mount_point}")

    def command(self, *arguments: str, directory: Path) -> tuple[str, ...]:
        """Return the command that runs the arguments on this disk."""
        target = ("--target", str(self.holder), "--user", "--mount", "--preserve-credentials")
        return ("nsenter", *target, f"--wd={directory}", "--", *arguments)

    def fill(self, *, leaving_bytes: int = 0) -> None:
        """Write until the disk is full, or has only this room."""
        path = self.folder / "filler"
        with open(path, "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                filler.truncate(max(0, path.stat().st_size - leaving_bytes))

    def free(self) -> None:
        (self.folder / "filler").unlink()


@contextmanager
def small_disk(mount_point: Path, size: str = "8m") -> Iterator[SmallDisk | None]:
    """Yield a small disk; None if this system does not allow one."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        yield None
        return
    mount_point.mkdir(parents=True)
    holder = subprocess.Popen(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", _HOLD, "sh", size, str(mount_point)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        mounted = holder.stdout.readline() == b"mounted\n"
        yield SmallDisk(mount_point, holder.pid) if mounted else None
    finally:
        # `cat` ends with its input, and the mount ends with the last process of the namespace.
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(HANG_S)
