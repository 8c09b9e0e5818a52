"""docs/features.md names, for each feature, a test that exists, at the level that it has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?P<what>.+) \| \[(?P<page>\S+)\]\(\S+\) \| `(?P<file>\S+)::(?P<test>\w+)` \| (?P<level>[\w ]+) \|$"
)
LEVELS = {"unit": (), "API server": ("apiserver",), "kubelet": ("apiserver", "kubelet"), "GPU": ("skipif",)}
LAB_MARKS = {"apiserver", "kubelet"}
ROOMS = ("webhook", "scheduler", "agent", "certs", "cli", "allocation", "cluster", "install", "system", "chaos")


def rows() -> list[re.Match[str]]:
    """Return the rows of all tables of features."""
    lines = PAGE.partition("\n## Skipped in CI\n")[0].splitlines()
    found = [ROW.match(line) for line in lines if line.startswith("| ") and not line.startswith("| feature ")]
    assert all(found), [line for line, row in zip(lines, found, strict=False) if row is None]
    return [row for row in found if row is not None]


def marks(file: Path, test: str) -> set[str]:
    """Return the marks of a test: of its module and its own."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    own = [
        each for each in module.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == test
    ]
    assert own, f"{file} has no {test}"
    shared = [
        each.value
        for each in module.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id == "pytestmark"
    ]
    written = [*shared, *own[0].decorator_list]
    return {mark for each in written for mark in re.findall(r"pytest\.mark\.(\w+)", ast.unparse(each))}


def test_each_feature_has_a_test_at_its_level() -> None:
    """The test exists, and its marks say what it needs."""
    wrong = []
    for row in rows():
        found = marks(ROOT / "tests" / row["file"], row["test"])
        needed = set(LEVELS[row["level"]])
        if not (needed <= found and found & LAB_MARKS <= needed | ({"apiserver"} if needed else set())):
            wrong.append(f"{row['what']}: {row['level']}, but its test has the marks {sorted(found)}")
    assert wrong == []


def test_each_feature_is_described() -> None:
    """The page that a row names exists, and mentions at least one of the row's words."""
    for row in rows():
        page = ROOT / row["page"] if row["page"] == "README.md" else ROOT / "docs" / row["page"]
        words = [word for word in re.findall(r"[A-Za-z]{5,}", row["what"]) if word.lower() not in ("every", "other")]
        text = page.read_text(encoding="utf-8").lower()
        assert any(word.lower() in text for word in words), row["what"]


def test_no_feature_is_listed_twice() -> None:
    """A feature has one row."""
    what = [row["what"] for row in rows()]
    assert len(what) == len(set(what)) > 90


def test_every_room_has_features() -> None:
    """A page that left a whole part of the product out would say nothing about it."""
    shown = {row["file"].partition("/")[0] for row in rows()}
    assert shown.issuperset(ROOMS)
