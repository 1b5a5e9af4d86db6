"""The snippets that `frazil serve` prints for users to paste."""

from __future__ import annotations

import shlex

from frazil.server.client_snippets import snippets
from frazil.settings import Settings

URL = "http://127.0.0.1:8181"


def test_local_files_need_no_secret() -> None:
    paste = snippets(Settings(), URL, with_token=False)
    assert paste["PyIceberg"].endswith(f'load_catalog("frazil", type="rest", uri="{URL}")')
    assert paste["DuckDB shell"].splitlines() == [
        "INSTALL iceberg; LOAD iceberg;",
        f"ATTACH '' AS frazil (TYPE iceberg, ENDPOINT '{URL}', AUTHORIZATION_TYPE 'none');",
    ]
    assert "aws" not in paste["Spark"]
    assert not any("TOKEN" in text or "SECRET" in text for text in paste.values())
    compile(paste["PyIceberg"], "snippet", "exec")


def test_a_token_is_named_and_never_shown() -> None:
    paste = snippets(Settings(), URL, with_token=True)
    assert all("FRAZIL_TOKEN" in text for text in paste.values())
    assert shlex.split(paste["curl"])[3] == "Authorization: Bearer $FRAZIL_TOKEN"
    assert "AUTHORIZATION_TYPE 'none'" not in paste["DuckDB shell"]
    compile(paste["PyIceberg"], "snippet", "exec")


def test_s3_tells_where_the_store_is() -> None:
    settings = Settings(
        warehouse="s3://bucket/prefix",
        s3_endpoint="http://127.0.0.1:9000",
        s3_region="eu-1",
    )
    paste = snippets(settings, URL, with_token=False)
    secret = next(line for line in paste["DuckDB shell"].splitlines() if "CREATE SECRET" in line)
    for part in ("ENDPOINT '127.0.0.1:9000'", "USE_SSL false", "REGION 'eu-1'", "URL_STYLE 'path'"):
        assert part in secret
    assert "ACCESS_DELEGATION_MODE 'none'" in paste["DuckDB shell"]
    assert "iceberg-aws-bundle" in paste["Spark"]
    amazon = snippets(Settings(warehouse="s3://b", s3_region="eu-1"), URL, with_token=False)
    assert "ENDPOINT '" not in amazon["DuckDB shell"].split("ATTACH")[0]
    assert "URL_STYLE" not in amazon["DuckDB shell"]
