"""Split a SQL statement into tokens that keep their positions in the text.

sqlglot's tokenizer finds the tokens. Expressions are cut from the statement's own text, so that
Spark gets them exactly as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from frazil.client.declare.text_cursor import Kind as Kind
from frazil.client.declare.text_cursor import Name as Name
from frazil.client.declare.text_cursor import TextCursor
from frazil.client.declare.text_cursor import Token as Token
from frazil.wire.errors import BadRequest

Edit: TypeAlias = tuple[int, int, str]
"""The start and end of a part of a text, and what replaces it."""

_KINDS: Final = {
    **dict.fromkeys((TokenType.STRING, TokenType.RAW_STRING), Kind.STRING),
    TokenType.IDENTIFIER: Kind.QUOTED,
    TokenType.NUMBER: Kind.NUMBER,
    TokenType.HEX_STRING: Kind.OTHER,
    TokenType.NATIONAL_STRING: Kind.OTHER,
    TokenType.UNICODE_STRING: Kind.OTHER,
    TokenType.HINT: Kind.OTHER,
}
_WORD: Final = re.compile(r"\w+")


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
        kind = _KINDS.get(token.token_type)
        if kind is None:
            tokens.extend(_words(written, start))
        else:
            tokens.append(Token(kind, written, token.text, start, end))
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


def position_before(text: str, edits: Iterable[Edit], line: int, column: int) -> tuple[int, int]:
    """Return what a position of the edited text was in the text.

    Lines begin with 1 and columns with 0. A position inside a replaced part means its start.
    """
    ordered = sorted(edits, key=lambda edit: edit[:2])
    lines = apply_edits(text, ordered).split("\n")
    offset = sum(len(before) + 1 for before in lines[: line - 1]) + column
    for start, end, new in ordered:
        if offset < start:
            break
        # The text before this part is as it was.
        is_inside = offset < start + len(new)
        offset = start if is_inside else offset - len(new) + end - start
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n") - 1


class Cursor(TextCursor):
    """Reads the tokens of one statement from left to right."""

    subject: ClassVar[str] = "statement"

    def __init__(self, text: str) -> None:
        tokens = tokens_of(text)
        while tokens and tokens[-1].word == ";":
            tokens = tokens[:-1]
        super().__init__(text, tokens)
        if any(token.word == ";" for token in self.tokens):
            raise BadRequest("one statement at a time: there is a semicolon in the middle")

    # --- properties, as in TBLPROPERTIES --------------------------------------------------------

    def properties(self) -> dict[str, str]:
        """Read `('key' = 'value', key.with.dots = 7)`."""

        def item() -> tuple[str, str]:
            key = self.property_key()
            self.accept("=")
            token = self.peek()
            if self.at_string:
                return key, self.string()
            if token is None or token.kind not in (Kind.NUMBER, Kind.WORD):
                self.fail("a value")
            return key, self.take().text

        return dict(self.parenthesized(item))

    def property_keys(self) -> tuple[str, ...]:
        """Read `('key', key.with.dots)`."""
        return self.parenthesized(self.property_key)

    def property_key(self) -> str:
        """Read one key, in quotes or as a name."""
        return self.string() if self.at_string else ".".join(self.name("a property"))
