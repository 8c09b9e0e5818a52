"""docs/design.md names, for each decision, where it is enforced and a test, and both exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
DECISIONS = re.split(r"^### \d+\. ", PAGE.partition("\n## What was decided against\n")[0], flags=re.MULTILINE)[1:]


def test_each_decision_says_what_why_where_and_which_test() -> None:
    """A decision that nothing enforces, or no test shows, is only an intention."""
    parts = ("**What.**", "**Why.**", "**Where.**", "**Test.**")
    lacking = [each.partition("\n")[0] for each in DECISIONS if [part for part in parts if part not in each]]
    assert len(DECISIONS) > 8
    assert lacking == []


def test_each_test_exists() -> None:
    """By file and by name."""
    for each in DECISIONS:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", each.partition("**Test.**")[2])
        assert named, each.partition("\n")[0]
        for file, test in named:
            assert re.search(
                rf"^(async )?def {test}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE
            )


def test_each_file_exists() -> None:
    """Of the product and its manifests."""
    named = re.findall(
        r"`([\w/.-]+(?:/|\.py|\.yaml))`", re.sub(r"\*\*Test\.\*\*.*?(?=\n\n|\Z)", "", PAGE, flags=re.DOTALL)
    )
    assert len(named) > 20
    assert [each for each in named if not (ROOT / each).exists()] == []
