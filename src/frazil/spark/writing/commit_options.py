"""Write-audit-publish by Spark's settings, as stock Spark has it: `spark.wap.id` stages what is
written until `publish_changes`, `spark.wap.branch` writes to and reads from a branch. Both only for
tables with `write.wap.enabled`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.spark.core.context import Context
from frazil.wire.errors import BadRequest

ENABLED: Final = "write.wap.enabled"
ID_SETTING: Final = "spark.wap.id"
BRANCH_SETTING: Final = "spark.wap.branch"
ID_IN_SUMMARY: Final = "wap.id"


def audited_options(context: Context, table: Table, has_branch: bool) -> Mapping[str, Any]:
    """What the settings add to a commit; a write that names its branch itself goes there."""
    wap_id, branch = _settings(context, table)
    if wap_id is not None:
        return {"stage_only": True, "summary": {ID_IN_SUMMARY: wap_id}}
    if branch is not None and not has_branch:
        return {"branch": branch}
    return {}


def audited_branch(context: Context, table: Table) -> str | None:
    """The branch that is read where none is named; one that nothing was written to yet is not."""
    _, branch = _settings(context, table)
    return branch if branch in table.refs else None


def _settings(context: Context, table: Table) -> tuple[str | None, str | None]:
    if table.properties.get(ENABLED, "false").lower() != "true":
        return None, None
    wap_id = context.spark.conf.get(ID_SETTING, None)
    branch = context.spark.conf.get(BRANCH_SETTING, None)
    if wap_id is not None and branch is not None:
        raise BadRequest(
            f"{ID_SETTING} is {wap_id!r} and {BRANCH_SETTING} is {branch!r}: set one of them"
        )
    return wap_id, branch
