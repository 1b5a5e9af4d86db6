"""Uses Iceberg's Java library as the oracle, for plans and for bound expressions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.oracle.plans.files import Doc
from tests.support.compiled_java import compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE: Final = Path(__file__).with_name("Plans.java")


class JavaPlans:
    def __init__(self, spark: SparkSession) -> None:
        self._plans = compiled(spark, SOURCE)

    def open(self, metadata_location: str) -> JavaPlanned:
        return JavaPlanned(self._plans, self._plans.open(metadata_location))

    def write(self, location: str, branch: str, data: Sequence[Doc], deletes: Sequence[Doc]) -> str:
        """Commit files to a branch; return the new metadata file."""
        written = self._plans.write(location, branch, json.dumps(data), json.dumps(deletes))
        return str(written)


class JavaPlanned:
    """One table as Java reads it."""

    def __init__(self, plans: Any, table: Any) -> None:
        self._plans = plans
        self._table = table

    def plan(self, scans: Sequence[Doc]) -> list[Doc]:
        """Return for each scan its `tasks`, or `error` and `message`."""
        answers: list[Doc] = json.loads(self._plans.plan(self._table, json.dumps(scans)))
        return answers

    def bound(self, expressions: Sequence[Doc]) -> list[Doc]:
        """Return each `expression` bound to its schema, or `error` and `message`."""
        answers: list[Doc] = json.loads(self._plans.bound(self._table, json.dumps(expressions)))
        return answers
