"""The explanation of a pod that waits has what preemption would do for it, by the function that decides it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from allocation.names import QUEUE
from allocation.settings import AllocationSettings
from allocation.steps import finish
from cli.explain import explanation_lines
from cluster.manifest import NotAdmittedError
from scheduler.api import simulation
from scheduler.api.manifest_pod import SubmittedPod, read_pod
from scheduler.api.namespaced import redaction
from scheduler.api.preemption_types import PreemptedPod, PreemptionExplanation
from scheduler.api.request_body import Manifests
from scheduler.api.simulation_types import Simulation
from scheduler.holds import Hold
from scheduler.objects import PriorityClass
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import cycle_of
from webhook import dry_run
from webhook.settings import WebhookSettings


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
    both = "default/of-default (priority -1), other/of-other (priority -1)"
    assert explanation_lines.of_preemption(shown) == [f"preemption: would evict 2 pods for it, then on node n1: {both}"]
    assert (made.ledger.used == before[0]).all()
    assert made.ledger.changes.state == before[1]


def test_users_of_one_namespace_see_only_its_pods() -> None:
    """They see how many go."""
    shown = redaction.of_explanation(explained(site("default", "other"), IMPORTANT))
    assert shown.preemption is not None
    assert (shown.preemption.count, [each.name for each in shown.preemption.victims]) == (2, ["of-default"])
    assert "default/of-default (priority -1), 1 more" in explanation_lines.of_preemption(shown)[0]


def test_the_reason_why_nobody_goes() -> None:
    """Nobody is less important."""
    shown = explained(site("default"), pod("p", memory=1000, priority=-1, preemptionPolicy="Never"))
    assert explanation_lines.of_preemption(shown) == [
        "preemption: no candidates, because its preemptionPolicy is Never"
    ]


def test_a_pod_that_fits_has_no_such_line() -> None:
    """Nor has one that runs."""
    made = state("n1", cards=1)
    assert explained(made, IMPORTANT).preemption is None
    assert explanation_lines.of_preemption(explained(made, IMPORTANT)) == []


def test_a_full_quota_of_pods_is_explained_too() -> None:
    """No node was evaluated."""
    made = state("n1")
    made.set_pod(allocated("low", node="n1", memory=100))
    made.limits.set_gpu_quota(gpu_quota(total={"maxPods": 1}))
    shown = explained(made, IMPORTANT).preemption
    assert shown is not None
    assert [each.name for each in shown.victims] == ["low"]


def test_what_is_held_is_explained() -> None:
    """And how many pods still have to end."""
    made = site("default")
    made.set_pod(IMPORTANT)
    key = made.fair_share.key(IMPORTANT)
    reservation = made.ledger.reservation("uid-of-default")
    hold = Hold(IMPORTANT.uid, key, (0, -9), "n1", reservation.charges, frozenset({"uid-of-default"}), "preemption")
    made.holds.add(hold, IMPORTANT)
    shown = explained(made, IMPORTANT)
    assert shown.preemption == PreemptionExplanation("n1", leaving=1, held="preemption")
    assert explanation_lines.of_preemption(shown) == [
        "preemption: cards of node n1 are held for it, because pods are evicted for it; 1 pod there has to end first"
    ]


def test_a_pod_says_that_it_may_reclaim_and_when() -> None:
    """The pods that go for that reason are counted; one that was created a moment ago has to wait first."""
    made = state("n1", cards=1)
    for number in range(3):
        made.set_pod(allocated(f"p{number}", node="n1", memory=300))
    made.limits.set_queue(gpu_queue("owed", reclaim="WithinTier", reclaimAfterSeconds=90))
    owed: dict[str, Any] = {"memory": 300, "labels": {QUEUE: "owed"}}
    asked = pod("asks", **owed)
    made.set_pod(asked)
    preemption, reclaim = explanation_lines.of_preemption(explained(made, asked))
    assert preemption.startswith("preemption: would evict 1 pod (1 of queues above their entitlement) for it")
    assert reclaim == "reclaim: it may reclaim cards from queues above their entitlement now"
    young = pod("young", **{**owed, "created": "2026-01-01T00:59:00Z"})
    _, reclaim = explanation_lines.of_preemption(explained(made, young))
    assert reclaim.endswith("above their entitlement once it has waited for 30 s more")
    large = pod("large", **{**owed, "memory": 1000})
    _, reclaim = explanation_lines.of_preemption(explained(made, large))
    assert reclaim == "reclaim: GpuQueue owed has, or would have then, more than its entitlement"


def simulated(made: Any, spec: dict[str, Any]) -> Simulation:
    """Return the simulation of a pod for a whole card with these fields of its `spec`."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    container = {"name": "main", "resources": {"limits": limits}}
    manifests = Manifests({"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}})
    admit = partial(dry_run.dry_run, allocation=AllocationSettings(), settings=WebhookSettings())
    try:
        submitted = read_pod(made, manifests, admit)
    except NotAdmittedError as error:
        return simulation.not_admitted(str(error))
    return finish(simulation.simulate(cycle_of(made), submitted, evictions=evictions_of(made)))


def victims(shown: Simulation) -> list[str]:
    """Return the names of the pods that would be evicted."""
    assert shown.explanation is not None
    preemption = shown.explanation.preemption
    return [each.name for each in preemption.victims] if preemption is not None else []


def test_the_priority_of_a_simulated_pod_is_that_of_its_class() -> None:
    """As the API server writes it at creation: by name, else the default class with the lowest value, else 0."""
    made = site("default")
    for name, content in {
        "high": {"value": 1000},
        "patient": {"value": 1000, "preemptionPolicy": "Never"},
        "low": {"value": -5, "globalDefault": True},
        "lower": {"value": -9, "globalDefault": True},
    }.items():
        made.priority_classes.set(msgspec.convert({"metadata": {"name": name}, **content}, PriorityClass))
    assert victims(simulated(made, {"priorityClassName": "high"})) == ["of-default"]
    assert victims(simulated(made, {"priorityClassName": "patient"})) == []
    assert victims(simulated(made, {})) == []
    for name in ("low", "lower"):
        made.priority_classes.drop(msgspec.convert({"metadata": {"name": name}}, PriorityClass))
    assert victims(simulated(made, {})) == ["of-default"]


def test_a_class_that_the_api_server_refuses_is_refused() -> None:
    """One that does not exist, and fields that contradict it; a priority without a class counts, with a warning."""
    made = site("default")
    made.priority_classes.set(msgspec.convert({"metadata": {"name": "high"}, "value": 1000}, PriorityClass))
    for spec, message in (
        ({"priorityClassName": "hihg"}, "no PriorityClass with name hihg was found"),
        ({"priorityClassName": "high", "priority": 7}, "PriorityClass high has value 1000; remove the field"),
        ({"priorityClassName": "high", "preemptionPolicy": "Never"}, "PriorityClass high has PreemptLowerPriority"),
        ({"preemptionPolicy": "Never"}, "the default has PreemptLowerPriority"),
    ):
        error = simulated(made, spec).error
        assert error is not None
        assert message in error.message
    shown = simulated(made, {"priority": 7})
    assert victims(shown) == ["of-default"]
    assert "the API server refuses 7 unless spec.priorityClassName names a PriorityClass" in shown.warnings[0]
    assert len(simulated(made, {"priorityClassName": "high", "priority": 1000}).warnings) == 1  # of the namespace


def test_a_simulation_has_it_as_well() -> None:
    """For a pod that does not exist."""
    made = site("default")
    submitted = SubmittedPod(PlannedPod.of(IMPORTANT, {}, {}), ())
    assert victims(finish(simulation.simulate(cycle_of(made), submitted, evictions=evictions_of(made)))) == [
        "of-default"
    ]
