"""`frazil spark load`: files become rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.shared.catalog_command import CatalogChoice, on_its_way, usage
from frazil.cli.shared.typed_names import key_values, table_name
from frazil.cli.spark.file_rows import Source
from frazil.cli.spark.spark_commands import LoadMode
from frazil.cli.spark.spark_session import print_result, spark_session

if TYPE_CHECKING:
    from frazil.spark.core.statement_runs import Result
    from frazil.spark.session import Session
    from frazil.wire.identifiers import Identifier


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What was typed."""

    source: Source
    table: str
    create: bool = False
    partitioned_by: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    mode: LoadMode = LoadMode.APPEND
    merge_schema: bool = False
    branch: str = "main"
    conf: tuple[str, ...] = ()
    dry_run: bool = False


def run(choice: CatalogChoice, order: LoadOrder) -> None:
    name = table_name(order.table)
    if not order.create and (order.partitioned_by or order.properties):
        usage("--partitioned-by and --property are for a new table: give --create", choice.output)
    needed = None if order.create else name
    with (
        spark_session(choice, order.conf, table=needed, dry_run=order.dry_run) as session,
        on_its_way(),
    ):
        done = _load(session, name, order)
    print_result(choice, str(name), order.branch, done)


def _load(session: Session, name: Identifier, order: LoadOrder) -> Result:
    from frazil.spark.schema.spark_types import spark_schema

    if order.create and not session.client.table_exists(name):
        return _create(session, name, order)
    table = session.table(name).on_branch(order.branch)
    frame = order.source.read(session.spark, spark_schema(table.load().schema))
    if order.mode is LoadMode.OVERWRITE:
        return table.overwrite(frame, merge_schema=order.merge_schema)
    if order.mode is LoadMode.OVERWRITE_PARTITIONS:
        return table.overwrite_partitions(frame, merge_schema=order.merge_schema)
    return table.append(frame, merge_schema=order.merge_schema)


def _create(session: Session, name: Identifier, order: LoadOrder) -> Result:
    quoted = ".".join(f"`{level.replace('`', '``')}`" for level in (*name.namespace, name.name))
    writer = session.write_to(order.source.read(session.spark), quoted)
    for key, value in key_values("--property", order.properties).items():
        writer = writer.tableProperty(key, value)
    return writer.partitionedBy(*order.partitioned_by).create()
