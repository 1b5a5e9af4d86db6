"""Extras of the package: what each one installs, and the command that adds one.

Frazil may be installed from a checkout, a wheel or an archive, with pip, pipx or uv. Errors about a
missing package therefore show a command that is made for this installation.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

Extra = Literal[
    "parquet", "postgres", "pyiceberg", "s3", "server", "spark", "spark-connect", "spark-local"
]

_SPARK = ("pyarrow", "pandas", "numpy", "mmh3", "pyroaring", "sqlglot", "zstandard")
MODULES: Final[dict[Extra, tuple[str, ...]]] = {
    "parquet": ("pyarrow", "numpy", "mmh3", "pyroaring"),
    "postgres": ("psycopg",),
    "pyiceberg": ("pyiceberg", "pyarrow", "pyiceberg_core"),
    "s3": ("obstore",),
    "server": (
        *("uvicorn", "uvloop", "httptools", "zstandard"),
        *("numpy", "mmh3", "pyroaring", "prometheus_client"),
    ),
    "spark": _SPARK,
    "spark-connect": ("pyspark", *_SPARK),
    "spark-local": ("pyspark", *_SPARK),
}
"""The modules that an extra provides. Java is not among those of `spark-local`, because the
machine may have one."""


_OF_EXTRA: Final = re.compile(r"(?P<package>[^;]+?) *; *extra == ['\"](?P<extra>[\w-]+)['\"]")


def missing_modules(extra: Extra) -> list[str]:
    """Return the modules of an extra that are not installed."""
    return [name for name in MODULES[extra] if find_spec(name) is None]


def is_missing(error: ImportError, extra: Extra) -> bool:
    """Return whether an import failed because a module of the extra is not installed."""
    return (
        isinstance(error, ModuleNotFoundError)
        and error.name is not None
        and error.name.partition(".")[0] in MODULES[extra]
    )


def install_command(*extras: Extra) -> str:
    """Return the shell command that adds extras to this installation."""
    # It takes long to import, and only an error needs it.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        installed = distribution("frazil")
    except PackageNotFoundError:
        # The package is only on the path. These modules have the names of their packages.
        requirements = {name for extra in extras for name in MODULES[extra]}
    else:
        source = _source(installed, ",".join(extras))
        if source is not None:
            return f"{_installer()} {source}"
        requirements = _requirements(installed, extras)
    return f"{_installer()} {shlex.join(sorted(requirements))}"


def _installer() -> str:
    """Return the command that installs packages into the environment of this process."""
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx runpip frazil install"
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(str(prefix))}"
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == prefix / "bin":
        return "pip install"
    return f"{shlex.quote(sys.executable)} -m pip install"


def _source(installed: Distribution, extras: str) -> str | None:
    """Return Frazil with extras from where it was installed, as an argument (PEP 610)."""
    content = installed.read_text("direct_url.json")
    if content is None:
        return None
    origin = json.loads(content)
    url = urlsplit(origin["url"])
    if url.scheme != "file":
        link = origin["url"]
        if version := origin.get("vcs_info"):
            link = f"{version['vcs']}+{link}@{version['commit_id']}"
        return shlex.quote(f"frazil[{extras}] @ {link}")
    path = unquote(url.path)
    if not Path(path).exists():
        return None
    flag = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return flag + shlex.quote(f"{path}[{extras}]")


def _requirements(installed: Distribution, extras: Collection[str]) -> set[str]:
    """Return the packages of the extras. Its metadata names them without Frazil's other extras."""
    matches = (_OF_EXTRA.fullmatch(each) for each in installed.requires or ())
    return {match["package"] for match in matches if match and match["extra"] in extras}
