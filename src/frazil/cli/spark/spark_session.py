"""The Spark that a command runs on, and how its errors are told."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import count_text, plain, print_json
from frazil.cli.shared.setting_options import FAILURE, USAGE_ERROR, fail
from frazil.cli.shared.typed_names import key_values

if TYPE_CHECKING:
    from frazil.spark.core.statement_runs import Result
    from frazil.spark.session import Session
    from frazil.wire.identifiers import Identifier

QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""They repeat every error of a query on stderr, with the JVM's stack."""
PACKAGES: Final = ("pyspark", "pyarrow", "numpy", "mmh3", "pyroaring", "sqlglot")


@contextmanager
def spark_session(
    choice: CatalogChoice,
    conf: Sequence[str],
    *,
    table: Identifier | None = None,
    dry_run: bool = False,
) -> Iterator[Session]:
    """A session of the chosen catalog on a Spark of this process, which ends with the block.

    A `table` must be there: whether it is, is asked before Spark is started.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        fail(
            f"not installed: {', '.join(missing)}. Type: pip install 'frazil[spark-local]'",
            choice.output,
            USAGE_ERROR,
        )
    settings = {"spark.ui.enabled": "false", **key_values("--conf", conf)}
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from frazil.client.catalog_config import DEFAULT_URI
    from frazil.spark.runtime.local_java import JavaError
    from frazil.spark.runtime.local_spark import local_spark
    from frazil.spark.session import connect

    for name in QUERY_LOGGERS:
        logging.getLogger(name).disabled = True
    with ExitStack() as stack:
        client = stack.enter_context(choice.connect(dry_run=dry_run))
        if table is not None:
            client.load_table(table, snapshots="refs")
        try:
            found = SparkSession.getActiveSession()
            spark = local_spark(settings)
            if spark is not found:
                stack.callback(spark.stop)
            uri = choice.properties.get("uri", DEFAULT_URI)
            yield connect(spark, uri, properties=choice.properties, client=client)
        except JavaError as error:
            fail(str(error), choice.output, FAILURE)
        except PySparkException as error:
            fail(first_part(str(error.getMessage() or error)), choice.output, FAILURE)
        except Py4JJavaError as error:
            fail("; because ".join(_causes(error.java_exception)), choice.output, FAILURE)


def first_part(text: str) -> str:
    """What Spark says, without the plan and the stack that follow it."""
    return text.split("\n\nJVM stacktrace:")[0].split(";\n")[0].strip()


def _causes(thrown: Any) -> Iterator[str]:
    """What was thrown and why, each in a line; Spark says the same thing on several levels."""
    said = ""
    while thrown is not None:
        message = str(thrown.getMessage() or thrown.toString()).splitlines()[0]
        if message not in said:
            said += message
            yield message
        thrown = thrown.getCause()


def print_result(choice: CatalogChoice, table: str, branch: str, done: Result) -> None:
    """What a write has come to."""
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
        typer.echo(f"{plain(table)}: nothing to change, no snapshot was made")
        return
    how = f"{done.operation}, {done.mode}" if done.mode else done.operation
    typer.echo(f"snapshot {done.snapshot_id} of {plain(table)} ({how}), on {plain(branch)}")
    typer.echo(
        f"  + {count_text(done.rows_written, 'row')}, {count_text(done.files_added, 'file')}"
    )
    if done.rows_deleted or done.files_removed:
        rows = "rows" if done.rows_deleted is None else count_text(done.rows_deleted, "row")
        typer.echo(f"  - {rows}, {count_text(done.files_removed, 'file')}")
