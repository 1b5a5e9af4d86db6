"""Where a setting's value comes from, and the error for a wrong value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.settings import (
    Setting,
    Settings,
    SettingsError,
    Token,
    all_settings,
    all_tokens,
    database_url,
    extra_locations,
    mask_url,
    resolve,
    warehouse_location,
)

DIGEST_A = "a" * 64
DIGEST_B = "b" * 64

# One row for each setting: its value as a flag, in the environment and in the file. The last column
# has the three parsed values in that order. None means that the setting has no flag.
VALUES: dict[str, tuple[Any, str, str, list[Any]]] = {
    "host": ("::1", "10.0.0.1", '"localhost"', ["::1", "10.0.0.1", "localhost"]),
    "port": ("1", "2", "3", [1, 2, 3]),
    "warehouse": ("w1", "w2", '"/w3"', ["w1", "w2", "/w3"]),
    "database": (
        "sqlite:///1",
        "sqlite:///2",
        '"sqlite:////3"',
        ["sqlite:///1", "sqlite:///2", "sqlite:////3"],
    ),
    "allow_location": (["a", "b"], "c,d", '["/e"]', [("a", "b"), ("c", "d"), ("/e",)]),
    "insecure": (True, "true", "true", [True, True, True]),
    "tokens": (
        None,
        f"a:{DIGEST_A.upper()}, b:{DIGEST_B}:read",
        f'{{ c = "{DIGEST_A}", d = "{DIGEST_B}:read" }}',
        [
            None,
            {"a": Token(DIGEST_A), "b": Token(DIGEST_B, read_only=True)},
            {"c": Token(DIGEST_A), "d": Token(DIGEST_B, read_only=True)},
        ],
    ),
    "tokens_file": ("t1", "t2", '"/t3"', ["t1", "t2", "/t3"]),
    "tls_cert": ("c1", "c2", '"/c3"', ["c1", "c2", "/c3"]),
    "tls_key": ("k1", "k2", '"/k3"', ["k1", "k2", "/k3"]),
    "public_url": (
        "http://a:1",
        "https://b/",
        '"https://c/v1"',
        ["http://a:1", "https://b", "https://c"],
    ),
    "s3_endpoint": ("http://1", "http://2", '"http://3"', ["http://1", "http://2", "http://3"]),
    "s3_region": ("r1", "r2", '"r3"', ["r1", "r2", "r3"]),
    "s3_path_style": (False, "on", "true", [False, True, True]),
    "log_format": ("json", "text", '"json"', ["json", "text", "json"]),
    "max_request_bytes": ("1024", "2048", "4096", [1024, 2048, 4096]),
    "idempotency_lifetime_s": ("1", "2", "3", [1, 2, 3]),
    "metadata_cache_bytes": ("0", "2", "3", [0, 2, 3]),
    "manifest_cache_bytes": ("0", "2", "3", [0, 2, 3]),
    "manifest_cache_folder": ("/a", "/b", '"/c"', ["/a", "/b", "/c"]),
    "plan_wait_s": ("0", "2", "3", [0, 2, 3]),
    "plan_page_files": ("1", "2", "3", [1, 2, 3]),
    "maintain": (True, "true", "true", [True, True, True]),
    "maintain_memory": ("67108864", "68157440", "69206016", [67108864, 68157440, 69206016]),
    "maintain_interval_s": ("1", "2", "3", [1, 2, 3]),
    "shutdown_timeout_s": ("1", "2", "3", [1, 2, 3]),
}


def test_the_table_below_has_every_setting() -> None:
    assert list(VALUES) == [setting.name for setting in all_settings()]


@pytest.mark.parametrize("setting", all_settings(), ids=lambda setting: setting.name)
def test_flag_before_environment_before_file_before_default(
    setting: Setting, tmp_path: Path
) -> None:
    flag, env, in_file, (from_flag, from_env, from_file) = VALUES[setting.name]
    path = tmp_path / "frazil.toml"
    path.write_text(f"{setting.name} = {in_file}\n")
    environ = {setting.env: env}

    def outcome(
        flags: dict[str, object], environ: dict[str, str], config_file: str | None
    ) -> tuple[object, str]:
        resolved = resolve(flags, environ, config_file)
        return getattr(resolved.settings, setting.name), resolved.sources[setting.name]

    if setting.flag is not None:
        given: dict[str, object] = {setting.name: flag}
        assert outcome(given, environ, str(path)) == (from_flag, f"flag {setting.flag}")
    unset: dict[str, object] = {setting.name: None}
    assert outcome(unset, environ, str(path)) == (from_env, f"environment {setting.env}")
    assert outcome(unset, {}, str(path)) == (from_file, f"file {path}")
    assert outcome(unset, {}, None) == (setting.default, "default")
    assert getattr(Settings(), setting.name) == setting.default


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text("port = 1\n")
    two.write_text("port = 2\n")
    environ = {"FRAZIL_CONFIG": str(one)}
    assert resolve({}, environ).settings.port == 1
    assert resolve({}, environ, str(two)).settings.port == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prot = 1", "'prot' is not a setting; did you mean 'port'?"),
        ("allow-location = []", "did you mean 'allow_location'?"),
        ("zzz = 1", "known are host, port"),
        ("port = ", "not valid TOML"),
        ('port = "many"', "port (file"),
        ("port = true", "whole number"),
        ("port = 1.5", "whole number"),
        ("host = 1", "must be text"),
        ("insecure = 1", "true or false"),
        ("allow_location = [1]", "must be text"),
        ("tokens = 1", "name:sha256"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "frazil.toml"
    path.write_text(content)
    with pytest.raises(SettingsError) as caught:
        resolve({}, {}, str(path))
    assert message in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        resolve({}, {}, str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "-1"),
        ("PORT", "65536"),
        ("PORT", "9" * 30),
        ("HOST", " "),
        ("LOG_FORMAT", "xml"),
        ("INSECURE", "perhaps"),
        ("MAX_REQUEST_BYTES", "0"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"FRAZIL_{name}"):
        resolve({}, {f"FRAZIL_{name}": value})


@pytest.mark.parametrize(
    "value",
    [
        "secret-token",
        "a:short",
        f"a b:{DIGEST_A}",
        f"a:{DIGEST_A},a:{DIGEST_B}",
        f"a:{DIGEST_A}:write",
        f"a:{DIGEST_A}:",
        ":",
    ],
)
def test_wrong_tokens_are_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve({}, {"FRAZIL_TOKENS": value})
    assert "secret-token" not in str(caught.value)
    assert DIGEST_A not in str(caught.value)


def test_tokens_come_from_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# writers\n\netl:{DIGEST_B}\n bi : {DIGEST_A} : read \n")
    ops = Token(DIGEST_A)
    assert all_tokens(Settings(tokens={"ops": ops}, tokens_file=str(path))) == {
        "ops": ops,
        "etl": Token(DIGEST_B),
        "bi": Token(DIGEST_A, read_only=True),
    }
    with pytest.raises(SettingsError, match="'etl' is both"):
        all_tokens(Settings(tokens={"etl": ops}, tokens_file=str(path)))
    with pytest.raises(SettingsError, match="cannot be read"):
        all_tokens(Settings(tokens_file=str(tmp_path / "none")))
    path.write_text(f"etl:{DIGEST_B}\nnot an entry\n")
    with pytest.raises(SettingsError, match=r"tokens, line 2: must contain name:sha256"):
        all_tokens(Settings(tokens_file=str(path)))


def test_shown_tokens_have_no_digest() -> None:
    tokens = {"a": Token(DIGEST_A), "b": Token(DIGEST_B, read_only=True)}
    (setting,) = (each for each in all_settings() if each.name == "tokens")
    assert setting.shown(tokens) == {"a": "***", "b": "***:read"}


@pytest.mark.parametrize("url", ["catalog.example.com", "ftp://c", "https://", "https://u:p@c"])
def test_a_public_url_has_a_scheme_and_a_host(url: str) -> None:
    with pytest.raises(SettingsError, match=r"FRAZIL_PUBLIC_URL.*must be a URL such as") as caught:
        resolve({}, {"FRAZIL_PUBLIC_URL": url})
    assert "u:p@" not in str(caught.value)


def test_variables_that_are_no_setting_are_told() -> None:
    environ = {"FRAZIL_PROT": "1", "FRAZIL_PORT": "1", "FRAZIL_CONFIG": "", "HOME": "/"}
    assert resolve({}, environ).unknown_variables == ("FRAZIL_PROT",)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("sqlite:///frazil.db", "sqlite:///frazil.db"),
        ("postgresql://etl@db/frazil", "postgresql://etl@db/frazil"),
        ("postgresql://etl:p@ss/w:rd@db:5432/x", "postgresql://etl:***@db:5432/x"),
        ("postgresql://db/x?user=a&password=p&b=c", "postgresql://db/x?user=a&password=***&b=c"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
    ],
)
def test_passwords_are_masked(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_relative_paths_in_the_file_are_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "etc" / "f.toml").write_text(
        """
        warehouse = "./state/w"
        database = "sqlite:///state/f.db"
        allow_location = ["landing", "file:more", "file:///abs", "s3://bucket/p", "~/own"]
        tokens_file = "tokens"
        tls_cert = "/etc/cert.pem"
        tls_key = "key.pem"
        manifest_cache_folder = ""
        """
    )
    monkeypatch.chdir(tmp_path / "run")
    etc = tmp_path / "etc"
    settings = resolve({}, {}, "../etc/f.toml").settings
    assert warehouse_location(settings) == f"file://{etc}/state/w"
    assert settings.database == f"sqlite:///{etc}/state/f.db"
    assert extra_locations(settings) == (
        f"file://{etc}/landing",
        f"file://{etc}/more",
        "file:///abs",
        "s3://bucket/p",
        f"file://{Path.home()}/own",
    )
    assert settings.tokens_file == f"{etc}/tokens"
    assert (settings.tls_cert, settings.tls_key) == ("/etc/cert.pem", f"{etc}/key.pem")
    assert settings.manifest_cache_folder is None
    # What a flag or the environment says is relative to the working directory.
    flags, environ = {"warehouse": "w"}, {"FRAZIL_DATABASE": "sqlite:///f.db"}
    settings = resolve(flags, environ, "../etc/f.toml").settings
    assert warehouse_location(settings) == f"file://{tmp_path}/run/w"
    assert database_url(settings) == f"sqlite:///{tmp_path}/run/f.db"


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:////a.db", "postgresql://u@h/n"])
def test_other_databases_have_no_folder(tmp_path: Path, url: str) -> None:
    (tmp_path / "f.toml").write_text(f'database = "{url}"\n')
    settings = resolve({}, {}, str(tmp_path / "f.toml")).settings
    assert settings.database == database_url(settings) == url


def test_a_folder_becomes_an_absolute_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = f"file://{tmp_path}/w"
    for value in ("w", "./w/", f"{tmp_path}/w", f"file://{tmp_path}/w/", f"file:{tmp_path}/w"):
        assert warehouse_location(Settings(warehouse=value)) == expected
    assert warehouse_location(Settings(warehouse="s3://bucket/p/")) == "s3://bucket/p"
    settings = Settings(allow_location=("w", "s3://other/"))
    assert extra_locations(settings) == (expected, "s3://other")


@pytest.mark.parametrize("value", ["file://host/w", "a%20b", "a?b", "a#b", "a\nb"])
def test_a_folder_that_clients_would_misread_is_refused(value: str) -> None:
    with pytest.raises(SettingsError):
        warehouse_location(Settings(warehouse=value))
