"""The project is written in plain technical English: the patterns below come from a review and stay out.

`make check` runs this too. An exception goes into `ALLOWED`, with its reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUFFIXES = (".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".c", ".tpl")
GENERATED = ("docs/openapi.yaml", "benchmarks/raw/", "lab/kubernetes/", "lab/kubernetes-1.37/")

PERSONS = r"\b(?:nobody|somebody|everybody|whom)\b"
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
    "name the actor: 'no user', 'another client'": rf"(?<![\"']){PERSONS}|{PERSONS}(?![\"'])",  # "nobody" is a name
    "docstrings do not begin with a causative 'Have'": r'"""Have ',
    "write what did not happen": r"\bin vain\b",
    "write 'this number of', or name the argument": r"\b[Ss]o many\b",
}

ALLOWED: dict[str, tuple[str, ...]] = {
    # file: (text within the line, ...) -- with the reason
    "lab/images.py": ("nobody:x:65534",),  # a user of Unix
    "tests/scheduler/preemption/test_evictor.py": ("nobody: preempting",),  # the name of a scheduler
}

LONGEST_REPETITION = 4
FILLERS = frozenset(
    {"a", "an", "the", "of", "its", "this", "return", "yield", "is", "are", "whether", "it", "set", "get"}
)


@cache
def texts() -> dict[Path, str]:
    """Return the content of the tracked files that people read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    named = [name for name in listed if name.endswith(SUFFIXES) or Path(name).name == "Makefile"]
    read = [ROOT / name for name in named if not name.startswith(GENERATED) and (ROOT / name).exists()]
    # This file lists the patterns.
    return {path: path.read_text(encoding="utf-8") for path in read if path != Path(__file__)}


def stems(text: str) -> set[str]:
    """Return the words of a text or a name in lower case and in the singular."""
    return {word.lower().rstrip("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)}


def repeats(docstring: str, name: str) -> bool:
    """Whether a short docstring has no word but those of the name."""
    said = stems(docstring) - {filler.rstrip("s") for filler in FILLERS}
    return len(docstring.split()) <= LONGEST_REPETITION and said <= stems(name)


@pytest.mark.parametrize("rule", PATTERNS)
def test_texts_keep_the_language_rules(rule: str) -> None:
    """Each line that breaks a rule is listed with its place."""
    pattern = re.compile(PATTERNS[rule])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts().items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line) and not any(part in line for part in ALLOWED.get(str(path.relative_to(ROOT)), ()))
    ]
    assert found == []


def test_docstrings_say_more_than_the_name() -> None:
    """`def card(): \"\"\"Return a card.\"\"\"` is listed with its place."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}: {docstring}"
        for path, text in texts().items()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (docstring := ast.get_docstring(node))
        and repeats(docstring, node.name)
    ]
    assert found == []


def test_articles_and_plurals_repeat_a_name() -> None:
    """One more word says something, and so does a longer text."""
    assert repeats("Return a card.", "card")
    assert repeats("Return the GPU cards.", "gpu_card")
    assert not repeats("Return a free card.", "card")
    assert not repeats("Return the card of the card.", "card")


def test_every_exception_is_needed() -> None:
    """An allow-list that outlives its lines hides new ones."""
    patterns = [re.compile(pattern) for pattern in PATTERNS.values()]
    for name, parts in ALLOWED.items():
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for part in parts:
            assert any(part in line and any(each.search(line) for each in patterns) for line in lines), (name, part)
