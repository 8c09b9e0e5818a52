"""Cards that no eviction frees: those of claims of other DRA drivers, and those of Leases without their pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from allocation.steps import finish
from cluster.dra import ResourceClaim, ResourceSlice
from scheduler.extender import preemption, preemption_wire
from scheduler.preemption.choice import NoPreemption
from scheduler.preemption.node_search import Preemption
from tests.scheduler.preemption.test_choice import chosen, victims
from tests.scheduler.support import dra
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.leasing import lease_of
from tests.scheduler.support.preempting import chooser_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.state.cluster_state import ClusterState

ONE = pod("one", memory=100, priority=9)
LIMITS = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "100"}
BOTH = pod("both", priority=9, containers=[{"name": "main", "resources": {"limits": LIMITS, "requests": LIMITS}}])
CLAIM = msgspec.convert(dra.claim("theirs", "n1", "gpu-0"), ResourceClaim)


def keep_claim(made: ClusterState) -> Callable[[], None]:
    """Let a claim of another driver have card 0 of node n1; return what deletes it."""
    made.foreign_devices.set_slice(msgspec.convert(dra.slice_of("n1", "GPU-n1-0", "GPU-n1-1"), ResourceSlice))
    made.foreign_devices.set_claim(CLAIM)
    return lambda: made.foreign_devices.drop_claim(CLAIM)


def keep_lease(made: ClusterState) -> Callable[[], None]:
    """Let an earlier pod have the Lease of card 0 of node n1; return what deletes it."""
    made.set_lease(lease_of("earlier"))
    return lambda: made.drop_lease(lease_of("earlier"))


each_keeper = pytest.mark.parametrize("keep", [keep_claim, keep_lease])


def full(*, cards: int = 2) -> ClusterState:
    """Return a state with one node, each of whose cards is filled by a pod of low priority; `low-0` came last."""
    made = state("n1", cards=cards, foreign_drivers=(dra.DRIVER,))
    for card in range(cards):
        created = f"2026-01-01T00:{30 - card}:00Z"
        made.set_pod(allocated(f"low-{card}", node="n1", memory=1000, card=card, created=created))
    return made


@each_keeper
def test_preemptor_gets_another_card(keep: Callable[[ClusterState], Callable[[], None]]) -> None:
    """The youngest pod is the cheapest victim, but its card is kept."""
    made = full()
    release = keep(made)
    found = chosen(made, ONE)
    assert isinstance(found, Preemption)
    assert [each.pod.metadata.name for each in found.victims] == ["low-1"]
    assert [charge.uuid for charge in found.charges] == ["GPU-n1-1"]
    release()
    assert victims(made, ONE) == {"low-0"}


@each_keeper
def test_no_pod_is_preempted_for_a_card_that_is_kept(keep: Callable[[ClusterState], Callable[[], None]]) -> None:
    """Neither for one card, nor for all cards of the node."""
    for preemptor, made in ((ONE, full(cards=1)), (BOTH, full())):
        release = keep(made)
        assert isinstance(chosen(made, preemptor), NoPreemption)
        release()
        assert isinstance(chosen(made, preemptor), Preemption)


@each_keeper
def test_kube_scheduler_evicts_no_pod_for_a_card_that_is_kept(
    keep: Callable[[ClusterState], Callable[[], None]],
) -> None:
    """`/preempt` rejects its proposal, and adds no pods to it."""
    made = full(cards=1)
    release = keep(made)
    body = {"Pod": ONE, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-low-0"}], "NumPDBViolations": 0}}}
    arguments = preemption_wire.decode(msgspec.json.encode(body))

    def remaining() -> set[str]:
        more = preemption.of_chooser(chooser_of(made), ONE)
        return set(finish(preemption.preempt(made, arguments, more=more)).victims)

    assert remaining() == set()
    release()
    assert remaining() == {"n1"}
