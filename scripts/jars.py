"""Download the jars of `requirements/jars.lock` to `.cache/jars`: `jars.py fetch GROUP...`.

The Ivy inside PySpark downloads jars that are missing, so Maven is not needed, and each is checked
against its SHA-256. Ivy uses its default repository, or the settings file that FRAZIL_IVY_SETTINGS
names (for a machine behind a mirror). `jars.py lock` writes jars.lock again from jars.in.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script has no parent package

from scripts.java import Java, JavaError, find_java  # noqa: E402

JARS_DIR = ROOT / ".cache" / "jars"
WANTED = ROOT / "requirements" / "jars.in"
LOCK = ROOT / "requirements" / "jars.lock"
MAVEN_ATTRIBUTES = "http://ant.apache.org/ivy/maven"
FILE_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
ATTEMPTS = 3


class JarError(Exception):
    """A jar cannot be downloaded, or its content differs from the lock."""


@dataclass(frozen=True)
class Jar:
    group: str
    organisation: str
    name: str
    version: str
    classifier: str
    extension: str
    sha256: str = ""

    @property
    def coordinates(self) -> str:
        text = f"{self.organisation}:{self.name}:{self.version}"
        text += f":{self.classifier}" if self.classifier else ""
        return text if self.extension == "jar" else f"{text}@{self.extension}"

    @property
    def path(self) -> Path:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return JARS_DIR / f"{self.name}-{self.version}{classifier}.{self.extension}"


def parse_line(line: str) -> Jar:
    group, coordinates, *digest = line.split()
    coordinates, _, extension = coordinates.partition("@")
    organisation, name, version, *classifier = coordinates.split(":")
    return Jar(
        group,
        organisation,
        name,
        version,
        classifier[0] if classifier else "",
        extension or "jar",
        digest[0] if digest else "",
    )


def read_jars(path: Path) -> list[Jar]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [parse_line(line) for line in lines if line.strip() and not line.startswith("#")]


def locked_jars(groups: Iterable[str]) -> list[Jar]:
    jars = read_jars(LOCK)
    known = {jar.group for jar in jars}
    for group in groups:
        if group not in known:
            raise JarError(f"no group {group!r} in {LOCK.name}: there are {', '.join(known)}")
    return [jar for jar in jars if jar.group in groups]


def sha256(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def is_there(jar: Jar) -> bool:
    """Return whether the jar is on disk; delete a file whose content differs from the lock."""
    if not jar.path.exists():
        return False
    if jar.sha256 and sha256(jar.path) != jar.sha256:
        jar.path.unlink()
        return False
    return True


def pyspark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError("pyspark is not installed, and its Ivy downloads the jars. Type: make test")
    return Path(spec.origin).parent / "jars"


def ivy_module(jars: Iterable[Jar]) -> bytes:
    """Return an ivy.xml that names each artifact, without their dependencies."""
    ElementTree.register_namespace("m", MAVEN_ATTRIBUTES)
    module = ElementTree.Element("ivy-module", {"version": "2.0"})
    ElementTree.SubElement(module, "info", {"organisation": "frazil", "module": "jars"})
    dependencies = ElementTree.SubElement(module, "dependencies")
    elements: dict[tuple[str, str, str], ElementTree.Element] = {}
    for jar in jars:
        key = (jar.organisation, jar.name, jar.version)
        if key not in elements:
            attributes = {"org": jar.organisation, "name": jar.name, "rev": jar.version}
            attributes |= {"transitive": "false", "force": "true"}
            elements[key] = ElementTree.SubElement(dependencies, "dependency", attributes)
        artifact = {"name": jar.name, "type": jar.extension, "ext": jar.extension}
        if jar.classifier:
            artifact[f"{{{MAVEN_ATTRIBUTES}}}classifier"] = jar.classifier
        ElementTree.SubElement(elements[key], "artifact", artifact)
    return ElementTree.tostring(module)


def run_ivy(java: Java, jars: Sequence[Jar], folder: Path) -> str:
    """Download to the folder; return the output of Ivy, which explains a missing jar."""
    (ivy_jar,) = pyspark_jars().glob("ivy-*.jar")
    module = folder / "ivy.xml"
    module.write_bytes(ivy_module(jars))
    command = [str(java.executable), "-jar", str(ivy_jar), "-warn", "-ivy", str(module)]
    command += ["-cache", str(folder / "cache"), "-retrieve", str(folder / FILE_PATTERN)]
    settings = os.environ.get("FRAZIL_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return finished.stdout


def download(java: Java, jars: Sequence[Jar]) -> None:
    JARS_DIR.mkdir(parents=True, exist_ok=True)
    missing = list(jars)
    output = ""
    for _ in range(ATTEMPTS):
        # Next to the jars, so that a finished file is moved by one rename.
        with tempfile.TemporaryDirectory(dir=JARS_DIR.parent, prefix="ivy-") as name:
            folder = Path(name)
            output = run_ivy(java, missing, folder)
            for jar in missing:
                arrived = folder / jar.path.name
                if arrived.exists():
                    keep(jar, arrived)
        missing = [jar for jar in missing if not jar.path.exists()]
        if not missing:
            return
    names = ", ".join(jar.coordinates for jar in missing)
    raise JarError(f"could not download {names}. The output of Ivy:\n{output}")


def keep(jar: Jar, arrived: Path) -> None:
    digest = sha256(arrived)
    if jar.sha256 and digest != jar.sha256:
        raise JarError(f"{jar.coordinates} has SHA-256 {digest}, but {LOCK.name} says {jar.sha256}")
    shutil.move(arrived, jar.path)


def fetch(groups: Sequence[str]) -> list[Path]:
    """Return the paths of the groups' jars, checked; download the missing ones."""
    jars = locked_jars(groups)
    missing = [jar for jar in jars if not is_there(jar)]
    if missing:
        started = time.monotonic()
        download(find_java(), missing)
        seconds = time.monotonic() - started
        what = f"{len(missing)} jars downloaded ({', '.join(groups)})"
        print(f"{seconds:6.2f} s  set-up: {what}", flush=True)
    return [jar.path for jar in jars]


def write_lock() -> None:
    """Write jars.lock; keep the known hashes, and download new jars for theirs."""
    locked = {jar.coordinates: jar.sha256 for jar in read_jars(LOCK)}
    wanted = read_jars(WANTED)
    unknown = [jar for jar in wanted if jar.coordinates not in locked and not jar.path.exists()]
    if unknown:
        download(find_java(), unknown)
    lines = ["# Written by `make lock` from jars.in: group, coordinates, SHA-256."]
    for jar in wanted:
        digest = locked.get(jar.coordinates) or sha256(jar.path)
        lines.append(f"{jar.group}  {jar.coordinates}  {digest}")
    LOCK.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fetch_parser = commands.add_parser("fetch", help="download what is missing")
    fetch_parser.add_argument("groups", nargs="+")
    commands.add_parser("lock", help="write jars.lock from jars.in")
    arguments = parser.parse_args()
    try:
        if arguments.command == "fetch":
            fetch(arguments.groups)
        else:
            write_lock()
    except (JarError, JavaError) as error:
        print(f"jars: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
