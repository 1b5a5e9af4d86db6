"""A statement as words with their places in its text.

sqlglot's tokenizer finds the words; what is cut out of a statement is cut from its own text, so
that Spark gets expressions exactly as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NoReturn

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from frazil.wire.errors import BadRequest

Name = tuple[str, ...]

_OPENING: Final = {"(": ")", "[": "]"}
_CLOSING: Final = frozenset(_OPENING.values())
_STRINGS: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING})
_OTHER_LITERALS: Final = frozenset(
    {TokenType.HEX_STRING, TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING, TokenType.HINT}
)
_WORD: Final = re.compile(r"\w+")
_SHOWN: Final = 40


class Kind(Enum):
    WORD = auto()
    QUOTED = auto()
    """A name in back-ticks."""
    STRING = auto()
    NUMBER = auto()
    OTHER = auto()
    """A literal or a hint that is never looked into."""
    SYMBOL = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    """As it was written."""
    value: str
    """A name without back-ticks, a string without quotes; a word in capitals is `word`."""
    start: int
    end: int

    @property
    def word(self) -> str:
        """What keywords and symbols are compared with; nothing where it can be neither."""
        return self.text.upper() if self.kind in (Kind.WORD, Kind.SYMBOL) else ""

    @property
    def is_name(self) -> bool:
        return self.kind in (Kind.WORD, Kind.QUOTED)


@lru_cache(maxsize=64)
def tokens_of(text: str) -> tuple[Token, ...]:
    # sqlglot swallows all that follows a word such as SHOW or CALL at the beginning of a statement;
    # behind a parenthesis it does not.
    try:
        found = Spark().tokenize(f"({text}")
    except TokenError as error:
        raise BadRequest(f"the statement has a string or comment without an end: {error}") from None
    tokens: list[Token] = []
    for token in found[1:]:
        start, end = token.start - 1, token.end
        if tokens and start < tokens[-1].end:
            continue  # A number such as 12L is three tokens at one place.
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
    """`ORDER BY` is one token to sqlglot and two words to us."""
    words = list(_WORD.finditer(written))
    if not words:
        return [Token(Kind.SYMBOL, written, written, start, start + len(written))]
    return [
        Token(Kind.WORD, word[0], word[0], start + word.start(), start + word.end())
        for word in words
    ]


class Cursor:
    """Reads a statement from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        tokens = tokens_of(text)
        while tokens and tokens[-1].word == ";":
            tokens = tokens[:-1]
        self.tokens: Sequence[Token] = tokens
        self.position = 0
        if any(token.word == ";" for token in self.tokens):
            raise BadRequest("one statement at a time: there is a semicolon in the middle")

    # --- looking ----------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token | None:
        position = self.position + ahead
        return self.tokens[position] if position < len(self.tokens) else None

    def at(self, *words: str) -> bool:
        """Whether these words come next."""
        found = self.tokens[self.position : self.position + len(words)]
        return len(found) == len(words) and all(
            token.word == word for token, word in zip(found, words, strict=True)
        )

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.tokens)

    # --- taking -----------------------------------------------------------------------------------

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            self.fail("something more")
        self.position += 1
        return token

    def accept(self, *words: str) -> bool:
        if not self.at(*words):
            return False
        self.position += len(words)
        return True

    def accept_one(self, *choices: str) -> str | None:
        for choice in choices:
            if self.accept(choice):
                return choice
        return None

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            self.fail(" ".join(words))

    def end(self) -> None:
        if not self.at_end:
            self.fail("the end of the statement")

    def identifier(self, what: str = "a name") -> str:
        token = self.peek()
        if token is None or not token.is_name:
            self.fail(what)
        self.position += 1
        return token.value

    def name(self, what: str = "a name") -> Name:
        """Names with dots between them."""
        parts = [self.identifier(what)]
        while self.accept("."):
            parts.append(self.identifier(what))
        return tuple(parts)

    def string(self, what: str = "a string in quotes") -> str:
        """Strings that follow each other are one, as in Spark."""
        token = self.peek()
        if token is None or token.kind is not Kind.STRING:
            self.fail(what)
        parts = []
        while token is not None and token.kind is Kind.STRING:
            parts.append(token.value)
            self.position += 1
            token = self.peek()
        return "".join(parts)

    def whole_number(self, what: str = "a whole number") -> int:
        token = self.peek()
        if token is None or token.kind is not Kind.NUMBER or not token.value.isdigit():
            self.fail(what)
        self.position += 1
        return int(token.value)

    def cut(self, first: int, last: int) -> str:
        """The text from one token up to another, which is not included."""
        if first >= last:
            return ""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end]

    def rest(self, what: str) -> str:
        """All that is left."""
        if self.at_end:
            self.fail(what)
        found = self.cut(self.position, len(self.tokens))
        self.position = len(self.tokens)
        return found

    def until(self, what: str, *stops: str) -> str:
        """The text up to one of the words, which is not taken, or up to a closing parenthesis.

        Words inside parentheses and CASE … END do not count, nor parts of a name.
        """
        first = self.position
        cases = 0
        while (token := self.peek()) is not None:
            if token.word in _CLOSING or (not cases and token.word in stops and self._free()):
                break
            if token.word in _OPENING:
                self.skip_enclosed()
                continue
            if token.word in ("CASE", "END") and self._free():
                cases = max(0, cases + (1 if token.word == "CASE" else -1))
            self.position += 1
        if self.position == first:
            self.fail(what)
        return self.cut(first, self.position)

    def enclosed(self, what: str) -> str:
        """The text between the parenthesis that comes next and the one that closes it."""
        if not self.at("("):
            self.fail(f"( {what} )")
        first = self.position + 1
        self.skip_enclosed()
        return self.cut(first, self.position - 1)

    def skip_enclosed(self) -> None:
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

    def _free(self) -> bool:
        """Whether the next word stands alone, not as a part of a name with dots."""
        before = self.tokens[self.position - 1] if self.position else None
        return before is None or before.word != "."

    # --- failing ----------------------------------------------------------------------------------

    def fail(self, wanted: str) -> NoReturn:
        token = self.peek()
        if token is None:
            raise BadRequest(f"the statement ends where {wanted} should be: {self._shown()}")
        line = self.text.count("\n", 0, token.start) + 1
        near = self.text[token.start : token.start + _SHOWN]
        raise BadRequest(f"line {line}: expected {wanted}, found {near!r}")

    def _shown(self) -> str:
        return repr(self.text if len(self.text) <= _SHOWN else f"…{self.text[-_SHOWN:]}")
