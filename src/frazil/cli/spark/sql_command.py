"""`frazil spark sql`: run SQL statements and print their rows."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, unknown_if_interrupted
from frazil.cli.shared.printing import count_text, print_json, print_table
from frazil.cli.spark.spark_session import ConfOption, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Rows:
    """The printed rows of a result."""

    columns: Sequence[str]
    values: Sequence[Sequence[Any]]
    more: bool
    """Whether the result has more rows than the limit."""


def sql(
    choice: CatalogChoice,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="Statements separated by semicolons."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Read SQL from a file; - is standard input."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="Print at most N rows.")
    ] = 100,
    conf: ConfOption = None,
) -> None:
    """Run SQL statements on tables of the catalog and print their results."""
    text = _text(choice, statement, file)
    answers: list[Rows] = []
    with spark_session(choice, conf) as session:
        for each in statements_in(text):
            with unknown_if_interrupted():
                frame = session.sql(each)
            answer = rows_of(frame, limit)
            if choice.as_json:
                answers.append(answer)
            else:
                _print(answer)
    if choice.as_json:
        print_json({"results": [_document(answer) for answer in answers]})


def statements_in(text: str) -> Iterator[str]:
    """Yield the statements of a text, separated by semicolons outside of strings and comments."""
    from frazil.spark.parse.sql_tokens import tokens_of

    start = 0
    is_empty = True
    for token in tokens_of(text):
        if token.word == ";":
            if not is_empty:
                yield text[start : token.start].strip()
            start, is_empty = token.end, True
        else:
            is_empty = False
    if not is_empty:
        yield text[start:].strip()


def rows_of(frame: DataFrame, limit: int) -> Rows:
    rows = [list(row) for row in frame.limit(limit + 1).collect()]
    return Rows(frame.columns, rows[:limit], len(rows) > limit)


def _text(choice: CatalogChoice, statement: str | None, file: str | None) -> str:
    if (statement is None) == (file is None):
        choice.usage("sql: give either the statement or --file")
    if statement is not None:
        return statement
    assert file is not None
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        choice.usage(f"--file {file}: {error}")


def _print(answer: Rows) -> None:
    if not answer.columns:
        return
    numbers = [
        name
        for index, name in enumerate(answer.columns)
        if any(isinstance(row[index], int | float) for row in answer.values)
    ]
    shown = ([_shown(value) for value in row] for row in answer.values)
    print_table(answer.columns, shown, right=numbers)
    if answer.more:
        typer.echo(
            f"the first {count_text(len(answer.values), 'row')}; --limit prints more", err=True
        )


def _document(answer: Rows) -> dict[str, Any]:
    rows = [
        {name: json_value(value) for name, value in zip(answer.columns, row, strict=True)}
        for row in answer.values
    ]
    return {"columns": list(answer.columns), "rows": rows, "more": answer.more}


def _shown(value: Any) -> Any:
    plain_value = json_value(value)
    return "null" if plain_value is None else plain_value


def json_value(value: Any) -> Any:
    """Convert a value to JSON: structs to objects, bytes to base64, other types to text."""
    from pyspark.sql import Row

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Row):
        return {name: json_value(each) for name, each in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(json_value(key)): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):  # A datetime is a date too.
        return value.isoformat()
    return str(value)
