"""What a writer is told to do, by name."""

from __future__ import annotations

from typing import Final

APPEND: Final = "append"
"""A small Arrow table, from Arrow to the committed snapshot."""
DELETE: Final = "delete"
"""One row of the writer's own bucket, whose file is rewritten."""
UPSERT: Final = "upsert"
"""Two rows of the writer's own bucket: one that is there and one that is not."""
DECLARED: Final = "append of a declared file"
"""No Parquet is written: the commit alone, through the client."""
