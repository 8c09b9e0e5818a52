"""`/preempt`: no pod is evicted for a node whose cards would not take the preemptor, and nothing changes here."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.steps import finish
from cluster.disruption_budget import PodDisruptionBudget
from cluster.resource_quota import ResourceQuota
from scheduler.extender import preemption, preemption_wire, wire
from scheduler.extender.wire import UnreadableError
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, node, pod, state, status
from tests.scheduler.support.extending import Bindings, extending
from tests.scheduler.support.preempting import chooser_of
from tests.scheduler.support.quotas import gpu_quota

CARD = 1000
"""MiB of a card of `state`."""


def victims(*uids: str, violations: int = 0) -> dict[str, Any]:
    """Return MetaVictims as kube-scheduler sends them."""
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


def body(asks: Pod, proposed: dict[str, Any], *, key: str = "NodeNameToMetaVictims") -> bytes:
    """Return ExtenderPreemptionArgs as kube-scheduler sends them."""
    return msgspec.json.encode({"Pod": asks, "NodeNameToVictims": None, "NodeNameToMetaVictims": None, key: proposed})


def answer(
    made: ClusterState, asks: Pod, proposed: dict[str, Any], *budgets: PodDisruptionBudget, **settings: Any
) -> dict[str, Any]:
    """Call `/preempt` with settings of preemption; return the nodes that remain, with their victims."""
    more = preemption.of_chooser(chooser_of(made, *budgets, **settings), asks)
    result = finish(preemption.preempt(made, preemption_wire.decode(body(asks, proposed)), more=more))
    kept: dict[str, Any] = msgspec.json.decode(wire.encode(result))["NodeNameToMetaVictims"]
    return kept


def cluster(*used: Sequence[int]) -> ClusterState:
    """Return a cluster of nodes n0, n1, …, whose cards have the MiB of `used` in use: pod `n0-1` uses card 1 of n0."""
    made = state(has_queue=False)
    for number, cards in enumerate(used):
        name = f"n{number}"
        made.set_node(node(name))
        made.agent_reports.set(status(name, cards=len(cards), memory=CARD))
        for card, memory in enumerate(cards):
            if memory:
                made.set_pod(allocated(f"{name}-{card}", node=name, memory=memory, card=card))
    return made


def test_budgets_that_more_victims_violate_are_counted() -> None:
    """kube-scheduler prefers nodes where its victims and ours violate fewer."""
    made = cluster((900,))
    fields = {"metadata": {"name": "all", "namespace": "default"}, "spec": {"selector": {}, "maxUnavailable": 0}}
    guard = msgspec.convert(fields, PodDisruptionBudget)
    asks, proposed = pod("p", memory=900, priority=5), {"n0": victims("uid-other", violations=1)}
    assert answer(made, asks, proposed, guard) == {}
    expected = {"n0": victims("uid-other", "uid-n0-0", violations=2)}
    assert answer(made, asks, proposed, guard, rigid_budgets="violate") == expected


def test_a_node_whose_cards_are_too_small_is_vetoed() -> None:
    """Nobody is evicted there; the other node remains, with its victims as they were proposed."""
    made = cluster((900,), (900,))
    made.agent_reports.set(status("n0", cards=1, memory=500), None)
    proposed = {"n0": victims("uid-n0-0"), "n1": victims("uid-n1-0", violations=1)}
    assert answer(made, pod("a", memory=600), proposed) == {"n1": proposed["n1"]}


def test_a_node_remains_only_if_its_victims_make_room() -> None:
    """Evicting a pod that has no card, or too small a share, would not help."""
    made = cluster((900, 900))
    asks = pod("a", memory=600)
    for uids, remains in (((), False), (("uid-other",), False), (("uid-n0-0",), True), (("uid-n0-1",), True)):
        assert bool(answer(made, asks, {"n0": victims(*uids)})) is remains, uids


def test_a_node_that_has_room_needs_no_victim_with_a_card() -> None:
    """kube-scheduler evicts for the CPU; the card is free already."""
    assert answer(cluster((100,)), pod("a", memory=600), {"n0": victims("uid-cpu")}) == {"n0": victims("uid-cpu")}


def test_a_closed_node_is_vetoed() -> None:
    """It takes no GPU pod, whoever leaves."""
    made = cluster((900,))
    made.set_pod(pod("uncounted", memory=10, node="n0", phase="Running"))
    assert answer(made, pod("a", memory=600), {"n0": victims("uid-n0-0"), "ghost": victims()}) == {}


def test_a_pod_without_gpu_is_none_of_ours() -> None:
    """kube-scheduler asks about pods with managed resources only, but another configuration may ask about all."""
    proposed = {"n0": victims("uid-n0-0")}
    assert answer(cluster((900,)), pod("web"), proposed) == proposed


def test_a_held_pod_evicts_nobody() -> None:
    """Its request cannot be read, so no node takes it."""
    asks = pod("a", memory=600, annotations={"nvidia.com/vgpu-mode": "x"})
    assert answer(cluster((900,)), asks, {"n0": victims("uid-n0-0")}) == {}


def test_a_quota_is_freed_by_pods_of_its_namespace_only() -> None:
    """The cards have room; the quota of the preemptor's namespace has none."""
    made = cluster((0, 0))
    made.set_pod(allocated("mine", node="n0", memory=400, card=0))
    made.set_pod(allocated("theirs", node="n0", memory=400, card=1, namespace="other"))
    hard = {"limits.nvidia.com/gpumem": "500"}
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
    made.limits.set_quota(msgspec.convert(quota, ResourceQuota))
    asks = pod("a", memory=300)
    assert answer(made, asks, {"n0": victims("uid-mine")})
    assert not answer(made, asks, {"n0": victims("uid-theirs")})


