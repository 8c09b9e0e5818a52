"""Adds nodes to a state that are like one of its nodes, or like those of a configured group, and empty."""

from collections.abc import Iterable

import msgspec

from cli.errors import CommandError
from cli.explain.addition import Addition
from cli.kube.own_kinds import gpu_node_statuses
from cli.kube.session import Session
from cli.tables import note
from cluster.gpu_node_status import HEALTHY, Device, GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.expander_settings import TemplateSettings
from scheduler.expansion import template
from scheduler.state.cluster_state import ClusterState


def add(session: Session, state: ClusterState, addition: Addition, *, groups: Iterable[TemplateSettings] = ()) -> None:
    """Add nodes with the labels, taints, allocatable resources and healthy cards of a node, or of one of `groups`.

    They have none of its pods, none of its annotations, and are not cordoned.

    Raises:
        CommandError: the node does not exist, or no agent reports its cards.
    """
    names = [f"{addition.template}-copy-{number}" for number in range(1, addition.count + 1)]
    group = next((each for each in groups if each.name == addition.template), None)
    if group is not None:
        _add_of_group(state, group, names)
    else:
        _add_like(session, state, addition.template, names)
    closed = state.closed_nodes.now().get(names[0])
    if closed is not None:
        note(f"the added nodes take no GPU pods, as node {addition.template}: {closed.message}")


def _add_of_group(state: ClusterState, group: TemplateSettings, names: Iterable[str]) -> None:
    configured = template.configured(group)
    for name in names:
        node, inventory = configured.named(name)
        state.set_node(node)
        state.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status_of(inventory)))


def _add_like(session: Session, state: ClusterState, like: str, names: Iterable[str]) -> None:
    node = state.node_cache.nodes.get(like)
    if node is None:
        raise CommandError(
            f"node {like} does not exist; --with-node names a node of the cluster, or a group of"
            " scheduler.expander.templates"
        )
    status = next((each for each in gpu_node_statuses(session.client) if each.metadata.name == like), None)
    if status is None or status.status is None:
        raise CommandError(f"no agent reports the cards of node {like}; --with-node names a node with an agent")
    for name in names:
        state.set_node(template.new_node(node, name))
        state.agent_reports.set(_status(status, name))


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
        instance = replace(instance, parent=template.new_uuid(instance.parent, node))
    uuid = template.new_uuid(device.uuid, node)
    return replace(device, uuid=uuid, health=HEALTHY, message="", instance=instance)
