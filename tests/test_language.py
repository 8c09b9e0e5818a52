"""The project is written in plain technical English: the patterns below come from a review and stay out.

`make check` runs this too. An exception goes into `ALLOWED`, with its reason.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUFFIXES = (".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".c", ".tpl")
GENERATED = ("docs/openapi.yaml", "benchmarks/raw/", "lab/kubernetes/", "lab/kubernetes-1.37/")

PATTERNS = {
    "docstrings begin with an imperative such as Return, not Answer": r'"""Answers?\b',
    "write 'is not a …' instead of 'is no …'": (
        r"(?<!here )\b(?:is|are|was|were) no (?!longer\b|more\b|other\b|one\b)\w"
    ),
    "write 'does not exist' or 'is empty' instead of 'is none'": r"\b(?:is|are|there) none\b(?! of)",
    "say where something is written, not that it stands": r"\bstands?\b(?! for| by\b|-)",
    "write 'again'": r"\banew\b",
    "write 'must' or 'is to'": r"\bshall\b",
    "write 'as well as' or 'other than'": r"\bbesides\b|\bbeside it\b",
    "name the actor instead of a free relative with 'who'": (
        r"\b(?:for|to|by|of|from|with|at|than) who(?:ever)?\b|\bWhoever\b"
    ),
    "a value has a name, and a person is informed: not 'told'": r"\btold\b",
    "a process, a pod and a user are not 'he'": r"\b(?:he|his|him|himself)\b",
    "docstrings that say nothing": r'"""(?:Enter|Go on|Answer it|Leave|The same)\."""',
}

ALLOWED: dict[str, tuple[str, ...]] = {
    # file: (text within the line, ...) -- with the reason
}


def texts() -> list[Path]:
    """Return the tracked files that people read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    named = [name for name in listed if name.endswith(SUFFIXES) or Path(name).name == "Makefile"]
    read = [ROOT / name for name in named if not name.startswith(GENERATED) and (ROOT / name).exists()]
    return [path for path in read if path != Path(__file__)]  # which lists the patterns


@pytest.mark.parametrize("rule", PATTERNS)
def test_texts_keep_the_language_rules(rule: str) -> None:
    """Each line that breaks a rule is listed with its place."""
    pattern = re.compile(PATTERNS[rule])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line) and not any(part in line for part in ALLOWED.get(str(path.relative_to(ROOT)), ()))
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    """An allow-list that outlives its lines hides new ones."""
    patterns = [re.compile(pattern) for pattern in PATTERNS.values()]
    for name, parts in ALLOWED.items():
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for part in parts:
            assert any(part in line and any(each.search(line) for each in patterns) for line in lines), (name, part)
