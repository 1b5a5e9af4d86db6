"""Both dialects have every named statement, and one function adapts the parameters."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from frazil.db.sql import Dialect, QueryName, migrations, queries

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_is_there_and_nothing_else(dialect: Dialect) -> None:
    texts = queries(dialect)
    assert set(texts) == set(get_args(QueryName))
    for name, text in texts.items():
        assert text, name
        assert "--" not in text, f"{name} carries its comment to the server"
        assert ";" not in text, f"{name} holds more than one statement"


def test_parameters_are_written_as_each_driver_wants_them() -> None:
    assert "uuid = :uuid" in queries("sqlite")["relation_by_uuid"]
    assert "uuid = %(uuid)s" in queries("postgres")["relation_by_uuid"]


def test_both_dialects_ask_for_the_same_parameters() -> None:
    sqlite, postgres = queries("sqlite"), queries("postgres")
    for name in sqlite:
        wanted = set(re.findall(r":([a-z_]+)", sqlite[name]))
        assert wanted == set(re.findall(r"%\(([a-z_]+)\)s", postgres[name])), name


def test_both_dialects_have_the_same_migrations() -> None:
    steps = [[(step.version, step.name) for step in migrations(dialect)] for dialect in DIALECTS]
    assert steps[0] == steps[1]
    assert steps[0][0] == (1, "catalog")
    assert all(step.statements for dialect in DIALECTS for step in migrations(dialect))
