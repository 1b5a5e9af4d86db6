"""Print JSON for programs, and tables and text for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

    from frazil.wire.identifiers import Identifier

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_WIDTH_WITHOUT_TERMINAL: Final = 1000


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2))


def is_dumb() -> bool:
    """Return whether the terminal shows lines of text alone: no colors, boxes or progress bars."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def is_colored() -> bool:
    """Return whether output has colors: on a terminal, unless NO_COLOR or TERM forbids them."""
    return sys.stdout.isatty() and not is_dumb() and not os.environ.get("NO_COLOR")


def styled(text: str, **style: Any) -> str:
    """Return the text with a color or in bold, where output has colors."""
    return typer.style(text, **style) if is_colored() else text


def console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, color_system="auto" if is_colored() else None)
    # Programs that read a pipe need unbroken lines.
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Iterable[str] = (),
    *,
    unbroken: bool = False,
) -> None:
    """Print a table; the columns in `right` are aligned to the right.

    `unbroken` rows may be longer than a line of the terminal, so that their paths can be copied.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = set(right)
    for heading in headings:
        table.add_column(
            heading, overflow="fold", justify="right" if heading in numbers else "left"
        )
    for row in rows:
        # Text prevents square brackets in values from being read as markup.
        table.add_row(*(Text("-" if cell is None else plain(str(cell))) for cell in row))
    screen = console()
    if unbroken:
        screen.width = _WIDTH_WITHOUT_TERMINAL
    with screen.capture() as printed:
        screen.print(table)
    for line in printed.get().splitlines():
        typer.echo(line.rstrip())


def print_tree(tree: Tree) -> None:
    """Print a tree with lines between its nodes, or by indentation on a dumb terminal."""
    if not is_dumb():
        console().print(tree)
        return
    for depth, label in _nodes(tree, 0):
        typer.echo(f"{'  ' * depth}{label}")


def _nodes(tree: Tree, depth: int) -> Iterator[tuple[int, str]]:
    yield depth, str(tree.label)
    for child in tree.children:
        yield from _nodes(child, depth + 1)


def print_pairs(pairs: Mapping[str, Any], indent: str = "") -> None:
    """Print one name and value per line, with the values in one column."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        typer.echo(f"{indent}{plain(name):<{width}}  {'-' if value is None else plain(str(value))}")


def plain(text: str) -> str:
    """Text that others have written, such as a summary, without what a terminal would obey."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def identifier_document(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier.namespace), "name": identifier.name}


def heading(text: str) -> None:
    typer.echo(f"\n{styled(text, bold=True)}")


def size_text(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in _UNITS:
        if abs(size) < 1024 or unit == _UNITS[-1]:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes every size")


def time_text(timestamp_ms: int) -> str:
    """In UTC, so that two people who compare notes see the same."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms:,} ms after 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else noun + 's'}"
