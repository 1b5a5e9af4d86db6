"""Run INSERT, DELETE, UPDATE, MERGE and TRUNCATE.

A statement that reads its own target runs again as a whole after a conflict, from a new load of the
table. What it reads and what its commit is checked against are then the same snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.client.declare.partition_terms import VOID
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.core.progress import progress
from frazil.spark.core.statement_runs import Result, Target, run_statement
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_literals import default_literal
from frazil.spark.parse.sql_tokens import Cursor, Edit, Name, apply_edits
from frazil.spark.parse.table_references import qualifiers_of
from frazil.spark.rows import row_changes
from frazil.spark.rows.merge_clauses import STAR, Clause, Merge
from frazil.spark.rows.merge_statement import MergeBuilder
from frazil.spark.sql.statement_tables import StatementTables
from frazil.spark.sql.table_names import SqlSession, target_of
from frazil.spark.writing.frame_statements import FrameStatement
from frazil.wire.errors import BadRequest

_DEFAULT: Final = "DEFAULT"
_OVERWRITE_MODE_SETTING: Final = "spark.sql.sources.partitionOverwriteMode"


class _ColumnDefaults:
    """Replaces DEFAULT in statements with the write defaults of a table's columns."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._fields = {field.name.lower(): field for field in table.schema.fields}

    def replaced(self, column: str, text: str) -> str | None:
        """Return the default of a column if the text is only DEFAULT."""
        if text.strip().upper() != _DEFAULT:
            return None
        field = self._fields.get(column.lower())
        if field is None:
            raise BadRequest(f"{self._table} has no column {column} that could have a default")
        return default_literal(field)

    def in_values(self, query: str, columns: list[str]) -> str:
        """Replace DEFAULT in the rows of VALUES; return any other query unchanged."""
        cursor = Cursor(query)
        if not cursor.accept("VALUES"):
            return query
        rows = cursor.comma_list(lambda: self._row_edits(cursor, columns))
        return apply_edits(query, [edit for row in rows for edit in row])

    def _row_edits(self, cursor: Cursor, columns: list[str]) -> list[Edit]:
        if not cursor.at("("):
            cursor.until("a row", ",")
            return []
        names = iter(columns)

        def value() -> Edit | None:
            first = cursor.peek()
            text = cursor.until("a value", ",")
            column = next(names, None)
            new = None if column is None else self.replaced(column, text)
            return None if new is None or first is None else (first.start, first.end, new)

        return [edit for edit in cursor.parenthesized(value) if edit is not None]


class _Insertion:
    """The rows that an INSERT writes, and what they replace."""

    def __init__(self, session: SqlSession, table: Table, statement: sql.InsertStatement) -> None:
        self._session = session
        self._table = table
        self._statement = statement
        self._static = {
            self._column(name): text for name, text in statement.partition if text is not None
        }
        self._check_partition()

    def frame(self, tables: StatementTables) -> DataFrame:
        """Return the rows with the table's column names."""
        statement = self._statement
        if statement.by_name:
            return self._with_static(tables.query(statement.query))
        names = self._query_columns()
        frame = tables.query(_ColumnDefaults(self._table).in_values(statement.query, names))
        extra = len(frame.columns) - len(names)
        if extra < 0 or (extra > 0 and not statement.merge_schema):
            raise BadRequest(
                f"{self._table} takes {len(names)} columns here ({', '.join(names)}), "
                f"the query has {len(frame.columns)} ({', '.join(frame.columns)})"
            )
        return self._with_static(frame.toDF(*names, *frame.columns[len(names) :]))

    @property
    def replaces_partitions(self) -> bool:
        """Like Spark, return True in dynamic mode unless PARTITION (…) has all values."""
        mode = str(self._session.spark.conf.get(_OVERWRITE_MODE_SETTING, "static"))
        fields = [field for field in self._table.spec()["fields"] if field["transform"] != VOID]
        return mode.lower() == "dynamic" and len(fields) > len(self._static)

    @property
    def static_condition(self) -> str | None:
        """Return the condition of the rows that PARTITION (…) replaces; None for all rows."""
        parts = [
            f"{quoted(name)} IS NULL"
            if text.strip().upper() == "NULL"
            else f"{quoted(name)} = {text}"
            for name, text in self._static.items()
        ]
        return " AND ".join(parts) or None

    def _query_columns(self) -> list[str]:
        """Return the table's columns that the query has values for, in order."""
        if self._statement.columns:
            return [self._column(name) for name in self._statement.columns]
        names = (field.name for field in self._table.schema.fields)
        return [name for name in names if name not in self._static]

    def _with_static(self, frame: DataFrame) -> DataFrame:
        for name, text in self._static.items():
            frame = frame.withColumn(name, fn.expr(text))
        return frame

    def _column(self, name: str) -> str:
        (field,) = NameMatcher().chosen(self._table.schema, [name], self._table)
        return field.name

    def _check_partition(self) -> None:
        names = {field.field_id: field.name for field in self._table.schema.fields}
        identity = {
            names.get(field["source-id"])
            for field in self._table.spec()["fields"]
            if field["transform"] == "identity"
        }
        for name, _ in self._statement.partition:
            if self._column(name) not in identity:
                known = ", ".join(sorted(name for name in identity if name)) or "none"
                raise BadRequest(
                    f"PARTITION ({name}): {self._table} is not partitioned by that column itself; "
                    f"its identity partition columns: {known}"
                )


@dataclass(frozen=True)
class _StatementRun:
    """What one run of a statement works with."""

    context: Context
    target: Target
    tables: StatementTables
    table: Table
    """The target as it was loaded for this run."""


