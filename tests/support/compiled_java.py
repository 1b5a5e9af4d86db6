"""Compiles Java source of a test in a running JVM, with the Janino of PySpark.

Neither a JDK nor Maven is asked for. What the source says is done in Java, many things in one call:
a call from Python costs more than most of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compiled(spark: SparkSession, source: Path) -> Any:
    """Return an object of the class that the source file is named after."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    # Iceberg's jar is not on the class path of the JVM itself but added by Spark.
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source.read_text())
    (constructor,) = compiler.getClassLoader().loadClass(source.stem).getConstructors()
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
