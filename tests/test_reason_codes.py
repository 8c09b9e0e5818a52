"""The scheduler, `kubectl gpu explain` and docs/troubleshooting.md have the same codes."""

import re
from pathlib import Path

from allocation.reason_words import WORDS
from allocation.reasons import CardReason, NodeReason, PodReason
from allocation.steps import finish
from scheduler.cycle.result import Unschedulable
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.scheduling import schedule

PAGE = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
CARDS = {reason.name for reason in CardReason} - {CardReason.FITS.name}
NODES = {reason.value for reason in NodeReason}
PODS = {reason.value for reason in PodReason}


def section(title: str) -> set[str]:
    """Return the codes in a section of the page."""
    return set(re.findall(r"^### (\w+)$", PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0], re.MULTILINE))


def test_codes_are_the_same_everywhere() -> None:
    """Exactly the codes have a heading in troubleshooting.md and words in `explain`."""
    assert section("Cards") == CARDS
    assert section("Nodes") == NODES
    assert section("The pod itself") == PODS
    assert set(WORDS) == {CardReason.FITS.name} | CARDS | NODES | PODS
    assert all(WORDS.values())


def test_events_contain_the_codes() -> None:
    """A reader of an event finds each of its reasons on the page."""
    made = state("n1", "n2")
    made.set_node(node("n1", spec={"unschedulable": True}))
    for asks in (pod("a", memory=5000), pod("b", memory=1, resourceClaims=[{}]), pod("c", nodeSelector={"a": "b"})):
        decision = finish(schedule(made, asks))
        assert isinstance(decision, Unschedulable)
        for code in decision.reasons:
            assert code in decision.note
    nothing = finish(schedule(state(), pod("d", memory=1)))
    assert isinstance(nothing, Unschedulable)
    assert PodReason.NoNode in nothing.note
