"""Why a server does not start."""

from __future__ import annotations


class StartRefused(Exception):
    """The server cannot or must not start; the message says why and what to do.

    `usage` marks what the settings alone show to be wrong.
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage
