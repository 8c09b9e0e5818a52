"""A pod with devices that are tied to a node is rejected there for a while once it could not be bound to it."""

from __future__ import annotations

import msgspec
import pytest

from allocation.allocation import Charge
from cluster.errors import ApiError
from scheduler.extender.refused_nodes import RefusedNodes
from scheduler.extender.wire import Args
from scheduler.objects import Pod
from tests.scheduler.support.builders import Clock, pod, state
from tests.scheduler.support.extending import Bindings, bound, cache, extending

CLAIMS = {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic-0"}]}


def claiming(name: str, **more: object) -> Pod:
    """Return a pod with a claim."""
    return pod(name, memory=600, **CLAIMS, **more)


def test_refusal_ends_with_an_event_of_the_node_or_in_time() -> None:
    """Not before kube-scheduler has seen the pod rejected, and not because more of the node is taken."""
    clock, made = Clock(), state("n1", "n2")
    refused, asking = RefusedNodes(made.ledger, clock=clock), claiming("a")
    refused.note(asking, "n1", "why")
    clock.now += 1
    made.ledger.note_change("n1", taken=False)
    assert refused.of(asking) == {"n1": "why"}
    assert refused.of(claiming("b")) == {}
    clock.now += 1
    assert refused.of(asking) == {}
    assert [*refused.forget_ended()] == ["uid-a"]
    assert [*refused.forget_ended()] == []

    refused.note(asking, "n1", "why")
    clock.now += 5
    made.ledger.note_change("n1", taken=True)
    made.ledger.note_change("n2", taken=False)
    assert refused.of(asking) == {"n1": "why"}
    assert [*refused.forget_ended()] == []
    clock.now += 5
    assert refused.of(asking) == {}
    assert [*refused.forget_ended()] == ["uid-a"]


def test_pod_without_claims_may_come_again_at_once() -> None:
    """Nothing ties it to the node."""
    refused = RefusedNodes(state("n1").ledger, clock=Clock())
    refused.note(pod("a", memory=600), "n1", "why")
    assert refused.of(pod("a", memory=600)) == {}


def test_refusals_of_a_pod_are_bounded() -> None:
    """The oldest node is forgotten."""
    nodes = [f"n{number:02}" for number in range(40)]
    refused, asking = RefusedNodes(state(*nodes).ledger, clock=Clock()), claiming("a")
    for node in nodes:
        refused.note(asking, node, node)
    assert [*refused.of(asking)] == nodes[8:]


async def test_planned_node_of_a_gang_is_not_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is, although the gang's rehearsal found that one."""
    made = state("n1", "n2", has_queue=False)
    verbs, asking = extending(made), claiming("a")
    cache(verbs, asking)
    monkeypatch.setattr(verbs._gathering, "planned", lambda _: "n1")
    assert (await verbs.filter(Args.of_pod(asking, ("n1", "n2")))).nodenames == ["n1"]
    verbs._refused.note(asking, "n1", "why")
    assert (await verbs.filter(Args.of_pod(asking, ("n1", "n2")))).nodenames == ["n2"]


async def test_node_is_not_offered_again_after_a_refused_binding() -> None:
    """Whether the check refused it, or the API server the Binding; other nodes are offered."""
    clock = Clock()
    made, api = state("n1", "n2", cards=1, clock=clock, has_queue=False), Bindings()
    verbs, asking = extending(made, api), claiming("a")
    cache(verbs, asking)
    made.ledger.record("other", "n1", (Charge("GPU-n1-0", 900, 0, 1),))
    assert "CardInsufficientMemory" in await bound(verbs, asking, "n1")
    made.ledger.release("other")
    found = await verbs.filter(Args.of_pod(asking, ("n1", "n2")))
    assert found.nodenames == ["n2"]
    assert "CardInsufficientMemory" in found.failed_nodes["n1"]
    assert await verbs.filter(Args.of_pod(claiming("b"), ("n1",))) != found

    api.error = ApiError(request="", status=422, reason="Invalid", message="no")
    assert "was not bound to n2" in await bound(verbs, asking, "n2")
    rejected = await verbs.filter(Args.of_pod(asking, ("n1", "n2")))
    assert not rejected.has_node
    assert not msgspec.json.decode(msgspec.json.encode(rejected)).get("failedAndUnresolvableNodes")
    clock.now += 3
    assert (await verbs.filter(Args.of_pod(asking, ("n1", "n2")))).nodenames == ["n1"]  # its card was released
    clock.now += 7
    assert (await verbs.filter(Args.of_pod(asking, ("n1", "n2")))).nodenames == ["n1", "n2"]
    assert {*verbs.renewed()} == {"uid-a"}