def test_pods_of_lower_priority_are_added_for_the_cards() -> None:
    """kube-scheduler evicts for the CPU; the card needs one more pod, and as few as possible."""
    made = cluster((300, 600))
    made.set_pod(allocated("n0-2", node="n0", memory=600, card=0))
    asks = pod("a", memory=600, priority=1)
    assert answer(made, asks, {"n0": victims("uid-cpu", violations=1)}) == {
        "n0": victims("uid-cpu", "uid-n0-1", violations=1)
    }


@pytest.mark.parametrize("fields", [{"priority": 0}, {"priority": 9, "preemptionPolicy": "Never"}])
def test_nobody_is_added_for_a_pod_that_may_not_preempt(fields: dict[str, Any]) -> None:
    """The node is vetoed, as if there were no preemption."""
    assert answer(cluster((900,)), pod("a", memory=600, **fields), {"n0": victims("uid-cpu")}) == {}


def test_a_quota_is_freed_by_the_proposed_victims_and_those_that_are_added() -> None:
    """The namespace may hold two cards, and holds three; there is room on each."""
    made = cluster((100, 100, 100))
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpu": 2}}))
    kept = answer(made, pod("a", memory=600, priority=1), {"n0": victims("uid-n0-1")})
    first, second = (each["UID"] for each in kept["n0"]["Pods"])
    assert first == "uid-n0-1"
    assert second in ("uid-n0-0", "uid-n0-2")


def test_a_node_is_vetoed_if_pods_elsewhere_have_to_go_as_well() -> None:
    """Here for the quota: kube-scheduler evicts only pods of the node."""
    for used, kept in (((100, 0), (0, 0)), {"n0"}), (((0, 0), (100, 0)), set()):
        made = cluster(*used)
        made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpu": 1}}))
        assert answer(made, pod("a", memory=600, priority=1), {"n0": victims("uid-cpu")}).keys() == kept


