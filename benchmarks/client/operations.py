"""The names of a writer's operations."""

from __future__ import annotations

from typing import Final

APPEND: Final = "append"
"""Append a small Arrow table, measured from Arrow to the committed snapshot."""
DELETE: Final = "delete"
"""Delete one row of the writer's own bucket, which rewrites its file."""
UPSERT: Final = "upsert"
"""Upsert two rows of the writer's own bucket: one that exists and one that does not."""
DECLARED: Final = "append of a declared file"
"""Commit through the client without writing Parquet."""
