"""Starts and stops the Spark of a test run, with Iceberg's runtime and its S3 bundle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.jars import locked_jars
from scripts.java import ROOT, Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
EXTENSIONS_CLASS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def start_spark(java: Java, directory: Path, **others: str) -> SparkSession:
    """Start a local session with two threads; its files stay below the directory.

    If SPARK_REMOTE names a Spark Connect server, open a session there instead.
    """
    from pyspark.sql import SparkSession

    if "SPARK_REMOTE" in os.environ:
        return SparkSession.builder.getOrCreate()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Python workers also run functions of the tests.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    )
    settings = {
        **runtime_settings(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={directory}",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **others,
    }
    builder = SparkSession.builder.master("local[2]").appName("frazil-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop_spark(session: SparkSession) -> None:
    """Stop the session, or forget it if its JVM has ended."""
    if spark_is_dead():
        forget_spark()
    else:
        session.stop()


def kill_spark() -> None:
    """Kill the JVM of this process without a regular shutdown."""
    process = _gateway_process()
    if process is not None:
        process.kill()
        process.wait()


def spark_is_dead() -> bool:
    """Return whether this process has started a JVM that has ended since."""
    process = _gateway_process()
    return process is not None and process.poll() is not None


def forget_spark() -> None:
    """Make pyspark start a new JVM for the next session, as in a new process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # the JVM cannot be asked to stop
        context.stop()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _gateway_process() -> subprocess.Popen[bytes] | None:
    """Return the JVM that pyspark has started in this process."""
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark and pyspark.SparkContext._gateway
    return getattr(gateway, "proc", None) if gateway else None


def runtime_settings() -> dict[str, str]:
    """Return the settings for Iceberg's runtime and its S3 bundle.

    They are empty if the locked runtime is for another version of Spark.
    """
    import pyspark

    (runtime,) = locked_jars(["spark"])
    if f"-{'.'.join(pyspark.__version__.split('.')[:2])}_" not in runtime.path.name:
        return {}
    jars = [runtime, *locked_jars(["spark-s3"])]
    return {
        "spark.jars": ",".join(str(jar.path) for jar in jars),
        "spark.sql.extensions": EXTENSIONS_CLASS,
    }


def add_catalog(spark: SparkSession, name: str, url: str, **properties: str) -> None:
    """Register the REST catalog at the URL as `name`; Spark loads it on first use.

    A session never forgets a loaded catalog, so every test uses its own name.
    """
    spark.conf.set(f"spark.sql.catalog.{name}", CATALOG_CLASS)
    spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.{name}.uri", url)
    spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
