"""An expression's JSON in the words that `--filter` takes, for people to read and to paste."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_COMPARISONS: Final = {
    "eq": "=",
    "not-eq": "!=",
    "lt": "<",
    "lt-eq": "<=",
    "gt": ">",
    "gt-eq": ">=",
}
_UNARY: Final = {
    "is-null": "is null",
    "not-null": "is not null",
    "is-nan": "is nan",
    "not-nan": "is not nan",
}
_SETS: Final = {"in": "in", "not-in": "not in"}
_PREFIXES: Final = {"starts-with": "like", "not-starts-with": "not like"}
_NAME: Final = re.compile(r"[^\W\d][\w$]*")
_RESERVED: Final = frozenset(
    {"and", "or", "not", "in", "is", "null", "nan", "like", "between", "true", "false"}
)
_TRANSFORM: Final = re.compile(r"(\w+)(?:\[(\d+)\])?")


def filter_words(expression: Any) -> str:
    if isinstance(expression, bool):
        return "true" if expression else "false"
    kind = expression["type"]
    if kind in ("true", "false"):
        return str(kind)
    if kind in ("and", "or"):
        return f" {kind} ".join(_inner(expression[side], kind) for side in ("left", "right"))
    if kind == "not":
        return f"not ({filter_words(expression['child'])})"
    return _predicate(kind, expression)


def _inner(expression: Any, outer: str) -> str:
    text = filter_words(expression)
    kind = "" if isinstance(expression, bool) else expression["type"]
    return f"({text})" if {kind, outer} == {"and", "or"} else text


def _predicate(kind: str, expression: Mapping[str, Any]) -> str:
    term = _term(expression["term"])
    if kind in _UNARY:
        return f"{term} {_UNARY[kind]}"
    if kind in _SETS:
        return f"{term} {_SETS[kind]} ({', '.join(map(_literal, expression['values']))})"
    if kind in _PREFIXES:
        prefix = re.sub(r"([\\%_])", r"\\\1", expression["value"])
        return f"{term} {_PREFIXES[kind]} {_literal(prefix + '%')}"
    return f"{term} {_COMPARISONS.get(kind, kind)} {_literal(expression['value'])}"


def _term(term: Any) -> str:
    if isinstance(term, str):
        return ".".join(map(_name, term.split(".")))
    match = _TRANSFORM.fullmatch(term["transform"])
    column = _term(term["term"])
    if match is None:
        return f"{term['transform']}({column})"
    return f"{match[1]}({column})" if match[2] is None else f"{match[1]}({match[2]}, {column})"


def _name(name: str) -> str:
    if _NAME.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return repr(value)
