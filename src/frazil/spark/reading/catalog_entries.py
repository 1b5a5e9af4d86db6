"""Makes the catalog known to Spark, if Iceberg's runtime is on its classpath.

Each entry is a REST catalog at the same address, without the cache that would show an older table
after a commit. One has the name that users write in plain `spark.sql`. Frazil reads through another
one, whose name contains a hash of its properties, because users may configure theirs as they like,
and because Spark never forgets a catalog that it has loaded.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from frazil.client.send.http_transport import CONNECT_TIMEOUT_S, DEFAULT_TIMEOUT_S
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.core.progress import is_classic
from frazil.wire.errors import BadRequest

CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_KEY: Final = "spark.sql.catalog"
_NO_RUNTIME: Final = (
    "Iceberg's runtime is not on Spark's classpath, so that spark.sql cannot read the tables of "
    'this catalog. Write session.sql("SELECT …") with the session of frazil.spark.connect(), or '
    'session.create_view("ns.t"), or spark.read.format("frazil").load("ns.t")'
)
"""Stands where Spark expects the name of a class. Spark repeats it in the error that it raises when
a statement uses the catalog."""

_TIME_LIMITS: Final = {
    "rest.client.connection-timeout-ms": f"{1000 * CONNECT_TIMEOUT_S:.0f}",
    "rest.client.socket-timeout-ms": f"{1000 * DEFAULT_TIMEOUT_S:.0f}",
}
"""The client's limits, since the runtime has none of its own and would wait forever."""


def register_catalog(context: Context) -> None:
    """Give the Spark session a catalog of the chosen name; keep another one that it has.

    This does not contact the catalog: Spark loads it when a statement uses it.
    """
    conf, name = context.spark.conf, context.settings.catalog_name
    key = f"{_KEY}.{name}"
    known = conf.get(key, None)
    if known is None or known == _NO_RUNTIME:
        if _has_runtime(context.spark):
            _configure(context, name)
        else:
            conf.set(key, _NO_RUNTIME)
        return
    wanted = _properties(context)
    if known == CATALOG_CLASS and all(
        conf.get(f"{key}.{part}", None) == wanted.get(part) for part in ("uri", *context.properties)
    ):
        return
    problem = f"{key}: Spark already has a catalog {name}, with other properties"
    if context.settings.sql_catalog is not None:
        raise BadRequest(f"{problem}: choose another name, as in connect(…, sql_catalog='lake')")
    LOGGER.warning(
        "%s: spark.sql reads that one; session.sql reads the tables of %s, and so does spark.sql "
        "under a name of its own, as in connect(…, sql_catalog='lake')",
        problem,
        context.uri,
    )


def reading_entry(context: Context) -> str:
    """Configure the catalog through which Frazil reads if needed, and return its name."""
    properties = _properties(context)
    text = "\n".join(f"{name}={properties[name]}" for name in sorted(properties))
    name = f"frazil_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if context.spark.conf.get(f"{_KEY}.{name}", None) is None:
        _configure(context, name)
    return name


def _properties(context: Context) -> dict[str, str]:
    return {
        **_TIME_LIMITS,
        **context.properties,
        "type": "rest",
        "uri": context.uri,
        "cache-enabled": "false",
    }


def _configure(context: Context, name: str) -> None:
    key = f"{_KEY}.{name}"
    for part, value in _properties(context).items():
        context.spark.conf.set(f"{key}.{part}", value)
    # This key is set last, so that other threads see all keys if they see this one.
    context.spark.conf.set(key, CATALOG_CLASS)


# --- whether Spark has the class ------------------------------------------------------------------

_PROBE: Final = "SELECT java_method('org.apache.spark.util.Utils', 'classIsLoadable', '{}')"


def _has_runtime(spark: Any) -> bool:
    """Ask Spark whether it can load the catalog's class, without loading it."""
    if is_classic(spark):
        return bool(spark._jvm.org.apache.spark.util.Utils.classIsLoadable(CATALOG_CLASS))
    return str(spark.sql(_PROBE.format(CATALOG_CLASS)).collect()[0][0]) == "true"
