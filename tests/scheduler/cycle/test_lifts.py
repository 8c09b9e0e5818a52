"""What is kept for a pod, or for pods of lower rank, is free for it; so are bound cards, if they still are bound."""

from typing import Any

import msgspec
import pytest

from allocation import steps as computations
from allocation.allocation import Charge
from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.extender import preemption, preemption_wire, wire
from scheduler.holds import Hold
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.app_pods import app_labels, app_pod, gpu_binding
from tests.scheduler.support.app_pods import settings as bound_by
from tests.scheduler.support.builders import allocated, node, pod, state
from tests.scheduler.support.extending import extending
from tests.scheduler.support.scheduling import schedule


def held(made: ClusterState, waits: Pod, *, memory: int) -> None:
    """Hold a share of the first card of node n1 for a pod."""
    rank, charges = made.fair_share.pod_rank(waits), (Charge("GPU-n1-0", memory, 0, 1),)
    made.holds.add(Hold(waits.uid, made.fair_share.key(waits), rank, "n1", charges, frozenset()), waits)


def between_holds() -> tuple[ClusterState, Pod]:
    """Return a cluster of one card with a hold of higher rank and one of lower rank than a pod, and the pod."""
    made = state("n1", cards=1)
    held(made, pod("high", memory=300, priority=9), memory=300)
    held(made, pod("low", memory=600, priority=0), memory=600)
    return made, pod("asks", memory=600, priority=5)


def test_a_hold_of_higher_rank_stays_beside_the_pod_that_takes_a_lower_one() -> None:
    """Both have a share of the same card, which has room for the two."""
    made, asks = between_holds()
    assert isinstance(finish(schedule(made, asks)), Scheduled)
    assert [hold.uid for hold in made.holds] == ["uid-high"]
    assert made.ledger.used_lists(0)[0] == [900]


def test_the_extender_names_a_node_whose_cards_are_held_for_pods_of_lower_rank() -> None:
    """To a pod of their rank or below it does not."""
    made, asks = between_holds()
    for each, fits in ((asks, True), (pod("low-too", memory=600, priority=0), False)):
        args = wire.Args.of_pod(each, ["n1"])
        assert finish(extending(made)._filter(each, args)).has_node is fits


def test_devices_of_a_plugin_that_a_hold_counts_are_free_for_its_pod() -> None:
    """The node advertises as many devices as the hold has; another pod finds too few."""
    made = state("n1", cards=1)
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "1"}
    made.set_node(node("n1", status={"allocatable": allocatable}))
    asks = pod("asks", memory=600)
    held(made, asks, memory=600)
    assert not isinstance(finish(schedule(made, pod("other", memory=100))), Scheduled)
    assert isinstance(finish(schedule(made, asks)), Scheduled)


def test_a_binding_that_changes_between_the_steps_gives_no_card() -> None:
    """The pod gets the card of the GPUBindings that are left, if there is one."""
    asks = app_pod("asks")
    for left in ([], [gpu_binding("of-app", "GPU-n1-1")]):
        made = state("n1", settings=bound_by("required"))
        made.bindings.set(binding := gpu_binding("of-app", "GPU-n1-0"))
        steps = schedule(made, asks)
        next(steps)
        for each in left:
            made.bindings.set(each)
        if not left:
            made.bindings.drop(binding)
        result = finish(steps)
        cards = [charge.uuid for charge in result.charges] if isinstance(result, Scheduled) else []
        assert cards == [each.spec.uuid for each in left]


def test_a_bound_card_is_free_for_the_next_pod_of_its_application_without_the_victim() -> None:
    """`/preempt` keeps the node: the only card of the application becomes free with the victim."""
    made = state("n1", settings=bound_by("required"))
    made.bindings.set(gpu_binding("of-app", "GPU-n1-0"))
    made.set_pod(allocated("runs", node="n1", memory=1000, labels=app_labels()))
    for uids, kept in ((["uid-runs"], {"n1"}), ([], set())):
        victims = {"n1": {"Pods": [{"UID": uid} for uid in uids]}}
        fields = {"Pod": app_pod("asks", priority=5), "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        args = preemption_wire.decode(msgspec.json.encode(fields))
        result = finish(preemption.preempt(made, args, more=lambda *_: None))
        assert result.victims.keys() == kept


def test_a_hold_whose_rank_rises_between_the_steps_is_not_lifted() -> None:
    """What was free for the pod when it was evaluated is not when it is reserved."""
    count = sum(1 for _ in schedule(*between_holds()))
    made, asks = between_holds()
    steps = schedule(made, asks)
    for _ in range(count):
        next(steps)
    made.holds.release("uid-low")
    held(made, pod("low", memory=600, priority=9), memory=600)
    assert not isinstance(finish(steps), Scheduled)
    assert len(made.holds) == 2


def test_cards_are_checked_and_reserved_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computation that yields in between gets an error (`test_pacing`)."""
    made, doing = state("n1"), list[str]()
    assume = made.ledger.assume

    def watched(*what: Any) -> None:
        doing.extend(computations._exclusive)
        assume(*what)

    monkeypatch.setattr(made.ledger, "assume", watched)
    assert isinstance(finish(schedule(made, pod("asks", memory=600))), Scheduled)
    assert doing == ["checking and reserving"]