def _run(
    session: SqlSession,
    title: str,
    name: Name,
    texts: tuple[str | None, ...],
    do: Callable[[_StatementRun], Result],
    relation: str = "",
) -> Result:
    """Run a statement. `texts` and `relation`, the text after FROM, are all that it reads."""
    context, target = session.context, target_of(session, name)

    def attempt() -> Result:
        # The statement that `do` runs reads and writes this state of the table, and runs once: a
        # conflict starts a new attempt here, with everything that the text reads.
        table = target.load(context)
        pinned = replace(target, pinned=table)
        with StatementTables(session, table) as tables:
            return do(_StatementRun(context, pinned, tables, table))

    with progress(context, f"{title} {target}"):
        table = target.load(context)
        with StatementTables(session, table) as tables:
            if not tables.reads(target.identifier, *texts, relation=relation):
                return do(_StatementRun(context, target, tables, table))
        return run_statement(context, target, attempt)


# --- INSERT ---------------------------------------------------------------------------------------


def insert(session: SqlSession, statement: sql.InsertStatement) -> Result:
    """Run INSERT."""

    def do(run: _StatementRun) -> Result:
        insertion = _Insertion(session, run.table, statement)
        frame = insertion.frame(run.tables)
        writing = FrameStatement(run.context, run.target, frame, statement.merge_schema)
        if statement.replace_where is not None:
            where = _expression(run, statement.replace_where)
            return writing.overwrite(where)
        if not statement.overwrite:
            return writing.append()
        if insertion.replaces_partitions:
            return writing.overwrite_partitions()
        return writing.overwrite(insertion.static_condition)

    texts = (statement.query, statement.replace_where)
    title = "overwrite" if statement.overwrite else "append to"
    return _run(session, title, statement.target, texts, do)


# --- DELETE, UPDATE, TRUNCATE ---------------------------------------------------------------------


def delete(session: SqlSession, statement: sql.DeleteStatement) -> Result:
    """Run DELETE."""

    def do(run: _StatementRun) -> Result:
        where = _where(run, statement.where)
        return row_changes.delete(run.context, run.target, where, alias=statement.alias)

    return _run(session, "delete from", statement.target, (statement.where,), do)


def truncate(session: SqlSession, statement: sql.TruncateStatement) -> Result:
    """Run TRUNCATE TABLE."""
    return row_changes.delete(session.context, target_of(session, statement.target))


def update(session: SqlSession, statement: sql.UpdateStatement) -> Result:
    """Run UPDATE."""

    def do(run: _StatementRun) -> Result:
        where = _where(run, statement.where)
        assigned = _assigned(run, statement.assignments, statement.alias)
        return row_changes.update(run.context, run.target, assigned, where, alias=statement.alias)

    texts = (statement.where, *(value for _, value in statement.assignments))
    return _run(session, "update", statement.target, texts, do)


def _where(run: _StatementRun, text: str | None) -> str | None:
    return None if text is None else _expression(run, text)


def _expression(run: _StatementRun, text: str) -> str:
    return run.tables.expression(text, run.target.identifier)


def _assigned(
    run: _StatementRun, assignments: sql.Assignments, alias: str | None
) -> dict[str, str]:
    """Return expressions by column names without the table's qualifier."""
    defaults = _ColumnDefaults(run.table)
    assigned: dict[str, str] = {}
    for name, text in assignments:
        column = ".".join(_without_qualifier(run, name, alias))
        if column in assigned:
            raise BadRequest(f"column {column} is set twice")
        value = defaults.replaced(column, text)
        assigned[column] = _expression(run, text) if value is None else value
    return assigned


def _without_qualifier(run: _StatementRun, name: Name, alias: str | None) -> Name:
    columns = {field.name.lower() for field in run.table.schema.fields}
    identifier = run.target.identifier
    full = (run.context.settings.catalog_name, *identifier.namespace, identifier.name)
    lowered = tuple(part.lower() for part in name)
    qualifiers = [(alias.lower(),)] if alias else [*qualifiers_of(full), (full[-1].lower(),)]
    for qualifier in qualifiers:
        length = len(qualifier)
        if lowered[:length] == qualifier and len(name) > length and lowered[length] in columns:
            return name[length:]
    return name


# --- MERGE ----------------------------------------------------------------------------------------


def merge(session: SqlSession, statement: sql.MergeStatement) -> Result:
    """Run MERGE."""

    def do(run: _StatementRun) -> Result:
        source = run.tables.relation(statement.source)
        merge = Merge(
            on=_expression(run, statement.on),
            clauses=tuple(_clause(run, clause, statement.alias) for clause in statement.clauses),
            target_alias=statement.alias or run.target.identifier.name,
            source_alias=statement.source_alias,
            evolves=statement.merge_schema,
        )
        # A source that reads the target pins the target.
        return MergeBuilder(run.context, run.target, source, merge, is_apart=True).execute()

    texts = _texts_of(statement)
    return _run(session, "merge into", statement.target, texts, do, statement.source)


def _texts_of(statement: sql.MergeStatement) -> tuple[str | None, ...]:
    texts: list[str | None] = [statement.on]
    for clause in statement.clauses:
        texts.append(clause.condition)
        texts.extend(value for _, value in clause.assignments or ())
    return tuple(texts)


def _clause(run: _StatementRun, clause: sql.MergeClause, alias: str | None) -> Clause:
    condition = _where(run, clause.condition)
    if clause.action == "delete":
        return Clause(clause.kind, None, condition)
    if clause.assignments is None:
        return Clause(clause.kind, STAR, condition)
    return Clause(clause.kind, _assigned(run, clause.assignments, alias), condition)
