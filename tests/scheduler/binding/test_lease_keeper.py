"""A pod gets the Lease of each of its cards before its Binding, or none; on a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.request import PodRequest
from cluster.api import Api
from cluster.errors import ApiError, UnreachableError
from scheduler.cycle.result import Scheduled
from scheduler.metrics.labels import Outcome
from tests.scheduler.support.builders import state
from tests.scheduler.support.leasing import allocation, keeper
from tests.support.depth import repetitions

if TYPE_CHECKING:
    from scheduler.binding.lease_keeper import LeaseKeeper
    from tests.scheduler.binding.conftest import LeaseServer

pytestmark = pytest.mark.apiserver
ROUNDS = repetitions(20, 200)


def chosen(*cards: int) -> Scheduled:
    """Return the scheduling result for an exclusive claim."""
    return Scheduled("n1", PodRequest(()), allocation(*cards), "")


def leader(server: LeaseServer, token: str, api: Api | None = None) -> LeaseKeeper:
    """Return the keeper of a leader with a state of its own."""
    return keeper(api or server.api, state("n1", cards=8), token=token)


class LostResponses(Api):
    """An API client that does not receive the responses to its first creations."""

    def __init__(self, api: Api, *, lost: int) -> None:
        super().__init__(api._connection)
        self.lost = lost

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request."""
        body = await super().request(method, path, **how)
        if method == "POST" and self.lost:
            self.lost -= 1
            raise UnreachableError("the response was lost")
        return body


class NoPods(Api):
    """An API client for which reading a pod fails."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request other than those for pods."""
        if "/pods/" in path:
            raise ApiError(request=path, status=500, reason="InternalError", message="etcd is slow")
        return await super().request(method, path, **how)


async def test_a_pod_gets_a_lease_for_each_card(server: LeaseServer) -> None:
    """Names, labels, holder and annotations; nothing else is needed to see which pod has a card."""
    token, pod = await server.lead(), await server.pod()
    assert await leader(server, token).acquire(pod, chosen(0, 3)) is None
    assert (await server.leases()).keys() == {"gpu-n1-0", "gpu-n1-3"}
    shown = await server.lease("gpu-n1-3")
    assert shown["spec"]["holderIdentity"] == pod.uid
    assert shown["spec"]["leaseDurationSeconds"] == 60
    assert shown["spec"]["acquireTime"] == shown["spec"]["renewTime"]
    assert shown["metadata"]["labels"] == {
        "gpu.scheduling/managed": "true",
        "gpu.scheduling/fenced": "true",
        "gpu.scheduling/pod": pod.metadata.name,
    }
    assert shown["metadata"]["annotations"] == {
        "gpu.scheduling/leader": token,
        "gpu.scheduling/pod-ref": f"{pod.metadata.namespace}/{pod.metadata.name}",
        "gpu.scheduling/node": "n1",
        "gpu.scheduling/card": "GPU-n1-3",
        "gpu.scheduling/claim": "claim",
    }


@pytest.mark.parametrize("exclusivity", ["Shared", None])
async def test_shared_and_plain_cards_need_no_lease(server: LeaseServer, exclusivity: Any) -> None:
    """One write per pod stays one write."""
    token, pod = await server.lead(), await server.pod()
    made = allocation(0, exclusivity=exclusivity or "Shared")
    if exclusivity is None:
        made = msgspec.structs.replace(made, claim=None)
    result = Scheduled("n1", PodRequest(()), made, "")
    assert await leader(server, token).acquire(pod, result) is None
    assert await server.leases() == {}


async def test_of_two_pods_exactly_one_gets_a_card(server: LeaseServer) -> None:
    """In two namespaces, by two keepers that know nothing of each other, again and again."""
    token = await server.lead()
    pods = [await server.pod(namespace="leases-a"), await server.pod(namespace="leases-b")]
    wins = [0, 0]
    for number in range(ROUNDS):
        keepers = [leader(server, token) for _ in pods]
        first, second = (0, 1) if number % 2 else (1, 0)
        attempts = [keepers[index].acquire(pods[index], chosen(0)) for index in (first, second)]
        outcomes = dict(zip((first, second), await asyncio.gather(*attempts), strict=True))
        (shown,) = (await server.leases()).values()
        winner = next(index for index, pod in enumerate(pods) if pod.uid == shown.spec.holder_identity)
        loser = outcomes[1 - winner]
        assert outcomes[winner] is None
        assert loser is not None
        assert (loser.outcome, loser.reason) == (Outcome.REFUSED, "LeaseConflict")
        wins[winner] += 1
        await keepers[winner].release(pods[winner], chosen(0))
        assert await server.leases() == {}
    assert min(wins) > 0


async def test_a_deposed_leader_gets_no_lease(server: LeaseServer) -> None:
    """Of two leaders with two tokens on one card: the earlier is always refused, and what it has is replaced."""
    late, prompt = await server.pod(), await server.pod()
    first_token = await server.lead("first")
    first = leader(server, first_token)
    assert await first.acquire(late, chosen(0)) is None
    second_token = await server.lead("second")
    for _ in range(ROUNDS):
        second = leader(server, second_token)
        refused, granted = await asyncio.gather(first.acquire(late, chosen(0, 1)), second.acquire(prompt, chosen(0, 1)))
        assert granted is None
        assert refused is not None
        assert (refused.outcome, refused.reason) == (Outcome.REFUSED, "BindingFailed")
        assert "does not lead any more" in refused.note
        holders = {each.spec.holder_identity for each in (await server.leases()).values()}
        assert holders == {prompt.uid}
        await first.release(late, chosen(0, 1))
        await second.release(prompt, chosen(0, 1))
        assert await server.leases() == {}


