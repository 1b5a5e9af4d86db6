"""A real S3 server for tests: moto in its own process, on a free loopback port.

It supports conditional writes and does not check credentials.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.patience import HANG_S

REGION = "us-east-1"
ACCESS_KEY_ID = "frazil-test"
SECRET_ACCESS_KEY = "frazil-test-secret"

_ROOT = Path(__file__).resolve().parents[2]
_START_ATTEMPTS = 3

# Never use an HTTP proxy for loopback addresses.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    process: subprocess.Popen[bytes]

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its location."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with _direct.open(request, timeout=HANG_S):
            return f"s3://{name}"

    def environ(self) -> dict[str, str]:
        """Return the environment variables that make a Frazil server use this S3."""
        return {
            "FRAZIL_S3_ENDPOINT": self.endpoint,
            "FRAZIL_S3_REGION": REGION,
            "FRAZIL_S3_PATH_STYLE": "true",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        }

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_s3() -> S3Server:
    """Start the server and wait until it answers."""
    said = ""
    for _ in range(_START_ATTEMPTS):
        # Another process may take the port before the server starts; then try another port.
        with tempfile.TemporaryFile() as output:
            server = _start_on(_free_port(), output)
            if _answers(server):
                return server
            server.stop()
            output.seek(0)
            said = output.read().decode(errors="replace")
    raise RuntimeError(f"moto's S3 server did not start:\n{said}")


def _start_on(port: int, output: IO[bytes]) -> S3Server:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.moto_server", str(port)],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    return S3Server(f"http://127.0.0.1:{port}", process)


def _answers(server: S3Server) -> bool:
    give_up_at = time.monotonic() + HANG_S
    while time.monotonic() < give_up_at and server.process.poll() is None:
        try:
            with _direct.open(f"{server.endpoint}/moto-api/", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
