"""Fixtures for all tests: real components, each started on first use and once per run."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from scripts.java import Java, find_java
from tests.support import fast_run, time_limit
from tests.support.network import forbid_network
from tests.support.s3 import S3Server, start_s3
from tests.support.server import RunningServer, ServerFactory, running_server

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from tests.support.postgres import PostgresServer

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
SERVERS = pytest.StashKey[list[RunningServer]]()
LOG_CHARACTERS = 6_000
REQUIRE_ALL = os.environ.get("FRAZIL_REQUIRE_ALL") == "1"

# Of two workers, one begins with all tests that need Spark, so that Spark starts only once per run.
# The other files go one by one to the worker that has time.
SPARK_FOLDERS = ("tests/stock_clients/", "tests/oracle/", "tests/spark/")
SPARK_FILES = {
    "tests/benchmarks/test_maintenance.py",
    "tests/benchmarks/test_spark.py",
    "tests/cli/test_documented_commands.py",
    "tests/datafiles/arrow/test_arrow.py",
}
FILES_WITHOUT_SPARK = {
    "tests/oracle/commits/test_compare.py",
    "tests/oracle/plans/test_found.py",
    "tests/oracle/plans/test_rows.py",
    "tests/spark/core/test_name_matching.py",
    "tests/spark/core/test_statements.py",
    "tests/spark/sql/test_definitions.py",
    "tests/spark/parse/test_parsing.py",
    "tests/spark/parse/test_references.py",
    "tests/spark/parse/test_view_statements.py",
    "tests/spark/writing/test_delete_files.py",
    "tests/spark/writing/test_file_copies.py",
    "tests/spark/writing/test_storage.py",
    "tests/stock_clients/test_documented_clients.py",
    "tests/stock_clients/test_duckdb.py",
    "tests/stock_clients/test_pyiceberg_data.py",
    "tests/stock_clients/test_pyiceberg_tables.py",
    "tests/stock_clients/test_pyiceberg_views.py",
    "tests/stock_clients/test_s3.py",
}

# A server that a test starts loads 400 modules. It takes a third longer to compile them each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# `make test` repeats its examples; `make test-full` searches for new ones. There are no deadlines,
# because those would depend on the machine's speed.
_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", derandomize=True, deadline=None, suppress_health_check=_slow)
settings.register_profile("full", max_examples=1000, deadline=None, suppress_health_check=_slow)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the tests marked `full`")
    parser.addoption("--fast", action="store_true", help="run the tests that start no process")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
    config.pluginmanager.register(time_limit)
    if config.getoption("--fast"):
        fast_run.install(config)
    forbid_network()


def runs_with_spark(nodeid: str) -> bool:
    """Return whether the test belongs to the worker with Spark."""
    path = nodeid.partition("::")[0]
    in_folder = path.startswith(SPARK_FOLDERS) and path not in FILES_WITHOUT_SPARK
    return in_folder or path in SPARK_FILES


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker its part of the tests.

    xdist's own groups would suffice, but xdist 3.8 cannot set them with pytest 9.2.
    """
    if config.getoption("--fast"):
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class SparkFirst(LoadScopeScheduling):  # type: ignore[misc]
        """Gives scopes out by their number of tests, so that of all of Spark comes first."""

        def _split_scope(self, nodeid: str) -> str:
            return "spark" if runs_with_spark(nodeid) else nodeid.partition("::")[0]

    return SparkFirst(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        wants_spark = "spark" in getattr(item, "fixturenames", ())
        if wants_spark and item.nodeid.startswith("tests/") and not runs_with_spark(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} uses Spark: change SPARK_FILES")
    full, fast = config.getoption("--full"), config.getoption("--fast")
    left_out = [
        item
        for item in items
        if (item.get_closest_marker("full") and not full) or (fast and fast_run.needs_process(item))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in item.stash.get(SERVERS, []):
            report.sections.append((f"log of {server.url}", server.log[-LOG_CHARACTERS:]))
    return _refuse_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _refuse_skip(report)


def _refuse_skip(report: Report) -> Report:
    """Turn a skip into a failure if FRAZIL_REQUIRE_ALL=1."""
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but FRAZIL_REQUIRE_ALL=1 wants every test: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def processes() -> None:
    """Mark fixtures that start a process: `--fast` skips all tests that use this fixture."""


@pytest.fixture(scope="session")
def java(processes: None) -> Java:
    """Return the Java of this run: the system's if it is 17 to 22, else the wheel's."""
    return find_java()


@pytest.fixture(scope="session")
def java_home(java: Java) -> Path:
    return java.home


@pytest.fixture(scope="session")
def jars_dir(processes: None) -> Path:
    from scripts.jars import JARS_DIR, fetch

    fetch(["spark", "spark-s3", "kit"])
    return JARS_DIR


@pytest.fixture(scope="session")
def postgres_server(processes: None) -> Iterator[PostgresServer]:
    """Start one PostgreSQL for the whole run."""
    from tests.support.postgres import start_postgres

    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the URL of a new database for this test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def s3_server(processes: None) -> Iterator[S3Server]:
    """Start one S3 server for the whole run."""
    server = start_s3()
    yield server
    server.stop()


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """Return the location of a new bucket for this test, `s3://...`."""
    return s3_server.create_bucket(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def spark(
    java: Java, jars_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Start one Spark for the run; a test adds its catalog with `tests.support.spark`."""
    from tests.support.spark import start_spark, stop_spark

    session = start_spark(java, tmp_path_factory.mktemp("spark"))
    yield session
    stop_spark(session)


@pytest.fixture
def server(
    tmp_path: Path, request: pytest.FixtureRequest, processes: None
) -> Iterator[ServerFactory]:
    """Return a function that starts `frazil serve`; all servers must end cleanly."""
    numbers = itertools.count()
    started: list[RunningServer] = request.node.stash.setdefault(SERVERS, [])
    with ExitStack() as stack:

        def start(
            *flags: str, env: Mapping[str, str] | None = None, directory: Path | None = None
        ) -> RunningServer:
            where = directory or tmp_path / f"server-{next(numbers)}"
            started.append(stack.enter_context(running_server(where, *flags, env=env)))
            return started[-1]

        yield start


@pytest.fixture
def duckdb_connection() -> Iterator[Callable[[], duckdb.DuckDBPyConnection]]:
    """Return a function that opens stock DuckDB with the iceberg extension."""
    from tests.support.duck import connect

    with ExitStack() as stack:
        yield lambda: stack.enter_context(connect())
