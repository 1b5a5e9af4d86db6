"""The complete list of names that users may import. Everything else in the package is private."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from scripts.java import ROOT

PUBLIC = {
    "frazil": [
        "CatalogUnreachable",
        "Client",
        "Commit",
        "CommitFailed",
        "CommitStateUnknown",
        "DataFile",
        "EqualityDeleteFile",
        "FileScanTask",
        "FrazilError",
        "Identifier",
        "Intent",
        "Isolation",
        "Lease",
        "LeaseLost",
        "Once",
        "Plan",
        "PositionDeleteFile",
        "RetryPolicy",
        "Snapshot",
        "Table",
        "Transaction",
        "ValidationError",
        "View",
        "__version__",
        "bucket",
        "col",
        "day",
        "hour",
        "month",
        "read_data_files",
        "truncate",
        "year",
    ],
    "frazil.client": [],
    "frazil.maintenance": [
        "ConversionResult",
        "DeleteRewriteResult",
        "JobResult",
        "RewriteResult",
        "convert_equality_deletes",
        "delete_unreachable_files",
        "expire_snapshots",
        "remove_dangling_deletes",
        "remove_orphan_files",
        "rewrite_data_files",
        "rewrite_manifests",
        "rewrite_position_delete_files",
        "undo",
    ],
    "frazil.pyiceberg": [
        "DuplicateFilesError",
        "FrazilCatalog",
        "FrazilTable",
        "FrazilTransaction",
        "ValidationError",
        "load_catalog",
        "retrying",
    ],
    "frazil.spark": ["Session", "SparkTable", "connect"],
}
IMPORTED = re.compile(r"^ *from (frazil[\w.]*) import \(?([\w, ]+)", re.MULTILINE)
SHOWN_TO_USERS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def source_of(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text())


def typed_names(tree: ast.Module) -> set[str]:
    """Return the names that a type checker sees: those imported under TYPE_CHECKING."""
    return {
        alias.asname or alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_a_package_exports_exactly_its_public_names(name: str) -> None:
    module = import_module(name)
    assert sorted(getattr(module, "__all__", [])) == PUBLIC[name]
    for exported in PUBLIC[name]:
        assert getattr(module, exported) is not None


def test_every_method_of_the_client_says_what_it_does() -> None:
    public = [getattr(import_module("frazil"), name) for name in PUBLIC["frazil"]]
    for exported in filter(inspect.isclass, public):
        for name, method in inspect.getmembers(exported, inspect.isfunction):
            is_shown = not name.startswith("_") and method.__module__.startswith("frazil.")
            assert method.__doc__ or not is_shown, f"{exported.__name__}.{name} has no docstring"


@pytest.mark.parametrize("name", PUBLIC)
def test_type_checkers_see_the_same_names(name: str) -> None:
    assert typed_names(source_of(import_module(name))) == set(PUBLIC[name]) - {"__version__"}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_package_defines_nothing_else_that_looks_public(name: str) -> None:
    """Users would expect a name without an underscore to be public and stable."""
    defined = {
        line.name
        for line in source_of(import_module(name)).body
        if isinstance(line, ast.FunctionDef | ast.ClassDef)
    }
    assert {one for one in defined if not one.startswith("_")} <= set(PUBLIC[name])


@pytest.mark.parametrize("name", [name for name, names in PUBLIC.items() if names])
def test_another_name_is_an_error(name: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = import_module(name).no_such_name


@pytest.mark.parametrize("page", SHOWN_TO_USERS, ids=lambda page: page.name)
def test_documents_import_public_names_alone(page: Path) -> None:
    for module, names in IMPORTED.findall(page.read_text()):
        assert module in PUBLIC, f"{page.name} imports from the private module {module}"
        assert {name.strip() for name in names.split(",")} <= set(PUBLIC[module])
