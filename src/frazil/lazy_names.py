"""Packages whose public names are imported on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from frazil.extras import Extra, install_command, is_missing


def lazy_names(
    package: str, modules: Mapping[str, str], extra: Extra | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, for names by the modules that have them.

    If a module of `extra` is not installed, its error shows the command that installs it.
    """

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if extra is None or not is_missing(error, extra):
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs {error.name}, which is not installed. "
                f"Type: {install_command(extra)}",
                name=error.name,
            ) from None
        setattr(sys.modules[package], name, value)
        return value

    return load
