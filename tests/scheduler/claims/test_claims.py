"""Claims know the live pods that name them, and how far each of them got."""

import msgspec
import pytest

from allocation.names import CLAIM
from allocation.wire.record import of_annotations
from cluster.errors import ApiError
from cluster.gpu_claim import GpuClaim, Phase
from scheduler.claims.claims import Claims
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.claims import claim, claiming, running
from tests.scheduler.support.extending import Bindings, bound, extending

MINE = claim("c")


def shown(claims: Claims) -> tuple[Phase, str]:
    """Return phase and message that the status of the claim should have."""
    status = claims._status(("default", "c"))
    return status.phase, status.message


def naming(pending: Pod, name: str) -> Pod:
    """Return the same pod with the annotation for another claim."""
    metadata = msgspec.structs.replace(pending.metadata, annotations={CLAIM: name})
    return msgspec.structs.replace(pending, metadata=metadata)


def condition(claims: Claims, of: GpuClaim) -> tuple[str, str, str, tuple[int, ...]]:
    """Return the reason and the message of the condition of a claim, with its node and its cards."""
    status = claims._status((of.metadata.namespace, of.metadata.name))
    return status.conditions[0].reason, status.message, status.node_name, status.gpu_ids


@pytest.mark.parametrize(("exclusivity", "reserved"), [("Shared", "Reserved"), ("Exclusive", "LeasesHeld")])
def test_the_condition_says_how_far_the_pod_is(exclusivity: str, reserved: str) -> None:
    """With its node and cards as soon as it has some, and whether Leases hold these."""
    given, claims = claim("c", exclusivity=exclusivity), Claims()
    asks = claiming("a", given)
    claims.set(given)
    claims.set_pod(asks)
    assert condition(claims, given) == ("Waiting", "pod a waits", "", ())
    placed = running("a", given, node="n1", cards=(1,))
    allocation = of_annotations(placed.metadata.annotations)
    assert allocation is not None
    claims.set_reserved(asks.uid, allocation)
    assert condition(claims, given) == (reserved, "pod a has cards, not yet bound", "n1", (1,))
    claims.set_failed(asks.uid, "BindingRefused", "not today")
    assert condition(claims, given) == ("BindingRefused", "pod a: not today", "", ())
    claims.set_pod(placed)
    assert condition(claims, given) == ("Bound", "pod a is bound to n1", "n1", (1,))


async def test_a_claim_follows_its_pod_through_a_failed_binding() -> None:
    """Waiting, reserved, failed, bound; the failure stays until there is another reservation."""
    made, api = state("n1"), Bindings()
    made.set_claim(MINE)
    asks = claiming("a", MINE)
    made.set_pod(asks)
    api.pods["a"] = asks
    claims, verbs = made.claims, extending(made, api)
    claims.set_waiting(asks.uid, "no available node")
    assert shown(claims) == ("Pending", "pod a: no available node")
    assert [each.reason for each in claims._status(("default", "c")).conditions] == ["Waiting"]
    api.error = ApiError(request="POST", status=403, reason="Forbidden", message="not today")
    await bound(verbs, asks, "n1")
    phase, message = shown(claims)
    assert phase == "Failed"
    assert "not today" in message
    claims.set_waiting(asks.uid, "no available node")
    assert shown(claims) == (phase, message)
    api.error = None
    assert await bound(verbs, asks, "n1") == ""
    assert shown(claims)[0] == "Reserved"
    assert claims.phases() == {"Reserved": 1}


def test_only_live_pods_of_this_scheduler_count() -> None:
    """Each under the claim that it names now, in its own namespace."""
    made = state("n1")
    made.set_claim(MINE)
    asks = claiming("a", MINE)
    made.set_pod(claiming("other", MINE, schedulerName="default-scheduler"))
    made.set_pod(claiming("elsewhere", claim("c", namespace="team")))
    made.set_pod(pod("plain", memory=1))
    assert made.claims.users(MINE) == ()
    made.set_pod(asks)
    assert made.claims.users(MINE) == (asks.uid,)
    made.set_pod(naming(asks, "another"), asks)
    assert made.claims.users(MINE) == ()
    made.set_pod(asks, naming(asks, "another"))
    made.drop_pod(asks)
    assert made.claims.users(MINE) == ()
    assert made.claims.users(claim("another")) == ()


def test_a_claim_that_appears_after_its_pods_has_their_phase() -> None:
    """And one that is deleted has none."""
    made = state("n1")
    made.set_pod(claiming("a", MINE, node="n1"))
    assert made.claims.phases() == {}
    made.set_claim(MINE)
    assert made.claims.phases() == {"Bound": 1}
    made.drop_claim(MINE)
    assert made.claims.phases() == {}
    assert made.claims.find("default", "c") is None


def test_a_claim_that_was_never_seen_may_be_deleted() -> None:
    """It came and went while nothing was watched."""
    claims = Claims()
    claims.drop(MINE)
    assert list(claims) == []
