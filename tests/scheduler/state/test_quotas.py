"""The reservations of a namespace never exceed its ResourceQuotas."""

from typing import Any

import msgspec

from allocation.steps import finish
from cluster.resource_quota import ResourceQuota
from scheduler.api.explanation import explain
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.extender import wire
from scheduler.extender.filtering import filter_
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.scheduling import cycle_of, forget, schedule


def quota(name: str, **hard: str) -> ResourceQuota:
    """Return a quota of namespace `default`; keys by short names."""
    keys = {
        "memory": "limits.nvidia.com/gpumem",
        "cores": "limits.nvidia.com/gpucores",
        "cards": "limits.nvidia.com/gpu",
    }
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"hard": {keys[key]: value for key, value in hard.items()}},
    }
    return msgspec.convert(body, ResourceQuota)


def note(made: ClusterState, memory: int) -> str:
    """Return why a pod with this memory waits, or an empty string; the pod is removed again."""
    pending = pod(f"asks-{memory}", memory=memory)
    decision = finish(schedule(made, pending))
    if isinstance(decision, Scheduled):
        forget(made, pending)
        return ""
    assert isinstance(decision, Unschedulable)
    return decision.note


def test_a_quota_is_shared_by_the_namespace() -> None:
    """Running and assumed pods count; finished pods do not."""
    made = state("n1")
    made.limits.set_quota(quota("q", memory="1000"))
    running = allocated("runs", node="n1", memory=600)
    made.set_pod(running)
    assert "2/2 ResourceQuotaNotFit(n1)" in note(made, 401)
    assert note(made, 400) == ""
    finish(schedule(made, pod("assumed", memory=300)))
    assert "ResourceQuotaNotFit" in note(made, 101)
    made.drop_pod(running)
    assert note(made, 700) == ""


def test_the_smallest_of_several_quotas_counts() -> None:
    """HAMi lets the last event win, and forgets every limit when any of the objects is deleted."""
    made = state("n1")
    made.limits.set_quota(quota("large", memory="900"))
    made.limits.set_quota(quota("small", memory="100"))
    assert "ResourceQuotaNotFit" in note(made, 101)
    made.limits.drop_quota(quota("small"))
    assert note(made, 900) == ""
    assert "ResourceQuotaNotFit" in note(made, 901)


def test_the_reason_names_the_exceeded_quota() -> None:
    """The object, the resource, its limit, the used and the requested amounts; each resource of several."""
    made = state("n1")
    made.limits.set_quota(quota("all", memory="9k", cards="1"))
    made.limits.set_quota(quota("mem", memory="1000"))
    made.set_pod(allocated("runs", node="n1", memory=600))
    assert note(made, 401) == (
        "no available node, 1 node does not meet: 1 node 2/2 ResourceQuotaNotFit(n1);"
        " ResourceQuota mem limits nvidia.com/gpumem to 1000: 600 used, 401 requested;"
        " ResourceQuota all limits nvidia.com/gpu to 1: 1 used, 1 requested"
    )


def test_a_percentage_is_shown_with_every_limit() -> None:
    """Its amount of memory depends on the card, so that no limit is certainly exceeded."""
    made = state("n1")
    made.limits.set_quota(quota("mem", memory="10"))
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}
    pending = pod("asks", containers=[{"name": "main", "resources": {"limits": limits, "requests": limits}}])
    decision = finish(schedule(made, pending))
    assert isinstance(decision, Unschedulable)
    assert decision.note.endswith(
        "ResourceQuota mem limits nvidia.com/gpumem to 10: 0 used, 0 requested, and a percentage of each card's memory"
    )


def test_the_extender_and_explanations_name_the_quota() -> None:
    """In extender mode in the reason of the node; an explanation has it separately from the nodes."""
    made = state("n1")
    made.limits.set_quota(quota("mem", memory="100"))
    pending = pod("asks", memory=200)
    text = "ResourceQuota mem limits nvidia.com/gpumem to 100: 0 used, 200 requested"
    assert finish(explain(cycle_of(made), pending, evictions=evictions_of(made))).quota == text
    sent = msgspec.convert(msgspec.to_builtins(pending), wire.Pod)
    result = finish(filter_(made, wire.Args(sent, ["n1"], ())))
    assert result.failed_nodes == {"n1": f"2/2 ResourceQuotaNotFit ({text})"}


def test_other_namespaces_are_not_limited() -> None:
    """A quota applies to its own namespace."""
    made = state("n1")
    other = quota("q", cards="0")
    other.metadata.namespace = "elsewhere"
    made.limits.set_quota(other)
    assert note(made, 100) == ""


def test_raising_a_quota_makes_waiting_pods_active() -> None:
    """The event reaches the queue."""
    made = state("n1")
    made.limits.set_quota(quota("q", cards="0"))
    waiting = pod("waits", memory=100)
    made.set_pod(waiting)
    entry = made.queue.get(waiting.uid)
    assert entry is not None
    decision = finish(schedule(made, waiting))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, decision)
    made.limits.set_quota(quota("q", cards="1"))
    assert isinstance(finish(schedule(made, waiting)), Scheduled)
