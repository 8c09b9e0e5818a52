"""The glossary uses the words of the code, and the pages for developers name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
GLOSSARY = re.findall(r"^\| ([a-z ]+) \| (.+) \| `(\S+)` \|$", PAGES["glossary.md"], re.MULTILINE)
PATHS = PAGES["development.md"].partition("\n## The path of a pod through the code\n")[2].partition("\n## ")[0]
LONGEST_PATH = 12


def squeezed(text: str) -> str:
    """Return `text` in lower case without spaces and underscores, so that `StaticAllocation` matches its term."""
    return re.sub(r"[\s_]", "", text).lower()


def test_each_term_occurs_in_its_file() -> None:
    """A term that the code does not use sends a reader to the wrong place."""
    misplaced = [
        (term, file)
        for term, _, file in GLOSSARY
        if squeezed(term) not in squeezed((ROOT / file).read_text(encoding="utf-8"))
    ]
    assert misplaced == []


def test_glossary_has_one_meaning_per_term() -> None:
    """Terms are sorted, unique and enough to read the code."""
    terms = [term for term, _, _ in GLOSSARY]
    assert terms == sorted(set(terms))
    assert len(terms) >= 40


def test_named_files_exist() -> None:
    """Every Python file of ours that a page names is in the tree, from its root or from `tests/`."""
    folders = "agent|allocation|benchmarks|certs|chaos|cli|cluster|fuzz|lab|scheduler|tests|webhook"
    pattern = re.compile(rf"`((?:{folders})/[\w/]+\.py)`")
    named = {(page, name) for page, text in PAGES.items() for name in pattern.findall(text)}
    assert {page for page, _ in named} >= {"development.md", "glossary.md", "lab.md", "testing.md"}
    missing = [each for each in named if not any((ROOT / folder / each[1]).is_file() for folder in ("", "tests"))]
    assert sorted(missing) == []


def test_every_package_of_the_scheduler_is_listed() -> None:
    """A newcomer finds each folder in the table of the layout, and no folder that is gone."""
    listed = set(re.findall(r"^\| `scheduler/(\w+)/` \|", PAGES["development.md"], re.MULTILINE))
    assert listed == {path.parent.name for path in (ROOT / "scheduler").glob("*/__init__.py")}


def test_each_path_is_short() -> None:
    """A reader follows a pod through at most a dozen files."""
    paths = [part for part in PATHS.split("\n\n") if part.strip().startswith("**")]
    assert len(paths) >= 4
    assert all(len(re.findall(r"`\S+\.py`", path)) <= LONGEST_PATH for path in paths)
