"""Every reason and every alert has a section that says what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import yaml

from scheduler.binding.binder import FailureReason
from scheduler.state.collector import CODES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RULES = yaml.safe_load((ROOT / "manifests" / "alerts" / "tranche.rules.yaml").read_text())
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]


def sections(page: str) -> dict[str, str]:
    """Return the text below each heading of the third level."""
    parts = re.split(r"^### (.+)$", page, flags=re.MULTILINE)
    return {
        name: re.split(r"^## ", text, flags=re.MULTILINE)[0]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


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
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    runbooks = sections(page.partition("\n## Alerts\n")[2])
    assert set(runbooks) == set(ALERTS)
    assert all("**Means**" in text and ("**Do**" in text or "**Look at**" in text) for text in runbooks.values())
