"""moto's server with one write at a time, run as `python -m tests.support.moto_server PORT`.

moto checks whether an object exists and writes it in two separate steps. Under load, two
conditional writes of one name can therefore both succeed. On a real S3 only one succeeds, and
this server behaves the same.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

_one_write = threading.Lock()


class Serialised:
    """Passes one write at a time to the application."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            answer: Iterable[bytes] = self._application(environ, start_response)
            return answer
        with _one_write:
            return list(self._application(environ, start_response))


def main() -> None:
    port = int(sys.argv[1])
    os.environ["MOTO_PORT"] = str(port)
    application = Serialised(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
