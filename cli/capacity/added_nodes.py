"""Adds nodes to a state that are like one of its nodes, and empty."""

from typing import Final

import msgspec

from cli.errors import CommandError
from cli.kube.own_kinds import gpu_node_statuses
from cli.kube.session import Session
from cli.tables import note
from cluster.gpu_node_status import HEALTHY, Device, GpuNodeStatus
from cluster.metadata import ObjectMeta
from scheduler.objects import Node
from scheduler.state.cluster_state import ClusterState

_HOSTNAME: Final = "kubernetes.io/hostname"
_CORDONED: Final = "node.kubernetes.io/unschedulable"


def add(session: Session, state: ClusterState, template: str, count: int) -> None:
    """Add `count` nodes with the labels, taints, allocatable resources and healthy cards of `template`.

    They have none of its pods, none of its annotations, and are not cordoned.

    Raises:
        CommandError: the node does not exist, or no agent reports its cards.
    """
    node = state.node_cache.nodes.get(template)
    if node is None:
        raise CommandError(f"node {template} does not exist; --with-node names a node of the cluster")
    status = next((each for each in gpu_node_statuses(session.client) if each.metadata.name == template), None)
    if status is None or status.status is None:
        raise CommandError(f"no agent reports the cards of node {template}; --with-node names a node with an agent")
    names = [f"{template}-copy-{number}" for number in range(1, count + 1)]
    for name in names:
        state.set_node(_node(node, name))
        state.agent_reports.set(_status(status, name))
    closed = state.closed_nodes.now().get(names[0])
    if closed is not None:
        note(f"the added nodes take no GPU pods, as node {template}: {closed.message}")


def _node(node: Node, name: str) -> Node:
    replace = msgspec.structs.replace
    labels = {**node.metadata.labels, _HOSTNAME: name}
    metadata = replace(node.metadata, name=name, labels=labels, annotations={})
    taints = tuple(each for each in node.spec.taints if each.key != _CORDONED)
    return replace(node, metadata=metadata, spec=replace(node.spec, unschedulable=False, taints=taints))


def _status(status: GpuNodeStatus, name: str) -> GpuNodeStatus:
    replace, reported = msgspec.structs.replace, status.status
    if reported is None:
        return status
    devices = [_device(each, name) for each in reported.devices if each.missing is msgspec.UNSET]
    spec = replace(status.spec, node_name=name, mig_instances=None)
    return replace(status, metadata=ObjectMeta(name=name), spec=spec, status=replace(reported, devices=devices))


def _device(device: Device, node: str) -> Device:
    """Return the same card of another node; its instances name it by its new UUID."""
    replace, instance = msgspec.structs.replace, device.instance
    if instance is not msgspec.UNSET:
        instance = replace(instance, parent=f"{instance.parent}-{node}")
    return replace(device, uuid=f"{device.uuid}-{node}", health=HEALTHY, message="", instance=instance)
