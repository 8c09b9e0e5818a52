"""A namespace takes no more than its quotas say, counted from what its pods hold."""

from typing import Any

import msgspec

from cluster.resource_quota import ResourceQuota
from scheduler.cycle import Chosen, Waiting, decide, undo
from scheduler.state import State
from tests.scheduler.builders import allocated, pod, state


def quota(name: str, **hard: str) -> ResourceQuota:
    """Answer a quota of namespace `default`; keys by short names."""
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


def note(made: State, memory: int) -> str:
    """Answer why a pod with this memory waits, empty where it is placed (and gives it back)."""
    asked = pod(f"asks-{memory}", memory=memory)
    decision = decide(made, asked)
    if isinstance(decision, Chosen):
        undo(made, asked)
        return ""
    assert isinstance(decision, Waiting)
    return decision.note


def test_a_quota_is_shared_by_the_namespace() -> None:
    """What runs and what is assumed count; what has ended does not."""
    made = state("n1")
    made.set_quota(quota("q", memory="1000"))
    running = allocated("runs", node="n1", memory=600)
    made.set_pod(running)
    assert "2/2 ResourceQuotaNotFit(n1)" in note(made, 401)
    assert note(made, 400) == ""
    decide(made, pod("assumed", memory=300))
    assert "ResourceQuotaNotFit" in note(made, 101)
    made.drop_pod(running)
    assert note(made, 700) == ""


def test_the_smallest_of_several_counts_and_a_deleted_one_does_not() -> None:
    """HAMi lets the last event win, and forgets every limit with any of the objects."""
    made = state("n1")
    made.set_quota(quota("large", memory="900"))
    made.set_quota(quota("small", memory="100"))
    assert "ResourceQuotaNotFit" in note(made, 101)
    made.drop_quota(quota("small"))
    assert note(made, 900) == ""
    assert "ResourceQuotaNotFit" in note(made, 901)


def test_other_namespaces_are_not_limited() -> None:
    """A quota is its namespace's."""
    made = state("n1")
    other = quota("q", cards="0")
    other.metadata.namespace = "elsewhere"
    made.set_quota(other)
    assert note(made, 100) == ""


def test_a_quota_that_is_raised_wakes_who_waits() -> None:
    """The cure reaches the queue."""
    made = state("n1")
    made.set_quota(quota("q", cards="0"))
    waiting = pod("waits", memory=100)
    made.set_pod(waiting)
    entry = made.queue.get(waiting.uid)
    assert entry is not None
    decision = decide(made, waiting)
    assert isinstance(decision, Waiting)
    made.queue.fail(entry, decision.cures)
    made.set_quota(quota("q", cards="1"))
    assert isinstance(decide(made, waiting), Chosen)
