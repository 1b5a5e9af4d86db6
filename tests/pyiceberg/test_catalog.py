"""The catalog differs from PyIceberg's own only in its commits."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyiceberg.catalog
import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    OAuthError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from pyiceberg.utils.config import Config

from frazil.pyiceberg import FrazilCatalog, FrazilTable, load_catalog
from tests.pyiceberg.conftest import IMPLEMENTATION, frazil_catalog
from tests.pyiceberg.recorded import Commits, data_files_on_disk, metadata_files_on_disk
from tests.stock_clients.stock import ID_NAME, id_name, operations, pyiceberg_ids
from tests.stock_clients.test_tokens import new_token
from tests.support.proxy import Abandon, DropAnswer, DropRequest, Respond, running_proxy
from tests.support.server import RunningServer, ServerFactory

IMPATIENT = {
    "commit.retry.num-retries": "1",
    "commit.retry.min-wait-ms": "1",
    "commit.status-check.num-retries": "1",
    "commit.status-check.min-wait-ms": "1",
}


# --- one word of configuration ------------------------------------------------------------------


@pytest.mark.parametrize("place", ["argument", "file"])
def test_one_word_of_configuration_is_enough(
    catalog_server: RunningServer,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    lines = ["catalog:", "  prod:", f"    uri: {catalog_server.url}"]
    if place == "file":
        lines.append(f"    py-catalog-impl: {IMPLEMENTATION}")
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(lines))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setattr(
        "pyiceberg.catalog._ENV_CONFIG", Config()
    )  # Load the configuration as a new process does.
    if place == "file":
        catalog = load_catalog("prod")
    else:
        catalog = pyiceberg.catalog.load_catalog("prod", **{"py-catalog-impl": IMPLEMENTATION})
    assert isinstance(catalog, FrazilCatalog)
    assert catalog._key_lifetime_s == 1800
    table = catalog.create_table((namespace, "t"), ID_NAME)
    assert isinstance(table, FrazilTable)
    table.append(id_name(1, 2))
    assert pyiceberg_ids(catalog.load_table((namespace, "t"))) == [1, 2]


def test_what_is_no_commit_is_as_in_pyiceberg(frazil: Catalog, namespace: str) -> None:
    frazil.create_table((namespace, "a"), ID_NAME)
    with pytest.raises(TableAlreadyExistsError):
        frazil.create_table((namespace, "a"), ID_NAME)
    renamed = frazil.rename_table((namespace, "a"), (namespace, "b"))
    assert isinstance(renamed, FrazilTable)
    assert frazil.list_tables(namespace) == [(namespace, "b")]
    registered = frazil.load_table((namespace, "b")).metadata_location
    frazil.drop_table((namespace, "b"))
    assert isinstance(frazil.register_table((namespace, "c"), registered), FrazilTable)
    frazil.drop_table((namespace, "c"))
    assert frazil.list_tables(namespace) == []
    with pytest.raises(NoSuchTableError):
        frazil.load_table((namespace, "b"))


def test_a_namespace_may_have_the_catalogs_own_name(frazil: Catalog) -> None:
    name = f"frazil.{uuid.uuid4().hex[:8]}"
    frazil.create_namespace_if_not_exists("frazil")
    frazil.create_namespace(name)
    table = frazil.create_table(f"{name}.t", ID_NAME)
    table.append(id_name(1))
    assert pyiceberg_ids(table.refresh()) == [1]


def test_a_token_goes_along_with_commits(server: ServerFactory) -> None:
    token, line = new_token("alice")
    guarded = server(env={"FRAZIL_TOKENS": line})
    catalog = frazil_catalog(guarded.url, token=token)
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", ID_NAME)
    table.append(id_name(1))
    assert pyiceberg_ids(table.refresh()) == [1]
    before = data_files_on_disk(table)
    # Remove the token, as if it had been revoked between loading the table and the commit.
    catalog._session.auth = None  # type: ignore[attr-defined]
    catalog._refresh_token = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(UnauthorizedError):
        table.append(id_name(2))
    assert data_files_on_disk(table) == before


def test_a_login_that_fails_has_sent_nothing(frazil: Catalog, namespace: str) -> None:
    table = frazil.create_table((namespace, "t"), ID_NAME, properties=IMPATIENT)

    def no_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
        raise OAuthError("the login server is away")

    frazil._session.auth = no_login  # type: ignore[attr-defined]
    with pytest.raises(ServiceUnavailableError, match="the login server is away"):
        table.append(id_name(1))
    assert data_files_on_disk(table) == set()


# --- what is sent -------------------------------------------------------------------------------


@pytest.mark.parametrize("merges", ["true", "false"])
def test_an_append_is_one_request_without_assertions_about_the_branch(
    frazil: Catalog, namespace: str, merges: str
) -> None:
    properties = {"commit.manifest-merge.enabled": merges}
    table = frazil.create_table((namespace, "t"), ID_NAME, properties=properties)
    table.append(id_name(1, 2), snapshot_properties={"who": "me"})
    commits = Commits(frazil)
    table.append(id_name(3), snapshot_properties={"who": "me"})
    assert commits.only["requirements"] == [
        {"type": "assert-table-uuid", "uuid": str(table.metadata.table_uuid)}
    ]
    (update,) = commits.updates
    assert (update["action"], update["summary"]) == ("append", {"who": "me"})
    assert "commit-validations" not in update
    assert "base-snapshot-id" not in update
    assert uuid.UUID(commits.headers[0]["idempotency-key"]).version == 7
    assert operations(table) == ["append", "append"]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["who"] == "me"
    assert snapshot.summary["total-records"] == "3"


def test_no_manifest_is_written_by_the_client(
    frazil: Catalog, stock: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg writes everything through its FileIO, which this test records."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    written: list[str] = []
    new_output = PyArrowFileIO.new_output

    def noted(self: PyArrowFileIO, location: str) -> object:
        written.append(location)
        return new_output(self, location)

    monkeypatch.setattr(PyArrowFileIO, "new_output", noted)
    counts = []
    for catalog, name in ((frazil, f"{namespace}.t"), (stock, "ns.t")):
        table = catalog.create_table(name, ID_NAME)
        written.clear()
        table.append(id_name(*range(10)))
        table.delete("id < 3")
        table.overwrite(id_name(4, 20), "id = 4")
        table.upsert(id_name(20, 21, name="other"), join_cols=["id"])
        counts.append(sum(path.endswith(".avro") for path in written))
        assert any(path.endswith(".parquet") for path in written)
        assert pyiceberg_ids(table) == [*range(3, 10), 20, 21]
    ours, theirs = counts
    assert ours == 0
    assert theirs > 0


def test_a_stale_table_appends_without_a_second_attempt(frazil: Catalog, namespace: str) -> None:
    frazil.create_table((namespace, "t"), ID_NAME)
    tables = [frazil.load_table((namespace, "t")) for _ in range(3)]
    commits = Commits(frazil)
    for number, table in enumerate(tables):
        table.append(id_name(number))
    assert len(commits.bodies) == 3
    assert pyiceberg_ids(tables[-1]) == [0, 1, 2]


def test_the_answer_is_the_tables_metadata(frazil: Catalog, namespace: str) -> None:
    table = frazil.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(1))
    fresh = frazil.load_table((namespace, "t"))
    assert table.metadata == fresh.metadata
    assert table.metadata_location == fresh.metadata_location


def test_nothing_to_write_commits_nothing(frazil: Catalog, namespace: str) -> None:
    table = frazil.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(1))
    commits = Commits(frazil)
    table.append(id_name())
    with pytest.warns(UserWarning, match="did not match any records"):
        table.delete("id = 9")
    with table.transaction():
        pass
    assert commits.bodies == []
    assert len(table.refresh().metadata.snapshots) == 1


# --- a table with its first rows ----------------------------------------------------------------


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_table_is_made_together_with_its_rows(
    frazil: Catalog, namespace: str, version: str
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    commits = Commits(frazil)
    with frazil.create_table_transaction(
        (namespace, "t"), ID_NAME, partition_spec=spec, properties={"format-version": version}
    ) as transaction:
        transaction.append(id_name(1, 2, 3))
        transaction.delete("id = 2")
        transaction.set_properties({"owner": "me"})
        assert not frazil.table_exists((namespace, "t"))
    assert commits.bodies[-1]["requirements"] == [{"type": "assert-create"}]
    table = frazil.load_table((namespace, "t"))
    assert pyiceberg_ids(table) == [1, 3]
    assert table.format_version == int(version)
    assert table.properties["owner"] == "me"
    assert operations(table) == ["append", "delete"]


def test_a_table_that_others_made_first_is_not_touched(frazil: Catalog, namespace: str) -> None:
    transaction = frazil.create_table_transaction((namespace, "t"), ID_NAME)
    transaction.append(id_name(1))
    made = frazil.create_table((namespace, "t"), ID_NAME)
    made.append(id_name(7))
    with pytest.raises(CommitFailedException):
        transaction.commit_transaction()
    assert data_files_on_disk(transaction._table) == set()
    assert pyiceberg_ids(made.refresh()) == [7]


# --- the network --------------------------------------------------------------------------------


def test_a_lost_answer_is_asked_for_and_nothing_happens_twice(
    frazil: Catalog, catalog_server: RunningServer, namespace: str
) -> None:
    frazil.create_table((namespace, "t"), ID_NAME, properties=IMPATIENT)
    with running_proxy(catalog_server.url) as proxy:
        catalog = frazil_catalog(proxy.url)
        table = catalog.load_table((namespace, "t"))
        proxy.script(DropAnswer())
        table.append(id_name(1))
        keys = [exchange.key for exchange in proxy.changes]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert pyiceberg_ids(table) == [1]
    assert operations(frazil.load_table((namespace, "t"))) == ["append"]


def test_an_unknown_outcome_deletes_nothing(
    frazil: Catalog, catalog_server: RunningServer, namespace: str
) -> None:
    frazil.create_table((namespace, "t"), ID_NAME, properties=IMPATIENT)
    with running_proxy(catalog_server.url) as proxy:
        catalog = frazil_catalog(proxy.url, **{"frazil.outage-timeout-s": "0.05"})
        table = catalog.load_table((namespace, "t"))
        proxy.script(DropAnswer(), *[DropRequest()] * 50)
        with pytest.raises(CommitStateUnknownException), table.transaction() as transaction:
            transaction.append(id_name(1))
    assert len(data_files_on_disk(table)) == 1
    assert pyiceberg_ids(frazil.load_table((namespace, "t"))) == [1]


def test_a_server_that_is_not_there_has_got_nothing(
    frazil: Catalog, catalog_server: RunningServer, namespace: str
) -> None:
    frazil.create_table((namespace, "t"), ID_NAME, properties=IMPATIENT)
    with running_proxy(catalog_server.url) as proxy:
        catalog = frazil_catalog(proxy.url, **{"frazil.outage-timeout-s": "0.05"})
        table = catalog.load_table((namespace, "t"))
    with pytest.raises(ServiceUnavailableError):
        table.append(id_name(1))
    assert data_files_on_disk(table) == set()


def test_a_server_error_is_no_proof(
    frazil: Catalog, catalog_server: RunningServer, namespace: str
) -> None:
    frazil.create_table((namespace, "t"), ID_NAME, properties=IMPATIENT)
    with running_proxy(catalog_server.url) as proxy:
        catalog = frazil_catalog(proxy.url, **{"frazil.outage-timeout-s": "0.05"})
        table = catalog.load_table((namespace, "t"))
        proxy.script(*[Respond(502)] * 50)
        with pytest.raises(CommitStateUnknownException):
            table.append(id_name(1))
    assert len(data_files_on_disk(table)) == 1


def test_a_request_has_a_time_limit(
    frazil: Catalog, catalog_server: RunningServer, namespace: str
) -> None:
    frazil.create_table((namespace, "t"), ID_NAME, properties=IMPATIENT)
    with running_proxy(catalog_server.url) as proxy:
        limit = {"frazil.request-timeout-s": "3"}
        catalog = frazil_catalog(proxy.url, **limit)
        table = catalog.load_table((namespace, "t"))
        proxy.script(Abandon())
        table.append(id_name(1))
        assert len(proxy.changes) == 2
    assert pyiceberg_ids(table) == [1]
    assert operations(table) == ["append"]


@pytest.mark.parametrize("text", ["never", "0", "-1", "inf"])
def test_a_time_limit_must_be_one(catalog_server: RunningServer, text: str) -> None:
    with pytest.raises(ValueError, match=r"frazil\.request-timeout-s"):
        frazil_catalog(catalog_server.url, **{"frazil.request-timeout-s": text})


def test_a_misspelled_property_of_the_catalog_is_refused(catalog_server: RunningServer) -> None:
    with pytest.raises(ValueError, match=r"did you mean .frazil\.request-timeout-s."):
        frazil_catalog(catalog_server.url, **{"frazil.request-timeout": "3"})


# --- refusals -----------------------------------------------------------------------------------


def test_a_dropped_table_is_named(frazil: Catalog, namespace: str) -> None:
    table = frazil.create_table((namespace, "t"), ID_NAME)
    frazil.drop_table((namespace, "t"))
    with pytest.raises(NoSuchTableError):
        table.append(id_name(1))
    assert data_files_on_disk(table) == set()


def test_another_table_of_the_name_is_not_written_to(frazil: Catalog, namespace: str) -> None:
    table = frazil.create_table((namespace, "t"), ID_NAME)
    frazil.drop_table((namespace, "t"))
    other = frazil.create_table((namespace, "t"), ID_NAME)
    with pytest.raises(CommitFailedException):
        table.append(id_name(1))
    assert other.refresh().metadata.snapshots == []


def test_the_metadata_folder_holds_only_what_the_server_wrote(
    frazil: Catalog, namespace: str
) -> None:
    table = frazil.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(*range(5)))
    before = metadata_files_on_disk(table)
    stale = frazil.load_table((namespace, "t"))
    table.append(id_name(9))
    after = metadata_files_on_disk(table)
    assert len(after - before) == 3, "a metadata file, a manifest list and a manifest"
    with pytest.raises(Exception, match="conflicting"):
        stale.delete("id = 9 or id = 1")
    assert metadata_files_on_disk(table) == after


def test_rest_catalog_sees_what_frazil_catalog_wrote(
    frazil: Catalog, catalog_server: RunningServer, namespace: str
) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=True))
    table = frazil.create_table((namespace, "t"), schema)
    table.append(pa.table({"n": [1, 2]}, schema=pa.schema([pa.field("n", pa.int64(), False)])))
    stock = RestCatalog("stock", uri=catalog_server.url)
    assert stock.load_table((namespace, "t")).scan().to_arrow()["n"].to_pylist() == [1, 2]
    stock.close()
