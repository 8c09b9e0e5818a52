"""No Binding is written unless the API server still has the GPUBindings that gave the pod its cards."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cluster.errors import UnreachableError
from cluster.gpu_binding import GpuBinding
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.app_pods import app_pod, gpu_binding, settings
from tests.scheduler.support.builders import state
from tests.scheduler.support.extending import Bindings, bound, extending

CARD = "GPU-n1-0"


class Unreachable(Bindings):
    """An API server that does not show GPUBindings."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Show everything else."""
        if "/gpubindings/" in path:
            raise UnreachableError("GET: connection reset")
        return await super().request(method, path, **how)


class Garbled(Bindings):
    """An API server behind a proxy that shows something else."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Show everything else."""
        return b"<html>" if "/gpubindings/" in path else await super().request(method, path, **how)


def cluster(*bindings: GpuBinding) -> ClusterState:
    """Return a cluster with the bindings as the scheduler's copy has them."""
    made = state("n1", settings=settings())
    for each in bindings:
        made.bindings.set(each)
    return made


async def outcome(api: Bindings, made: ClusterState) -> str:
    """Bind a pod of alice as kube-scheduler does; return the error, or an empty string."""
    asks = app_pod("a", owner="alice")
    api.pods["a"] = asks
    return await bound(extending(made, api), asks, "n1")


ALICE = gpu_binding("of-alice", CARD, owner="alice", memory="500")


async def test_an_unchanged_binding_is_confirmed() -> None:
    """Also one that was deleted and created again, as application services do, with another UID and time."""
    again = msgspec.structs.replace(
        ALICE, metadata=msgspec.structs.replace(ALICE.metadata, uid="new", creation_timestamp="2026-02-02T00:00:00Z")
    )
    for there in (ALICE, again):
        api, made = Bindings(), cluster(ALICE)
        api.gpu_bindings["of-alice"] = there
        assert await outcome(api, made) == ""
        assert len(api.written) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: msgspec.structs.replace(spec, uuid="GPU-n1-1"),
        lambda spec: msgspec.structs.replace(spec, owner="bob"),
        lambda spec: msgspec.structs.replace(spec, namespace="other"),
        lambda spec: msgspec.structs.replace(spec, memory="600"),
        lambda spec: msgspec.structs.replace(spec, pod_selector=None),
    ],
)
async def test_a_changed_binding_stops_the_binding(change: Callable[[Any], Any]) -> None:
    """Another card, owner, namespace, memory or selector: nothing is written, nothing stays reserved."""
    api, made = Bindings(), cluster(ALICE)
    api.gpu_bindings["of-alice"] = msgspec.structs.replace(ALICE, spec=change(ALICE.spec))
    error = await outcome(api, made)
    assert f"GPUBinding of-alice of card {CARD} was changed after the card was chosen for app comfyui of alice" in error
    assert api.written == []
    assert not list(made.ledger.reservations())


async def test_a_deleted_binding_stops_the_binding() -> None:
    """Though another application may have the card by now, and the event of the deletion has not come."""
    api, made = Bindings(), cluster(ALICE)
    api.gpu_bindings["of-bob"] = gpu_binding("of-bob", CARD, owner="bob")
    assert "GPUBinding of-alice was deleted" in await outcome(api, made)
    assert api.written == []
    assert not list(made.ledger.reservations())


@pytest.mark.parametrize("api", [Unreachable(), Garbled()])
async def test_without_an_answer_nothing_is_bound(api: Bindings) -> None:
    """The pod is tried again later; a card is never given on the word of a copy alone."""
    made = cluster(ALICE)
    assert "GPUBinding of-alice could not be read, trying again" in await outcome(api, made)
    assert api.written == []
    assert not list(made.ledger.reservations())
