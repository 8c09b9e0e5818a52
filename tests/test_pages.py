"""Every page has one title and one width, its links resolve, and the index of docs/ names it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
WIDTH = 120

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> list[str]:
    """Return the lines of a page outside code blocks."""
    lines = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return lines.split("\n")


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = [line.lstrip("# ") for line in prose(page) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@each_page
def test_links_resolve(page: Path) -> None:
    """Each relative link names a file that exists, and a heading of that file."""
    for file, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
        target = page.parent / file if file else page
        assert target.exists(), file
        if anchor:
            assert anchor in anchors(target), f"{file}#{anchor}"


@each_page
def test_page_has_one_title(page: Path) -> None:
    """The first line is the only heading of the first level."""
    assert [number for number, line in enumerate(prose(page)) if line.startswith("# ")] == [0]


@each_page
def test_prose_is_wrapped(page: Path) -> None:
    """Prose has at most 120 columns; tables may be wider."""
    assert [line for line in prose(page) if len(line) > WIDTH and not line.startswith("|")] == []


def test_index_lists_every_page() -> None:
    """A reader of docs/README.md finds each page of the folder."""
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in DOCS.glob("*.md") if page.name != "README.md" and f"]({page.name})" not in index]
    assert missing == []


def test_named_pages_exist() -> None:
    """Code, messages and manifests name only pages of docs/ that exist."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: (ROOT / name) for name in listed if name.endswith((".py", ".yaml", ".toml", "Makefile"))}
    named = {
        (name, page)
        for name, path in texts.items()
        if path.exists()
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert [(name, page) for name, page in sorted(named) if not (ROOT / page).exists()] == []
