"""The order in which a rewrite writes rows: that of the files, a sort order, or a Z-order.

The arguments are those of Iceberg's procedure: a strategy, and an order such as
`c1 DESC NULLS LAST, bucket(4, c2)` or `zorder(c1, c2)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.client.declare.partition_terms import sort_order as parsed_sort_order
from frazil.client.declare.text_cursor import split_text
from frazil.datafiles.ordering.z_order_keys import z_fields
from frazil.datafiles.writing.row_partitions import source_path
from frazil.values.types import fields_by_id
from frazil.wire.errors import BadRequest

BINPACK: Final = "binpack"
SORT: Final = "sort"
_Z_ORDER: Final = re.compile(r"zorder\s*\((?P<columns>.*)\)\s*\Z", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class RewriteOrder:
    """How the rows of a group are sorted: by a sort order, or by a Z-order of columns."""

    sort_order: Mapping[str, Any] | None = None
    """The JSON of the sort order, as in the table's metadata."""
    z_order: tuple[str, ...] = ()
    """The full names of columns."""
    sort_order_id: int | None = None
    """The id that new files declare; None if the table does not have this order."""


def rewrite_order(
    table: Table, strategy: str | None, sort_order: str | None
) -> RewriteOrder | None:
    """Parse the arguments of a rewrite. None stands for the order of the files."""
    if strategy is not None and strategy.lower() not in (BINPACK, SORT):
        raise BadRequest(f"strategy: {strategy!r} must be {BINPACK} or {SORT}")
    if sort_order is None:
        if strategy is None or strategy.lower() == BINPACK:
            return None
        return _own_order(table)
    if strategy is not None and strategy.lower() == BINPACK:
        raise BadRequest(f"sort_order: {BINPACK} keeps the order of rows: set strategy to {SORT}")
    terms = list(_terms(sort_order))
    z_orders = [found for term in terms if (found := _Z_ORDER.match(term)) is not None]
    if not z_orders:
        parsed = parsed_sort_order(table.schema, terms, option="sort_order")
        for field in parsed["fields"]:
            _check_source(table, field["source-id"])
        return RewriteOrder(sort_order=parsed, sort_order_id=_known_id(table, parsed["fields"]))
    if len(terms) > 1:
        raise BadRequest(f"sort_order: {sort_order!r}: a Z-order stands alone: zorder(a, b)")
    columns = [_name(term) for term in _terms(z_orders[0]["columns"])]
    for column in z_fields(columns, table.schema):
        _check_source(table, column.field_id)
    return RewriteOrder(z_order=tuple(columns))


def _own_order(table: Table) -> RewriteOrder:
    order = table.sort_order()
    if not order["fields"]:
        raise BadRequest(
            f"sort_order: {table} has no sort order: name one, such as 'c1 DESC, bucket(4, c2)' "
            "or 'zorder(c1, c2)'"
        )
    return RewriteOrder(sort_order=order, sort_order_id=int(order["order-id"]))


def _terms(text: str) -> Iterator[str]:
    """Split a list at its commas, but not at those inside parentheses and quoted names."""
    depth, start = 0, 0
    for token in split_text(text):
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if token.word == "," and depth == 0:
            yield _term(text, start, token.start)
            start = token.end
    yield _term(text, start, len(text))


def _term(text: str, start: int, end: int) -> str:
    term = text[start:end].strip()
    if not term:
        raise BadRequest(f"sort_order: {text!r}: a term is empty")
    return term


def _name(text: str) -> str:
    return ".".join(part.strip("`") for part in text.split("."))


def _check_source(table: Table, field_id: int) -> None:
    if not source_path(table.schema, field_id):
        name = fields_by_id(table.schema)[field_id].name
        raise BadRequest(f"sort_order: {name} is inside a list or map, which has no order")


def _known_id(table: Table, fields: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the id of the table's order with these fields, the default order first."""
    orders = [table.sort_order(), *table.metadata["sort-orders"]]
    wanted = list(map(_comparable, fields))
    for order in orders:
        if order["fields"] and list(map(_comparable, order["fields"])) == wanted:
            return int(order["order-id"])
    return None


def _comparable(field: Mapping[str, Any]) -> tuple[object, ...]:
    texts = (field[name].lower() for name in ("transform", "direction", "null-order"))
    return field.get("source-id"), *texts
