"""Find the Java that Spark and the compatibility kit run on: `java.py` prints its home.

The rules are those of `frazil.spark.runtime.local_java`, which users have too. This script prints
the rejected candidates to stderr and keeps the shim of the wheel's Java below the checkout's
`.cache`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from frazil.spark.runtime import local_java as rules
from frazil.spark.runtime.local_java import (
    NEWEST,
    OLDEST,
    STORE_PASSWORD,
    Java,
    JavaError,
    pem_bundle,
    wheel_java_home,
)

ROOT = Path(__file__).resolve().parent.parent
SHIM_HOME = ROOT / ".cache" / "java"

__all__ = [
    "ROOT",
    "SHIM_HOME",
    "STORE_PASSWORD",
    "Java",
    "JavaError",
    "find_java",
    "find_system_java",
    "pem_bundle",
    "wheel_java_home",
]


def find_java() -> Java:
    return rules.find_java(SHIM_HOME, _tell)


def find_system_java(oldest: int = OLDEST, newest: int = NEWEST) -> Java | None:
    return rules.find_system_java(oldest, newest, _tell)


def _tell(line: str) -> None:
    print(f"java: {line}", file=sys.stderr)


def main() -> int:
    try:
        java = find_java()
    except JavaError as error:
        print(f"java: {error}", file=sys.stderr)
        return 1
    print(java.home)
    return subprocess.run([str(java.executable), "-version"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
