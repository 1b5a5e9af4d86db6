"""What every part of a session works with."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from frazil.client.catalog_client import Client
from frazil.spark.core.settings import Settings

LOGGER: Final = logging.getLogger("frazil.spark")
"""Says which engine reads and writes, and why."""


@dataclass(frozen=True)
class Context:
    spark: SparkSession
    client: Client
    settings: Settings
    uri: str
    """The catalog's address, which Iceberg's own reader needs too."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What the user said about the catalog and its storage, in the words of Iceberg's REST
    catalogs: `token`, `warehouse`, `s3.access-key-id` and so on."""
    log: logging.Logger = LOGGER

    @property
    def time_zone(self) -> str:
        """In which Spark reads texts without one as timestamps."""
        zone = self.spark.conf.get("spark.sql.session.timeZone")
        assert zone is not None
        return zone
