"""The documents list every setting, error, decision and package."""

from __future__ import annotations

import re

from frazil.client.catalog_config import CLIENT_VARIABLES
from frazil.maintenance.rewrite_options import LOCAL_MAX_BYTES_OPTION
from frazil.settings import all_settings
from frazil.wire import errors
from frazil.wire.frazil_properties import CATALOG_PROPERTIES, TABLE_PROPERTIES, WHOLE_NUMBERS
from frazil.wire.maintenance_settings import MAINTENANCE_PROPERTIES
from scripts.java import ROOT

SETTINGS = (ROOT / "docs" / "settings.md").read_text().partition("\n## Client side\n")[0]


def test_every_setting_of_the_server_is_on_the_page() -> None:
    rows = {line for line in SETTINGS.splitlines() if line.startswith("| ")}
    for setting in all_settings():
        mine = [row for row in rows if f"`{setting.env}`" in row]
        assert len(mine) == 1, f"{setting.env} has {len(mine)} rows in docs/settings.md"
        if setting.flag:
            assert f"`{setting.flag}`" in mine[0]


def test_the_page_names_no_setting_that_does_not_exist() -> None:
    known = {setting.env for setting in all_settings()} | {"FRAZIL_CONFIG"}
    known |= {variable.env for variable in CLIENT_VARIABLES}
    assert set(re.findall(r"FRAZIL_[A-Z0-9_]+", SETTINGS)) <= known


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawn = {
        (match[1], int(match[2]), match[3])
        for match in re.finditer(r"(\w+) +(\d{3})  (\w+)", errors.__doc__ or "")
    }
    real = {
        (kind.__name__, kind.status, kind.type)
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.FrazilError)
    }
    assert drawn == real


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


def test_every_room_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "src" / "frazil").glob("*/__init__.py")}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", text)} == set()
    assert len(text.splitlines()) <= 135


def test_the_architecture_names_modules_that_exist() -> None:
    named = set(re.findall(r"`(?!src/)(\w+(?:/\w+)+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert len(named) > 20
    source = ROOT / "src" / "frazil"
    assert {module for module in named if not (source / f"{module}.py").is_file()} == set()


def test_the_documents_name_the_properties_that_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    # Every property has a hyphen, and no module has one. SQLite puts files beside `frazil.db`.
    names = r"(?<![\w./-])frazil\.(?!db-)[a-z.]*[a-z]-[a-z.-]*[a-z]"
    named = {name for page in pages for name in re.findall(names, page.read_text())}
    own = {*TABLE_PROPERTIES, *WHOLE_NUMBERS, *CATALOG_PROPERTIES}
    of_maintenance = {name for name in MAINTENANCE_PROPERTIES if "-" in name}
    assert named == {*own, *of_maintenance, LOCAL_MAX_BYTES_OPTION}


def test_every_variable_of_the_clients_is_documented_once() -> None:
    rows = (ROOT / "docs" / "settings.md").read_text().splitlines()
    for variable in CLIENT_VARIABLES:
        (row,) = [row for row in rows if row.startswith(f"| `{variable.env}` |")]
        assert variable.option is None or f"| `{variable.option}` |" in row
