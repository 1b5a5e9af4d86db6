r"""Filters as text, in the syntax of SQL's WHERE: `parse_filter` reads it, `filter_text` writes it.

    filter      := conjunction (OR conjunction)*
    conjunction := negation (AND negation)*
    negation    := NOT* ( "(" filter ")" | TRUE | FALSE | predicate )
    predicate   := term ( comparison literal | [NOT] IN "(" literal ("," literal)* ")"
                        | [NOT] BETWEEN literal AND literal | [NOT] LIKE string
                        | IS [NOT] NULL | IS [NOT] NAN )
                 | literal comparison term
    comparison  := "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    term        := column | bucket "(" number "," column ")" | truncate "(" number "," column ")"
                 | (year | month | day | hour) "(" column ")"
    column      := name ("." name)*            a name is quoted by "..." or `...` where it must be
    literal     := number | string | TRUE | FALSE | (DATE | TIME | TIMESTAMP) string

Keywords may have any case. A quote inside a string or a quoted name is doubled. LIKE takes a
prefix: the only wildcard is a `%` at the end; `\%`, `\_` and `\\` are the characters themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn

from frazil.values import temporal, transforms
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    MIRRORED,
    PREFIX_OPERATIONS,
    SET_OPERATIONS,
    UNARY_OPERATIONS,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    Literal,
    Not,
    Operation,
    Or,
    Predicate,
    Term,
    all_of,
    any_of,
    plain_value,
)

MAX_NESTING: Final = 100
"""How many parentheses may be open at once. A chain of AND or OR may have any length."""

MAX_DIGITS: Final = 200
"""The longest number in a text; values of columns are far shorter."""

_MAX_DECIMAL_SCALE: Final = 38
"""The largest scale of a decimal column."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<symbol><=|>=|<>|!=|==|[=<>(),.])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_COMPARISONS: Final = {
    "=": Operation.EQ,
    "==": Operation.EQ,
    "!=": Operation.NOT_EQ,
    "<>": Operation.NOT_EQ,
    "<": Operation.LT,
    "<=": Operation.LT_EQ,
    ">": Operation.GT,
    ">=": Operation.GT_EQ,
}
_RESERVED: Final = frozenset(
    {"and", "or", "not", "in", "is", "null", "nan", "like", "between", "true", "false"}
)
_WITH_PARAMETER: Final[dict[str, Callable[[int], transforms.Transform]]] = {
    "bucket": transforms.Bucket,
    "truncate": transforms.Truncate,
}
_PLAIN: Final[dict[str, transforms.Transform]] = {
    "year": transforms.Year(),
    "month": transforms.Month(),
    "day": transforms.Day(),
    "hour": transforms.Hour(),
}
_FUNCTIONS: Final = ", ".join((*_WITH_PARAMETER, *_PLAIN))
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_ZONE: Final = re.compile(r"(?:Z|[+-][0-9]{2}:[0-9]{2})$")
_SHOWN_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def word(self) -> str:
        """Return the token in lower case, as keywords are compared; empty if it is not a word."""
        return self.text.lower() if self.kind == "word" else ""

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        shown = self.text[:_SHOWN_CHARACTERS]
        return shown if shown == self.text else f"{shown}..."


def parse_filter(text: str) -> Expression:
    """Read an expression from text. Errors name the position of what cannot be read."""
    parser = _Parser(text, _tokens(text))
    expression = parser.disjunction(0)
    parser.expect_end()
    return expression


def _tokens(text: str) -> tuple[_Token, ...]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        matched = _TOKEN.match(text, position)
        if matched is None:
            _unreadable(text, position)
        kind = matched.lastgroup
        assert kind is not None
        tokens.append(_Token(kind, matched[kind], matched.start(kind)))
        position = matched.end()
    return tuple(tokens)


def _unreadable(text: str, position: int) -> NoReturn:
    position += len(text[position:]) - len(text[position:].lstrip())
    character = text[position]
    if character in "'\"`":
        _fail(text, position, f"the {character} that begins here is never closed")
    matched = re.match(r"\S{1,20}", text[position:])
    _fail(text, position, f"cannot read {matched[0] if matched else character!r}")


