"""docs/development.md uses the words of the code, and names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
GLOSSARY = re.findall(r"^\| ([a-z ]+) \| (.+) \| `(\S+)` \|$", PAGE.partition("\n## Glossary\n")[2], re.MULTILINE)
PATHS = PAGE.partition("\n## The path of a pod through the code\n")[2].partition("\n## ")[0]
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
    """Every Python file that the page names is in the tree."""
    folders = "agent|allocation|certs|chaos|cli|cluster|fuzz|lab|scheduler|tests|webhook"
    named = set(re.findall(rf"`((?:{folders})/[\w/]+\.py)`", PAGE))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_each_path_is_short() -> None:
    """A reader follows a pod through at most a dozen files."""
    paths = [part for part in PATHS.split("\n\n") if part.strip().startswith("**")]
    assert len(paths) >= 4
    assert all(len(re.findall(r"`\S+\.py`", path)) <= LONGEST_PATH for path in paths)
