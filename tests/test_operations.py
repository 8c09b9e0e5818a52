"""Every reason and every alert has a section that says what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from scheduler.binding.binder import FailureReason
from scheduler.state.collector import CODES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GROUPS = yaml.safe_load((ROOT / "manifests" / "alerts" / "tranche.rules.yaml").read_text())["groups"]
ALERTS = {rule["alert"]: rule.get("for", "0m") for group in GROUPS for rule in group["rules"]}
"""How long the condition of each alert has to hold."""
PAGES = (*DOCS.glob("*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")))
IN_WORDS = {"five minutes": "5m", "ten minutes": "10m", "a quarter of an hour": "15m", "half an hour": "30m"}


def sections(page: str) -> dict[str, str]:
    """Return the text below each heading of the third level."""
    parts = re.split(r"^### (.+)$", page, flags=re.MULTILINE)
    return {
        name: re.split(r"^## ", text, flags=re.MULTILINE)[0]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def runbooks() -> dict[str, str]:
    """Return the runbook of each alert."""
    return sections((DOCS / "operations.md").read_text(encoding="utf-8").partition("\n## Alerts\n")[2])


def event_reasons() -> set[str]:
    """Return every reason of an event or a condition that the scheduler writes, read from its source."""
    found: set[str] = set()
    for path in (ROOT / "scheduler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("record", "_report"):
                words = [each.value for each in node.keywords if each.arg == "reason"]
            elif isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                words = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "reason"]
            else:
                continue
            words = [each for word in words for each in _choices(word)]
            found |= {str(word.value) for word in words if isinstance(word, ast.Constant)}
    return found | set(get_args(FailureReason))


def _choices(word: ast.expr) -> list[ast.expr]:
    """Return both results of a conditional expression, or the expression itself."""
    return [word.body, word.orelse] if isinstance(word, ast.IfExp) else [word]


def test_page_has_a_section_per_reason() -> None:
    """The sections are the codes of cards, nodes and pods, and the reasons of events and conditions."""
    assert {"FilteringFailed", "BindingFailed", "Unschedulable"} <= event_reasons()
    assert set(sections((DOCS / "troubleshooting.md").read_text(encoding="utf-8"))) == {*CODES, *event_reasons()}


def test_page_has_a_runbook_per_alert() -> None:
    """Each runbook says what the alert means, and what to look at or to do."""
    assert set(runbooks()) == ALERTS.keys()
    assert all("**Means**" in text and ("**Do**" in text or "**Look at**" in text) for text in runbooks().values())


def test_runbooks_say_how_long_an_alert_waits() -> None:
    """Where a runbook says for how long something has been wrong, it is the time of the rule."""
    said = {
        (alert, minutes)
        for alert, text in runbooks().items()
        for words, minutes in IN_WORDS.items()
        if f"for {words}" in " ".join(text.split())
    }
    assert len(said) > 4
    assert said <= set(ALERTS.items())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_pages_name_only_alerts_that_exist(page: Path) -> None:
    """The changelog also has the former names, left of the new ones."""
    text = re.sub(r"^\| alert \| `\w+` \|", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(re.findall(r"\bTranche[A-Z][a-z]\w+", text)) <= ALERTS.keys()
