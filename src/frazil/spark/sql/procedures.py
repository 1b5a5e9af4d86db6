"""Run CALL: procedures that move branches, `register_table`, and maintenance.

Parameters, their order and the result columns are those of Iceberg's own procedures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.metadata_updates import MetadataUpdates
from frazil.maintenance.equality_conversion import convert_equality_deletes
from frazil.maintenance.position_delete_rewrite import rewrite_position_delete_files
from frazil.maintenance.server_jobs import rewrite_manifests
from frazil.spark.maintenance.table_rewrite import rewrite_data_files
from frazil.spark.parse.parsed_statements import CallStatement
from frazil.spark.sql import maintenance_procedures, result_frames
from frazil.spark.sql.statement_tables import milliseconds_of
from frazil.spark.sql.table_names import SqlSession, identifier_of, name_of
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

Row: TypeAlias = tuple[Any, ...]
_WAP_ID: Final = "wap.id"
_MOVED: Final = "previous_snapshot_id bigint, current_snapshot_id bigint"
_PUBLISHED: Final = "source_snapshot_id bigint, current_snapshot_id bigint"


@dataclass(frozen=True)
class Procedure:
    """A procedure: its parameters, the columns of its result, and the function that runs it."""

    parameters: Mapping[str, str]
    """Types by name, in the order of positional arguments."""
    result_schema: str
    run: Callable[..., Row | list[Row]]
    optional: frozenset[str] = frozenset()


def call(session: SqlSession, statement: CallStatement) -> DataFrame:
    """Run CALL."""
    procedure = PROCEDURES.get(statement.procedure)
    if procedure is None:
        known = ", ".join(sorted(PROCEDURES))
        raise BadRequest(
            f"session.sql has no procedure {statement.procedure}; it has {known}. Spark with "
            "Iceberg's runtime has Iceberg's others, such as ancestors_of: "
            f'spark.sql("CALL {session.catalog_name}.system.…")'
        )
    arguments = _arguments(session, statement, procedure)
    found = procedure.run(session, **arguments)
    rows = found if isinstance(found, list) else [found]
    return result_frames.literal_rows(session, procedure.result_schema, rows)


def _arguments(
    session: SqlSession, statement: CallStatement, procedure: Procedure
) -> dict[str, Any]:
    names = list(procedure.parameters)
    if len(statement.positional) > len(names):
        raise BadRequest(f"{statement.procedure} takes only {', '.join(names)}")
    texts = dict(zip(names, statement.positional, strict=False))
    for name, text in statement.named.items():
        if name not in names:
            raise BadRequest(f"{statement.procedure} has no argument {name}; it has {names}")
        if name in texts:
            raise BadRequest(f"{statement.procedure}: {name} is given twice")
        texts[name] = text
    missing = [name for name in names if name not in texts and name not in procedure.optional]
    if missing:
        raise BadRequest(f"{statement.procedure}: {', '.join(missing)} is missing")
    kinds = procedure.parameters
    return {name: _value(session, name, kinds[name], text) for name, text in texts.items()}


def _value(session: SqlSession, name: str, kind: str, text: str) -> Any:
    """Let Spark evaluate an argument, which may be any constant expression."""
    if kind == "timestamp":
        return milliseconds_of(session, text)
    (row,) = session.spark.sql(f"SELECT CAST(({text}) AS {kind})").collect()
    if row[0] is None:
        raise BadRequest(f"{name}: {text} is null")
    return identifier_of(session, name_of(row[0])) if name == "table" else row[0]


# --- implementations ------------------------------------------------------------------------------


def _rollback_to_snapshot(session: SqlSession, table: Identifier, snapshot_id: int) -> Row:
    loaded = session.client.load_table(table)
    loaded.rollback(snapshot_id)
    return loaded.head(), snapshot_id


def _rollback_to_timestamp(session: SqlSession, table: Identifier, timestamp: int) -> Row:
    loaded = session.client.load_table(table)
    # Roll back to the last snapshot before the timestamp, not at it.
    loaded.rollback(timestamp_ms=timestamp - 1)
    return loaded.head(), session.client.load_table(table).head()


def _set_current_snapshot(
    session: SqlSession,
    table: Identifier,
    snapshot_id: int | None = None,
    ref: str | None = None,
) -> Row:
    if (snapshot_id is None) == (ref is None):
        raise BadRequest("set_current_snapshot: give either snapshot_id or ref")
    selector: int | str = ref if ref is not None else int(snapshot_id or 0)
    moved: dict[str, int | None] = {}

    def build(loaded: Table) -> MetadataUpdates:
        new_head = loaded.snapshot(selector).snapshot_id
        moved["previous"], moved["current"] = loaded.head(), new_head
        update: dict[str, Any] = {
            **((loaded.metadata.get("refs") or {}).get(MAIN) or {}),
            "action": "set-snapshot-ref",
            "ref-name": MAIN,
            "type": "branch",
            "snapshot-id": new_head,
        }
        main = loaded.refs.get(MAIN)
        requirement = {
            "type": "assert-ref-snapshot-id",
            "ref": MAIN,
            "snapshot-id": None if main is None else main.snapshot_id,
        }
        return [update], [requirement]

    session.client.change_metadata(table, build)
    return moved["previous"], moved["current"]


def _cherrypick_snapshot(session: SqlSession, table: Identifier, snapshot_id: int) -> Row:
    session.client.cherry_pick(table, snapshot_id)
    return snapshot_id, session.client.load_table(table).head()


def _publish_changes(session: SqlSession, table: Identifier, wap_id: str) -> Row:
    loaded = session.client.load_table(table)
    staged = [
        snapshot.snapshot_id
        for snapshot in loaded.snapshots
        if snapshot.summary.get(_WAP_ID) == wap_id
    ]
    if not staged:
        raise NotFound(f"{loaded} has no snapshot that was staged with {_WAP_ID} {wap_id}")
    if len(staged) > 1:
        ids = ", ".join(map(str, staged))
        raise BadRequest(
            f"{loaded}: {_WAP_ID} {wap_id} is not unique: {ids}; use cherrypick_snapshot"
        )
    return _cherrypick_snapshot(session, table, staged[0])


def _fast_forward(session: SqlSession, table: Identifier, branch: str, to: str) -> Row:
    loaded = session.client.load_table(table)
    before = loaded.refs.get(branch)
    loaded.fast_forward(branch, to)
    after = session.client.load_table(table, snapshots="refs").refs[branch]
    return branch, None if before is None else before.snapshot_id, after.snapshot_id


def _register_table(session: SqlSession, table: Identifier, metadata_file: str) -> Row:
    registered = session.client.register_table(table, metadata_file)
    head = registered.head()
    if head is None:
        return None, None, None
    summary: Mapping[str, str] = registered.snapshot(head).summary
    counts = [summary.get(name) for name in ("total-records", "total-data-files")]
    return (head, *(None if text is None else int(text) for text in counts))


def _rewrite_data_files(
    session: SqlSession,
    table: Identifier,
    strategy: str | None = None,
    sort_order: str | None = None,
    options: Mapping[str, str] | None = None,
    where: str | None = None,
    branch: str = MAIN,
) -> Row:
    result = rewrite_data_files(
        session.context,
        table,
        strategy=strategy,
        sort_order=sort_order,
        where=where,
        branch=branch,
        options=options,
    )
    return (
        result.rewritten_data_files_count,
        result.added_data_files_count,
        result.rewritten_bytes_count,
        result.failed_data_files_count,
        result.removed_delete_files_count,
    )


def _rewrite_position_delete_files(
    session: SqlSession,
    table: Identifier,
    options: Mapping[str, str] | None = None,
    where: str | None = None,
    branch: str = MAIN,
) -> Row:
    result = rewrite_position_delete_files(
        session.client.load_table(table),
        where=where,
        branch=branch,
        options=options,
        properties=session.context.properties,
    )
    return (
        result.rewritten_delete_files_count,
        result.added_delete_files_count,
        result.rewritten_bytes_count,
        result.added_bytes_count,
    )


def _convert_equality_deletes(
    session: SqlSession, table: Identifier, where: str | None = None, branch: str = MAIN
) -> Row:
    result = convert_equality_deletes(
        session.client.load_table(table),
        where=where,
        branch=branch,
        properties=session.context.properties,
    )
    return (
        result.converted_equality_delete_files_count,
        result.added_position_delete_files_count,
        result.deleted_rows_count,
    )


def _rewrite_manifests(
    session: SqlSession,
    table: Identifier,
    use_caching: bool = False,
    spec_id: int | None = None,
    sort_by: Sequence[str] = (),
    branch: str = MAIN,
) -> Row:
    # The server has its own cache, so `use_caching` changes nothing.
    loaded = session.client.load_table(table)
    result = rewrite_manifests(loaded, spec_id=spec_id, sort_by=sort_by, branch=branch)
    return result.rewritten_manifests_count, result.added_manifests_count


def _job(
    parameters: Mapping[str, str], result_schema: str, run: Callable[..., Row | list[Row]]
) -> Procedure:
    """Return a procedure that is a job of the server; only the table must be named."""
    return Procedure(parameters, result_schema, run, frozenset(parameters) - {"table"})


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "rewrite_manifests": Procedure(
        {
            "table": "string",
            "use_caching": "boolean",
            "spec_id": "int",
            "sort_by": "array<string>",
            "branch": "string",
        },
        "rewritten_manifests_count int, added_manifests_count int",
        _rewrite_manifests,
        optional=frozenset({"use_caching", "spec_id", "sort_by", "branch"}),
    ),
    "expire_snapshots": _job(
        maintenance_procedures.EXPIRE_PARAMETERS,
        maintenance_procedures.EXPIRE_RESULT,
        maintenance_procedures.expire_snapshots,
    ),
    "remove_orphan_files": _job(
        maintenance_procedures.ORPHAN_PARAMETERS,
        "orphan_file_location string",
        maintenance_procedures.remove_orphan_files,
    ),
    "remove_dangling_deletes": _job(
        {"table": "string"},
        "removed_delete_files_count bigint, removed_bytes_count bigint",
        maintenance_procedures.remove_dangling_deletes,
    ),
    "undo": _job(
        {"table": "string", "snapshot_id": "bigint", "tag": "string"},
        "snapshot_id bigint, tag string",
        maintenance_procedures.undo,
    ),
    "convert_equality_deletes": Procedure(
        {"table": "string", "where": "string", "branch": "string"},
        "converted_equality_delete_files_count int, added_position_delete_files_count int, "
        "deleted_rows_count bigint",
        _convert_equality_deletes,
        optional=frozenset({"where", "branch"}),
    ),
    "rewrite_position_delete_files": Procedure(
        {
            "table": "string",
            "options": "map<string, string>",
            "where": "string",
            "branch": "string",
        },
        "rewritten_delete_files_count int, added_delete_files_count int, "
        "rewritten_bytes_count bigint, added_bytes_count bigint",
        _rewrite_position_delete_files,
        optional=frozenset({"options", "where", "branch"}),
    ),
    "rewrite_data_files": Procedure(
        {
            "table": "string",
            "strategy": "string",
            "sort_order": "string",
            "options": "map<string, string>",
            "where": "string",
            "branch": "string",
        },
        "rewritten_data_files_count int, added_data_files_count int, rewritten_bytes_count bigint, "
        "failed_data_files_count int, removed_delete_files_count int",
        _rewrite_data_files,
        optional=frozenset({"strategy", "sort_order", "options", "where", "branch"}),
    ),
    "rollback_to_snapshot": Procedure(
        {"table": "string", "snapshot_id": "bigint"}, _MOVED, _rollback_to_snapshot
    ),
    "rollback_to_timestamp": Procedure(
        {"table": "string", "timestamp": "timestamp"}, _MOVED, _rollback_to_timestamp
    ),
    "set_current_snapshot": Procedure(
        {"table": "string", "snapshot_id": "bigint", "ref": "string"},
        _MOVED,
        _set_current_snapshot,
        optional=frozenset({"snapshot_id", "ref"}),
    ),
    "cherrypick_snapshot": Procedure(
        {"table": "string", "snapshot_id": "bigint"}, _PUBLISHED, _cherrypick_snapshot
    ),
    "publish_changes": Procedure(
        {"table": "string", "wap_id": "string"}, _PUBLISHED, _publish_changes
    ),
    "fast_forward": Procedure(
        {"table": "string", "branch": "string", "to": "string"},
        "branch_updated string, previous_ref bigint, updated_ref bigint",
        _fast_forward,
    ),
    "register_table": Procedure(
        {"table": "string", "metadata_file": "string"},
        "current_snapshot_id bigint, total_records_count bigint, total_data_files_count bigint",
        _register_table,
    ),
}
