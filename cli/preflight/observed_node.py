"""A node with the facts that preflight judges it by."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from allocation import quantity
from allocation.delivery import NodeDelivery
from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.names import AGENT_LABEL, AGENT_LABEL_VALUES, HAMI_REGISTER, HAMI_SCORES
from cli.liveness.agents import AgentCheck
from cli.preflight.cluster_snapshot import GpuNode
from cli.preflight.findings import Finding, Severity
from cli.preflight.hami_objects import Plugin
from cli.preflight.nvidia_software import NvidiaSoftware
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.state import inventories

Mode = Literal[
    "ours", "ours, with a device plugin", "HAMi's plugin", "without a plugin", "NVIDIA's plugin only", "unknown"
]

_GPU_PRESENT: Final = "nvidia.com/gpu.present"
_NVIDIA_MIG: Final = "nvidia.com/mig-"


class ObservedNode(msgspec.Struct, frozen=True):
    """A node, and what other objects say about it.

    Attributes:
        node: the node.
        status: the report of our agent; None without one.
        agent: whether that agent is alive.
        plugins: the vendors of the device plugins that run there.
        software: NVIDIA's software there.
        holders: the number of running GPU pods.
        resource: the resource that device plugins advertise.
    """

    node: GpuNode
    status: GpuNodeStatus | None
    agent: AgentCheck | None
    plugins: frozenset[Plugin]
    software: NvidiaSoftware
    holders: int
    resource: str

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node."""
        return self.node.metadata.labels

    @property
    def mode(self) -> Mode | None:
        """The mode by the table of docs/hami.md; None for a node without signs of a GPU."""
        if self.status is not None:
            return "ours" if self.advertised is None else "ours, with a device plugin"
        if HAMI_REGISTER in self.node.metadata.annotations:
            return "HAMi's plugin" if self.advertised else "without a plugin"
        if self.advertised is not None or self.plugins or self.mig_resources:
            return "NVIDIA's plugin only"
        return "unknown" if self.should_have_agent or self.labels.get(_GPU_PRESENT) == "true" else None

    @property
    def should_have_agent(self) -> bool:
        """Whether the node has a label that has our agent run there."""
        return self.labels.get(AGENT_LABEL) in AGENT_LABEL_VALUES

    @property
    def advertised(self) -> int | None:
        """What the kubelet advertises of the count resource; None if it does not list it, or not as a number."""
        text = self.node.status.allocatable.get(self.resource)
        try:
            return None if text is None else quantity.unit_capacity(text)
        except AllocationError:
            return None

    @property
    def mig_resources(self) -> list[str]:
        """The resources of MIG instances that a device plugin advertises."""
        return sorted(name for name in self.node.status.allocatable if name.startswith(_NVIDIA_MIG))

    @property
    def inventory(self) -> NodeInventory | None:
        """The cards by the agent's report, else by the register annotation; None without a readable one."""
        if self.status is not None:
            return self.status.inventory()
        annotations = self.node.metadata.annotations
        try:
            return inventories.read(self.name, annotations[HAMI_REGISTER], annotations.get(HAMI_SCORES, ""))
        except (KeyError, AllocationError):
            return None

    @property
    def delivery(self) -> NodeDelivery | None:
        """The delivery that the agent reports; an older agent reports none."""
        status = self.status.status if self.status is not None else None
        return None if status is None or status.delivery is msgspec.UNSET else status.delivery

    @property
    def is_served_by_agent(self) -> bool:
        """Whether our agent is the device plugin of its kubelet."""
        return self.delivery is not None and self.delivery.mode == "device-plugin"

    def finding(self, severity: Severity, what: str, next_step: str = "") -> Finding:
        """Return a finding about the node."""
        return Finding(severity, (f"node {self.name}",), what, next_step)
