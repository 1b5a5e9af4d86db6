"""Split a SQL statement into tokens that keep their positions in the text.

sqlglot's tokenizer finds the tokens. Expressions are cut from the statement's own text, so that
Spark gets them exactly as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NoReturn, TypeVar

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from frazil.wire.errors import BadRequest

Name = tuple[str, ...]
"""A name by its parts, such as `("ns", "t")`."""
Edit = tuple[int, int, str]
"""The start and end of a part of a text, and what replaces it."""
T = TypeVar("T")

_OPENING: Final = {"(": ")", "[": "]"}
_CLOSING: Final = frozenset(_OPENING.values())
_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING})
_OTHER_LITERALS: Final = frozenset(
    {TokenType.HEX_STRING, TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING, TokenType.HINT}
)
_WORD: Final = re.compile(r"\w+")
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


@lru_cache(maxsize=64)
def tokens_of(text: str) -> tuple[Token, ...]:
    """Split a text into tokens; raise BadRequest if a string or comment is not closed."""
    # sqlglot takes all that follows a word such as SHOW or CALL as one token if the word begins
    # the statement. After a parenthesis it does not.
    try:
        sqlglot_tokens = Spark().tokenize(f"({text}")
    except TokenError as error:
        raise BadRequest(f"the statement has a string or comment without an end: {error}") from None
    tokens: list[Token] = []
    for token in sqlglot_tokens[1:]:
        start, end = token.start - 1, token.end
        if tokens and start < tokens[-1].end:
            continue  # A number such as 12L is three tokens at one position.
        written = text[start:end]
        if token.token_type in _STRINGS:
            tokens.append(Token(Kind.STRING, written, token.text, start, end))
        elif token.token_type is TokenType.IDENTIFIER:
            tokens.append(Token(Kind.QUOTED, written, token.text, start, end))
        elif token.token_type is TokenType.NUMBER:
            tokens.append(Token(Kind.NUMBER, written, token.text, start, end))
        elif token.token_type in _OTHER_LITERALS:
            tokens.append(Token(Kind.OTHER, written, token.text, start, end))
        else:
            tokens.extend(_words(written, start))
    return tuple(tokens)


def _words(written: str, start: int) -> list[Token]:
    """Return one token for each word: `ORDER BY` is a single token in sqlglot."""
    words = list(_WORD.finditer(written))
    if not words:
        return [Token(Kind.SYMBOL, written, written, start, start + len(written))]
    return [
        Token(Kind.WORD, word[0], word[0], start + word.start(), start + word.end())
        for word in words
    ]


def apply_edits(
    text: str, edits: Iterable[Edit], unedited: Callable[[str], str] = lambda part: part
) -> str:
    """Return the text with parts replaced; `unedited` converts the parts between the edits."""
    parts, position = [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += [unedited(text[position:start]), new]
        position = end
    parts.append(unedited(text[position:]))
    return "".join(parts)


class Cursor:
    """Reads the tokens of one statement from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        tokens = tokens_of(text)
        while tokens and tokens[-1].word == ";":
            tokens = tokens[:-1]
        self.tokens: Sequence[Token] = tokens
        self.position = 0
        if any(token.word == ";" for token in self.tokens):
            raise BadRequest("one statement at a time: there is a semicolon in the middle")

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
            self.fail("the end of the statement")

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
            raise BadRequest(f"the statement ends where {wanted} should be: {self._excerpt()}")
        line = self.text.count("\n", 0, token.start) + 1
        near = self.text[token.start : token.start + _EXCERPT_LENGTH]
        raise BadRequest(f"line {line}: expected {wanted}, found {near!r}")

    def _excerpt(self) -> str:
        return repr(
            self.text if len(self.text) <= _EXCERPT_LENGTH else f"…{self.text[-_EXCERPT_LENGTH:]}"
        )
