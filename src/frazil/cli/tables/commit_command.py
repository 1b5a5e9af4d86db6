"""`frazil commit`: add Parquet files and remove paths in one commit."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, progress, unknown_if_interrupted
from frazil.cli.shared.printing import count_text, print_json, size_text
from frazil.cli.shared.typed_names import BadName, key_values, table_name
from frazil.cli.tables.snapshot_text import find_snapshot
from frazil.values.temporal import days_from_date
from frazil.values.transforms import Hour, Month, Transform, Year, parse_transform
from frazil.values.types import Type, TypeId, fields_by_id
from frazil.wire.errors import BadRequest
from frazil.wire.filter_builders import filter_json

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.table_verbs import Commit
    from frazil.wire.declared_content import DeclaredDataFile


@dataclass(frozen=True, slots=True)
class CommitArguments:
    """Arguments and options of the command."""

    table: str
    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    remove_where: str | None = None
    branch: str = "main"
    partition: Sequence[str] = ()
    summary: Sequence[str] = ()
    stage_only: bool = False
    base: str | None = None
    isolation: str | None = None
    conflict_filter: str | None = None
    replace_partitions: bool = False

    @property
    def only_adds(self) -> bool:
        return not (self.remove or self.remove_where or self.replace_partitions)


def run(choice: CatalogChoice, args: CommitArguments) -> None:
    _check(choice, args)
    with choice.connect() as client:
        table = client.load_table(table_name(args.table))
        options = _options(table, args)
        files = _read(table, args)
        with unknown_if_interrupted():
            done = _commit(table, args, files, options)
    _report(choice, args, files, done)


def _check(choice: CatalogChoice, args: CommitArguments) -> None:
    """Refuse invalid combinations of options before anything is read."""
    removes = bool(args.remove) or args.remove_where is not None
    if not args.add and not removes:
        choice.usage("commit: nothing to do, give --add, --remove or --remove-where")
    if args.replace_partitions and (removes or not args.add):
        choice.usage("--replace-partitions needs only --add: the added files select the partitions")
    if args.partition and not args.add:
        choice.usage("--partition applies to added files: give --add")
    if args.only_adds:
        for name in ("base", "isolation", "conflict_filter"):
            if getattr(args, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                choice.usage(f"{flag} has no effect on an append, which never conflicts")
    for flag, text in (
        ("--conflict-filter", args.conflict_filter),
        ("--remove-where", args.remove_where),
    ):
        try:
            if text is not None:
                filter_json(text)
        except BadRequest as error:
            choice.usage(f"{flag}: {error.message}")


def _options(table: Table, args: CommitArguments) -> dict[str, Any]:
    options: dict[str, Any] = {
        "branch": args.branch,
        "summary": key_values("--summary", args.summary),
        "stage_only": args.stage_only,
        "isolation": args.isolation,
        "conflict_filter": args.conflict_filter,
    }
    chosen = {name: value for name, value in options.items() if value is not None}
    if args.base is not None:
        base = find_snapshot(table, args.base)
        chosen["base_snapshot_id"] = None if base is None else base.snapshot_id
    return chosen


def _read(table: Table, args: CommitArguments) -> list[DeclaredDataFile]:
    """Read the footers of all added files in parallel."""
    from frazil.datafiles.footers.files_from_parquet import read_data_files

    partition = partition_of(table, args.partition)
    if not args.add:
        return []
    with progress("reading footers") as advance:
        partitions = [partition] * len(args.add)
        return list(read_data_files(args.add, table, partitions=partitions, progress=advance))


def _commit(
    table: Table,
    args: CommitArguments,
    files: Sequence[DeclaredDataFile],
    options: dict[str, Any],
) -> Commit:
    """Commit with the operation that the options select."""
    if args.replace_partitions:
        return table.replace_partitions(files, **options)
    if args.only_adds:
        return table.append_files(files, **options)
    if not files:
        return table.delete_files(args.remove, row_filter=args.remove_where, **options)
    return table.overwrite_files(files, args.remove, row_filter=args.remove_where, **options)


def _report(
    choice: CatalogChoice,
    args: CommitArguments,
    files: Sequence[DeclaredDataFile],
    done: Commit,
) -> None:
    rows = sum(file.record_count for file in files)
    size = sum(file.file_size_in_bytes for file in files)
    if choice.as_json:
        print_json(
            {
                "table": str(done.identifier),
                "branch": args.branch,
                "staged": args.stage_only,
                "snapshot-id": done.snapshot_id,
                "sequence-number": done.sequence_number,
                "operation": done.operation,
                "metadata-location": done.metadata_location,
                "attempts": done.attempts,
                "added": {"data-files": len(files), "records": rows, "size-in-bytes": size},
                "removed": {
                    "data-files": len(args.remove),
                    "where": args.remove_where,
                    "partitions": args.replace_partitions,
                },
            }
        )
        return
    where = "staged, on no branch" if args.stage_only else f"on {args.branch}"
    typer.echo(f"snapshot {done.snapshot_id} of {done.identifier} ({done.operation}), {where}")
    if files:
        count = count_text(len(files), "data file")
        typer.echo(f"  + {count}, {count_text(rows, 'row')}, {size_text(size)}")
    if args.remove:
        typer.echo(f"  - {count_text(len(args.remove), 'data file')}")
    if args.remove_where is not None:
        typer.echo(f"  - files where {args.remove_where}")
    if args.replace_partitions:
        typer.echo("  - all other files of their partitions")
    if args.stage_only:
        typer.echo(f"publish it: frazil cherry-pick {args.table} {done.snapshot_id}")


_EPOCH_YEAR: Final = 1970
_MONTH: Final = re.compile(r"(\d{4,})-(\d{2})")
_HOUR: Final = re.compile(r"(\d{4,}-\d{2}-\d{2})-(\d{2})")


def partition_of(table: Table, texts: Sequence[str]) -> dict[str, Any] | None:
    """Parse `--partition` by the fields of the default spec; return None if it is absent."""
    if not texts:
        return None
    fields = _partition_fields(table)
    values: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise BadName(f"--partition {text}: write it as name=value")
        if name not in fields:
            known = ", ".join(fields) or "none, it is unpartitioned"
            raise BadName(
                f"--partition {text}: {name!r} is not a partition field; known are {known}"
            )
        if name in values:
            raise BadName(f"--partition {text}: {name} appears twice")
        try:
            values[name] = _value(*fields[name], value)
        except ValueError as error:
            raise BadName(f"--partition {text}: {error}") from None
    return values


def _partition_fields(table: Table) -> dict[str, tuple[Transform, Type | None]]:
    """Return the transform and source type of each field of the default spec."""
    columns = fields_by_id(table.schema)
    fields: dict[str, tuple[Transform, Type | None]] = {}
    for part in table.spec()["fields"]:
        source = columns.get(part.get("source-id"))
        source_type = None if source is None else source.field.type
        fields[part["name"]] = (parse_transform(part["transform"]), source_type)
    return fields


def _value(transform: Transform, source: Type | None, text: str) -> Any:
    """Parse a value as Java's partitionToPath writes it; `null` is null, `"null"` is text."""
    if text == "null":
        return None
    if len(text) > 1 and text[0] == text[-1] == '"':
        return json.loads(text)
    if isinstance(transform, Year):
        return int(text) - _EPOCH_YEAR
    if isinstance(transform, Month):
        return _months(text)
    if isinstance(transform, Hour):
        return _hours(text)
    return text if source is None else _plain(transform.result_type(source), text)


def _months(text: str) -> int:
    match = _MONTH.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 12:
        raise ValueError("write a month as 2026-05")
    return (int(match[1]) - _EPOCH_YEAR) * 12 + int(match[2]) - 1


def _hours(text: str) -> int:
    match = _HOUR.fullmatch(text)
    if match is None or int(match[2]) > 23:
        raise ValueError("write an hour as 2026-05-01-12")
    return days_from_date(match[1]) * 24 + int(match[2])


def _plain(type_: Type, text: str) -> Any:
    match type_.type_id:
        case TypeId.BOOLEAN:
            if text not in ("true", "false"):
                raise ValueError("write true or false")
            return text == "true"
        case TypeId.INT | TypeId.LONG:
            return int(text)
        case TypeId.FLOAT | TypeId.DOUBLE:
            return float(text)
    return text
