"""`frazil commit`: declares Parquet files to be added and paths to be removed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, on_its_way, progress, usage
from frazil.cli.shared.printing import count_text, print_json, size_text
from frazil.cli.shared.typed_names import BadName, key_values, table_name
from frazil.cli.tables.snapshot_text import find_snapshot

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.table_verbs import Commit
    from frazil.values.transforms import Transform
    from frazil.values.types import Type
    from frazil.wire.declared_content import DeclaredDataFile


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """What was typed."""

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
    dry_run: bool = False

    @property
    def only_adds(self) -> bool:
        return not (self.remove or self.remove_where or self.replace_partitions)


def run(choice: CatalogChoice, order: CommitOrder) -> None:
    _check(choice, order)
    with choice.connect(dry_run=order.dry_run) as client:
        table = client.load_table(table_name(order.table))
        options = _options(table, order)
        files = _read(table, order)
        with on_its_way():
            done = _commit(table, order, files, options)
    _report(choice, order, files, done)


def _check(choice: CatalogChoice, order: CommitOrder) -> None:
    """What is wrong by itself is said before anything is read."""
    from frazil.wire.errors import BadRequest
    from frazil.wire.filter_builders import filter_json

    removes = bool(order.remove) or order.remove_where is not None
    if not order.add and not removes:
        usage("commit: nothing to do, give --add, --remove or --remove-where", choice.output)
    if order.replace_partitions and (removes or not order.add):
        usage(
            "--replace-partitions takes --add alone: the added files say what is replaced",
            choice.output,
        )
    if order.partition and not order.add:
        usage("--partition is for added files: give --add", choice.output)
    if order.only_adds:
        for name in ("base", "isolation", "conflict_filter"):
            if getattr(order, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                usage(f"{flag} means nothing for an append, which never conflicts", choice.output)
    for flag, text in (
        ("--conflict-filter", order.conflict_filter),
        ("--remove-where", order.remove_where),
    ):
        try:
            if text is not None:
                filter_json(text)
        except BadRequest as error:
            usage(f"{flag}: {error.message}", choice.output)


def _options(table: Table, order: CommitOrder) -> dict[str, Any]:
    options: dict[str, Any] = {
        "branch": order.branch,
        "summary": key_values("--summary", order.summary),
        "stage_only": order.stage_only,
    }
    if order.base is not None:
        base = find_snapshot(table, order.base)
        options["base_snapshot_id"] = None if base is None else base.snapshot_id
    if order.isolation is not None:
        options["isolation"] = order.isolation
    if order.conflict_filter is not None:
        options["conflict_filter"] = order.conflict_filter
    return options


def _read(table: Table, order: CommitOrder) -> list[DeclaredDataFile]:
    """The footers of all added files, in parallel."""
    from frazil.datafiles.footers.files_from_parquet import read_data_files

    partition = partition_of(table, order.partition)
    if not order.add:
        return []
    with progress("reading footers") as advance:
        given = [partition] * len(order.add)
        return list(read_data_files(order.add, table, partitions=given, progress=advance))


def _commit(
    table: Table, order: CommitOrder, files: Sequence[DeclaredDataFile], options: dict[str, Any]
) -> Commit:
    """The operation follows from what is given."""
    if order.replace_partitions:
        return table.replace_partitions(files, **options)
    if order.only_adds:
        return table.append_files(files, **options)
    if not files:
        return table.delete_files(order.remove, row_filter=order.remove_where, **options)
    return table.overwrite_files(files, order.remove, row_filter=order.remove_where, **options)


def _report(
    choice: CatalogChoice, order: CommitOrder, files: Sequence[DeclaredDataFile], done: Commit
) -> None:
    rows = sum(file.record_count for file in files)
    size = sum(file.file_size_in_bytes for file in files)
    if choice.as_json:
        print_json(
            {
                "table": str(done.identifier),
                "branch": order.branch,
                "staged": order.stage_only,
                "snapshot-id": done.snapshot_id,
                "sequence-number": done.sequence_number,
                "operation": done.operation,
                "metadata-location": done.metadata_location,
                "attempts": done.attempts,
                "added": {"data-files": len(files), "records": rows, "size-in-bytes": size},
                "removed": {"data-files": len(order.remove), "where": order.remove_where},
            }
        )
        return
    where = "staged, on no branch" if order.stage_only else f"on {order.branch}"
    typer.echo(f"snapshot {done.snapshot_id} of {done.identifier} ({done.operation}), {where}")
    if files:
        count = count_text(len(files), "data file")
        typer.echo(f"  + {count}, {count_text(rows, 'row')}, {size_text(size)}")
    if order.remove:
        typer.echo(f"  - {count_text(len(order.remove), 'data file')}")
    if order.remove_where is not None:
        typer.echo(f"  - files where {order.remove_where}")
    if order.stage_only:
        typer.echo(f"publish it: frazil cherry-pick {order.table} {done.snapshot_id}")


_EPOCH_YEAR: Final = 1970
_MONTH: Final = re.compile(r"(\d{4,})-(\d{2})")
_HOUR: Final = re.compile(r"(\d{4,}-\d{2}-\d{2})-(\d{2})")


def partition_of(table: Table, given: Sequence[str]) -> dict[str, Any] | None:
    """What `--partition` says, by the names of the default spec's fields; None without any."""
    if not given:
        return None
    kinds = _kinds(table)
    values: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise BadName(f"--partition {text}: write it as name=value")
        if name not in kinds:
            known = ", ".join(kinds) or "none, it is unpartitioned"
            raise BadName(f"--partition {text}: {name!r} is no partition field; there are {known}")
        if name in values:
            raise BadName(f"--partition {text}: {name} is given twice")
        try:
            values[name] = _value(*kinds[name], value)
        except ValueError as error:
            raise BadName(f"--partition {text}: {error}") from None
    return values


def _kinds(table: Table) -> dict[str, tuple[Transform, Type | None]]:
    """Transform and source type of each field of the default spec."""
    from frazil.cli.tables.show_command import columns
    from frazil.values.transforms import parse_transform

    types = {field.field_id: field.type for _, field in columns(table.schema)}
    return {
        part["name"]: (parse_transform(part["transform"]), types.get(part.get("source-id")))
        for part in table.spec()["fields"]
    }


def _value(transform: Transform, source: Type | None, text: str) -> Any:
    """What Java's partitionToPath writes, unescaped; `null` is null, and `"null"` the text."""
    from frazil.values.transforms import Hour, Month, Year

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
    from frazil.values.temporal import days_from_date

    match = _HOUR.fullmatch(text)
    if match is None or int(match[2]) > 23:
        raise ValueError("write an hour as 2026-05-01-12")
    return days_from_date(match[1]) * 24 + int(match[2])


def _plain(type_: Type, text: str) -> Any:
    from frazil.values.types import TypeId

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
