"""A leader that was stopped between its decision and its Binding, and wakes up after another took over.

The barrier is exact: the old leader has decided, the new one's term has begun, only then is the old one's Binding sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.request import ContainerRequest, Kind, PodRequest
from cluster.api import Api
from cluster.connection import connect
from cluster.election import Term
from lab import components, kubeconfig, wait
from lab.processes import Daemon
from scheduler.binder import Binder, Outcome, Result
from scheduler.cycle import Chosen
from scheduler.leadership import Fence
from tests.system import audit, truth
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout
    from scheduler.objects import Pod

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(400)]
ROUNDS = 200
REQUEST_TIMEOUT_S = 0.1
"""The server-side limit of a Binding here; a new leader waits it out before its first decision."""


@pytest.fixture
def no_scheduler(tranche: Layout) -> Iterator[Layout]:
    """The lab while its own scheduler is away: the test plays both leaders."""
    Daemon(tranche, "scheduler").stop(grace_s=20)
    yield tranche
    components.start(tranche, components.component(tranche, "scheduler"))
    component = components.component(tranche, "scheduler")
    wait.until(lambda: components.is_ready(component), what="the scheduler again", timeout_s=PATIENCE_S)


def decision(node: str, card: int) -> Chosen:
    """Answer what a leader decided for a pod with one container."""
    request = PodRequest((ContainerRequest("main", Kind.REGULAR, "", count=1, memory_mib=1),))
    share = CardShare(f"GPU-{node}-{card}", card, 1, 0)
    return Chosen(node, request, Allocation(node, {"main": (share,)}), "")


async def test_a_deposed_leader_binds_nothing(no_scheduler: Layout, namespace: Namespace) -> None:
    """In each of 200 rounds its Binding is refused by the API server, and the new leader's, elsewhere, is taken."""
    names = [f"p{round_:03}" for round_ in range(ROUNDS)]
    namespace.create(*(pod(name, gpu=1, gpumem=1) for name in names))
    identity = kubeconfig.service_account_kubeconfig(no_scheduler, namespace="tranche-system", name="tranche-scheduler")
    pods = truth.pods(no_scheduler, namespace.name)
    async with connect(kubeconfig=str(identity)) as connection:
        api = Api(connection)
        fence = Fence(api)
        epoch = await fence.last_epoch()
        old = Term(epoch + 1, "old", follows_another=True)
        await take_over(fence, old)
        for round_, name in enumerate(names):
            decided = decision("gpu-sim-0", round_ % 8)
            new = Term(old.epoch + 1, "new" if old.identity == "old" else "old", follows_another=True)
            await take_over(fence, new)
            late = await bind(api, old, pods[name], decided)
            assert late.outcome is Outcome.REFUSED, f"round {round_}"
            assert "does not lead any more" in late.note
            assert (await bind(api, new, pods[name], decision("gpu-sim-1", round_ % 8))).outcome is Outcome.BOUND
            old = new
    placed = namespace.placed(ROUNDS)
    assert {each["spec"]["nodeName"] for each in placed} == {"gpu-sim-1"}
    counts = truth.bindings(audit.writes(no_scheduler, namespace=namespace.name))
    assert counts == dict.fromkeys(names, 1)


async def take_over(fence: Fence, term: Term) -> None:
    """Begin a term as a leader does: raise the fence, then wait out the predecessor's requests."""
    await fence.raise_for(term)
    await asyncio.sleep(REQUEST_TIMEOUT_S)  # the product's own wait, not a hope


async def bind(api: Api, term: Term, bound: Pod, chosen: Chosen) -> Result:
    """Send a Binding with the token of a term."""
    return await Binder(api, token=term.token, timeout_seconds=REQUEST_TIMEOUT_S).bind(bound, chosen)
