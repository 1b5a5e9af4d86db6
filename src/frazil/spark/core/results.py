"""What a write has done."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.client.declare.table_verbs import Commit


@dataclass(frozen=True, kw_only=True)
class Result:
    commit: Commit | None
    """None where there was nothing to change, so that no snapshot was made."""
    operation: str
    """`append`, `overwrite`, `delete`, `update`, `merge`, `create`."""
    mode: str | None = None
    """`copy-on-write`, `merge-on-read`, or `metadata` where whole files were dropped unread."""
    rows_written: int = 0
    """Rows that the statement has added or changed; copies of other rows are not counted."""
    rows_deleted: int | None = 0
    """None where whole files went, whose rows nobody has counted."""
    files_added: int = 0
    files_removed: int = 0
    attempts: int = 1
    """Runs of the whole statement, each from a scan of its own."""

    @property
    def snapshot_id(self) -> int | None:
        return None if self.commit is None else self.commit.snapshot_id
