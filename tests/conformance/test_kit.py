"""Apache Iceberg's REST Compatibility Kit, complete and with every option switched on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from scripts.jars import fetch
from scripts.java import Java
from tests.support.kit import TABLES, VIEWS, KitReport, kit_folders, kit_jars, run_kit
from tests.support.s3 import S3Server
from tests.support.server import ServerFactory

# Tests that the kit itself skips. No REST path can name the empty namespace, and the kit switches
# off the last test for every server.
NOT_FOR_REST = {
    TABLES: {
        "createAndDropEmptyNamespace",
        "listNamespacesWithEmptyNamespace",
        "listTablesInEmptyNamespace",
        "namespacePropertiesOnEmptyNamespace",
        "createTableInUniqueLocation",
    },
    VIEWS: {"listViewsInEmptyNamespace"},
}
# This test moves the metadata file away with java.nio, which cannot access S3.
LOCAL_FILES_ONLY = {TABLES: {"testLoadTableWithMissingMetadataFile(Path)"}, VIEWS: set[str]()}
CASES = {TABLES: 106, VIEWS: 51}
both_halves = pytest.mark.parametrize("half", [TABLES, VIEWS], ids=["tables", "views"])


@pytest.fixture(scope="module")
def jars(java: Java) -> list[Path]:
    return kit_jars(java)


@dataclass(frozen=True)
class KitRunner:
    """Starts a server that allows the locations the kit asks for, and runs one half of the kit."""

    java: Java
    jars: list[Path]
    directory: Path
    server: ServerFactory

    def run(self, half: str, *flags: str, env: dict[str, str] | None = None) -> KitReport:
        # The table tests use file:/tmp/<namespace>/<table>, the view tests a temporary folder.
        allowed = ["--allow-location", "file:/tmp", "--allow-location", f"file:{self.directory}"]
        with kit_folders():
            running = self.server(*allowed, *flags, env=env)
            return run_kit(running.url, self.java, self.directory, [half], jars=self.jars, env=env)


@pytest.fixture
def kit(java: Java, jars: list[Path], tmp_path: Path, server: ServerFactory) -> KitRunner:
    return KitRunner(java, jars, tmp_path, server)


def assert_whole(report: KitReport, half: str, excluded: frozenset[str] = frozenset()) -> None:
    assert set(report.named("failed")) == excluded, report.failures()
    assert set(report.named("skipped")) == NOT_FOR_REST[half]
    assert len(report.cases) == CASES[half]


@both_halves
def test_kit_on_sqlite(kit: KitRunner, half: str) -> None:
    assert_whole(kit.run(half), half)


@pytest.mark.full
@both_halves
def test_kit_on_postgres(kit: KitRunner, half: str, postgres_database: str) -> None:
    assert_whole(kit.run(half, "--database", postgres_database), half)


@pytest.mark.full
@both_halves
def test_kit_on_s3(kit: KitRunner, half: str, s3_server: S3Server, s3_bucket: str) -> None:
    """Metadata and manifests are on S3, except for tables that ask for file:/tmp."""
    keys = s3_server.environ()
    jars = [*kit.jars, *fetch(["kit-s3"])]
    report = replace(kit, jars=jars).run(half, "--warehouse", f"{s3_bucket}/warehouse", env=keys)
    assert_whole(report, half, frozenset(LOCAL_FILES_ONLY[half]))
