"""Iceberg's Java planner in its own JVM: `Planner.java`.

The Janino that comes with PySpark compiles the source when it is needed. Every plan is timed in
Java.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.measure import Block
from benchmarks.planning.filters import Filter
from benchmarks.processes import JAVA_SERVER_JAR, STOP_SECONDS, cpu_seconds
from scripts.jars import pyspark_jars
from scripts.java import Java

SOURCE: Final = Path(__file__).with_name("Planner.java")
CACHED: Final[Mapping[str, str]] = {
    "io.manifest.cache-enabled": "true",
    "io.manifest.cache.max-total-bytes": str(2 << 30),
    "io.manifest.cache.max-content-length": str(64 << 20),
    "io.manifest.cache.expiration-interval-ms": "0",
}
"""With these properties manifests stay in memory in their on-disk format."""
_HEAP: Final = "-Xmx4g"
_COMPILER: Final = ("janino-*.jar", "commons-compiler-*.jar")


class JavaPlanner:
    """The JVM, with a planner for each set of properties."""

    def __init__(self, gateway: Any, pid: int) -> None:
        self._gateway = gateway
        self._pid = pid
        self._planners: dict[bool, Any] = {}
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(SOURCE.read_text())
        (self._constructor,) = compiler.getClassLoader().loadClass("Planner").getConstructors()

    def plan(
        self, table: str, wanted: Filter, *, cached: bool, most: int, limit_s: float
    ) -> tuple[Block, int]:
        text = None if wanted.json is None else json.dumps(wanted.json)
        before = cpu_seconds(self._pid)
        said = self._planner(cached).plan(table, text, most, float(limit_s))
        cpu_s = cpu_seconds(self._pid) - before
        rows = [line.split() for line in str(said).splitlines()]
        (files,) = {int(files) for files, _ in rows}
        return Block([int(took) / 1e9 for _, took in rows], cpu_s), files

    def _planner(self, cached: bool) -> Any:
        if cached not in self._planners:
            properties = self._gateway.jvm.java.util.HashMap()
            for key, value in (CACHED if cached else {}).items():
                properties.put(key, value)
            arguments = self._gateway.new_array(self._gateway.jvm.java.lang.Object, 1)
            arguments[0] = properties
            self._planners[cached] = self._constructor.newInstance(arguments)
        return self._planners[cached]


@contextmanager
def running_java_planner(java: Java) -> Iterator[JavaPlanner]:
    (py4j_jar,) = pyspark_jars().glob("py4j-*.jar")
    classpath = [JAVA_SERVER_JAR, *(jar for name in _COMPILER for jar in pyspark_jars().glob(name))]
    port, process = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=":".join(map(str, classpath)),
        javaopts=[_HEAP],
        java_path=str(java.executable),
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield JavaPlanner(gateway, process.pid)
    finally:
        gateway.shutdown()
        process.stdin.close()  # `die_on_exit` waits for the end of its input
        process.wait(STOP_SECONDS)
