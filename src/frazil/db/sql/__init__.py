"""Reads named SQL from the files next to this module, and migrates the schema.

`queries.sql`, `housekeeping.sql` and `jobs.sql` have the statements that both databases share;
`sqlite.sql` and `postgres.sql` have those that differ. Together each dialect has exactly the
statements of `QueryName`. Migrations are numbered files, in one folder for each dialect. They run
in one transaction under a lock, so that two processes do each step only once, and a failure leaves
the schema as it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_args

from frazil.db.base import DatabaseRefused

Dialect: TypeAlias = Literal["sqlite", "postgres"]

QueryName: TypeAlias = Literal[
    "activity",
    "activity_of",
    "add_activity",
    "all_jobs",
    "ask_to_cancel_job",
    "assign_positions",
    "beat_job",
    "cancel_queued_job",
    "claim_commit",
    "commit_state",
    "count_intents",
    "count_leases",
    "create_location",
    "create_namespace",
    "create_relation",
    "create_schema_version",
    "database_clock",
    "delete_expired_snapshot",
    "delete_purged_table",
    "doomed_file",
    "doomed_file_totals",
    "doomed_files",
    "doomed_totals",
    "drop_doomed_file",
    "drop_expired_snapshot",
    "drop_intent",
    "drop_job_lock",
    "drop_key",
    "drop_lease",
    "drop_live_intent",
    "drop_locations",
    "drop_namespace",
    "drop_purged_table",
    "drop_relation",
    "drop_retired_metadata",
    "drop_retired_of_purged",
    "drop_rows_of_purged",
    "end_intent",
    "end_job",
    "ended_intent_count",
    "events",
    "expired_snapshot",
    "expired_snapshot_totals",
    "expired_snapshots",
    "expired_totals",
    "files_being_deleted",
    "forget_activity",
    "forget_commits",
    "forget_intents",
    "forget_jobs",
    "forget_keys",
    "forget_leases",
    "forget_removed_definitions",
    "forget_streams",
    "has_doomed_files",
    "hold_locations",
    "hold_namespace",
    "hold_namespace_alone",
    "hold_relations",
    "hold_schema",
    "insert_doomed_file",
    "insert_event",
    "insert_expired_snapshot",
    "insert_intent",
    "insert_job",
    "insert_key",
    "insert_purged_table",
    "insert_removed_definition",
    "insert_retired_metadata",
    "insert_secret",
    "intent",
    "intents_of",
    "job",
    "job_lock",
    "job_of_worker",
    "jobs_of_table",
    "key",
    "key_of_another",
    "last_position",
    "last_version",
    "lease",
    "leased_among",
    "list_namespaces",
    "list_relations",
    "listed_leases",
    "live_intents",
    "live_leases",
    "location_at_or_above",
    "location_below",
    "locations_of",
    "lock_position",
    "metadata_within",
    "namespace_contents",
    "namespace_properties",
    "now_ms",
    "open_job_counts",
    "open_jobs",
    "overlapping_intents",
    "purged_table",
    "purged_tables",
    "record_schema_version",
    "relation",
    "relation_by_uuid",
    "release_doomed_file",
    "release_doomed_files",
    "removed_definitions",
    "renew_intent",
    "renew_job_lock",
    "renew_lease",
    "requeue_job",
    "retired_metadata",
    "sample_relations",
    "schema_version",
    "secret",
    "set_last_position",
    "set_namespace_properties",
    "share_relation",
    "start_job",
    "store_lease",
    "stream",
    "swap_relation",
    "sweep_intent",
    "swept_prefixes",
    "tables_with_work",
    "take_expired_snapshot",
    "take_job_lock",
    "take_purged_table",
    "unplaced_event",
    "write_stream",
]

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, Any]


class Fetch(Protocol):
    """Runs named statements that return rows."""

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]: ...


class Statements(Fetch, Protocol):
    """Runs named statements in one open transaction or on one connection."""

    def execute(self, name: QueryName, parameters: Parameters) -> int:
        """Run one statement and return how many rows it changed."""

    def execute_many(self, name: QueryName, parameters: Sequence[Parameters]) -> int:
        """Run one statement for each set of parameters and return how many rows all of them
        changed.
        """


_BLOCK: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*$", re.MULTILINE)
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)")
_MIGRATION: Final = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    statements: tuple[str, ...]


def queries(dialect: Dialect) -> dict[QueryName, str]:
    """Return every statement by its name, without comments, in the parameter style of the
    dialect."""
    folder = files(__package__)
    names = ("queries.sql", "housekeeping.sql", "jobs.sql", f"{dialect}.sql")
    texts = {name: text for file in names for name, text in _blocks(folder / file).items()}
    expected = set(get_args(QueryName))
    if texts.keys() != expected:
        raise LookupError(
            f"the {dialect} statements and QueryName differ by {sorted(texts.keys() ^ expected)}"
        )
    adapted = {name: _adapt(text, dialect) for name, text in texts.items()}
    return cast("dict[QueryName, str]", adapted)


def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Return the steps from an empty database to the schema of this version, in order."""
    steps = []
    for file in (files(__package__) / "migrations" / dialect).iterdir():
        if match := _MIGRATION.fullmatch(file.name):
            steps.append(Migration(int(match[1]), match[2], _statements(file)))
    steps.sort(key=lambda step: step.version)
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise LookupError(f"the {dialect} migrations are not numbered 0001, 0002, … without gaps")
    return tuple(steps)


def migrate(
    sql: Statements, steps: tuple[Migration, ...], run_statement: Callable[[str], object]
) -> int:
    """Migrate the schema, and return its version before, 0 if the database was empty.

    `run_statement` runs the plain SQL of a migration in the transaction of `sql`.
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
    return current


def _blocks(file: Traversable) -> dict[str, str]:
    _, *parts = _BLOCK.split(file.read_text(encoding="utf-8"))
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise LookupError(f"{file.name} names a statement twice")
    return dict(zip(names, map(_one_statement, bodies), strict=True))


def _one_statement(body: str) -> str:
    return _COMMENT.sub("", body).strip().removesuffix(";")


def _statements(file: Traversable) -> tuple[str, ...]:
    """Return the statements of a migration. Each ends with `;` at the end of a line."""
    text = _COMMENT.sub("", file.read_text(encoding="utf-8"))
    return tuple(part.strip() for part in re.split(r";\s*\n", text) if part.strip())


def _adapt(text: str, dialect: Dialect) -> str:
    """Convert parameters. `:name` is SQLite's own style; psycopg needs `%(name)s` and `%`
    doubled."""
    if dialect == "sqlite":
        return text
    return _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))


def _frazil_version() -> str:
    try:
        return version("frazil")
    except PackageNotFoundError:  # This is a checkout that was never installed.
        return "not installed"
