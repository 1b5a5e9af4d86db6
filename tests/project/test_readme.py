"""The README's commands run in order, as a reader would type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.java import ROOT
from tests.support.readme import Reader, read_blocks

pytestmark = pytest.mark.process


def test_readme_commands_work(tmp_path: Path) -> None:
    blocks = read_blocks(ROOT / "README.md")
    languages = {block.language for block in blocks}
    assert {"sh", "python"} <= languages, "the README has no commands to run"
    with Reader(tmp_path) as reader:
        for block in blocks:
            try:
                reader.run(block)
            except AssertionError as error:
                raise AssertionError(f"README.md, line {block.line}: {error}") from error