async def test_a_pod_that_cannot_have_all_cards_gets_none(server: LeaseServer) -> None:
    """The Lease of the fourth card belongs to a running pod: the first three are deleted, and the card is closed."""
    token, other, pod = await server.lead(), await server.pod(), await server.pod()
    assert await leader(server, token).acquire(other, chosen(3)) is None
    await server.bind(other, token, 3)
    before = (await server.lease("gpu-n1-3"))["metadata"]["resourceVersion"]
    made = state("n1", cards=8)
    result = await keeper(server.api, made, token=token).acquire(pod, chosen(0, 1, 2, 3))
    assert result is not None
    assert (result.outcome, result.reason) == (Outcome.REFUSED, "LeaseConflict")
    reference = f"{other.metadata.namespace}/{other.metadata.name}"
    assert result.note == f"Lease tranche-system/gpu-n1-3 of card GPU-n1-3 is held by pod {reference}"
    assert (await server.leases()).keys() == {"gpu-n1-3"}
    assert (await server.lease("gpu-n1-3"))["metadata"]["resourceVersion"] == before
    holding = made.ledger.reservation("lease:gpu-n1-3")
    assert holding is not None
    assert [charge.uuid for charge in holding.charges] == ["GPU-n1-3"]


async def test_an_acquisition_is_idempotent(server: LeaseServer) -> None:
    """Responses are lost: the pod's own Leases of this term count as acquired, and are not created twice."""
    token, pod = await server.lead(), await server.pod()
    made = leader(server, token, LostResponses(server.api, lost=2))
    assert await made.acquire(pod, chosen(0, 1, 2)) is None
    before = {name: each.metadata.uid for name, each in (await server.leases()).items()}
    assert before.keys() == {"gpu-n1-0", "gpu-n1-1", "gpu-n1-2"}
    assert await made.acquire(pod, chosen(0, 1, 2)) is None
    assert {name: each.metadata.uid for name, each in (await server.leases()).items()} == before


async def test_a_lease_of_an_earlier_term_is_replaced(server: LeaseServer) -> None:
    """Of the same pod, and of another pod that has no node: no Binding of that term can arrive any more."""
    pod, other = await server.pod(), await server.pod()
    earlier = leader(server, await server.lead("earlier"))
    assert await earlier.acquire(pod, chosen(0)) is None
    assert await earlier.acquire(other, chosen(1)) is None
    token = await server.lead("later")
    assert await leader(server, token).acquire(pod, chosen(0, 1)) is None
    for name in ("gpu-n1-0", "gpu-n1-1"):
        shown = await server.lease(name)
        assert shown["metadata"]["annotations"]["gpu.scheduling/leader"] == token
        assert shown["spec"]["holderIdentity"] == pod.uid


@pytest.mark.parametrize("how", ["deleted", "recreated", "finished"])
async def test_a_lease_of_a_pod_that_has_ended_is_replaced(server: LeaseServer, how: str) -> None:
    """Its Lease should have been deleted by another process."""
    token, other = await server.lead(), await server.pod("ends")
    assert await leader(server, token).acquire(other, chosen(0)) is None
    if how == "finished":
        await server.finish(await server.bind(other, token, 0), "Failed")
    else:
        await server.delete_pod(other)
    if how == "recreated":
        await server.pod("ends")
    pod = await server.pod()
    assert await leader(server, token).acquire(pod, chosen(0)) is None
    assert (await server.lease("gpu-n1-0"))["spec"]["holderIdentity"] == pod.uid


async def test_a_lease_whose_pod_cannot_be_read_is_kept(server: LeaseServer) -> None:
    """The API server fails: nothing proves that the holder has ended."""
    token, other, pod = await server.lead(), await server.pod(), await server.pod()
    assert await leader(server, token).acquire(other, chosen(0)) is None
    await server.delete_pod(other)
    result = await leader(server, token, NoPods(server.api._connection)).acquire(pod, chosen(0))
    assert result is not None
    assert result.reason == "LeaseConflict"
    assert (await server.lease("gpu-n1-0"))["spec"]["holderIdentity"] == other.uid


@pytest.mark.parametrize("whose", ["another pod's", "another leader's"])
async def test_a_release_leaves_what_belongs_to_others(server: LeaseServer, whose: str) -> None:
    """The Lease of another pod, or of the same pod by another leader, stays as it is."""
    pod, other = await server.pod(), await server.pod()
    first_token = await server.lead("first")
    token = await server.lead("second") if whose == "another leader's" else first_token
    assert await leader(server, token).acquire(pod, chosen(0)) is None
    before = await server.lease("gpu-n1-0")
    released = pod if whose == "another leader's" else other
    await leader(server, first_token).release(released, chosen(0))
    assert await server.lease("gpu-n1-0") == before


async def test_the_term_ends_while_leases_are_acquired(server: LeaseServer) -> None:
    """The task is cancelled: what was created is left to the next leader."""
    token, pod = await server.lead(), await server.pod()
    made = leader(server, token, LostResponses(server.api, lost=1000))
    acquiring = asyncio.create_task(made.acquire(pod, chosen(0)))
    async with asyncio.timeout(30):
        while not await server.leases():  # noqa: ASYNC110 -- the API server has no events here
            await asyncio.sleep(0.02)
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    assert (await server.leases()).keys() == {"gpu-n1-0"}
