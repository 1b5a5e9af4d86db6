"""Hints in error messages about names."""

from __future__ import annotations

import pytest

from frazil.wire.near_names import name_hint


@pytest.mark.parametrize(
    ("name", "names", "hint"),
    [
        ("idd", ["id", "product"], "did you mean 'id'?"),
        ("PRODCT", ["id", "Product"], "did you mean 'Product'?"),
        ("x", ["id", "product"], "the columns are id, product"),
        ("x", [], "the columns are "),
        ("?", [f"c{n}" for n in range(25)], ", c19 and 5 more"),
    ],
)
def test_hints(name: str, names: list[str], hint: str) -> None:
    assert name_hint(name, names, "columns").endswith(hint)
