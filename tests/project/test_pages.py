"""The commands of the pages run in order, as a reader would type them, and their links work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.java import ROOT
from tests.support.readme import LANGUAGES, Reader, read_blocks

PAGES = {
    "README.md": "tests/project/test_pages.py",
    "docs/settings.md": "tests/project/test_pages.py",
    "docs/cli.md": "tests/cli/test_documented_commands.py",
    "docs/client.md": "tests/client/test_documented_client.py",
    "docs/fine-grained-commits.md": "tests/rest/test_documented_commits.py",
    "docs/maintenance.md": "tests/project/test_pages.py",
    "docs/operations.md": "tests/project/test_operations.py",
    "docs/planning.md": "tests/plan/test_documented_plans.py",
    "docs/retrying.md": "tests/pyiceberg/retrying/test_documented_retrying.py",
    "docs/spark.md": "tests/spark/test_guide.py",
    "docs/stock-clients.md": "tests/stock_clients/test_documented_clients.py",
    "docs/write-without-iceberg.md": "tests/client/test_documented_client.py",
}
"""The pages with examples, and the test that runs them. To run a new page from top to bottom, add
it with this file; a page that needs more has a test of its own."""

NOT_RUN = {
    "docs/benchmarks.md": "its commands take minutes; tests/benchmarks has short runs",
    "CONTRIBUTING.md": "its commands are those that run this test",
    "ARCHITECTURE.md": "it has no commands",
}
READ_ONLY_FENCES = {"json", "nginx", "text", "yaml"}
"""Fences that a test reads, or that are only for reading; a plain one is a picture or an output."""


def documents() -> list[str]:
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


DOCUMENTS = documents()


@pytest.mark.process
@pytest.mark.parametrize("page", [page for page, test in PAGES.items() if "test_pages" in test])
def test_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in read_blocks(ROOT / page):
            try:
                reader.run(block)
            except AssertionError as error:
                raise AssertionError(f"{page}, line {block.line}: {error}") from error


def test_every_page_with_commands_is_run() -> None:
    commands = {page for page in DOCUMENTS if read_blocks(ROOT / page)}
    assert commands - NOT_RUN.keys() == PAGES.keys()
    for page, test in PAGES.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} does not run {page}"


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if "/decisions/" not in page])
def test_a_page_has_no_other_fences(page: str) -> None:
    marks = re.findall(r"^```(\w+)", (ROOT / page).read_text(), re.MULTILINE)
    assert set(marks) <= {*LANGUAGES, *READ_ONLY_FENCES}


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page has for its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", DOCUMENTS)
def test_the_links_of_a_page_work(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?<!\[)`[^`\n]*`", "", text)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (ROOT / page).parent / path if path else ROOT / page
        assert linked.exists(), f"{page} links to {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()
