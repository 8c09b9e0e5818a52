"""Whoever meets a reason or an alert finds what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from scheduler.term_metrics import CODES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RULES = yaml.safe_load((ROOT / "manifests" / "alerts" / "tranche.rules.yaml").read_text())
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]


def sections(page: str) -> dict[str, str]:
    """Answer the text below each heading of the third level."""
    parts = re.split(r"^### (.+)$", (DOCS / page).read_text(), flags=re.MULTILINE)
    return {
        name: re.split(r"^## ", text, flags=re.MULTILINE)[0]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def event_reasons() -> set[str]:
    """Answer every reason of an event or a condition that the scheduler writes, read from its source."""
    found: set[str] = set()
    for path in (ROOT / "scheduler").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "record":
                words = [each.value for each in node.keywords if each.arg == "reason"]
            elif isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                words = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "reason"]
            else:
                continue
            found |= {str(word.value) for word in words if isinstance(word, ast.Constant)}
    return found


def test_every_reason_has_a_section_and_no_other() -> None:
    """Codes of cards, nodes and pods, and the reasons of events and conditions."""
    assert {"FilteringFailed", "BindingFailed", "Unschedulable"} <= event_reasons()
    assert set(sections("troubleshooting.md")) == {*CODES, *event_reasons()}


def test_every_alert_has_a_runbook_and_no_other() -> None:
    """An alert that nobody can act upon is noise."""
    runbooks = sections("operations.md")
    assert set(runbooks) == set(ALERTS)
    assert all("**Means**" in text and ("**Do**" in text or "**Look at**" in text) for text in runbooks.values())


@pytest.mark.parametrize("page", ["operations.md", "troubleshooting.md", "metrics.md"])
def test_links_lead_somewhere(page: str) -> None:
    """To a file that is there, and to a heading of it."""
    for file, heading in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", (DOCS / page).read_text()):
        target = DOCS / (file or page)
        assert target.exists(), file
        headings = {
            re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-")
            for line in re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
        }
        assert not heading or heading in headings, f"{file}#{heading}"
