"""A log entry is one line, as text and as JSON."""

from __future__ import annotations

import json
import logging

from frazil.server.log_lines import JsonLines, TextLines


def record(message: str, **extra: object) -> logging.LogRecord:
    return logging.getLogger("frazil.access").makeRecord(
        "frazil.access", logging.INFO, "file.py", 1, message, (), None, extra=extra
    )


def test_text_keeps_hostile_names_on_one_line() -> None:
    line = TextLines().format(record("a\nb", table="t 1\n2026 forged", principal=None, status=200))
    assert "\n" not in line
    assert line.endswith(
        ' INFO    frazil.access a\\nb table="t 1\\n2026 forged" principal=- status=200'
    )


def test_json_has_every_field() -> None:
    line = json.loads(JsonLines().format(record("request", table="a\nb", status=200, ms=1.5)))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "frazil.access",
        "message": "request",
        "table": "a\nb",
        "status": 200,
        "ms": 1.5,
    }


def test_an_exception_is_told() -> None:
    try:
        raise RuntimeError("the cause")
    except RuntimeError as error:
        failed = record("commit failed")
        failed.exc_info = (RuntimeError, error, error.__traceback__)
    assert "RuntimeError: the cause" in TextLines().format(failed)
    assert "RuntimeError: the cause" in json.loads(JsonLines().format(failed))["exception"]
