"""How each node delivers cards to containers, as its agent reports it, and which nodes cannot."""

import msgspec

from allocation import fractions
from allocation.delivery import DEFAULT, LONGEST_CONTAINER_NAME, Delivery, NodeDelivery, problem
from allocation.fractions import NodeCondition
from allocation.reasons import NodeReason, NodeRejection
from allocation.request import Kind, PodRequest
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.filters.node_rejections import NodeRejections
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Node


class Deliveries:
    """The deliveries of all nodes with an agent.

    Attributes:
        rejections: the rejections by nodes whose delivery cannot work.
    """

    def __init__(self) -> None:
        self._deliveries: dict[str, NodeDelivery] = {}
        self._conditions: dict[str, tuple[NodeCondition, ...]] = {}
        """Of the nodes of which kai-gpu-fractioning says something, whether they have an agent or not."""
        self._by_annotation: dict[Delivery, dict[str, NodeRejection]] = {each: {} for each in LONGEST_CONTAINER_NAME}
        self._by_device_plugin: set[str] = set()
        self.rejections = NodeRejections()

    def of(self, node: str) -> Delivery:
        """Return the delivery of a node; without an agent, HAMi's plugin serves it, which passes bare UUIDs."""
        delivery = self._deliveries.get(node)
        return "env" if delivery is None else delivery.mode

    def rejections_of(self, requirements: GpuRequirements) -> dict[str, NodeRejection]:
        """Return the rejections by nodes that cannot deliver cards to a container of the pod.

        They cannot name it in the key of an annotation, or their kubelet would give it other devices.
        """
        mismatch = _mismatch(requirements) if self._by_device_plugin else None
        found = dict.fromkeys(self._by_device_plugin, mismatch) if mismatch is not None else {}
        for mode, rejections in self._by_annotation.items():
            longest = LONGEST_CONTAINER_NAME[mode]
            if rejections and any(len(each.name) > longest for each in requirements.own.gpu_containers):
                found |= rejections
        return found

    def rejections_of_count(self, node: str, request: PodRequest, count: int) -> dict[str, NodeRejection]:
        """Return the rejection by a node whose kubelet counts devices, of a pod that is to get `count` cards there."""
        requested = sum(container.count for container in request.containers)
        if node not in self._by_device_plugin or requested == count:
            return {}
        message = f"its kubelet gives the pod as many devices as it requests: {requested}, and {count} cards are bound"
        return {node: NodeRejection(NodeReason.DevicePluginMismatch, message, resolvable=False)}

    def set_node(self, node: Node) -> None:
        """Set what other software says of a node."""
        name, conditions = node.metadata.name, node.status.conditions
        if conditions:
            self._conditions[name] = conditions
        else:
            self._conditions.pop(name, None)
        self._reject(name)

    def drop_node(self, node: str) -> None:
        """Forget what other software said of a node."""
        self._conditions.pop(node, None)
        self._reject(node)

    def set_status(self, status: GpuNodeStatus) -> bool:
        """Set what an agent reports; return whether the node may accept pods that it rejected before."""
        node = status.metadata.name
        reported = status.status.delivery if status.status is not None else msgspec.UNSET
        delivery = NodeDelivery(DEFAULT) if reported is msgspec.UNSET else reported
        before = self._deliveries.get(node)
        if delivery == before:
            return False
        self._deliveries[node] = delivery
        self._forget_name_limit(node)
        if delivery.mode in self._by_annotation:
            self._by_annotation[delivery.mode][node] = _TOO_LONG[delivery.mode]
        if delivery.mode == "device-plugin":
            self._by_device_plugin.add(node)
        else:
            self._by_device_plugin.discard(node)
        self._reject(node)
        return before is not None

    def drop(self, node: str) -> None:
        """Forget what the agent of a node reported."""
        self._deliveries.pop(node, None)
        self._forget_name_limit(node)
        self._by_device_plugin.discard(node)
        self._reject(node)

    def _reject(self, node: str) -> None:
        """Reject pods on a node, or accept them, by what its agent and other software say now."""
        delivery = self._deliveries.get(node)
        conditions = self._conditions.get(node, ())
        self.rejections.set(node, None if delivery is None else _rejection(node, delivery, conditions))

    def _forget_name_limit(self, node: str) -> None:
        for rejections in self._by_annotation.values():
            rejections.pop(node, None)


def _rejection(node: str, delivery: NodeDelivery, conditions: tuple[NodeCondition, ...]) -> NodeRejection | None:
    found = problem(delivery) or fractions.problem(delivery, conditions)
    if found is None:
        return None
    message = f"node {node} cannot deliver cards: {found.message}"
    return NodeRejection(NodeReason.DeliveryUnavailable, message, resolvable=False)


def _mismatch(requirements: GpuRequirements) -> NodeRejection | None:
    """Return why the devices that a kubelet gives to a pod would not be those of its allocation, or None.

    The kubelet reuses the devices of an init container for those that follow it, without asking, and gives a device to
    each of the containers that share what a claim charges once.
    """
    if init := next((each for each in requirements.own.gpu_containers if each.kind is Kind.INIT), None):
        why = f"its kubelet gives the devices of init container {init.name} to the containers after it"
    elif requirements.is_divided:
        why = "its kubelet counts each container by itself, and several of the pod share its GpuClaim"
    else:
        return None
    return NodeRejection(NodeReason.DevicePluginMismatch, why, resolvable=False)


_TOO_LONG = {
    mode: NodeRejection(
        NodeReason.ContainerNameTooLong,
        f"a GPU container has a name of more than {longest} characters, which the key of the annotation that delivers"
        " its cards cannot hold",
        resolvable=False,
    )
    for mode, longest in LONGEST_CONTAINER_NAME.items()
}