def test_victims_may_come_as_whole_pods() -> None:
    """As from a kube-scheduler whose extender does not cache nodes; the answer has UIDs."""
    made, leaving = cluster((900,)), allocated("n0-0", node="n0", memory=900)
    sent = body(pod("a", memory=600), {"n0": {"Pods": [leaving], "NumPDBViolations": 2}}, key="nodeNameToVictims")
    result = finish(preemption.preempt(made, preemption_wire.decode(sent), more=lambda *_: None))
    assert msgspec.json.decode(wire.encode(result)) == {
        "NodeNameToMetaVictims": {"n0": victims("uid-n0-0", violations=2)}
    }


@pytest.mark.parametrize("sent", [b"", b"[]", b"{}", b'{"Pod":{"metadata":{},"spec":{}},"NodeNameToVictims":{"n":3}}'])
def test_malformed_bodies_are_refused(sent: bytes) -> None:
    """The message says what was expected."""
    with pytest.raises(UnreadableError, match="ExtenderPreemptionArgs"):
        preemption_wire.decode(sent)


@given(
    used=st.lists(st.lists(st.sampled_from((0, 300, 900)), min_size=1, max_size=3), min_size=1, max_size=3),
    chosen=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2))),
    memory=st.integers(1, CARD),
)
def test_preempt_changes_nothing_and_agrees_with_a_cluster_without_the_victims(
    used: list[list[int]], chosen: set[tuple[int, int]], memory: int
) -> None:
    """The ledger is the same before and after, and a node remains exactly where a cluster without the pods has room."""
    made, asks = cluster(*used), pod("a", memory=memory)
    proposed = {f"n{at}": victims(*(f"uid-n{at}-{card}" for other, card in chosen if other == at)) for at in range(3)}
    ledger = made.ledger
    amounts, held = ledger.used.copy(), {each.uid: each for each in ledger.reservations()}
    kept = answer(made, asks, proposed)
    assert np.array_equal(ledger.used, amounts)
    assert {each.uid: each for each in ledger.reservations()} == held
    left = {
        f"n{at}": [CARD if (at, card) in chosen else CARD - amount for card, amount in enumerate(cards)]
        for at, cards in enumerate(used)
    }
    assert kept.keys() == {name for name, free in left.items() if max(free) >= memory}


async def test_pod_that_the_cache_does_not_have_yet_is_read() -> None:
    """kube-scheduler may be faster than the watch, and would not ask again for minutes: the pod preempts, and waits."""
    made, api = cluster((900,)), Bindings()
    asks = pod("a", memory=600, priority=1)
    api.pods["a"] = asks
    verbs = extending(made, api)
    proposed = preemption_wire.decode(body(asks, {"n0": victims("uid-cpu")}))
    kept = (await verbs.preempt(proposed)).victims
    assert [each.uid for each in kept["n0"].pods] == ["uid-cpu", "uid-n0-0"]
    other = msgspec.structs.replace(asks, metadata=msgspec.structs.replace(asks.metadata, name="b", uid="uid-b"))
    api.pods["b"] = other
    sent = wire.decode_args(msgspec.json.encode({"Pod": other, "Nodes": None, "NodeNames": ["n0"]}))
    assert not (await verbs.filter(sent)).has_node
    found = finish(verbs._rejected.waiting(lambda _: True, lambda _: True, 8))
    assert [each.pod.uid for each in found] == ["uid-b"]


@pytest.mark.parametrize("what", ["gone", "recreated"])
async def test_pod_that_is_gone_evicts_nobody(what: str) -> None:
    """Neither does another pod that has its name now."""
    made, api = cluster((900,)), Bindings()
    asks = pod("a", memory=600, priority=1)
    if what == "recreated":
        api.pods["a"] = msgspec.structs.replace(asks, metadata=msgspec.structs.replace(asks.metadata, uid="new"))
    proposed = preemption_wire.decode(body(asks, {"n0": victims("uid-cpu")}))
    assert (await extending(made, api).preempt(proposed)).victims == {}
