"""The text of a statement, parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from frazil.spark.parse.alter_parsing import parse_alter
from frazil.spark.parse.ddl_parser import (
    parse_create,
    parse_describe,
    parse_drop,
    parse_show,
    parse_use,
)
from frazil.spark.parse.parsed_statements import Call, Query, Statement
from frazil.spark.parse.row_parsing import (
    parse_delete,
    parse_insert,
    parse_merge,
    parse_truncate,
    parse_update,
)
from frazil.spark.parse.sql_tokens import Cursor
from frazil.wire.errors import BadRequest

_QUERIES: Final = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "(", "MAP", "REDUCE"})
KNOWN: Final = (
    "SELECT (also WITH, VALUES, TABLE), INSERT INTO, INSERT OVERWRITE, DELETE, UPDATE, MERGE, "
    "TRUNCATE TABLE, CREATE TABLE, CREATE TABLE … AS, REPLACE TABLE, ALTER TABLE, DROP TABLE, "
    "CREATE / ALTER / DROP NAMESPACE, USE, SHOW TABLES, SHOW NAMESPACES, SHOW TBLPROPERTIES, "
    "SHOW CREATE TABLE, DESCRIBE, EXPLAIN SELECT, CALL"
)


def parse(text: str) -> Statement:
    cursor = Cursor(text)
    first = cursor.peek()
    if first is None:
        raise BadRequest("the statement is empty")
    if first.word == "WITH":
        return _with(cursor)
    if first.word in _QUERIES or (first.word == "EXPLAIN" and _explains_query(cursor)):
        return Query(_text(cursor))
    parser = _PARSERS.get(first.word)
    if parser is None:
        raise BadRequest(
            f"{first.text}: not a statement that is known here; there are {KNOWN}. "
            "What does not concern the catalog's tables is for spark.sql"
        )
    return parser(cursor)


def _explains_query(cursor: Cursor) -> bool:
    words = {"EXPLAIN", "EXTENDED", "CODEGEN", "COST", "FORMATTED"}
    place = next((at for at, token in enumerate(cursor.tokens) if token.word not in words), None)
    return place is not None and cursor.tokens[place].word in _QUERIES | {"WITH"}


def _text(cursor: Cursor) -> str:
    """Without the semicolon."""
    return cursor.text[: cursor.tokens[-1].end]


def _with(cursor: Cursor) -> Statement:
    """Common table expressions may stand in front of a query and of INSERT."""
    while (token := cursor.peek()) is not None:
        if token.word == "(":
            cursor.skip_enclosed()
        elif token.word == "INSERT":
            return parse_insert(cursor, cursor.cut(0, cursor.position))
        elif token.word in _QUERIES:
            break
        else:
            cursor.take()
    return Query(_text(cursor))


def parse_call(cursor: Cursor) -> Call:
    cursor.expect("CALL")
    name = cursor.name("a procedure")
    if len(name) > 1 and name[-2].lower() != "system":
        raise BadRequest(f"{'.'.join(name)}: procedures are called as system.{name[-1]}(…)")
    cursor.expect("(")
    positional: list[str] = []
    named: dict[str, str] = {}
    while not cursor.at(")"):
        following = cursor.peek(1)
        if following is not None and following.word == "=>":
            key = cursor.identifier("an argument").lower()
            cursor.take()
            if key in named:
                raise BadRequest(f"{name[-1]}: {key} is given twice")
            named[key] = cursor.until("a value", ",")
        elif named:
            cursor.fail("name => value, as the arguments before it")
        else:
            positional.append(cursor.until("a value", ","))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    cursor.end()
    return Call(name[-1].lower(), tuple(positional), named)


_PARSERS: Final[Mapping[str, Callable[[Cursor], Statement]]] = {
    "INSERT": parse_insert,
    "DELETE": parse_delete,
    "UPDATE": parse_update,
    "MERGE": parse_merge,
    "TRUNCATE": parse_truncate,
    "CREATE": parse_create,
    "REPLACE": parse_create,
    "DROP": parse_drop,
    "ALTER": parse_alter,
    "SHOW": parse_show,
    "USE": parse_use,
    "DESCRIBE": parse_describe,
    "DESC": parse_describe,
    "CALL": parse_call,
}
