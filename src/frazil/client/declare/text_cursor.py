"""Splits a short text, such as the definition of a column, into tokens and reads them in order.

The syntax is Spark's: names may be in backticks, and strings in either quotes have backslashes.
`frazil.spark` reads whole SQL statements with the same cursor, on tokens of sqlglot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Final, NoReturn, TypeAlias, TypeVar

from frazil.wire.errors import BadRequest

Name: TypeAlias = tuple[str, ...]
"""A name by its parts, such as `("ns", "t")`."""
T = TypeVar("T")

_OPENING: Final = {"(": ")", "[": "]"}
_CLOSING: Final = frozenset(_OPENING.values())
_EXCERPT_LENGTH: Final = 40


class Kind(Enum):
    """The kinds of tokens."""

    WORD = auto()
    QUOTED = auto()
    """A name in backticks."""
    STRING = auto()
    NUMBER = auto()
    OTHER = auto()
    """A literal or hint whose content is ignored."""
    SYMBOL = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its position in the statement."""

    kind: Kind
    text: str
    """The token as it was written."""
    value: str
    """The text without backticks or quotes."""
    start: int
    end: int

    @property
    def word(self) -> str:
        """Return the text in upper case, to compare with keywords and symbols.

        Return an empty string if the token can be neither.
        """
        return self.text.upper() if self.kind in (Kind.WORD, Kind.SYMBOL) else ""

    @property
    def is_name(self) -> bool:
        """Return whether the token can be an identifier."""
        return self.kind in (Kind.WORD, Kind.QUOTED)


_TOKEN: Final = re.compile(
    r"""(?P<QUOTED>`(?:[^`]|``)+`)
      | (?P<STRING>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<NUMBER>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
      | (?P<WORD>\w+)
      | (?P<SYMBOL><>|[^\s'"`])""",
    re.VERBOSE | re.DOTALL,
)
_BLANKS: Final = re.compile(r"\s*")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def split_text(text: str) -> tuple[Token, ...]:
    """Split a text into tokens; raise BadRequest if a string or name is not closed."""
    tokens: list[Token] = []
    position = _BLANKS.match(text).end()  # type: ignore[union-attr]  # it always matches
    while position < len(text):
        matched = _TOKEN.match(text, position)
        if matched is None:
            raise BadRequest(
                f"a quote is not closed: {text[position : position + _EXCERPT_LENGTH]}"
            )
        kind, written = Kind[str(matched.lastgroup)], matched[0]
        tokens.append(Token(kind, written, _value(kind, written), position, matched.end()))
        position = _BLANKS.match(text, matched.end()).end()  # type: ignore[union-attr]
    return tuple(tokens)


def _value(kind: Kind, written: str) -> str:
    if kind is Kind.QUOTED:
        return written[1:-1].replace("``", "`")
    return _ESCAPED.sub(r"\1", written[1:-1]) if kind is Kind.STRING else written


