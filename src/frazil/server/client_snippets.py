"""Code to paste so that a stock client uses this server."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from frazil.server.warehouse_storage import s3_settings
from frazil.settings import Settings, warehouse_location

_SPARK_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_AWS_PACKAGE = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"


def snippets(settings: Settings, url: str, with_token: bool) -> dict[str, str]:
    """Return the code for each client. Secrets appear only as names of environment variables."""
    on_s3 = urlsplit(warehouse_location(settings)).scheme in {"s3", "s3a", "s3n"}
    return {
        "curl": _curl(url, with_token),
        "PyIceberg": _pyiceberg(url, with_token),
        "DuckDB shell": _duckdb(settings, url, with_token, on_s3),
        "Spark": _spark(url, with_token, on_s3),
    }


def _curl(url: str, with_token: bool) -> str:
    header = ' -H "Authorization: Bearer $FRAZIL_TOKEN"' if with_token else ""
    return f"curl -s{header} {url}/v1/config"


def _pyiceberg(url: str, with_token: bool) -> str:
    token = ', token=os.environ["FRAZIL_TOKEN"]' if with_token else ""
    lines = ["import os"] if with_token else []
    lines += [
        "from pyiceberg.catalog import load_catalog",
        f'catalog = load_catalog("frazil", type="rest", uri="{url}"{token})',
    ]
    return "\n".join(lines)


def _duckdb(settings: Settings, url: str, with_token: bool, on_s3: bool) -> str:
    lines = ["INSTALL iceberg; LOAD iceberg;"]
    options = ["TYPE iceberg", f"ENDPOINT '{url}'"]
    if with_token:
        lines.append("CREATE SECRET frazil (TYPE iceberg, TOKEN getenv('FRAZIL_TOKEN'));")
        options.append("SECRET frazil")
    else:
        options.append("AUTHORIZATION_TYPE 'none'")
    if on_s3:
        lines += ["INSTALL httpfs; LOAD httpfs;", _duckdb_s3_secret(settings)]
        options.append("ACCESS_DELEGATION_MODE 'none'")
    return "\n".join([*lines, f"ATTACH '' AS frazil ({', '.join(options)});"])


def _duckdb_s3_secret(settings: Settings) -> str:
    s3 = s3_settings(settings, os.environ)
    parts = [
        "TYPE s3",
        "KEY_ID getenv('AWS_ACCESS_KEY_ID')",
        "SECRET getenv('AWS_SECRET_ACCESS_KEY')",
        f"REGION '{s3.region}'",
    ]
    if s3.endpoint is not None:
        endpoint = urlsplit(s3.endpoint)
        parts.append(f"ENDPOINT '{endpoint.netloc}'")
        parts.append(f"USE_SSL {'true' if endpoint.scheme == 'https' else 'false'}")
    if s3.path_style:
        parts.append("URL_STYLE 'path'")
    return f"CREATE SECRET warehouse ({', '.join(parts)});"


def _spark(url: str, with_token: bool, on_s3: bool) -> str:
    packages = f"{_SPARK_PACKAGE},{_AWS_PACKAGE}" if on_s3 else _SPARK_PACKAGE
    settings = {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.frazil": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.frazil.type": "rest",
        "spark.sql.catalog.frazil.uri": url,
    }
    if with_token:
        settings["spark.sql.catalog.frazil.token"] = '"$FRAZIL_TOKEN"'
    lines = [f"spark-sql --packages {packages}"]
    lines += [f"  --conf {name}={value}" for name, value in settings.items()]
    return " \\\n".join(lines)
