"""The pods of a gang are preempted together, wherever they run, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import CLAIM, PREEMPTION_PROTECTION
from scheduler.preemption.node_search import Preemption
from tests.scheduler.preemption.test_choice import WHOLE, budget, chosen, victims
from tests.scheduler.state.test_gpu_quotas import gpu_quota
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.claims import claim
from tests.scheduler.support.gangs import of_gang

if TYPE_CHECKING:
    from scheduler.state.cluster_state import ClusterState


def training(*names: str, gang: str = "training", cards: int = 1) -> ClusterState:
    """Return a state in which a gang has a pod on each node, called `on-` and the node."""
    made = state(*names, cards=cards)
    made.set_claim(of_gang(claim("members", exclusivity="Shared"), gang))
    for name in names:
        let_run(made, f"on-{name}", name)
    return made


def let_run(made: ClusterState, name: str, node: str, *, protection: str = "", **more: Any) -> None:
    """Let a member of the gang run, or change it."""
    member = allocated(name, node=node, memory=1000, **more)
    member.metadata.annotations.update({CLAIM: "members", PREEMPTION_PROTECTION: protection or "0s"})
    made.set_pod(member, made.running.get(member.uid))


def test_all_of_a_gang_go_for_the_card_of_one() -> None:
    """The others could not go on without it; the pod gets one node."""
    found = chosen(training("a", "b", "c"), WHOLE)
    assert isinstance(found, Preemption)
    assert {each.pod.metadata.name for each in found.victims} == {"on-a", "on-b", "on-c"}
    assert found.node in "abc"


def test_claims_of_no_gang_do_not_hold_pods_together() -> None:
    """One goes."""
    found = victims(training("a", "b", "c", gang=""), WHOLE)
    assert found is not None
    assert len(found) == 1


def test_a_pod_alone_goes_rather_than_a_gang() -> None:
    """Fewer pods lose their work, unless all of the gang are of lower priority."""
    made = training("a", "b", cards=2)
    for name in ("a", "b"):
        made.set_pod(allocated(f"alone-{name}", node=name, memory=1000, card=1, priority=1))
    assert victims(made, WHOLE) == {"on-a", "on-b"}
    for name in ("a", "b"):
        let_run(made, f"on-{name}", name, priority=1)
    assert victims(made, WHOLE) in ({"alone-a"}, {"alone-b"})


@pytest.mark.parametrize(
    "more",
    [
        {"priority": 100},
        {"created": "2026-01-01T00:30:00Z", "protection": "45m"},
        {"labels": {"app": "guarded"}},
        {"schedulerName": "other"},
    ],
    ids=["high priority", "protected", "without disruptions left", "of another scheduler"],
)
def test_a_member_that_has_to_stay_keeps_all_of_its_gang(more: dict[str, Any]) -> None:
    """Here the one on the other node."""
    made = training("a", "b")
    assert victims(made, WHOLE) == {"on-a", "on-b"}
    let_run(made, "on-b", "b", **more)
    assert victims(made, WHOLE, budget("none", allowed=0, app="guarded")) is None


def test_a_budget_counts_all_members() -> None:
    """Two of them are guarded by it."""
    made = training("a", "b", "c")
    for name in ("a", "b"):
        let_run(made, f"on-{name}", name, labels={"app": "guarded"})
    assert victims(made, WHOLE, budget("one", allowed=1, app="guarded")) is None
    assert victims(made, WHOLE, budget("two", allowed=2, app="guarded")) == {"on-a", "on-b", "on-c"}


def test_members_that_end_already_need_no_eviction() -> None:
    """The others go where the room of that one is not enough, and stay where it is."""
    made = training("a", "b", "c")
    let_run(made, "on-b", "b", deleted="2026-01-01T01:00:00Z")
    assert victims(made, WHOLE) == set()
    on_a = pod("p", memory=1000, priority=9, nodeSelector={"kubernetes.io/hostname": "a"})
    assert victims(made, on_a) == {"on-a", "on-c"}


def test_nobody_preempts_members_of_its_own_gang() -> None:
    """Whatever their priority."""
    made = training("a", "b")
    preemptor = pod("p", memory=1000, priority=9, annotations={CLAIM: "members"})
    assert victims(made, preemptor) is None


def test_a_gang_gives_back_the_quota_of_all_its_members() -> None:
    """It is one of the units on other nodes, too."""
    made = training("a", "b")
    made.limits.set_gpu_quota(gpu_quota(total={"maxPods": 2}))
    made.set_pod(allocated("foreign", node="b", memory=1, card=0, priority=90, namespace="other"))
    assert victims(made, pod("p", memory=500, priority=9)) == {"on-a", "on-b"}