def _fail(text: str, position: int, problem: str) -> NoReturn:
    shown = text if len(text) <= 200 else f"{text[max(0, position - 80) : position + 80]}"
    raise BadRequest(f"filter, at character {position + 1}: {problem}, in: {shown}")


class _Parser:
    """Reads tokens from left to right; each method reads one rule of the grammar."""

    def __init__(self, text: str, tokens: tuple[_Token, ...]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0

    # --- tokens ------------------------------------------------------------------------------

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    @property
    def _following(self) -> _Token:
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _took_word(self, word: str) -> bool:
        return self._token.word == word and bool(self._take())

    def _took_symbol(self, symbol: str) -> bool:
        return self._is_symbol(self._token, symbol) and bool(self._take())

    @staticmethod
    def _is_symbol(token: _Token, symbol: str) -> bool:
        return token.kind == "symbol" and token.text == symbol

    def _expect_symbol(self, symbol: str) -> None:
        if not self._took_symbol(symbol):
            self._expected(f"'{symbol}'")

    def _expected(self, what: str, token: _Token | None = None) -> NoReturn:
        token = token or self._token
        _fail(self._text, token.position, f"expected {what}, found {token}")

    def expect_end(self) -> None:
        if self._token.kind != "end":
            self._expected("AND, OR or the end")

    # --- expressions -------------------------------------------------------------------------

    def disjunction(self, nesting: int) -> Expression:
        operands = [self._conjunction(nesting)]
        while self._took_word("or"):
            operands.append(self._conjunction(nesting))
        return any_of(*operands)

    def _conjunction(self, nesting: int) -> Expression:
        operands = [self._negation(nesting)]
        while self._took_word("and"):
            operands.append(self._negation(nesting))
        return all_of(*operands)

    def _negation(self, nesting: int) -> Expression:
        negated = False
        while self._took_word("not"):
            negated = not negated
        expression = self._operand(nesting)
        return ~expression if negated else expression

    def _operand(self, nesting: int) -> Expression:
        if self._is_symbol(self._token, "("):
            if nesting >= MAX_NESTING:
                problem = f"at most {MAX_NESTING} parentheses may be open at once"
                _fail(self._text, self._token.position, problem)
            self._take()
            inner = self.disjunction(nesting + 1)
            if not self._took_symbol(")"):
                self._expected("AND, OR or ')'")
            return inner
        if self._token.word in ("true", "false") and not self._is_comparison(self._following):
            is_true = self._take().word == "true"
            return ALWAYS_TRUE if is_true else ALWAYS_FALSE
        return self._predicate()

    # --- predicates --------------------------------------------------------------------------

    def _predicate(self) -> Expression:
        if self._at_literal():
            value = self._literal()
            operation = self._comparison("a comparison with a column")
            return Predicate(MIRRORED[operation], self._term(), (value,))
        term = self._term()
        if self._is_comparison(self._token):
            operation = self._comparison("a comparison")
            return Predicate(operation, term, (self._literal(),))
        if self._took_word("is"):
            return self._is(term)
        negated = self._took_word("not")
        if self._took_word("in"):
            return Predicate(Operation.NOT_IN if negated else Operation.IN, term, self._values())
        if self._took_word("between"):
            return ~self._between(term) if negated else self._between(term)
        if self._took_word("like"):
            return self._like(term, negated)
        known = "IN, BETWEEN or LIKE"
        self._expected(known if negated else f"a comparison, IS, NOT, {known}")

    def _is(self, term: Term) -> Expression:
        negated = self._took_word("not")
        if self._took_word("null"):
            return Predicate(Operation.NOT_NULL if negated else Operation.IS_NULL, term)
        if self._took_word("nan"):
            return Predicate(Operation.NOT_NAN if negated else Operation.IS_NAN, term)
        self._expected("NULL or NAN" if negated else "NULL, NAN or NOT")

    def _between(self, term: Term) -> Expression:
        lowest = Predicate(Operation.GT_EQ, term, (self._literal(),))
        if not self._took_word("and"):
            self._expected("AND of BETWEEN")
        return all_of(lowest, Predicate(Operation.LT_EQ, term, (self._literal(),)))

    def _values(self) -> tuple[Literal, ...]:
        self._expect_symbol("(")
        values = [self._literal()]
        while self._took_symbol(","):
            values.append(self._literal())
        if not self._took_symbol(")"):
            self._expected("',' or ')'")
        return tuple(values)

    def _like(self, term: Term, negated: bool) -> Expression:
        token = self._take()
        if token.kind != "string":
            self._expected("a string", token)
        prefix: list[str] = []
        pattern = re.findall(r"\\?.|\\", _unquoted(token), re.DOTALL)
        for index, part in enumerate(pattern):
            if part == "%" and index == len(pattern) - 1:
                operation = Operation.NOT_STARTS_WITH if negated else Operation.STARTS_WITH
                return Predicate(operation, term, ("".join(prefix),))
            if part in ("%", "_"):
                problem = f"LIKE takes a prefix, as 'abc%': write \\{part} for a {part} itself"
                _fail(self._text, token.position, problem)
            prefix.append(part[1:] if part in (r"\%", r"\_", r"\\") else part)
        return Predicate(Operation.NOT_EQ if negated else Operation.EQ, term, ("".join(prefix),))

    @staticmethod
    def _is_comparison(token: _Token) -> bool:
        return token.kind == "symbol" and token.text in _COMPARISONS

    def _comparison(self, what: str) -> Operation:
        token = self._take()
        if not self._is_comparison(token):
            self._expected(what, token)
        return _COMPARISONS[token.text]

    # --- terms -------------------------------------------------------------------------------

    def _term(self) -> Term:
        if self._token.kind == "word" and self._is_symbol(self._following, "("):
            return self._call()
        return Term(self._column())

    def _call(self) -> Term:
        token = self._take()
        self._expect_symbol("(")
        transform = _PLAIN.get(token.word)
        if token.word in _WITH_PARAMETER:
            transform = self._transform(token.word)
        if transform is None:
            self._expected(f"one of the transforms {_FUNCTIONS}", token)
        term = Term(self._column(), transform)
        self._expect_symbol(")")
        return term

    def _transform(self, name: str) -> transforms.Transform:
        token = self._take()
        if token.kind != "number" or not token.text.isdigit() or int(token.text) < 1:
            self._expected(f"a positive integer, as in {name}(16, id)", token)
        try:
            transform = _WITH_PARAMETER[name](int(token.text))
        except transforms.InvalidTransform as error:
            _fail(self._text, token.position, str(error))
        self._expect_symbol(",")
        return transform

    def _column(self) -> str:
        parts = [self._name()]
        while self._took_symbol("."):
            parts.append(self._name())
        return ".".join(parts)

    def _name(self) -> str:
        token = self._take()
        if token.kind == "quoted" and len(token.text) > 2:
            return _unquoted(token)
        if token.kind != "word" or token.word in _RESERVED:
            self._expected("a column", token)
        return token.text

    # --- literals ----------------------------------------------------------------------------

    def _at_literal(self) -> bool:
        token = self._token
        typed = token.word in _TYPED and self._following.kind == "string"
        return token.kind in ("number", "string") or typed or token.word in ("true", "false")

    def _literal(self) -> Literal:
        if not self._at_literal():
            if self._token.word in ("null", "nan"):
                self._expected(f"a literal: use IS {self._token.word.upper()} instead")
            self._expected("a literal: a number, a string in '...', TRUE, FALSE or DATE '...'")
        token = self._take()
        if token.kind == "number":
            return self._number(token)
        if token.kind == "string":
            return _unquoted(token)
        if token.word in ("true", "false"):
            return token.word == "true"
        text = _unquoted(self._take())
        try:
            return _TYPED[token.word](text)
        except ValueError as error:
            _fail(self._text, token.position, str(error))

    def _number(self, token: _Token) -> int | float | str:
        """Return an int for a whole number, else a float, or a string where a float is not exact.

        The JSON form of a decimal is a string, so that it keeps all its digits.
        """
        if len(token.text) > MAX_DIGITS:
            _fail(self._text, token.position, f"a number has at most {MAX_DIGITS} characters")
        if _INTEGER.fullmatch(token.text):
            return int_json(int(token.text))
        try:
            exact, rounded = Decimal(token.text), float(token.text)
        except ArithmeticError:
            self._expected("a number with a smaller exponent", token)
        return rounded if Decimal(repr(rounded)) == exact else decimal_json(exact)


def int_json(value: int) -> int | str:
    """Return a JSON number, or a decimal's string if the value does not fit in 64 bits."""
    return int(value) if -(1 << 63) <= value < 1 << 63 else str(value)


def decimal_json(value: Decimal) -> str:
    """Return the JSON single value of a decimal."""
    if not value.is_finite():
        raise ValueError(f"{value} is not a decimal")
    # Spec: a negative scale is written as an exponent, any other with exactly its digits.
    # A value with more decimal places than any column keeps its exponent, to stay short.
    exponent = value.as_tuple().exponent
    plain = isinstance(exponent, int) and -_MAX_DECIMAL_SCALE <= exponent <= 0
    return format(value, "f") if plain else str(value)


def _unquoted(token: _Token) -> str:
    quote = token.text[0]
    return token.text[1:-1].replace(quote * 2, quote)


def _date(text: str) -> str:
    temporal.days_from_date(text)
    return text


def _time(text: str) -> str:
    temporal.micros_from_time(text)
    return text


def _timestamp(text: str) -> str:
    """Return a timestamp in ISO 8601 with a T. SQL's space is read too, and so is a date alone."""
    normal = text.replace(" ", "T", 1)
    if "T" not in normal:
        normal = f"{normal}T00:00:00"
    zone = _ZONE.search(normal)
    # The server takes any zone offset in a filter, so only the local part is checked here.
    local = normal if zone is None else normal[: zone.start()]
    try:
        temporal.nanos_from_timestamp(local, with_zone=False)
    except ValueError:
        raise ValueError(f"{text[:100]!r} is not a timestamp as 2026-05-01T10:30:00") from None
    return normal


_TYPED: Final[dict[str, Callable[[str], str]]] = {
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
}


# --- writing ---------------------------------------------------------------------------------

_SYMBOLS: Final = {
    Operation.LT: "<",
    Operation.LT_EQ: "<=",
    Operation.GT: ">",
    Operation.GT_EQ: ">=",
    Operation.EQ: "=",
    Operation.NOT_EQ: "!=",
    Operation.STARTS_WITH: "LIKE",
    Operation.NOT_STARTS_WITH: "NOT LIKE",
    Operation.IN: "IN",
    Operation.NOT_IN: "NOT IN",
    Operation.IS_NULL: "IS NULL",
    Operation.NOT_NULL: "IS NOT NULL",
    Operation.IS_NAN: "IS NAN",
    Operation.NOT_NAN: "IS NOT NAN",
}
_PLAIN_NAME: Final = re.compile(r"[^\W\d][\w$]*")


def filter_text(expression: Expression) -> str:
    """Write an expression in the syntax that `parse_filter` reads."""
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return "TRUE" if isinstance(expression, AlwaysTrue) else "FALSE"
    if isinstance(expression, And | Or):
        word = " AND " if isinstance(expression, And) else " OR "
        return f"({word.join(map(filter_text, expression.operands))})"
    if isinstance(expression, Not):
        return f"NOT ({filter_text(expression.child)})"
    if not isinstance(expression, Predicate):
        raise TypeError(f"{type(expression).__name__} has no text form")
    begin = f"{_term_text(expression.term)} {_SYMBOLS[expression.operation]}"
    if expression.operation in UNARY_OPERATIONS:
        return begin
    if expression.operation in SET_OPERATIONS:
        return f"{begin} ({', '.join(map(_literal_text, expression.values))})"
    value = expression.values[0]
    if expression.operation in PREFIX_OPERATIONS:
        value = re.sub(r"([%_\\])", r"\\\1", str(plain_value(value))) + "%"
    return f"{begin} {_literal_text(value)}"


def _term_text(term: Term) -> str:
    column = term.column_text
    if isinstance(term.column, str):
        column = ".".join(map(_name_text, term.column.split(".")))
    if term.transform is None:
        return column
    function, _, parameter = str(term.transform).removesuffix("]").partition("[")
    return f"{function}({parameter}, {column})" if parameter else f"{function}({column})"


def _name_text(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _literal_text(literal: Literal) -> str:
    value = plain_value(literal)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return str(value)
