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

SUFFIXES = (".c", ".go", ".json", ".md", ".py", ".sh", ".toml", ".tpl", ".txt", ".yaml", "Makefile", ".ci/run")
NAMED = re.compile(r"(?<![\w./:-])((?:[\w.-]+/)*[\w-]+\.md)\b(?:#([\w-]+))?")
"""A page, and its section; nothing within a URL."""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> list[str]:
    """Return the lines of a page outside code blocks."""
    lines = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return lines.split("\n")


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = [line.lstrip("# ") for line in prose(page) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def texts() -> dict[Path, str]:
    """Return the files of the repository that may name a page, without this one, and what they contain."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = (ROOT / name for name in listed if name.endswith(SUFFIXES))
    return {path: path.read_text("utf-8", "replace") for path in paths if path.is_file() and path != Path(__file__)}


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


def page_of(name: str, file: Path) -> Path | None:
    """Return the page that a file names, from the root, from `docs/`, or from its own folder, if it exists."""
    places = (ROOT / name, DOCS / name, file.parent / name)
    return next((place for place in places if place.is_file()), None)


def test_named_pages_exist() -> None:
    """Code, tests, messages, manifests and pages name only pages of the repository, and sections that they have."""
    missing = []
    for file, text in texts().items():
        for name, anchor in NAMED.findall(text):
            page = page_of(name, file)
            if page is None or (anchor and anchor not in anchors(page)):
                missing.append(f"{file.relative_to(ROOT)}: {name}#{anchor}")
    assert missing == []


def test_sections_have_anchors_and_no_numbers() -> None:
    """`page.md 1.2` cites a document that a reader does not have."""
    numbered = re.compile(r"[\w-]+\.md`?,? (?:fact )?\d.*")
    found = {str(file.relative_to(ROOT)): numbered.findall(text) for file, text in texts().items()}
    assert {file: cited for file, cited in found.items() if cited} == {}
