"""The Spark that `connect()` builds where it is given none: this machine, with Iceberg's reader.

Iceberg's runtime is taken from FRAZIL_SPARK_JARS (paths with commas between them; empty: no jar),
from a checkout's own `.cache/jars`, else it is downloaded by Spark, once. Without it tables are
read by our own reader.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from frazil.spark.core.context import LOGGER
from frazil.spark.runtime.local_java import find_java
from frazil.wire.errors import BadRequest

ICEBERG_VERSION: Final = "1.12.0"
SCALA_VERSIONS: Final = {"3.5": "2.12", "4.0": "2.13", "4.1": "2.13"}
"""The Sparks that Iceberg has a runtime for, and the Scala that PyPI's package of each has."""
JARS_VARIABLE: Final = "FRAZIL_SPARK_JARS"
IVY_VARIABLE: Final = "FRAZIL_IVY_SETTINGS"
CHECKOUT_JARS: Final = Path(__file__).resolve().parents[4] / ".cache" / "jars"
"""Only there where Frazil runs from its checkout."""
LOG_SETTINGS: Final = Path(__file__).resolve().with_name("log4j2.properties")
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Runtime:
    """Where Iceberg's classes come from."""

    settings: Mapping[str, str]
    reason: str
    downloads: bool = False


def local_spark(settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process where it has one, else a new one on this machine.

    `settings` are Spark's, and win over ours.
    """
    given = dict(settings or {})
    session = SparkSession.getActiveSession()
    if session is not None or not _is_ours_to_start():
        return session or _built(given)
    java = find_java()
    LOGGER.info("Java %d of %s (%s)", java.version, java.home, java.origin)
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # Executors must be of the driver's own version of Python, and have its packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    runtime = iceberg_runtime(pyspark.__version__)
    LOGGER.info("%s", runtime.reason)
    ours = base_settings()
    try:
        return _built({**ours, **runtime.settings, **given})
    except PySparkRuntimeError as error:
        if not runtime.downloads or error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        LOGGER.warning(
            "Spark did not start with Iceberg's runtime, which it could not download, as it seems: "
            "once more without it, tables are read by our own reader"
        )
        return _built({**ours, **given})


def iceberg_runtime(spark_version: str) -> Runtime:
    """What Spark must be told to have Iceberg's runtime, and why so."""
    named = os.environ.get(JARS_VARIABLE)
    if named is not None:
        return _named_runtime(named)
    line = ".".join(spark_version.split(".")[:2])
    scala = SCALA_VERSIONS.get(line)
    if scala is None:
        known = ", ".join(SCALA_VERSIONS)
        return Runtime(
            {}, f"Iceberg has no runtime for Spark {line} (only {known}): we read tables ourselves"
        )
    artifact = f"iceberg-spark-runtime-{line}_{scala}"
    jar = CHECKOUT_JARS / f"{artifact}-{ICEBERG_VERSION}.jar"
    if jar.is_file():
        return Runtime({"spark.jars": str(jar)}, f"Iceberg's runtime is {jar}")
    settings = {"spark.jars.packages": f"org.apache.iceberg:{artifact}:{ICEBERG_VERSION}"}
    mirror = os.environ.get(IVY_VARIABLE)
    if mirror:
        settings["spark.jars.ivySettings"] = mirror
    return Runtime(
        settings, f"Iceberg's runtime is {artifact}:{ICEBERG_VERSION}, by Spark's Ivy", True
    )


def base_settings() -> dict[str, str]:
    """This machine alone, and no word but errors."""
    settings = {
        "spark.master": "local[*]",
        "spark.app.name": "frazil",
        # A name that a laptop's network cannot resolve must not keep Spark from starting.
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.showConsoleProgress": "false",
    }
    if "SPARK_CONF_DIR" not in os.environ and LOG_SETTINGS.is_file():
        settings["spark.driver.extraJavaOptions"] = (
            f'"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"'
        )
    return settings


def _named_runtime(named: str) -> Runtime:
    paths = [part.strip() for part in named.split(",") if part.strip()]
    missing = [path for path in paths if "://" not in path and not Path(path).is_file()]
    if missing:
        raise BadRequest(f"{JARS_VARIABLE}: there is no file {', '.join(missing)}")
    if not paths:
        return Runtime({}, f"{JARS_VARIABLE} is empty: we read tables ourselves")
    return Runtime({"spark.jars": ",".join(paths)}, f"jars of {JARS_VARIABLE}: {named}")


def _is_ours_to_start() -> bool:
    """Not where a Spark Connect server is named, nor below spark-submit, which has its own plan."""
    return not any(name in os.environ for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"))


def _built(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
