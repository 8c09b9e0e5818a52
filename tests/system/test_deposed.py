"""A leader that is stopped between decision and Binding, and continues when another leader has taken over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.request import PodRequest
from cluster.api import Api
from cluster.connect import connect
from cluster.election import Term
from lab import components, fleet, health, kubeconfig, wait
from lab.processes import Daemon
from scheduler.binding.binder import Binder
from scheduler.cycle.result import Scheduled
from scheduler.fence import Fence
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from tests.scheduler.support.fencing import fenced
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
ROUNDS = repetitions(20, 200)
NODE = "gpu-sim-0"
DEPOSED = "does not lead any more"


class Sleeper(Api):
    """An API client that stops right before it sends a Binding."""

    def __init__(self, api: Api) -> None:
        super().__init__(api._connection)
        self.about_to_send = asyncio.Event()
        self.awake = asyncio.Event()

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request; a Binding waits until `awake` is set."""
        if path.endswith("/binding"):
            self.about_to_send.set()
            await self.awake.wait()
        return await super().request(method, path, **how)


@pytest.fixture
def without_scheduler(tranche: Layout) -> Iterator[Layout]:
    """The lab without its scheduler, which is started again after the test."""
    daemon = Daemon(tranche, "scheduler")
    daemon.stop(grace_s=20)
    yield tranche
    component = components.component(tranche, "scheduler")
    components.start(tranche, component)
    wait.until(lambda: health.probe(component.ready), what="scheduler ready", timeout_s=PATIENCE_S, daemons=[daemon])


def scheduled() -> Scheduled:
    """Return a decision for a whole card, so that two such Bindings would exceed it."""
    share = CardShare(fleet.card(NODE, 0), 0, fleet.CARD_MEMORY_MIB, 1000)
    return Scheduled(
        node=NODE, request=PodRequest(()), allocation=Allocation(node=NODE, containers={"main": (share,)}), note=""
    )


async def test_deposed_leaders_bind_nothing(without_scheduler: Layout, namespace: Namespace) -> None:
    """In each round a leader decides and stops, another takes over and binds, and the Binding of the first is rejected.

    Both have the scheduler's own identity. The first leader stops right before the request leaves the process.
    """
    for name in ("late", "prompt"):
        namespace.create(*(pod(f"{name}-{number}", gpu=1) for number in range(ROUNDS)))
    pods = {each["metadata"]["name"]: msgspec.convert(each, Pod) for each in namespace.pods()}
    identity = kubeconfig.service_account_kubeconfig(
        namespace.layout, namespace="tranche-system", name="tranche-scheduler"
    )
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        api = Api(connection)
        fence = Fence(api)
        epoch = await fence.last_epoch()
        for number in range(ROUNDS):
            first = Term(epoch + 2 * number + 1, "first", follows_another=True)
            second = Term(epoch + 2 * number + 2, "second", follows_another=True)
            await fence.raise_for(first)
            sleeper = Sleeper(api)
            late = asyncio.create_task(
                Binder(fenced(sleeper, token=first.token, timeout_seconds=10)).bind(pods[f"late-{number}"], scheduled())
            )
            await sleeper.about_to_send.wait()
            await fence.raise_for(second)
            await took_over(Binder(fenced(api, token=second.token, timeout_seconds=10)), pods[f"prompt-{number}"])
            sleeper.awake.set()
            result = await late
            assert result.outcome is Outcome.REFUSED
            assert DEPOSED in result.note
    bound = {each["metadata"]["name"] for each in namespace.pods() if each["spec"].get("nodeName")}
    assert bound == {f"prompt-{number}" for number in range(ROUNDS)}
    # In one request, because no scheduler may ever count all of these allocations together.
    namespace.kubectl("delete", "--raw", f"/api/v1/namespaces/{namespace.name}/pods")
    wait.until(lambda: not namespace.pods(), what="the pods' end", timeout_s=PATIENCE_S)


async def took_over(binder: Binder, first: Pod) -> None:
    """Bind the first pod of the new leader; the API server accepts the new token after milliseconds."""
    async with asyncio.timeout(PATIENCE_S):
        while (result := await binder.bind(first, scheduled())).outcome is not Outcome.BOUND:
            assert DEPOSED in result.note
