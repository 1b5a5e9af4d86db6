"""`session.sql`: Spark's SQL with Iceberg's extensions, on the tables of the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from frazil.spark.session import Session


def run(
    session: Session, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None
) -> DataFrame:
    """Runs one statement; `args` are values for its `:name` or `?`."""
    # Later, because what carries statements out needs modules of this package itself.
    from frazil.spark.sql import dispatch

    return dispatch.run(session, text, args)
