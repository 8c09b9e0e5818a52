"""What the API server says of a node at this moment: its slice, the claims and pods that have its cards, its drain."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from agent.dra.claim import Claim
from allocation import names
from cluster.api import Api
from cluster.errors import NotFoundError
from cluster.gpu_node_status import Drained, GpuNodeStatus
from cluster.metadata import AnnotatedMeta
from cluster.resource import GPU_NODE_STATUSES, LEADERSHIPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from cluster.server_version import ServerVersion

MANAGER: Final = "tranche-agent"
_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_LEADERSHIP: Final = "tranche-scheduler"


class _Pod(msgspec.Struct):
    metadata: AnnotatedMeta


class _Leader(msgspec.Struct):
    epoch: int = 0
    identity: str = ""


class _Leadership(msgspec.Struct):
    spec: _Leader


class NodeView:
    """A node by calls at each question: no copy, which could be older than what it is to decide about."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._node = node

    async def unsupported(self) -> str:
        """Return why this cluster cannot share devices; empty if it can.

        Before 1.36 kube-scheduler does not try the next card for a pod that does not fit the first one.

        Raises:
            ClusterError: as below.
        """
        version = msgspec.json.decode(await self._api.request("GET", "/version"), type=ServerVersion)
        if version.numbers is not None and version.numbers >= names.DRA_SINCE:
            return ""
        needed = ".".join(map(str, names.DRA_SINCE))
        return (
            f"allocator dra needs Kubernetes {needed}, and this is {version.major}.{version.minor}: it stays the ledger"
        )

    async def slice(self) -> Mapping[str, Any] | None:
        """Return the node's ResourceSlice; None if it does not exist, or the API server has no such kind.

        Raises:
            ClusterError: the API server does not answer, or refuses.
        """
        try:
            return await self._api.get(RESOURCE_SLICES, dict[str, Any], name=names.resource_slice(self._node))
        except NotFoundError:
            return None

    async def write_slice(self, body: Mapping[str, Any]) -> None:
        """Create the node's ResourceSlice, or change it.

        Raises:
            ClusterError: as above.
        """
        await self._api.apply(RESOURCE_SLICES, body, name=names.resource_slice(self._node), manager=MANAGER)

    async def withdraw_slice(self) -> None:
        """Delete the node's ResourceSlice.

        Raises:
            ClusterError: as above.
        """
        try:
            await self._api.request("DELETE", RESOURCE_SLICES.path(name=names.resource_slice(self._node)))
        except NotFoundError:
            return

    async def claims(self) -> list[Claim]:
        """Return the claims that have a card of the node.

        Raises:
            ClusterError: as above.
        """
        try:
            claims = await self._api.list(RESOURCE_CLAIMS, Claim)
        except NotFoundError:
            return []
        return [each for each in claims if each.results(self._node)]

    async def claim(self, namespace: str, name: str) -> Claim:
        """Return one claim.

        Raises:
            ClusterError: as above.
        """
        return await self._api.get(RESOURCE_CLAIMS, Claim, name=name, namespace=namespace)

    async def allocated_pod(self) -> str:
        """Return a pod on the node that has not finished and has an allocation of ours; empty without one.

        Raises:
            ClusterError: as above.
        """
        pods = await self._api.list(PODS, _Pod, fieldSelector=f"spec.nodeName={self._node},{_UNFINISHED}")
        found = (each.metadata for each in pods if _is_allocated(each.metadata.annotations))
        return next((f"{meta.namespace}/{meta.name}" for meta in found), "")

    async def is_confirmed(self, drain: str) -> bool:
        """Whether the leader of this moment has confirmed that no pod with an allocation is left.

        It keeps pods off the node since it saw the drain. A later leader begins with the status as it is then, and
        whatever earlier ones still write is refused: so the token is compared after the confirmation was read.

        Raises:
            ClusterError: as above.
        """
        try:
            confirmed = (await self._api.get(GPU_NODE_STATUSES, GpuNodeStatus, name=self._node)).spec.drained
            if confirmed is None or not drain or confirmed.drain != drain:
                return False
            leader = await self._api.get(LEADERSHIPS, _Leadership, name=_LEADERSHIP, namespace=names.SYSTEM_NAMESPACE)
        except NotFoundError:
            return False
        return confirmed == Drained(drain, f"{leader.spec.epoch}/{leader.spec.identity}")


def _is_allocated(annotations: Mapping[str, str]) -> bool:
    """Whether a pod has cards of the ledger, in our record or in HAMi's."""
    return names.ALLOCATION in annotations or names.HAMI_ALLOCATED in annotations
