"""Where a write goes."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.client.declare.client_table import Table
from frazil.spark.core.context import Context
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier


@dataclass(frozen=True)
class Target:
    identifier: Identifier
    branch: str = MAIN

    def __str__(self) -> str:
        return str(self.identifier)

    def load(self, context: Context) -> Table:
        """The table as it is now; a statement that is run again loads it again."""
        return context.client.load_table(self.identifier)
