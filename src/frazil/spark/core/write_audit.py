"""Reads the settings of write-audit-publish.

As in stock Spark, `spark.wap.id` stages writes until `publish_changes`, and `spark.wap.branch`
redirects writes to a branch and reads from it. Both count only for tables with `write.wap.enabled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.wire.errors import BadRequest

ENABLED: Final = "write.wap.enabled"
ID_SETTING: Final = "spark.wap.id"
BRANCH_SETTING: Final = "spark.wap.branch"
AUDIT_SETTINGS: Final = (ID_SETTING, BRANCH_SETTING)
ID_IN_SUMMARY: Final = "wap.id"
EXTENSIONS_CLASS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""What `spark.sql.extensions` has to name where Iceberg's own runtime obeys the settings."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The settings as they apply to one table."""

    wap_id: str | None = None
    branch: str | None = None

    def commit_options(self, has_branch: bool) -> dict[str, Any]:
        """Return the options of a commit; a write that names a branch goes there."""
        if self.wap_id is not None:
            return {"stage_only": True, "summary": {ID_IN_SUMMARY: self.wap_id}}
        if self.branch is not None and not has_branch:
            return {"branch": self.branch}
        return {}

    def branch_to_read(self, table: Table) -> str | None:
        """Return the branch that is read by default; None if nothing was written to it yet."""
        return self.branch if self.branch in table.refs else None


def is_audited(properties: Mapping[str, str]) -> bool:
    """Return whether a table with these properties obeys the settings."""
    return properties.get(ENABLED, "false").lower() == "true"


def audit_of(spark: SparkSession, table: Table) -> Audit:
    """Return the settings of a Spark session for a table."""
    return audit_by(lambda name: spark.conf.get(name, None), table.properties)


def audit_by(setting: Callable[[str], str | None], properties: Mapping[str, str]) -> Audit:
    """Return the settings, with a function that returns the value of each."""
    if not is_audited(properties):
        return Audit()
    audit = Audit(setting(ID_SETTING), setting(BRANCH_SETTING))
    if audit.wap_id is not None and audit.branch is not None:
        raise BadRequest(
            f"{ID_SETTING} is {audit.wap_id!r} and {BRANCH_SETTING} is {audit.branch!r}: "
            "set one of them"
        )
    return audit
