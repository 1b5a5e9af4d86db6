"""Completes the options of a commit: branch, summary, and write-audit-publish.

As in stock Spark, `spark.wap.id` stages writes until `publish_changes`, and `spark.wap.branch`
redirects writes to a branch and reads from it. Both count only for tables with `write.wap.enabled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.spark.core.context import Context
from frazil.spark.core.statement_runs import Target
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import MAIN

ENABLED: Final = "write.wap.enabled"
ID_SETTING: Final = "spark.wap.id"
BRANCH_SETTING: Final = "spark.wap.branch"
ID_IN_SUMMARY: Final = "wap.id"


def complete_options(
    context: Context, target: Target, options: Mapping[str, Any], table: Table | None = None
) -> dict[str, Any]:
    """Add the target's branch, and Spark's application id to the summary, as stock Spark does.

    `table` is the existing table, whose writes may be audited; None for a new one.
    """
    has_branch = "branch" in options or target.branch != MAIN
    audited = {} if table is None else _audited_options(context, table, has_branch)
    completed = {"branch": target.branch, **audited, **options}
    summary = {**audited.get("summary", {}), **(options.get("summary") or {})}
    application = context.spark.conf.get("spark.app.id", None)
    if application is not None:
        summary.setdefault("spark.app.id", application)
    return {**completed, "summary": summary}


def audited_branch(context: Context, table: Table) -> str | None:
    """Return the branch that is read by default; None if nothing was written to it yet."""
    _, branch = _audit_settings(context, table)
    return branch if branch in table.refs else None


def _audited_options(context: Context, table: Table, has_branch: bool) -> Mapping[str, Any]:
    """Return the options by Spark's settings; a write that names a branch goes there."""
    wap_id, branch = _audit_settings(context, table)
    if wap_id is not None:
        return {"stage_only": True, "summary": {ID_IN_SUMMARY: wap_id}}
    if branch is not None and not has_branch:
        return {"branch": branch}
    return {}


def _audit_settings(context: Context, table: Table) -> tuple[str | None, str | None]:
    if table.properties.get(ENABLED, "false").lower() != "true":
        return None, None
    wap_id = context.spark.conf.get(ID_SETTING, None)
    branch = context.spark.conf.get(BRANCH_SETTING, None)
    if wap_id is not None and branch is not None:
        raise BadRequest(
            f"{ID_SETTING} is {wap_id!r} and {BRANCH_SETTING} is {branch!r}: set one of them"
        )
    return wap_id, branch
