"""`frazil spark merge`: the rows of files against those of a table, by a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.shared.catalog_command import CatalogChoice, on_its_way, usage
from frazil.cli.shared.typed_names import BadName, table_name
from frazil.cli.spark.file_rows import Source
from frazil.cli.spark.spark_session import print_result, spark_session

if TYPE_CHECKING:
    from frazil.spark.core.statement_runs import Result
    from frazil.spark.session import Session
    from frazil.spark.table import SparkTable


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """What was typed."""

    source: Source
    table: str
    on: tuple[str, ...]
    update: bool = True
    insert: bool = True
    delete_when: str | None = None
    delete_missing: bool = False
    mode: str | None = None
    branch: str = "main"
    conf: tuple[str, ...] = ()
    dry_run: bool = False


def run(choice: CatalogChoice, order: MergeOrder) -> None:
    name = table_name(order.table)
    if not (order.update or order.insert or order.delete_when or order.delete_missing):
        usage("merge: nothing to do, every clause is switched off", choice.output)
    with (
        spark_session(choice, order.conf, table=name, dry_run=order.dry_run) as session,
        on_its_way(),
    ):
        done = _merge(session, session.table(name).on_branch(order.branch), order)
    print_result(choice, str(name), order.branch, done)


def _merge(session: Session, table: SparkTable, order: MergeOrder) -> Result:
    from frazil.spark.schema.spark_types import spark_schema

    known = spark_schema(table.load().schema)
    frame = order.source.read(session.spark, known)
    columns = {field.name.lower() for field in known}
    merge = table.merge(frame, on_condition(order.on, columns))
    if order.delete_when is not None:
        merge = merge.when_matched_delete(order.delete_when)
    if order.update:
        # A column that the files lack keeps its value.
        ours = [name for name in frame.columns if name.lower() in columns]
        merge = merge.when_matched_update({name: _column("source", name) for name in ours})
    if order.insert:
        ours = [name for name in frame.columns if name.lower() in columns]
        merge = merge.when_not_matched_insert({name: _column("source", name) for name in ours})
    if order.delete_missing:
        merge = merge.when_not_matched_by_source_delete()
    return merge.execute(**({} if order.mode is None else {"mode": order.mode}))


def on_condition(given: tuple[str, ...], columns: set[str]) -> str:
    """Key columns and conditions, all of which must hold."""
    parts = []
    for text in given:
        if text.lower() in columns:
            parts.append(f"{_column('target', text)} = {_column('source', text)}")
        elif text.isidentifier():
            known = ", ".join(sorted(columns))
            raise BadName(f"--on {text}: the table has no such column, only {known}")
        else:
            parts.append(f"({text})")
    return " AND ".join(parts)


def _column(side: str, name: str) -> str:
    escaped = name.replace("`", "``")
    return f"{side}.`{escaped}`"
