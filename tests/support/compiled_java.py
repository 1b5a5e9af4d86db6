"""Compiles a test's Java source in a running JVM, with the Janino of PySpark.

This needs neither a JDK nor Maven. One call can do a lot of work in Java, which is faster
because a call from Python costs more than most of that work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compiled(spark: SparkSession, source: Path) -> Any:
    """Compile the source file; return an object of the class that the file is named after."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    # Spark adds Iceberg's jar itself, so it is not on the JVM's own class path.
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source.read_text())
    (constructor,) = compiler.getClassLoader().loadClass(source.stem).getConstructors()
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
