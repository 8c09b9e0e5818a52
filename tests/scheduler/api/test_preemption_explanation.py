"""The explanation of a pod that waits has what preemption would do for it, by the function that decides it."""

from __future__ import annotations

from typing import Any

from allocation.steps import finish
from cli.explain import preemption_lines
from scheduler.api import simulation
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.api.namespaced import redaction
from scheduler.api.preemption_types import PreemptedPod, PreemptionExplanation
from scheduler.fairness.holds import Hold
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.preempting import chooser_of
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import cycle_of


def site(*namespaces: str) -> Any:
    """Return a node of one card, which pods of these namespaces fill."""
    made = state("n1", cards=1)
    for namespace in namespaces:
        share = 1000 // len(namespaces)
        made.set_pod(allocated(f"of-{namespace}", node="n1", memory=share, namespace=namespace, priority=-1))
    return made


IMPORTANT = pod("important", memory=1000, priority=9)


def test_the_pods_that_would_go_are_named_and_stay() -> None:
    """With their priority; nothing is reserved."""
    made = site("default", "other")
    before = made.ledger.used.copy(), made.ledger.changes.state
    shown = explained(made, IMPORTANT)
    assert shown.preemption == PreemptionExplanation(
        "n1", 2, (PreemptedPod("default", "of-default", -1), PreemptedPod("other", "of-other", -1))
    )
    victims = "default/of-default (priority -1), other/of-other (priority -1)"
    assert preemption_lines.of_pod(shown) == [f"preemption: would evict 2 pods for it, then on node n1: {victims}"]
    assert (made.ledger.used == before[0]).all()
    assert made.ledger.changes.state == before[1]


def test_users_of_one_namespace_see_only_its_pods() -> None:
    """They see how many go."""
    shown = redaction.of_explanation(explained(site("default", "other"), IMPORTANT))
    assert shown.preemption is not None
    assert (shown.preemption.count, [each.name for each in shown.preemption.victims]) == (2, ["of-default"])
    assert "default/of-default (priority -1), 1 more" in preemption_lines.of_pod(shown)[0]


def test_the_reason_why_nobody_goes() -> None:
    """Nobody is less important."""
    shown = explained(site("default"), pod("p", memory=1000, priority=-1, preemptionPolicy="Never"))
    assert preemption_lines.of_pod(shown) == ["preemption: nobody, because its preemptionPolicy is Never"]


def test_a_pod_that_fits_has_no_such_line() -> None:
    """Nor has one that runs."""
    made = state("n1", cards=1)
    assert explained(made, IMPORTANT).preemption is None
    assert preemption_lines.of_pod(explained(made, IMPORTANT)) == []


def test_a_full_quota_of_pods_is_explained_too() -> None:
    """No node was evaluated."""
    made = state("n1")
    made.set_pod(allocated("low", node="n1", memory=100))
    made.set_gpu_quota(gpu_quota(total={"maxPods": 1}))
    shown = explained(made, IMPORTANT).preemption
    assert shown is not None
    assert [each.name for each in shown.victims] == ["low"]


def test_what_is_held_is_explained() -> None:
    """And how many pods still have to end."""
    made = site("default")
    made.set_pod(IMPORTANT)
    key = made.fair_share.key(IMPORTANT)
    reservation = made.ledger.reservation("uid-of-default")
    hold = Hold(IMPORTANT.uid, key, (0, -9), "n1", reservation.charges, frozenset({"uid-of-default"}), 1e9)
    made.holds.add(hold, IMPORTANT)
    shown = explained(made, IMPORTANT)
    assert shown.preemption == PreemptionExplanation("n1", leaving=1, held="preemption")
    assert preemption_lines.of_pod(shown) == [
        "preemption: cards of node n1 are held for it, because pods are evicted for it; 1 pod there has to end first"
    ]


def test_a_simulation_has_it_as_well() -> None:
    """For a pod that does not exist."""
    made = site("default")
    submitted = SubmittedPod(PlannedPod.of(IMPORTANT, {}, {}), ())
    simulated = finish(simulation.simulate(cycle_of(made), submitted, chooser=chooser_of(made)))
    assert simulated.explanation is not None
    assert simulated.explanation.preemption is not None
    assert [each.name for each in simulated.explanation.preemption.victims] == ["of-default"]
