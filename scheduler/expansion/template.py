"""Nodes that do not exist yet: what a node of a group is like when it is new.

Everything that decides about such nodes uses these functions: the expander, `--with-node` of the command line, and the
extender's answers about the node templates of an autoscaler.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from allocation.inventory import Card, NodeInventory
from scheduler.expander_settings import TemplateSettings
from scheduler.node_status import NodeStatus
from scheduler.objects import Node, NodeMeta, NodeSpec, Pod, Taint

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
_PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""What begins the keys of taints that say how a node is at the moment, cordoned for example."""
_LEAVING: Final = frozenset(
    {"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted"}
)

_LONGEST: Final = 50
_Group = tuple[tuple[tuple[str, str], ...], object, object, object, object]
"""What the nodes of a group have in common; their group labels come first."""


class NodeTemplate(msgspec.Struct, frozen=True):
    """A node as it is when it is new.

    Attributes:
        name: names the group of nodes.
        node: its labels, taints and allocatable resources.
        inventory: its cards, all of them healthy.
        selector: the labels by which an autoscaler finds the group.
        daemons: the pods that run on every node of the group.
    """

    name: str
    node: Node
    inventory: NodeInventory
    selector: Mapping[str, str]
    daemons: tuple[Pod, ...] = ()

    @property
    def cards(self) -> int:
        """The number of its physical cards."""
        return sum(card.instance is None for card in self.inventory.cards)

    @property
    def size(self) -> tuple[int, int, str]:
        """By which groups are compared: cards, memory, and the name."""
        return self.cards, sum(card.memory_mib for card in self.inventory.cards), self.name

    def named(self, name: str) -> tuple[Node, NodeInventory]:
        """Return a node of this name, and its cards."""
        return new_node(self.node, name), new_cards(self.inventory, name)


def new_node(node: Node, name: str) -> Node:
    """Return a node called `name` that is like `node`: with its labels, lasting taints and allocatable resources."""
    replace = msgspec.structs.replace
    labels = {**node.metadata.labels, HOSTNAME: name}
    metadata = replace(node.metadata, name=name, uid="", labels=labels, annotations={})
    taints = tuple(each for each in node.spec.taints if not _is_passing(each))
    return replace(node, metadata=metadata, spec=replace(node.spec, unschedulable=False, taints=taints))


def new_cards(inventory: NodeInventory, node: str) -> NodeInventory:
    """Return the same cards of another node, all healthy; new cards have new UUIDs, also as parents of instances."""
    return msgspec.structs.replace(inventory, node=node, cards=tuple(_new_card(each, node) for each in inventory.cards))


def new_uuid(uuid: str, node: str) -> str:
    """Return the UUID of a card of a new node."""
    return f"{uuid}-{node}"


def _new_card(card: Card, node: str) -> Card:
    replace, instance = msgspec.structs.replace, card.instance
    if instance is not None:
        instance = replace(instance, parent=new_uuid(instance.parent, node))
    return replace(card, uuid=new_uuid(card.uuid, node), healthy=True, instance=instance)


def _is_passing(taint: Taint) -> bool:
    return taint.key.startswith(_PASSING) or taint.key in _LEAVING


def _name(group: _Group) -> str:
    """Return a name that is the same whichever node of the group is read first, and that a label can hold."""
    first = next((value for _, value in group[0] if value), "group")
    return f"{first[:_LONGEST]}-{hashlib.sha256(repr(group).encode()).hexdigest()[:8]}"


def configured(settings: TemplateSettings) -> NodeTemplate:
    """Return the template of a group that the configuration describes."""
    name = settings.name
    taints = tuple(Taint(each.key, each.effect, each.value) for each in settings.taints)
    node = Node(
        NodeMeta(name=name, labels=dict(settings.labels)), NodeSpec(taints=taints), NodeStatus(settings.allocatable)
    )
    cards = tuple(
        Card(f"{name}-{index}", index, settings.memory_mib, settings.cores, settings.slots, settings.model)
        for index in range(settings.cards)
    )
    return NodeTemplate(name, node, NodeInventory(name, cards), dict(settings.labels))


def of_nodes(
    nodes: Iterable[Node],
    *,
    inventory_of: Callable[[str], NodeInventory | None],
    group_labels: Iterable[str],
    daemons_of: Callable[[str], tuple[Pod, ...]] = lambda _: (),
) -> list[NodeTemplate]:
    """Return the template of each group that has a node with cards, the smallest first.

    Nodes of a group have the same values of `group_labels`, the same zone, lasting taints, cards and CPU. Its
    template has the labels that all its nodes have in common, except for the name of the host.
    """
    keys = tuple(group_labels)
    groups: dict[_Group, NodeTemplate] = {}
    for node in nodes:
        inventory = inventory_of(node.metadata.name)
        if inventory is None or not inventory.cards:
            continue
        labels = node.metadata.labels
        selector = {key: labels[key] for key in keys if key in labels}
        fresh = new_node(node, node.metadata.name)
        kinds = tuple((card.memory_mib, card.cores, card.slots, card.model, card.mode) for card in inventory.cards)
        taints = tuple((each.key, each.value, each.effect) for each in fresh.spec.taints)
        key = (tuple(selector.items()), labels.get(ZONE), taints, kinds, node.status.allocatable.get("cpu"))
        known = groups.get(key)
        if known is None:
            fresh.metadata.labels = {key: label for key, label in labels.items() if key != HOSTNAME}
            groups[key] = NodeTemplate(_name(key), fresh, inventory, selector, daemons_of(node.metadata.name))
        else:
            own = known.node.metadata.labels.items()
            known.node.metadata.labels = {key: label for key, label in own if labels.get(key) == label}
    return sorted(groups.values(), key=lambda each: each.size)
