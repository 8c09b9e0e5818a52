"""How each node delivers cards to containers, as its agent reports it, and which nodes cannot."""

import msgspec

from allocation.delivery import DEFAULT, LONGEST_NRI_CONTAINER_NAME, Delivery, NodeDelivery, problem
from allocation.reasons import NodeReason, NodeRejection
from allocation.request import PodRequest
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.filters.node_rejections import NodeRejections


class Deliveries:
    """The deliveries of all nodes with an agent.

    Attributes:
        rejections: the rejections by nodes whose delivery cannot work.
    """

    def __init__(self) -> None:
        self._deliveries: dict[str, NodeDelivery] = {}
        self._by_annotation: dict[str, NodeRejection] = {}
        self.rejections = NodeRejections()

    def of(self, node: str) -> Delivery:
        """Return the delivery of a node; without an agent, HAMi's plugin serves it, which passes bare UUIDs."""
        delivery = self._deliveries.get(node)
        return "env" if delivery is None else delivery.mode

    def rejections_of(self, request: PodRequest) -> dict[str, NodeRejection]:
        """Return the rejections by nodes that cannot name a container of `request` in the key of an annotation."""
        is_too_long = self._by_annotation and any(
            len(container.name) > LONGEST_NRI_CONTAINER_NAME for container in request.gpu_containers
        )
        return self._by_annotation if is_too_long else {}

    def set_status(self, status: GpuNodeStatus) -> bool:
        """Set what an agent reports; return whether the node may accept pods that it rejected before."""
        node = status.metadata.name
        reported = status.status.delivery if status.status is not None else msgspec.UNSET
        delivery = NodeDelivery(DEFAULT) if reported is msgspec.UNSET else reported
        before = self._deliveries.get(node)
        if delivery == before:
            return False
        self._deliveries[node] = delivery
        if delivery.mode == "nvidia-nri":
            self._by_annotation[node] = _TOO_LONG
        else:
            self._by_annotation.pop(node, None)
        self.rejections.set(node, _rejection(node, delivery))
        return before is not None

    def drop(self, node: str) -> None:
        """Forget what the agent of a node reported."""
        self._deliveries.pop(node, None)
        self._by_annotation.pop(node, None)
        self.rejections.set(node, None)


def _rejection(node: str, delivery: NodeDelivery) -> NodeRejection | None:
    found = problem(delivery)
    if found is None:
        return None
    message = f"node {node} cannot deliver cards: {found.message}"
    return NodeRejection(NodeReason.DeliveryUnavailable, message, resolvable=False)


_TOO_LONG = NodeRejection(
    NodeReason.ContainerNameTooLong,
    f"a GPU container has a name of more than {LONGEST_NRI_CONTAINER_NAME} characters, which the key of the annotation"
    " that delivers its cards cannot hold",
    resolvable=False,
)
