"""Which updates of pods and nodes change nothing that scheduling depends on: most of them."""

from allocation.names import CORDON, HAMI_HANDSHAKE, HAMI_REGISTER, HAMI_SCORES
from scheduler.objects import Node, Pod

_NODE_KEYS = (HAMI_REGISTER, HAMI_SCORES, HAMI_HANDSHAKE, CORDON)


def are_pods_alike(pod: Pod, old: Pod) -> bool:
    """Whether nothing changed that scheduling depends on; most updates of a pod concern its containers' state."""
    return (
        pod.finished == old.finished
        and pod.metadata.deletion_timestamp == old.metadata.deletion_timestamp
        and pod.metadata.annotations == old.metadata.annotations
        and pod.metadata.labels == old.metadata.labels
        and pod.spec == old.spec
        and (pod.spec.node_name or pod.status.nominated_node_name == old.status.nominated_node_name)
        and _granted(pod) == _granted(old)
    )


def _granted(pod: Pod) -> tuple[object, ...]:
    """Return what the node has granted to a pod's containers."""
    status = pod.status
    return status.container_statuses, status.init_container_statuses, status.allocated_resources, status.resources


def are_nodes_alike(node: Node, old: Node) -> bool:
    """Whether nothing changed that scheduling depends on; most updates of a node are heartbeats of its kubelet."""
    return (
        node.metadata.labels == old.metadata.labels
        and all(node.metadata.annotations.get(key) == old.metadata.annotations.get(key) for key in _NODE_KEYS)
        and node.metadata.share_modes == old.metadata.share_modes
        and node.spec == old.spec
        and node.status.allocatable == old.status.allocatable
        and node.status.conditions == old.status.conditions
    )
