"""Start the Spark that `connect()` uses if it gets none: on this machine, with Iceberg's reader.

Iceberg's runtime comes from FRAZIL_SPARK_JARS (paths with commas between them; empty for no jar),
from the folder `.cache/jars` of a checkout, or else Spark downloads it once. Without it, Frazil's
own reader reads tables.
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
from frazil.spark.core.write_audit import EXTENSIONS_CLASS
from frazil.spark.runtime.local_java import find_java
from frazil.wire.errors import BadRequest

ICEBERG_VERSION: Final = "1.12.0"
SCALA_VERSIONS: Final = {"3.5": "2.12", "4.0": "2.13", "4.1": "2.13"}
"""The Spark versions with an Iceberg runtime, and the Scala version of PySpark on PyPI."""
JARS_VARIABLE: Final = "FRAZIL_SPARK_JARS"
IVY_VARIABLE: Final = "FRAZIL_IVY_SETTINGS"
CHECKOUT_JARS: Final = Path(__file__).resolve().parents[4] / ".cache" / "jars"
"""A folder that exists only if Frazil runs from its checkout."""
LOG_SETTINGS: Final = Path(__file__).resolve().with_name("log4j2.properties")
LOOPBACK: Final = "127.0.0.1"
EXTENSIONS: Final = {"spark.sql.extensions": EXTENSIONS_CLASS}
"""Without its extensions, Iceberg's runtime refuses to read while `spark.wap.branch` is set. Spark
does without them if no jar has the class."""


@dataclass(frozen=True)
class IcebergRuntime:
    """Where Spark loads Iceberg's classes from, and why."""

    settings: Mapping[str, str]
    reason: str
    downloads: bool = False


def local_spark(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session of this process, or start one on this machine.

    `settings` are Spark's; they override ours.
    """
    user_settings = dict(settings or {})
    session = SparkSession.getActiveSession()
    if session is not None or not _may_start_spark():
        return session or _build(user_settings)
    java = find_java()
    LOGGER.info("Java %d of %s (%s)", java.version, java.home, java.origin)
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # Executors need the driver's version of Python and its packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    runtime = iceberg_runtime(pyspark.__version__)
    LOGGER.info("%s", runtime.reason)
    settings_of_frazil = base_settings()
    try:
        return _build({**settings_of_frazil, **runtime.settings, **user_settings})
    except PySparkRuntimeError as error:
        if not runtime.downloads or error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        LOGGER.warning(
            "Spark did not start with Iceberg's runtime, perhaps because it could not download it: "
            "starting without it; Frazil's own reader will read tables"
        )
        return _build({**settings_of_frazil, **user_settings})


def iceberg_runtime(spark_version: str) -> IcebergRuntime:
    """Return the settings that make Spark load Iceberg's runtime."""
    named = os.environ.get(JARS_VARIABLE)
    if named is not None:
        return _named_runtime(named)
    line = ".".join(spark_version.split(".")[:2])
    scala = SCALA_VERSIONS.get(line)
    if scala is None:
        known = ", ".join(SCALA_VERSIONS)
        return IcebergRuntime(
            {},
            f"Iceberg has no runtime for Spark {line} (only {known}): "
            "Frazil's own reader reads tables",
        )
    artifact = f"iceberg-spark-runtime-{line}_{scala}"
    jar = CHECKOUT_JARS / f"{artifact}-{ICEBERG_VERSION}.jar"
    if jar.is_file():
        return IcebergRuntime({"spark.jars": str(jar), **EXTENSIONS}, f"Iceberg's runtime is {jar}")
    packages = f"org.apache.iceberg:{artifact}:{ICEBERG_VERSION}"
    settings = {"spark.jars.packages": packages, **EXTENSIONS}
    mirror = os.environ.get(IVY_VARIABLE)
    if mirror:
        settings["spark.jars.ivySettings"] = mirror
    return IcebergRuntime(
        settings, f"Iceberg's runtime is {artifact}:{ICEBERG_VERSION}, by Spark's Ivy", True
    )


def base_settings() -> dict[str, str]:
    """Return settings for a Spark on this machine that logs only errors."""
    settings = {
        "spark.master": "local[*]",
        "spark.app.name": "frazil",
        # Spark must start even if the network cannot resolve the machine's name.
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.showConsoleProgress": "false",
    }
    if "SPARK_CONF_DIR" not in os.environ and LOG_SETTINGS.is_file():
        settings["spark.driver.extraJavaOptions"] = (
            f'"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"'
        )
    return settings


def _named_runtime(named: str) -> IcebergRuntime:
    paths = [part.strip() for part in named.split(",") if part.strip()]
    missing = [path for path in paths if "://" not in path and not Path(path).is_file()]
    if missing:
        raise BadRequest(f"{JARS_VARIABLE}: there is no file {', '.join(missing)}")
    if not paths:
        return IcebergRuntime({}, f"{JARS_VARIABLE} is empty: Frazil's own reader reads tables")
    return IcebergRuntime(
        {"spark.jars": ",".join(paths), **EXTENSIONS}, f"jars of {JARS_VARIABLE}: {named}"
    )


def _may_start_spark() -> bool:
    """Return False if a Spark Connect server is configured, or in spark-submit."""
    return not any(name in os.environ for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"))


def _build(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
