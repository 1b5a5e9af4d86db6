"""Stock PyIceberg: all view operations that it supports."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchViewError, TableAlreadyExistsError, ViewAlreadyExistsError
from pyiceberg.view.metadata import ViewVersion

from tests.stock_clients.stock import ID_NAME


def version(namespace: str, sql: str) -> ViewVersion:
    return ViewVersion.model_validate(
        {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": 1_700_000_000_000,
            "summary": {"engine-name": "tests"},
            "representations": [{"type": "sql", "sql": sql, "dialect": "duckdb"}],
            "default-namespace": [namespace],
        }
    )


def test_view_is_created_loaded_listed_and_dropped(iceberg: Catalog, namespace: str) -> None:
    sql = "SELECT 1 AS id, 'x' AS name"
    created = iceberg.create_view(
        (namespace, "v"), ID_NAME, version(namespace, sql), properties={"owner": "tests"}
    )
    assert iceberg.view_exists((namespace, "v"))
    assert not iceberg.table_exists((namespace, "v"))
    assert iceberg.list_views(namespace) == [(namespace, "v")]
    assert iceberg.list_tables(namespace) == []

    loaded = iceberg.load_view((namespace, "v"))
    assert loaded.uuid() == created.uuid()
    assert loaded.properties["owner"] == "tests"
    assert loaded.schema().column_names == ["id", "name"]
    found = loaded.sql_for("duckdb")
    assert found is not None
    assert found.sql == sql
    assert loaded.current_version().default_namespace == (namespace,)
    assert len(loaded.history()) == 1

    with pytest.raises(ViewAlreadyExistsError):
        iceberg.create_view((namespace, "v"), ID_NAME, version(namespace, sql))
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table((namespace, "v"), ID_NAME)
    iceberg.drop_view((namespace, "v"))
    assert not iceberg.view_exists((namespace, "v"))
    with pytest.raises(NoSuchViewError):
        iceberg.drop_view((namespace, "v"))


def test_dropped_view_is_registered_again(iceberg: Catalog, namespace: str) -> None:
    created = iceberg.create_view((namespace, "v"), ID_NAME, version(namespace, "SELECT 1"))
    (metadata,) = _metadata_files(created.location())
    iceberg.drop_view((namespace, "v"))
    registered = iceberg.register_view((namespace, "again"), metadata)
    assert registered.uuid() == created.uuid()
    assert iceberg.list_views(namespace) == [(namespace, "again")]


def _metadata_files(location: str) -> list[str]:
    folder = Path(location.removeprefix("file://"))
    return [f"file://{path}" for path in folder.rglob("*.metadata.json")]
