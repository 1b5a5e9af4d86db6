"""Start Spark for a command, and report its errors and results."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import count_text, plain, print_json
from frazil.cli.shared.typed_names import key_values
from frazil.cli.spark.startup_output import quiet_startup
from frazil.extras import install_command, missing_modules

if TYPE_CHECKING:
    from frazil.spark.core.statement_runs import Result
    from frazil.spark.session import Session
    from frazil.wire.identifiers import Identifier

ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark, such as spark.driver.memory=4g."
    ),
]
QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers that repeat every query error on stderr with the stack of the JVM."""


@contextmanager
def spark_session(
    choice: CatalogChoice,
    conf: Sequence[str] | None,
    *,
    table: Identifier | None = None,
) -> Iterator[Session]:
    """Start Spark in this process and yield a session of the chosen catalog.

    If `table` is given, it must exist; this is checked before Spark starts.
    """
    if missing := missing_modules("spark-local"):
        choice.usage(f"not installed: {', '.join(missing)}. Type: {install_command('spark-local')}")
    settings = {"spark.ui.enabled": "false", **key_values("--conf", conf or ())}
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from frazil.spark.core.context import OUTAGE_TIMEOUT_S
    from frazil.spark.runtime.local_java import JavaError
    from frazil.spark.runtime.local_spark import local_spark
    from frazil.spark.session import connect

    for name in QUERY_LOGGERS:
        logging.getLogger(name).disabled = True
    with ExitStack() as stack:
        client = stack.enter_context(choice.connect(wait_s=OUTAGE_TIMEOUT_S))
        if table is not None:
            client.load_table(table, snapshots="refs")
        try:
            spark = SparkSession.getActiveSession()
            if spark is None:
                with quiet_startup():
                    spark = local_spark(settings)
                stack.callback(spark.stop)
            properties = choice.properties
            yield connect(spark, properties["uri"], properties=properties, client=client)
        except JavaError as error:
            choice.fail(str(error))
        except PySparkException as error:
            choice.fail(first_part(str(error.getMessage() or error)))
        except Py4JJavaError as error:
            choice.fail("; because ".join(_causes(error.java_exception)))


def first_part(text: str) -> str:
    """Return Spark's message without the plan and the stack trace."""
    return text.split("\n\nJVM stacktrace:")[0].split(";\n")[0].strip()


def _causes(thrown: Any) -> Iterator[str]:
    """Yield the messages of an exception and its causes, without repetitions."""
    seen = ""
    while thrown is not None:
        message = str(thrown.getMessage() or thrown.toString()).splitlines()[0]
        if message not in seen:
            seen += message
            yield message
        thrown = thrown.getCause()


def print_result(choice: CatalogChoice, table: str, branch: str, done: Result) -> None:
    """Print the result of a write."""
    if choice.as_json:
        print_json(
            {
                "table": table,
                "branch": branch,
                "operation": done.operation,
                "mode": done.mode,
                "snapshot-id": done.snapshot_id,
                "rows-written": done.rows_written,
                "rows-deleted": done.rows_deleted,
                "files-added": done.files_added,
                "files-removed": done.files_removed,
                "attempts": done.attempts,
            }
        )
        return
    if done.commit is None:
        typer.echo(f"{plain(table)}: nothing to change, no snapshot was created")
        return
    how = f"{done.operation}, {done.mode}" if done.mode else done.operation
    typer.echo(f"snapshot {done.snapshot_id} of {plain(table)} ({how}), on {plain(branch)}")
    typer.echo(
        f"  + {count_text(done.rows_written, 'row')}, {count_text(done.files_added, 'file')}"
    )
    removed = ((done.rows_deleted, "row"), (done.files_removed, "file"))
    if any(count for count, _ in removed):
        texts = (
            f"{name}s" if count is None else count_text(count, name) for count, name in removed
        )
        typer.echo(f"  - {', '.join(texts)}")
