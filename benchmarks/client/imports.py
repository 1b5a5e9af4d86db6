"""Measures importing a client and getting a first answer, each time in a new process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.client.results import IMPORTS, Timing, timing_of

IMPORT_FRAZIL: Final = "import frazil"
IMPORT_CLIENT: Final = "from frazil import Client, DataFile"
CLIENT_ANSWERED: Final = "frazil.Client: import to the first answer"
IMPORT_REST: Final = "import pyiceberg.catalog.rest"
REST_ANSWERED: Final = "PyIceberg RestCatalog: import to the first answer"
IMPORT_CATALOG: Final = "from frazil.pyiceberg import FrazilCatalog"

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S: Final = 60
_CODE: Final = {
    IMPORT_FRAZIL: "import frazil",
    IMPORT_CLIENT: "from frazil import Client, DataFile",
    CLIENT_ANSWERED: "from frazil import Client, DataFile; Client(uri).list_namespaces()",
    IMPORT_REST: "import pyiceberg.catalog.rest",
    REST_ANSWERED: "from pyiceberg.catalog.rest import RestCatalog;"
    " RestCatalog('bench', uri=uri).list_namespaces()",
    IMPORT_CATALOG: "from frazil.pyiceberg import FrazilCatalog",
}


def measure_imports(uri: str, samples: int) -> Iterator[Timing]:
    """Measure all clients in turns. An extra run before that compiles everything and fills the
    page cache, except with a single sample, which only shows that the measurement works."""
    for code in _CODE.values() if samples > 1 else ():
        _seconds(uri, code)
    seconds: dict[str, list[float]] = {what: [] for what in _CODE}
    for _ in range(samples):
        for what, code in _CODE.items():
            seconds[what].append(_seconds(uri, code))
    for what, each in seconds.items():
        yield timing_of(IMPORTS, what, each)


def _seconds(uri: str, code: str) -> float:
    """Return the seconds taken inside the process, without the interpreter's own start."""
    program = (
        f"import sys, time\nuri = {uri!r}\nbegan = time.perf_counter()\n{code}\n"
        "sys.stdout.write(str(time.perf_counter() - began))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    return float(done.stdout)
