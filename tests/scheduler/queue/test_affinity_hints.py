"""A pod that comes or changes wakes pods whose rules about other pods match it, and no others."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.queue import affinity_hints
from scheduler.queue.affinity_hints import AffinityHints
from tests.scheduler.filters.test_inter_pod_affinity import far, near, term
from tests.scheduler.support.builders import pod

NAMESPACES = {"default": {"team": "blue"}, "red": {"team": "red"}}
DATABASE = {"labelSelector": {"matchLabels": {"app": "database"}}}
SPREAD = {
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ]
}
BOTH = {"affinity": {**near(term())["affinity"], **far(term(**DATABASE))["affinity"]}}
RULES: dict[str, tuple[dict[str, Any], set[tuple[str, str]]]] = {
    "none": ({}, set()),
    "near": (near(term()), {("default", "web")}),
    "far": (far(term(**DATABASE)), {("default", "database")}),
    "both": (BOTH, {("default", "web"), ("default", "database")}),
    "elsewhere": (near(term(namespaces=["red"])), {("red", "web")}),
    "selected": (far(term(namespaceSelector={"matchLabels": {"team": "red"}})), {("red", "web")}),
    "spread": (SPREAD, {("default", "web"), ("default", "database")}),
}
"""Rules of a pod in `default`, and the namespaces and apps of the pods that they match."""


def coming(namespace: str, app: str) -> Any:
    """Return a pod that comes."""
    return pod("new", namespace=namespace, labels={"app": app})


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from(["", *RULES])), max_size=12))
def test_a_pod_wakes_those_that_wait_with_a_rule_about_it(changes: list[tuple[str, str]]) -> None:
    """Whichever pods have come, have changed their rules or have gone before."""
    hints, waiting = AffinityHints(), dict[str, str]()
    for name, rule in changes:
        if rule:
            hints.add(pod(name, **RULES[rule][0]))
            waiting[name] = rule
        else:
            hints.remove(f"uid-{name}")
            waiting.pop(name, None)
    matched = {each for rule in waiting.values() for each in RULES[rule][1]}
    for namespace in NAMESPACES:
        for app in ("web", "database"):
            assert hints.may_unblock(coming(namespace, app), NAMESPACES) == ((namespace, app) in matched)


def test_of_very_many_rules_every_pod_may_match_one() -> None:
    """Comparing all of them would delay every pod."""
    hints = AffinityHints()
    for number in range(affinity_hints._MANY + 1):
        assert not hints.may_unblock(coming("default", "web"), NAMESPACES)
        hints.add(pod(f"p{number}", **near(term(labelSelector={"matchLabels": {"app": f"a{number}"}}))))
    assert hints.may_unblock(coming("default", "web"), NAMESPACES)
    assert not hints.may_unblock(coming("red", "web"), NAMESPACES)
    for number in range(affinity_hints._MANY + 1):
        hints.remove(f"uid-p{number}")
    for number in range(affinity_hints._MANY + 1):
        spread = {**SPREAD["topologySpreadConstraints"][0], "labelSelector": {"matchLabels": {"app": f"a{number}"}}}
        assert not hints.may_unblock(coming("default", "web"), NAMESPACES)
        hints.add(pod(f"p{number}", topologySpreadConstraints=[spread]))
    assert hints.may_unblock(coming("default", "web"), NAMESPACES)
