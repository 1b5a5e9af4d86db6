"""Installs Frazil's wheel in an environment with only its declared dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from scripts.bootstrap import find_uv
from scripts.java import ROOT
from tests.support.patience import HANG_S


def build_wheel(directory: Path) -> Path:
    """Build the wheel with the locked backend of this environment, without the network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    command += ["--directory", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=HANG_S)
    (wheel,) = directory.glob("frazil-*.whl")
    return wheel


def make_environment(directory: Path, wheel: Path, extras: Iterable[str]) -> Path:
    """Create an environment with the wheel installed; return its Python.

    Link the wheel's direct and indirect dependencies from the environment of this run, which has
    the locked versions. A dependency that the wheel's metadata does not declare is missing here
    too.
    """
    venv.create(directory, symlinks=True, with_pip=False)
    python = directory / "bin" / "python"
    _install(python, wheel)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(directory)}))
    (metadata,) = site.glob("frazil-*.dist-info")
    for found in closure(PathDistribution(metadata), extras).values():
        _link(found, site)
    return python


def _install(python: Path, wheel: Path) -> None:
    options = ["--quiet", "--no-deps", "--no-index"]
    uv = find_uv()
    if uv is not None:
        command = [uv, "pip", "install", "--python", str(python), "--offline", *options]
    else:
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", *options]
    subprocess.run([*command, str(wheel)], check=True, timeout=HANG_S)


def closure(root: Distribution, extras: Iterable[str]) -> dict[str, Distribution]:
    """Return the distributions that the root needs with these extras, by normalized name."""
    found: dict[str, Distribution] = {}
    pending = [(root, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        current, wanted = pending.pop()
        for text in current.requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": e}) for e in (wanted or {""})):
                continue
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            key = (name, frozenset(requirement.extras))
            if key not in seen:
                seen.add(key)
                is_root = name == root.metadata["Name"]
                found |= {} if is_root else {name: distribution(name)}
                pending.append((root if is_root else found[name], key[1]))
    return found


def _link(found: Distribution, site: Path) -> None:
    for top in {path.parts[0] for path in found.files or []} - {"..", "__pycache__"}:
        target = site / top
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(top))))
