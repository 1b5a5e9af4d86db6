"""Log lines on stderr, as text or as one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_log = logging.getLogger("frazil.server")

_RARE_S = 60.0
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def configure_logging(log_format: str) -> None:
    """Send all loggers through one handler.

    uvicorn's access log is off, because the REST application writes its own.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        # `frazil serve` prints its own messages about starting and stopping.
        logger.setLevel(logging.WARNING)


class RareWarning:
    """A warning that is logged at most once in a minute."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next_s = 0.0

    def log(self, *values: object) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _RARE_S
            _log.warning(self._text, *values)


def _timestamp(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that the caller passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class TextLines(logging.Formatter):
    """Formats a record as text, with its extra fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        # Clients choose table names, and a line break in a name must not start a new line.
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        pairs = "".join(f" {name}={_word(value)}" for name, value in _fields(record).items())
        line = f"{_timestamp(record)} {record.levelname:<7} {record.name} {message}{pairs}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _word(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)
