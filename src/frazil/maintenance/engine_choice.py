"""Chooses the engine of a rewrite: this process, or Spark for much data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frazil.maintenance.local_engine import LocalEngine
from frazil.maintenance.rewrite_engine import RewriteEngine
from frazil.maintenance.rewrite_options import ENGINE_OPTION, LOCAL_MAX_BYTES_OPTION, RewriteOptions
from frazil.wire.errors import BadRequest

AUTO: Final = "auto"
LOCAL: Final = "local"
SPARK: Final = "spark"


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    engine: RewriteEngine
    reason: str
    """Why it was chosen, for the log and the result."""


def choose_engine(
    options: RewriteOptions, size_in_bytes: int, spark: RewriteEngine | None
) -> ChosenEngine:
    """Choose the engine that rewrites so many bytes; `spark` is None without a Spark session."""
    if options.engine == SPARK:
        if spark is None:
            raise BadRequest(
                f"{ENGINE_OPTION}: the engine {SPARK} needs a Spark session: use session.sql or "
                "session.rewrite_data_files of frazil.spark, or "
                "`frazil maintain rewrite-data-files --engine spark`"
            )
        return ChosenEngine(spark, "as requested")
    if options.engine == LOCAL:
        return ChosenEngine(LocalEngine(), "as requested")
    if spark is None:
        return ChosenEngine(LocalEngine(), "there is no Spark session")
    limit = options.local_engine_max_bytes
    if size_in_bytes <= limit:
        return ChosenEngine(
            LocalEngine(), f"{size_in_bytes} bytes are not above {LOCAL_MAX_BYTES_OPTION} ({limit})"
        )
    return ChosenEngine(
        spark, f"{size_in_bytes} bytes are above {LOCAL_MAX_BYTES_OPTION} ({limit})"
    )
