"""What a session is told: arguments of `connect`, else `spark.frazil.*` of Spark's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession

from frazil.wire.errors import BadRequest

PREFIX: Final = "spark.frazil."
READERS: Final = ("auto", "jar", "own")
WRITERS: Final = ("auto", "jvm", "arrow")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Settings:
    reader: str = "auto"
    """`jar`: Iceberg's runtime reads; `own`: we do; `auto`: the jar where it is there."""
    writer: str = "auto"
    """`jvm`: Spark's own Parquet writer; `arrow`: executors write through Arrow; `auto`: the first
    where schema and storage allow it."""
    statement_retries: int = 3
    """How often a statement that validation has refused is run again from a new scan."""
    stream_id: str | None = None
    """The stream's id for exactly-once writes, where the checkpoint's own must not be taken."""
    temp_dir: str | None = None
    """A folder that driver and executors share, for what is evaluated once."""
    progress: bool | None = None
    """Whether a bar shows stages and rows; without it, on a terminal."""

    def __post_init__(self) -> None:
        _check_choice("reader", self.reader, READERS)
        _check_choice("writer", self.writer, WRITERS)
        if self.statement_retries < 0:
            raise BadRequest(f"statement-retries: {self.statement_retries} is below 0")


def settings_of(spark: SparkSession, **given: Any) -> Settings:
    """What is given wins over the session's configuration."""
    values: dict[str, Any] = {}
    for field in fields(Settings):
        found = given.pop(field.name, None)
        if found is None:
            found = _read(spark, field.name)
        if found is not None:
            values[field.name] = found
    if given:
        known = ", ".join(field.name for field in fields(Settings))
        raise BadRequest(f"unknown settings {', '.join(sorted(given))}; there are {known}")
    return Settings(**values)


def _read(spark: SparkSession, name: str) -> Any:
    key = PREFIX + name.replace("_", "-")
    text = spark.conf.get(key, None)
    if text is None:
        return None
    return _PARSERS.get(name, _text)(key, text)


def _text(_: str, text: str) -> str:
    return text


def _whole(key: str, text: str) -> int:
    return _parsed(key, text, "a whole number", int)


def _boolean(key: str, text: str) -> bool:
    choices = {"true": True, "false": False}
    return _parsed(key, text, "true or false", lambda given: choices[given.strip().lower()])


def _parsed(key: str, text: str, expected: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except (KeyError, ValueError):
        raise BadRequest(f"{key}: {text!r} is not {expected}") from None


_PARSERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "statement_retries": _whole,
    "progress": _boolean,
}


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadRequest(f"{name}: {value!r} is none of {', '.join(choices)}")
