"""Iceberg's Java client as writers, in one JVM next to the server: `Writers.java`.

The Janino that comes with PySpark compiles the source when it is needed, so neither a JDK nor
Maven is required. Every commit is timed in Java, without a gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.commit.bursts import Burst, Task
from benchmarks.histories import NAMESPACE
from benchmarks.processes import JAVA_HEAP, JAVA_SERVER_JAR, STOP_SECONDS
from scripts.jars import pyspark_jars
from scripts.java import Java

SOURCE = Path(__file__).with_name("Writers.java")
_COMPILER = ("janino-*.jar", "commons-compiler-*.jar")


class JavaWriters:
    """The JVM, with a client for each server."""

    def __init__(self, gateway: Any, pid: int, tree_folder: str) -> None:
        self._gateway = gateway
        self._tree_folder = tree_folder
        self._clients: dict[str, Any] = {}
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(SOURCE.read_text())
        (self._constructor,) = compiler.getClassLoader().loadClass("Writers").getConstructors()
        self.pid = pid

    def run(self, url: str, io_impl: str | None, task: Task) -> Burst:
        tables = self._gateway.jvm.java.util.ArrayList()
        for each in task.tables:
            tables.add(",".join(each))
        said = self._client(url, io_impl).run(
            tables,
            NAMESPACE,
            task.operation,
            float(task.seconds),
            task.most,
            task.first,
            task.step,
            task.files,
            self._tree_folder,
            task.tree_files,
        )
        return _burst(str(said), task)

    def _client(self, url: str, io_impl: str | None) -> Any:
        if url not in self._clients:
            properties = self._gateway.jvm.java.util.HashMap()
            properties.put("uri", url)
            if io_impl is not None:
                properties.put("io-impl", io_impl)
            arguments = self._gateway.new_array(self._gateway.jvm.java.lang.Object, 1)
            arguments[0] = properties
            self._clients[url] = self._constructor.newInstance(arguments)
        return self._clients[url]


def _burst(said: str, task: Task) -> Burst:
    burst = Burst(window_s=task.seconds)
    for line in said.splitlines():
        ended, _, rest = line.partition(" ")
        if ended == "failed":
            burst.failed += 1
            burst.first_error = burst.first_error or rest[:500]
        else:
            burst.samples.append((int(ended) / 1e9, int(rest) / 1e9))
    return burst


@contextmanager
def running_java_writers(java: Java, tree_folder: str) -> Iterator[JavaWriters]:
    (py4j_jar,) = pyspark_jars().glob("py4j-*.jar")
    classpath = [JAVA_SERVER_JAR, *(jar for name in _COMPILER for jar in pyspark_jars().glob(name))]
    port, process = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=":".join(map(str, classpath)),
        javaopts=[JAVA_HEAP],
        java_path=str(java.executable),
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield JavaWriters(gateway, process.pid, tree_folder)
    finally:
        gateway.shutdown()
        process.stdin.close()  # `die_on_exit` waits for the end of its input
        process.wait(STOP_SECONDS)
