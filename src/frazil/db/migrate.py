"""Updates the schema to this version, one numbered step after another.

It runs in one transaction under a lock, so that two processes do each step only once, and a
failure leaves the schema as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from frazil.db.base import DatabaseRefused
from frazil.db.rows import Statements
from frazil.db.sql import Migration


def migrate(
    sql: Statements, steps: tuple[Migration, ...], run_statement: Callable[[str], object]
) -> None:
    """Migrate the schema. `run_statement` runs the plain SQL of a migration in the transaction of
    `sql`.
    """
    sql.fetch("hold_schema", {})
    sql.execute("create_schema_version", {})
    current: int = sql.fetch("schema_version", {})[0][0] or 0
    if current > len(steps):
        raise DatabaseRefused(
            f"the database has schema version {current}, but this Frazil ({_frazil_version()}) "
            f"knows versions up to {len(steps)}: run the newer Frazil that made it, or restore "
            "the backup taken before the upgrade"
        )
    for step in steps[current:]:
        for statement in step.statements:
            run_statement(statement)
        sql.execute("record_schema_version", {"version": step.version, "name": step.name})


def _frazil_version() -> str:
    try:
        return version("frazil")
    except PackageNotFoundError:  # This is a checkout that was never installed.
        return "not installed"
