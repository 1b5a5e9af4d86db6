"""The sources of the S3 store's settings and keys."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.store.object_store import StoreError
from frazil.store.s3_settings import ProfileError, S3Settings, profile_keys, wants_profile
from frazil.store.s3_store import S3Store
from tests.support.s3 import S3Server


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return environment variables that point to AWS files in a temporary folder."""
    return {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({}, S3Settings(None, "us-east-1", False)),
        (
            {"FRAZIL_S3_ENDPOINT": "http://minio.lan:9000"},
            S3Settings("http://minio.lan:9000", "us-east-1", True),
        ),
        (
            {"FRAZIL_S3_ENDPOINT": "https://s3.lan", "FRAZIL_S3_PATH_STYLE": "false"},
            S3Settings("https://s3.lan", "us-east-1", False),
        ),
        (
            {"FRAZIL_S3_ENDPOINT": "http://127.0.0.1:9000", "FRAZIL_S3_PATH_STYLE": "false"},
            S3Settings("http://127.0.0.1:9000", "us-east-1", True),
        ),
        (
            {"FRAZIL_S3_ENDPOINT": "http://[::1]:9000", "FRAZIL_S3_PATH_STYLE": "0"},
            S3Settings("http://[::1]:9000", "us-east-1", True),
        ),
        (
            {"FRAZIL_S3_ENDPOINT": "http://localhost:9000", "FRAZIL_S3_PATH_STYLE": "no"},
            S3Settings("http://localhost:9000", "us-east-1", True),
        ),
        ({"FRAZIL_S3_PATH_STYLE": "TRUE"}, S3Settings(None, "us-east-1", True)),
        (
            {"FRAZIL_S3_REGION": "eu-west-1", "AWS_REGION": "eu-west-2"},
            S3Settings(None, "eu-west-1", False),
        ),
        (
            {"AWS_REGION": "eu-west-2", "AWS_DEFAULT_REGION": "eu-west-3"},
            S3Settings(None, "eu-west-2", False),
        ),
        ({"AWS_DEFAULT_REGION": "eu-west-3"}, S3Settings(None, "eu-west-3", False)),
        (
            {"AWS_ENDPOINT_URL_S3": "http://a.lan", "AWS_ENDPOINT_URL": "http://b.lan"},
            S3Settings("http://a.lan", "us-east-1", True),
        ),
        (
            {"FRAZIL_S3_ENDPOINT": "http://c.lan", "AWS_ENDPOINT_URL_S3": "http://a.lan"},
            S3Settings("http://c.lan", "us-east-1", True),
        ),
    ],
)
def test_settings_from_the_environment(
    environ: dict[str, str], settings: S3Settings, files: dict[str, str]
) -> None:
    assert S3Settings.from_environment({**files, **environ}) == settings


def test_the_region_of_the_profile_is_the_last_resort(files: dict[str, str]) -> None:
    Path(files["AWS_CONFIG_FILE"]).write_text("[profile lake]\nregion = eu-central-1\n")

    assert S3Settings.from_environment({**files, "AWS_PROFILE": "lake"}).region == "eu-central-1"
    assert S3Settings.from_environment(files).region == "us-east-1"


@pytest.mark.parametrize(
    ("name", "value"),
    [("FRAZIL_S3_ENDPOINT", "minio:9000"), ("FRAZIL_S3_PATH_STYLE", "perhaps")],
)
def test_a_wrong_setting_is_named(name: str, value: str, files: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=name):
        S3Settings.from_environment({**files, name: value})


def test_the_bucket_stands_where_the_style_says() -> None:
    assert S3Settings("http://s3.lan:9/", "r", True).bucket_endpoint("b") == "http://s3.lan:9/"
    assert S3Settings("http://s3.lan:9/", "r", False).bucket_endpoint("b") == "http://b.s3.lan:9"
    assert S3Settings(None, "r", False).bucket_endpoint("b") is None


def test_clients_are_told_everything_but_secrets() -> None:
    assert S3Settings(None, "eu-west-1", False).client_properties() == {
        "s3.region": "eu-west-1",
        "client.region": "eu-west-1",
    }
    assert S3Settings("http://s3.lan", "eu-west-1", True).client_properties() == {
        "s3.region": "eu-west-1",
        "client.region": "eu-west-1",
        "s3.endpoint": "http://s3.lan",
        "s3.path-style-access": "true",
        "s3.force-virtual-addressing": "false",
    }


