"""Runs Apache Iceberg's REST Compatibility Kit against a server and reads its report.

The kit is a set of JUnit classes, which JUnit's console launcher runs in a separate JVM. Other
than the jars of the group `kit`, they use jars from PySpark's folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from scripts.jars import fetch, pyspark_jars
from scripts.java import ROOT, Java
from tests.support.patience import HANG_S

PACKAGE = "org.apache.iceberg.rest"
TABLES = f"{PACKAGE}.WholeKitCatalogTests"
VIEWS = f"{PACKAGE}.RESTCompatibilityKitViewCatalogTests"
# The kit has a property for names with dots, but these two features are methods to override. One
# test of nested namespaces leaves `parent` behind, and another one needs it to be absent.
WHOLE_KIT_SOURCE = f"""package {PACKAGE}

import org.apache.iceberg.catalog.Namespace
import org.junit.jupiter.api.AfterEach

class WholeKitCatalogTests extends RESTCompatibilityKitCatalogTests {{
  override protected def supportsNestedNamespaces: Boolean = true
  override protected def supportsNamesWithSlashes: Boolean = true

  @AfterEach
  def dropParent(): Unit = {{
    catalog().dropNamespace(Namespace.of("parent"))
  }}
}}
"""
PROPERTIES = {
    "rck.requires-namespace-create": "true",
    "rck.supports-serverside-retry": "true",
    "rck.supports-names-with-dot": "true",
}
FROM_PYSPARK = (
    "hadoop-client-api-*",
    "hadoop-client-runtime-*",
    "jackson-annotations-*",
    "jackson-core-[0-9]*",
    "jackson-databind-*",
    "avro-[0-9]*",
    "slf4j-api-*",
    "RoaringBitmap-*",
)
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The table tests use tables below file:/tmp/<namespace>, whatever the warehouse is.
KIT_FOLDERS = ("ns", "newdb", "ns1", "ns2", "other_ns", "a")


@dataclass(frozen=True)
class Case:
    name: str
    outcome: str
    """`passed`, `failed` or `skipped`."""
    detail: str = ""


@dataclass(frozen=True)
class KitReport:
    cases: tuple[Case, ...]

    def named(self, outcome: str) -> list[str]:
        return sorted(case.name for case in self.cases if case.outcome == outcome)

    def failures(self) -> str:
        """Return the names of the failed cases, with expected and actual values."""
        failed = [case for case in self.cases if case.outcome == "failed"]
        return "\n\n".join(f"{case.name}\n{case.detail}" for case in failed)


def kit_jars(java: Java) -> list[Path]:
    return [compile_whole_kit(java), *fetch(["kit"]), *_from_pyspark()]


def _from_pyspark() -> list[Path]:
    folder = pyspark_jars()
    found = []
    for pattern in FROM_PYSPARK:
        (jar,) = folder.glob(f"{pattern}.jar")
        found.append(jar)
    return found


def compile_whole_kit(java: Java) -> Path:
    """Compile the subclass once with the Scala compiler of PySpark, because a JRE has no javac."""
    digest = hashlib.sha256(WHOLE_KIT_SOURCE.encode()).hexdigest()[:16]
    target = ROOT / ".cache" / f"kit-{digest}"
    if target.is_dir():
        return target
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.mkdir(parents=True)
    source = draft / "WholeKit.scala"
    source.write_text(WHOLE_KIT_SOURCE)
    class_path = os.pathsep.join(map(str, [*fetch(["kit"]), *pyspark_jars().glob("scala-*.jar")]))
    command = [str(java.executable), "-cp", class_path, "scala.tools.nsc.Main", "-nowarn"]
    command += ["-cp", class_path, "-d", str(draft), str(source)]
    subprocess.run(command, check=True, timeout=HANG_S)
    try:
        draft.rename(target)
    except OSError:  # another run finished first, with the same result
        shutil.rmtree(draft)
    return target


@contextmanager
def kit_folders() -> Iterator[None]:
    """Remove the new folders that the kit's tables create in /tmp."""
    made = [path for path in (Path("/tmp") / name for name in KIT_FOLDERS) if not path.exists()]
    try:
        yield
    finally:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)


def run_kit(
    url: str,
    java: Java,
    directory: Path,
    classes: Sequence[str],
    *,
    jars: Sequence[Path] | None = None,
    properties: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float = HANG_S,
) -> KitReport:
    """Run the classes against the server; write temporary files and the report to the directory."""
    temporary = directory / "kit-tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    system = {
        "java.io.tmpdir": str(temporary),
        "uri": url,
        **PROPERTIES,
        **(properties or {}),
    }
    class_path = os.pathsep.join(map(str, jars if jars is not None else kit_jars(java)))
    command = [str(java.executable), *JVM_FLAGS, "-cp", class_path]
    command += [f"-D{name}={value}" for name, value in system.items()]
    command += ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]
    command += ["--config", "rck.local=false", "--include-engine", "junit-jupiter"]
    command += [
        "--details",
        "testfeed",
        "--disable-ansi-colors",
        "--reports-dir",
        str(directory / "kit-report"),
    ]
    for name in classes:
        command += ["--select-class", name]
    log = directory / "kit.log"
    with open(log, "wb") as output:
        try:
            subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the kit had not ended after {timeout_seconds} s; {unfinished(log)}"
            ) from None
    report = directory / "kit-report" / "TEST-junit-jupiter.xml"
    assert report.exists(), f"the kit did not run:\n{log.read_text(errors='replace')}"
    return read_report(report)


def unfinished(log: Path) -> str:
    """Return the failed and running cases from the log of an interrupted run."""
    feed = re.findall(r"> (\w+\([^)]*\)[^>]*?) :: (\w+)", log.read_text(errors="replace"))
    outcomes = dict(feed)
    failed = [name for name, outcome in outcomes.items() if outcome == "FAILED"]
    running = [name for name, outcome in outcomes.items() if outcome == "STARTED"]
    return f"failed so far: {failed}; running: {running}"


def read_report(path: Path) -> KitReport:
    return KitReport(tuple(_case(element) for element in ElementTree.parse(path).iter("testcase")))


def _case(element: ElementTree.Element) -> Case:
    name = element.get("name", "").removesuffix("()")
    for tag, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = element.find(tag)
        if found is not None:
            text = (found.text or found.get("message") or "").strip()
            return Case(name, outcome, text[:2000])
    return Case(name, "passed")
