"""Refuse texts that no file of the repository may contain: `lint_words.py`.

These are addresses of package registries, which belong in the configuration of a machine, marks of
unfinished work, paths of one machine, and commands that install Frazil by its name from a registry.
The patterns are written so that they do not match this file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "the address of a package registry": (
        r"\b(files\.)?py(pi|thonhosted)\.[o]rg\b",
        r"\b(repo1?|central|search)\.maven\.(apache\.)?[o]rg\b",
        r"\bcentral\.sonatype\.(com|[o]rg)\b",
        r"\bregistry\.(npmjs|yarnpkg)\.[a-z]+\b",
        r"\b(index\.|static\.)?crates\.[i]o\b",
        r"\bproxy\.golang\.[o]rg\b",
        r"--(extra-)?index-ur[l]\b(?!\")",
    ),
    "a mark of unfinished work": (r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b",),
    "a path of one machine": (r"(?<![\w.])/(wor[k]|home|root|Users)/[a-z]",),
    "the installation of a package that is not published": (
        r"\binstall( -\S+)* ['\"]?frazi[l]\b(?! @)",
    ),
    "the number of an issue": (r"\b[Ii]ssue #?\d+\b",),
}
# Files with texts of others.
NOT_OURS = ("LICENSE",)


def tracked_files() -> Iterator[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and name not in NOT_OURS:
            yield path


def findings(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return  # a binary file
    for number, line in enumerate(lines, start=1):
        for what, patterns in FORBIDDEN.items():
            if any(re.search(pattern, line) for pattern in patterns):
                yield f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()[:120]}"


def main() -> int:
    found = [finding for path in tracked_files() for finding in findings(path)]
    print("\n".join(found) if found else "words: nothing forbidden")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