def quoted(*parts: str) -> str:
    """Return a name in backticks, part by part."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def string_literal(value: str) -> str:
    """Return a text as a SQL string in single quotes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class TextCursor:
    """Reads the tokens of a text from left to right."""

    subject: ClassVar[str] = "text"
    """What is read, for messages."""

    def __init__(self, text: str, tokens: Sequence[Token] | None = None) -> None:
        self.text = text
        self.tokens: Sequence[Token] = split_text(text) if tokens is None else tokens
        self.position = 0

    # --- look ahead -------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token | None:
        """Return the next token, or one further ahead; None at the end."""
        position = self.position + ahead
        return self.tokens[position] if position < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """Return the next keyword or symbol in upper case; empty if there is none."""
        token = self.peek(ahead)
        return "" if token is None else token.word

    def at(self, *words: str) -> bool:
        """Return whether these words come next."""
        return all(self.word(ahead) == word for ahead, word in enumerate(words))

    @property
    def at_end(self) -> bool:
        """Return whether all tokens were read."""
        return self.position >= len(self.tokens)

    # --- read -------------------------------------------------------------------------------------

    def take(self) -> Token:
        """Read the next token."""
        token = self.peek()
        if token is None:
            self.fail("something more")
        self.position += 1
        return token

    def accept(self, *words: str) -> bool:
        """Read these words if they come next."""
        if not self.at(*words):
            return False
        self.position += len(words)
        return True

    def accept_one(self, *choices: str) -> str | None:
        """Read one of these words and return it, if one comes next."""
        for choice in choices:
            if self.accept(choice):
                return choice
        return None

    def expect(self, *words: str) -> None:
        """Read these words; fail if others come next."""
        if not self.accept(*words):
            self.fail(" ".join(words))

    def end(self) -> None:
        """Fail if there are more tokens."""
        if not self.at_end:
            self.fail(f"the end of the {self.subject}")

    def identifier(self, what: str = "a name") -> str:
        """Read one name and return it without backticks."""
        token = self.peek()
        if token is None or not token.is_name:
            self.fail(what)
        self.position += 1
        return token.value

    def name(self, what: str = "a name") -> Name:
        """Read names with dots between them."""
        parts = [self.identifier(what)]
        while self.accept("."):
            parts.append(self.identifier(what))
        return tuple(parts)

    def string(self, what: str = "a string in quotes") -> str:
        """Read a string. Like Spark, join strings that follow each other."""
        parts = []
        while self.at_string:
            parts.append(self.take().value)
        if not parts:
            self.fail(what)
        return "".join(parts)

    @property
    def at_string(self) -> bool:
        """Return whether a string comes next."""
        token = self.peek()
        return token is not None and token.kind is Kind.STRING

    def whole_number(self, what: str = "a whole number") -> int:
        """Read digits and return them as a number."""
        token = self.peek()
        if token is None or token.kind is not Kind.NUMBER or not token.value.isdigit():
            self.fail(what)
        self.position += 1
        return int(token.value)

    def comma_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Read one item or several with commas between them."""
        items = [item()]
        while self.accept(","):
            items.append(item())
        return tuple(items)

    def parenthesized(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Read a list with commas in parentheses."""
        self.expect("(")
        items = self.comma_list(item)
        self.expect(")")
        return items

    def cut(self, first: int, last: int) -> str:
        """Return the text of the tokens from `first` to `last`, without `last`."""
        if first >= last:
            return ""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end]

    def rest(self, what: str) -> str:
        """Read all that is left and return its text."""
        if self.at_end:
            self.fail(what)
        first = self.position
        self.position = len(self.tokens)
        return self.cut(first, self.position)

    def until(self, what: str, *stops: str) -> str:
        """Read the text before one of the stop words or before a closing parenthesis.

        Ignore words in parentheses, words in CASE … END, and parts of a name.
        """
        first = self.position
        cases = 0
        while (token := self.peek()) is not None:
            if token.word in _CLOSING or (
                not cases and token.word in stops and self.is_standalone(self.position)
            ):
                break
            if token.word in _OPENING:
                self.skip_enclosed()
                continue
            if token.word in ("CASE", "END") and self.is_standalone(self.position):
                cases = max(0, cases + (1 if token.word == "CASE" else -1))
            self.position += 1
        if self.position == first:
            self.fail(what)
        return self.cut(first, self.position)

    def enclosed(self, what: str) -> str:
        """Read a pair of parentheses and return the text between them."""
        if not self.at("("):
            self.fail(f"( {what} )")
        first = self.position + 1
        self.skip_enclosed()
        return self.cut(first, self.position - 1)

    def skip_enclosed(self) -> None:
        """Read from an opening parenthesis or bracket to the one that closes it."""
        opened: list[str] = []
        start = self.position
        while (token := self.peek()) is not None:
            if token.word in _OPENING:
                opened.append(_OPENING[token.word])
            elif token.word in _CLOSING and opened.pop() != token.word:
                break
            self.position += 1
            if not opened:
                return
        self.position = start
        self.fail("parentheses that close")

    def is_standalone(self, position: int) -> bool:
        """Return whether the word there is not part of a name with dots."""
        return position == 0 or self.tokens[position - 1].word != "."

    # --- fail -------------------------------------------------------------------------------------

    def fail(self, wanted: str) -> NoReturn:
        """Raise BadRequest that says what was expected here."""
        token = self.peek()
        if token is None:
            cut = len(self.text) > _EXCERPT_LENGTH
            excerpt = f"…{self.text[-_EXCERPT_LENGTH:]}" if cut else self.text
            raise BadRequest(f"the {self.subject} ends where {wanted} should be: {excerpt!r}")
        line = self.text.count("\n", 0, token.start) + 1
        near = self.text[token.start : token.start + _EXCERPT_LENGTH]
        raise BadRequest(f"line {line}: expected {wanted}, found {near!r}")
