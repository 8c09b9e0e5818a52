"""Pods with a GpuClaim are explained by their claim: what it gives, whether it exists, and what each card says."""

from typing import Any

import pytest

from allocation.steps import finish
from scheduler.api.explanation_types import GpuClaimExplanation, RequestedCards
from scheduler.api.namespaced import redaction
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.api.test_explanation import everything
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.claims import WHOLE_MIB, claiming, running
from tests.scheduler.support.claims import claim as gpu_claim
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.scheduling import schedule

SINGLE = gpu_claim("single")
PAIR = gpu_claim("pair", count=2)
SHARED = gpu_claim("shared", exclusivity="Shared", memoryMiB=400, cores=30)


def site(*nodes: str) -> ClusterState:
    """Return a state with the claims."""
    made = state(*(nodes or ("n1", "n2")))
    for each in (SINGLE, PAIR, SHARED):
        made.set_claim(each)
    return made


def test_the_cards_of_a_claim_are_shown_with_each_container() -> None:
    """All GPU containers have the same cards, and the requests are those of the claim, once."""
    shown = explained(site(), claiming("a", PAIR, containers=("main", "side")))
    assert shown.claim == GpuClaimExplanation("pair", "Exclusive", exists=True)
    assert shown.answer == "would go to n1, cards 0,1"
    assert [(each.container, each.index, each.memory_mib, each.cores) for each in shown.shares] == [
        (container, card, WHOLE_MIB, 1000) for container in ("main", "side") for card in (0, 1)
    ]
    assert shown.asks == (RequestedCards("main", 2, None, 100, 1000, whole=True),)


@pytest.mark.parametrize(("claimed", "in_use"), [(SINGLE, "ExclusiveDeviceAllocateConflict"), (SHARED, "FITS")])
def test_an_explanation_predicts_the_cards_of_a_claim(claimed: Any, in_use: str) -> None:
    """An exclusive claim gets no card in use, a shared one may; the decision is the same."""
    made = site()
    made.set_pod(allocated("runs", node="n1", memory=300))
    waiting = claiming("a", claimed)
    shown = explained(made, waiting)
    verdicts = [each.verdict for one in shown.nodes[0].cards for each in one.verdicts]
    assert verdicts == [in_use, "FITS"]
    made.set_pod(waiting)
    decision = finish(schedule(made, waiting))
    assert isinstance(decision, Scheduled)
    assert decision.allocation is not None
    given = decision.allocation.containers["main"]
    assert [(share.uuid, share.memory_mib, share.cores) for share in given] == [
        (share.uuid, share.memory_mib, share.cores) for share in shown.shares
    ]
    assert shown.node == decision.node


def test_a_card_that_a_claim_has_alone_is_full_for_others() -> None:
    """Also for a claim that shares cards and reserves nothing on them."""
    made, idle = site("n1"), gpu_claim("idle", exclusivity="Shared")
    made.set_claim(idle)
    made.set_pod(running("runs", PAIR, node="n1", cards=(0, 1)))
    shown = explained(made, claiming("a", idle))
    assert shown.outcome == "waits"
    assert shown.resolvable
    assert {card.slots.free for card in shown.nodes[0].cards} == {0}


@pytest.mark.parametrize("exists", [True, False])
def test_a_running_pod_keeps_the_claim_that_is_deleted(exists: bool) -> None:  # noqa: FBT001
    """Its allocation names it."""
    made = site()
    made.set_pod(runs := running("runs", PAIR, node="n1", cards=(0, 1), containers=("main", "side")))
    if not exists:
        made.drop_claim(PAIR)
    shown = explained(made, runs)
    assert (shown.outcome, shown.claim) == ("bound", GpuClaimExplanation("pair", "Exclusive", exists=exists))
    assert len(shown.shares) == 4


def test_a_missing_claim_is_explained_with_the_remedy() -> None:
    """No node is evaluated, and the note is that of the event."""
    made, waiting = site(), claiming("a", gpu_claim("gone"))
    shown = explained(made, waiting)
    assert (shown.outcome, shown.nodes, shown.claim) == ("waits", (), GpuClaimExplanation("gone"))
    assert shown.note.startswith("GpuClaimNotFound: GpuClaim gone does not exist")
    assert shown.answer == f"waits: {shown.note}"
    (hint,) = shown.hints
    assert hint.startswith("create GpuClaim gone in namespace default")
    made.set_pod(waiting)
    decision = finish(schedule(made, waiting))
    assert isinstance(decision, Unschedulable)
    assert decision.note == shown.note


def test_a_claim_of_another_namespace_does_not_count_and_is_not_named() -> None:
    """Users with rights in one namespace learn nothing about it."""
    made = site()
    made.set_claim(gpu_claim("secret", namespace="other", exclusivity="Shared", memoryMiB=7))
    made.set_pod(running("other-pod", gpu_claim("secret", namespace="other"), node="n1"))
    named = redaction.of_explanation(explained(made, claiming("a", gpu_claim("secret"))))
    assert named.claim == GpuClaimExplanation("secret")
    full = redaction.of_explanation(explained(made, claiming("b", PAIR)))
    assert "secret" not in repr(full)
    assert "other" not in repr(full)


def test_a_pod_that_contradicts_its_claim_is_held() -> None:
    """The note names both amounts."""
    asks = pod("a", memory=700, annotations={"gpu.scheduling/claim": "shared"})
    shown = explained(site(), asks)
    assert shown.outcome == "held"
    assert "GpuClaim shared gives 400" in shown.note
    assert shown.claim == GpuClaimExplanation("shared", "Shared", exists=True)


def test_a_pod_without_claim_shows_none() -> None:
    """Whatever claims exist."""
    assert explained(site(), pod("a", memory=100)).claim is None


def test_explaining_a_claim_changes_no_state() -> None:
    """Claims are only read."""
    made = site()
    explained(made, pod("first", memory=1))
    before = everything(made)
    for each in (SINGLE, PAIR, SHARED, gpu_claim("gone")):
        explained(made, claiming("a", each))
        assert everything(made) == before
