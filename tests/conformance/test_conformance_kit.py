"""Apache Iceberg's REST Compatibility Kit, whole, with everything that can be switched on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.java import Java
from tests.support.kit import TABLES, VIEWS, KitReport, kit_folders, kit_jars, run_kit
from tests.support.server import ServerFactory

# What the kit itself leaves out: no REST path can name the empty namespace, and the last one
# is switched off in the kit for every server.
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
CASES = {TABLES: 106, VIEWS: 51}
both_halves = pytest.mark.parametrize("half", [TABLES, VIEWS], ids=["tables", "views"])


@pytest.fixture(scope="module")
def jars(java: Java) -> list[Path]:
    return kit_jars(java)


@dataclass(frozen=True)
class KitRunner:
    """Starts a server that lets the kit have the locations it asks for, and runs one half."""

    java: Java
    jars: list[Path]
    directory: Path
    server: ServerFactory

    def run(self, half: str, *flags: str, env: dict[str, str] | None = None) -> KitReport:
        # The table tests want file:/tmp/<namespace>/<table>, the view tests a temporary folder.
        allowed = ["--allow-location", "file:/tmp", "--allow-location", f"file:{self.directory}"]
        with kit_folders():
            running = self.server(*allowed, *flags, env=env)
            return run_kit(running.url, self.java, self.directory, [half], jars=self.jars)


@pytest.fixture
def kit(java: Java, jars: list[Path], tmp_path: Path, server: ServerFactory) -> KitRunner:
    return KitRunner(java, jars, tmp_path, server)


def assert_whole(report: KitReport, half: str) -> None:
    assert not report.named("failed"), report.failures()
    assert set(report.named("skipped")) == NOT_FOR_REST[half]
    assert len(report.cases) == CASES[half]


@both_halves
def test_kit_on_sqlite(kit: KitRunner, half: str) -> None:
    assert_whole(kit.run(half), half)


@pytest.mark.full
@both_halves
def test_kit_on_postgres(kit: KitRunner, half: str, postgres_database: str) -> None:
    assert_whole(kit.run(half, "--database", postgres_database), half)
