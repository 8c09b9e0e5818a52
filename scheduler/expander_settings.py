"""The settings of the expander, which has autoscalers bring nodes for pods that fit nowhere."""

import re
from typing import Final

import msgspec

from allocation.inventory import WHOLE_CORES

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
GROUP_LABELS: Final = (
    INSTANCE_TYPE,
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
"""The node labels that name node groups unless others are configured."""
MOST_NODES: Final = 15
"""The nodes that may be on their way at the same time."""
_MOST_CARDS: Final = 64
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


class TemplateTaint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A taint of the nodes of a group."""

    key: str
    effect: str
    value: str = ""


class TemplateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node group that may have no node yet, as its nodes will be.

    Attributes:
        name: names the group in events.
        labels: the labels of its nodes, by which an autoscaler also finds the group.
        cards: how many cards each node has.
        memory_mib: the memory of each card.
        model: the name that NVML reports.
        cores: the compute of each card in millicards.
        slots: how many containers share a card.
        allocatable: what a node offers pods of CPU, memory and other resources.
        taints: the taints of its nodes.
    """

    name: str
    labels: dict[str, str]
    cards: int
    memory_mib: int
    model: str = ""
    cores: int = WHOLE_CORES
    slots: int = 10
    allocatable: dict[str, str] = msgspec.field(default_factory=lambda: {"cpu": "8", "memory": "32Gi", "pods": "110"})
    taints: tuple[TemplateTaint, ...] = ()

    def __post_init__(self) -> None:
        """Refuse groups without labels, which an autoscaler could not find, and impossible cards."""
        where = f"expander.templates, {self.name or 'without a name'}"
        if _LABEL_VALUE.fullmatch(self.name) is None or not self.labels:
            raise ValueError(
                f"{where}: it must have a name that a label can hold, and the labels that the nodes of the group have"
            )
        if not 1 <= self.cards <= _MOST_CARDS:
            raise ValueError(f"{where}: cards is {self.cards}: it must be an integer from 1 to {_MOST_CARDS}")
        for name in ("memory_mib", "cores", "slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{where}: {name} is {getattr(self, name)}: it must be above 0")


class ExpanderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how autoscalers are asked for nodes, by pods in the system namespace that only a new node could run.

    Attributes:
        enabled: whether they are asked.
        collect_seconds: for how long a pod fits nowhere before a node is asked for; pods are decided together this
            often.
        node_seconds: for how long a node may be on its way before the request for it ends.
        most_nodes: how many nodes may be on their way at the same time, at most 15.
        backoff_seconds: for how long no node is asked for pods of a shape after one that did not help, which doubles
            each time up to sixteen times as long.
        resource: the resource by which a request asks for all cards of a node; autoscalers know it of the machines.
            Empty asks for the CPU of a node instead (docs/autoscaling.md, "With Karpenter").
        group_labels: the node labels that tell the groups of nodes apart, and by which a request names the group.
        templates: node groups that may have no node yet; those with nodes are known from these.
    """

    enabled: bool = False
    collect_seconds: float = 10.0
    node_seconds: float = 600.0
    most_nodes: int = 15
    backoff_seconds: float = 600.0
    resource: str = "nvidia.com/gpu"
    group_labels: tuple[str, ...] = GROUP_LABELS
    templates: tuple[TemplateSettings, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if not 1 <= self.most_nodes <= MOST_NODES:
            raise ValueError(f"expander.most_nodes is {self.most_nodes}: it must be an integer from 1 to {MOST_NODES}")
        for name in ("collect_seconds", "node_seconds", "backoff_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"expander.{name} is {getattr(self, name):g}: it must be above 0")
        named = [each.name for each in self.templates]
        if len(set(named)) < len(named):
            raise ValueError(f"expander.templates has two groups of one name: {', '.join(sorted(named))}")
