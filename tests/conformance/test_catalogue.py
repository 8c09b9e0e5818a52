"""The suite is complete: every rule has a test, and every test cites a rule."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.catalogue import RULES

FOLDER = Path(__file__).parent


def cases() -> Iterator[tuple[str, set[str]]]:
    """Return every test of this folder with the rules that it cites."""
    for path in sorted(FOLDER.glob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        module = importlib.import_module(f"tests.conformance.{path.stem}")
        for name, value in vars(module).items():
            if name.startswith("test_"):
                marks = [mark for mark in getattr(value, "pytestmark", ()) if mark.name == "rule"]
                yield f"{path.stem}.{name}", {rule for mark in marks for rule in mark.args}


def test_every_test_cites_rules_that_exist() -> None:
    """A test without a rule, or with an unknown rule, is a mistake."""
    found = dict(cases())
    assert len(found) > 50
    assert {name: rules for name, rules in found.items() if not rules or rules - RULES.keys()} == {}


def test_every_rule_has_a_test() -> None:
    """No rule of HAMi goes untested."""
    cited = {rule for _, rules in cases() for rule in rules}
    assert sorted(RULES.keys() - cited) == []