def test_our_endpoint_goes_before_the_one_of_the_process(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    assert S3Store(environ=s3_server.environ()).size(f"{s3_bucket}/none") is None


# --- keys ------------------------------------------------------------------------------------


def test_keys_in_the_environment_go_before_the_files(files: dict[str, str]) -> None:
    Path(files["AWS_SHARED_CREDENTIALS_FILE"]).write_text(
        "[default]\naws_access_key_id = file\naws_secret_access_key = s\n"
    )

    assert wants_profile(files)
    assert not wants_profile({**files, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
    assert not wants_profile({**files, "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"})


def test_without_keys_in_files_the_search_goes_on_elsewhere(files: dict[str, str]) -> None:
    assert not wants_profile(files)
    Path(files["AWS_CONFIG_FILE"]).write_text("[default]\nregion = eu-west-1\n")
    assert not wants_profile(files)
    assert wants_profile({**files, "AWS_PROFILE": "lake"})


def test_the_default_files_lie_in_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = k\naws_secret_access_key = s%(x)\n"
    )

    keys = profile_keys({"HOME": str(tmp_path)})

    assert (keys.access_key_id, keys.secret_access_key, keys.session_token) == ("k", "s%(x)", None)


def test_the_credentials_file_goes_before_the_config_file(files: dict[str, str]) -> None:
    Path(files["AWS_CONFIG_FILE"]).write_text(
        "[profile lake]\naws_access_key_id = config\naws_secret_access_key = config-secret\n"
        "[lake]\naws_access_key_id = not a profile\n"
    )
    assert profile_keys({**files, "AWS_PROFILE": "lake"}).access_key_id == "config"

    Path(files["AWS_SHARED_CREDENTIALS_FILE"]).write_text(
        "[default]\naws_access_key_id = other\n"
        "[lake]\naws_access_key_id = k\naws_secret_access_key = s\naws_session_token = t\n"
    )
    keys = profile_keys({**files, "AWS_PROFILE": "lake"})
    assert (keys.access_key_id, keys.secret_access_key, keys.session_token) == ("k", "s", "t")
    assert datetime.now(UTC) < keys.expires_at < datetime.now(UTC) + timedelta(hours=1)


def _process(tmp_path: Path, printed: str) -> str:
    script = tmp_path / "process.py"
    script.write_text(f"print({printed!r})")
    return f"{sys.executable} {script}"


@pytest.mark.process
def test_a_credential_process_is_run(files: dict[str, str], tmp_path: Path) -> None:
    command = _process(
        tmp_path,
        '{"Version": 1, "AccessKeyId": "k", "SecretAccessKey": "s", "SessionToken": "t",'
        ' "Expiration": "2040-01-02T03:04:05Z"}',
    )
    Path(files["AWS_CONFIG_FILE"]).write_text(f"[default]\ncredential_process = {command}\n")

    keys = profile_keys(files)

    assert (keys.access_key_id, keys.secret_access_key, keys.session_token) == ("k", "s", "t")
    assert keys.expires_at == datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.process
@pytest.mark.parametrize("printed", ["", "[]", '{"AccessKeyId": "hush"}', "not json: hush"])
def test_a_credential_process_that_fails_shows_no_secret(
    printed: str, files: dict[str, str], tmp_path: Path
) -> None:
    command = _process(tmp_path, printed)
    Path(files["AWS_CONFIG_FILE"]).write_text(f"[default]\ncredential_process = {command}\n")

    with pytest.raises(ProfileError, match="credential_process") as raised:
        profile_keys(files)
    assert "hush" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ("", "no keys"),
        ("aws_access_key_id = k", "aws_secret_access_key"),
        ("role_arn = arn:aws:iam::1:role/x\nsource_profile = default", "role_arn"),
        ("sso_session = x", "sso_session"),
        ("credential_process = /none/such", "credential_process"),
    ],
)
def test_a_profile_without_usable_keys_says_what_to_do(
    entries: str, reason: str, files: dict[str, str]
) -> None:
    Path(files["AWS_CONFIG_FILE"]).write_text(f"[profile lake]\n{entries}\n")
    environ = {**files, "AWS_PROFILE": "lake"}

    assert wants_profile(environ)
    with pytest.raises(ProfileError, match=f"'lake'.*{reason}|{reason}.*'lake'"):
        profile_keys(environ)
    with pytest.raises(StoreError, match="'lake'"):
        S3Store(environ=environ).get("s3://bucket/a")


def test_a_broken_file_is_named(files: dict[str, str]) -> None:
    Path(files["AWS_CONFIG_FILE"]).write_text("region = outside of every section\n")

    with pytest.raises(ProfileError, match=os.path.basename(files["AWS_CONFIG_FILE"])):
        profile_keys(files)


def test_the_store_signs_with_the_keys_of_the_profile(
    s3_server: S3Server, s3_bucket: str, files: dict[str, str]
) -> None:
    Path(files["AWS_SHARED_CREDENTIALS_FILE"]).write_text(
        "[lake]\naws_access_key_id = k\naws_secret_access_key = s\n"
    )
    environ = {**files, "AWS_PROFILE": "lake", "FRAZIL_S3_ENDPOINT": s3_server.endpoint}
    store = S3Store(environ=environ)

    store.put_new(f"{s3_bucket}/by-profile", [b"content"])

    assert store.get(f"{s3_bucket}/by-profile") == b"content"
