"""A term whose loop hands pods with `resourceClaims` over to kube-scheduler, and what that asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allocation.names import RETRY
from scheduler.extender.wire import Args
from tests.scheduler.support import builders as pods
from tests.scheduler.support import extending
from tests.scheduler.support.terms import NAMESPACE, Cluster, leading

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from scheduler.extender.verbs import Extender

CLAIMS: dict[str, Any] = {
    "schedulerName": "tranche-claims",
    "resourceClaims": [{"name": "nic", "resourceClaimName": "nic-0"}],
}


def handing_over(cluster: Cluster, **more: Any) -> AbstractAsyncContextManager[Cluster]:
    """Run a term that hands pods over."""
    return leading(cluster, resource_claims="hand-over", **more)


def extender_of(cluster: Cluster) -> Extender:
    """Return the verbs of the term."""
    extender = cluster.term.extender
    assert extender is not None
    return extender


async def offered(cluster: Cluster, name: str, *nodes: str) -> tuple[str, ...]:
    """Ask by `/filter` about a pod, and return the nodes that take it."""
    pod = cluster.term.informers.pods.get(name, NAMESPACE)
    assert pod is not None
    return tuple((await extender_of(cluster).filter(Args.of_pod(pod, nodes))).nodenames or ())


async def hand_over(cluster: Cluster, name: str, **more: Any) -> None:
    """Create a pod that is handed over, and wait until the term knows it."""
    cluster.pod(name, **CLAIMS, **more)
    await cluster.until(lambda: f"uid-{name}" in cluster.term.state.handed_over, "waiting pod")


async def bound(cluster: Cluster, name: str, node: str = "n0") -> str:
    """Ask by `/bind` for a pod, and return the error; empty if it is bound."""
    return await extending.bound(extender_of(cluster), pods.pod(name), node)


def is_retried(cluster: Cluster, name: str) -> bool:
    """Whether a pod has the condition by which kube-scheduler tries it again."""
    return any(each["type"] == RETRY for each in cluster.shown(name)["status"].get("conditions", ()))
