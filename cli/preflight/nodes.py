"""The mode of each node, by the table of docs/hami.md, and the findings about it."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from allocation import quantity
from allocation.delivery import NodeDelivery
from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.names import HAMI_LOCK, HAMI_REGISTER, HAMI_SCORES
from cli.liveness.agents import AgentCheck, Agents
from cli.preflight import delivery
from cli.preflight.cluster_snapshot import ClusterSnapshot
from cli.preflight.findings import Finding
from cli.preflight.hami_objects import Plugin
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.objects import Node
from scheduler.state import inventories
from scheduler.state.plugin_nodes import GRACE_SECONDS, PluginNodes

Mode = Literal["ours", "ours, with a device plugin", "HAMi's plugin", "nobody", "NVIDIA's plugin only", "unknown"]

_GPU_LABELS: Final = (("gpu", "on"), ("nvidia.com/gpu.present", "true"))
_NVIDIA_MIG: Final = "nvidia.com/mig-"
_START_AGENT: Final = "start Tranche's agent there: docs/hami.md"
_NO_PLUGIN: Final = "take the node out of plugin mode (docs/hami.md; GPU Operator: --set devicePlugin.enabled=false)"
_DRAIN: Final = "take the node out of plugin mode: cordon, drain, make the kubelet forget (docs/hami.md)"


class NodeVerdict(msgspec.Struct, frozen=True, rename={"next_step": "nextStep"}):
    """A node with cards, or with signs of cards.

    Attributes:
        cards: the number of reported cards; 0 without a report.
        shares: the number of slots of these cards.
        advertised: what its kubelet advertises of the count resource; None if the kubelet does not list it.
        delivery: how its containers get their cards; empty for a node without our agent.
        agent: `Alive`, `Silent`, `Unknown` if Leases could not be read, or empty for a node without our agent.
        holders: the number of running GPU pods on the node, which a drain would have to move.
        next_step: the first step to take, or empty if there is nothing to do.
    """

    name: str
    mode: Mode
    cards: int
    shares: int
    advertised: int | None
    agent: str
    holders: int
    delivery: str = ""
    next_step: str = ""


class _ObservedNode(msgspec.Struct, frozen=True):
    """A node and the facts that decide its mode."""

    node: Node
    status: GpuNodeStatus | None
    agent: AgentCheck | None
    advertised: int | None
    plugins: frozenset[Plugin]
    holders: int
    resource: str
    runtime_class_name: str

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def finding(self, severity: Literal["blocks", "changes", "notes"], what: str, next_step: str = "") -> Finding:
        return Finding(severity, (f"node {self.name}",), what, next_step)


def evaluate(
    snapshot: ClusterSnapshot,
    *,
    resource: str,
    runtime_class_name: str,
    plugins: dict[str, frozenset[Plugin]],
    holders: dict[str, int],
) -> tuple[tuple[NodeVerdict, ...], tuple[Finding, ...]]:
    """Return the nodes with signs of GPUs, sorted by name, and the findings about them.

    Args:
        snapshot: the objects of the cluster.
        resource: the resource that device plugins advertise.
        runtime_class_name: the RuntimeClass that admission writes into GPU pods, or empty.
        plugins: the vendors of the device plugins that run on each node.
        holders: the number of running GPU pods on each node.
    """
    verdicts: list[NodeVerdict] = []
    findings: list[Finding] = []
    statuses = {status.metadata.name: status for status in snapshot.statuses}
    agents = Agents(snapshot.leases if snapshot.could_read("leases") else None, now=snapshot.now)
    for node in sorted(snapshot.nodes, key=lambda node: node.metadata.name):
        name = node.metadata.name
        status = statuses.pop(name, None)
        observed = _ObservedNode(
            node=node,
            status=status,
            agent=None if status is None else agents.of(name),
            advertised=_advertised(node, resource),
            plugins=plugins.get(name, frozenset()),
            holders=holders.get(name, 0),
            resource=resource,
            runtime_class_name=runtime_class_name,
        )
        node_findings = list(_with_agent(observed) if status is not None else _without_agent(observed))
        mode, inventory = _mode(observed), _inventory(observed)
        if mode is None:
            continue
        findings += node_findings
        if mode in ("ours", "HAMi's plugin"):
            findings += _plugin_mig_cards(observed, inventory)
        cards = inventory.cards if inventory is not None else ()
        steps = [each.next_step for each in node_findings if each.next_step and each.severity != "notes"]
        verdicts.append(
            NodeVerdict(
                name=name,
                mode=mode,
                cards=len(cards),
                shares=sum(card.slots for card in cards),
                advertised=observed.advertised,
                agent=observed.agent.state if observed.agent is not None else "",
                holders=observed.holders,
                delivery=reported.mode if (reported := _delivery(observed)) is not None else "",
                next_step=steps[0] if steps else "",
            )
        )
    findings += [
        Finding("notes", (f"GpuNodeStatus {name}",), "its node does not exist", f"kubectl delete gpunodestatus {name}")
        for name in statuses
        if snapshot.could_read("nodes")
    ]
    return tuple(verdicts), tuple(findings)


def _mode(observed: _ObservedNode) -> Mode | None:
    """Return the mode, or None for a node without signs of a GPU."""
    if observed.status is not None:
        return "ours" if observed.advertised is None else "ours, with a device plugin"
    if HAMI_REGISTER in observed.node.metadata.annotations:
        return "HAMi's plugin" if observed.advertised else "nobody"
    if observed.advertised is not None or observed.plugins or _mig_resources(observed):
        return "NVIDIA's plugin only"
    labels = observed.node.metadata.labels
    return "unknown" if any(labels.get(key) == value for key, value in _GPU_LABELS) else None


def _with_agent(observed: _ObservedNode) -> Iterator[Finding]:
    """Return the findings about a node with our agent."""
    inventory = _inventory(observed)
    if observed.agent is not None and observed.agent.state == "Silent":
        what, _, next_step = observed.agent.message.partition("; ")
        yield observed.finding("blocks", f"it takes no pods: {what}", next_step)
    if (reported := _delivery(observed)) is not None:
        yield from delivery.evaluate(observed.name, reported, runtime_class_name=observed.runtime_class_name)
    if "HAMi's" in observed.plugins:
        yield observed.finding(
            "blocks",
            "HAMi's device plugin and Tranche's agent both run there and both write the node's register annotation",
            "remove one of them: docs/hami.md",
        )
    if observed.advertised is None or inventory is None:
        return
    shares = sum(card.slots for card in inventory.cards)
    if observed.advertised == 0:
        yield observed.finding(
            "blocks",
            f"its kubelet remembers a device plugin: {observed.resource} is 0",
            _drain(observed),
        )
    elif observed.advertised < shares:
        yield observed.finding(
            "changes",
            f"its device plugin advertises {observed.advertised} {observed.resource}, but its cards have {shares}"
            f" slots: no more than {observed.advertised} shares are placed",
            f"raise the plugin's time-slicing replicas, or {_NO_PLUGIN}",
        )
    else:
        yield observed.finding(
            "notes",
            "its device plugin advertises enough and may stay",
            f"check that it passes devices by environment variable (DEVICE_LIST_STRATEGY=envvar), or {_NO_PLUGIN}",
        )


def _without_agent(observed: _ObservedNode) -> Iterator[Finding]:
    """Return the findings about a node without our agent."""
    annotations = observed.node.metadata.annotations
    if HAMI_REGISTER in annotations:
        yield from _registered(observed)
    elif observed.advertised:
        yield observed.finding(
            "changes",
            f"a device plugin advertises {observed.advertised} {observed.resource}, but no agent reports cards:"
            " Tranche places no pod there",
            _START_AGENT,
        )
    elif observed.advertised == 0:
        yield observed.finding(
            "blocks",
            f"its kubelet remembers a device plugin: {observed.resource} is 0",
            _drain(observed),
        )
    elif observed.plugins:
        yield observed.finding(
            "changes", "a device plugin runs there, but its kubelet advertises nothing", _START_AGENT
        )
    elif not _mig_resources(observed):
        yield observed.finding("notes", "its labels say that it has GPUs, but no agent reports any", _START_AGENT)
    if resources := _mig_resources(observed):
        yield observed.finding(
            "blocks",
            f"a device plugin manages MIG instances there: it advertises {', '.join(resources)}",
            _drain(observed),
        )


def _registered(observed: _ObservedNode) -> Iterator[Finding]:
    """Return the findings about a node with only a register annotation, with the scheduler's messages."""
    annotations = observed.node.metadata.annotations
    try:
        inventories.read(observed.name, annotations[HAMI_REGISTER], annotations.get(HAMI_SCORES, ""))
    except AllocationError as error:
        yield observed.finding("blocks", f"it takes no pods: {error}", "see its device plugin's log")
    if reason := _closed_reason(observed):
        yield observed.finding("blocks", reason, _drain(observed) if observed.advertised == 0 else _START_AGENT)
    if observed.advertised:
        yield observed.finding(
            "changes",
            "HAMi's device plugin serves it: pods start there one at a time, through HAMi's handshake",
            "install with the component manifests/hami-nodes; move the node over later (docs/hami.md)",
        )
    if lock := annotations.get(HAMI_LOCK):
        yield observed.finding("notes", f"it is locked: {lock}", "the scheduler releases an unused lock")


def _closed_reason(observed: _ObservedNode) -> str:
    """Return the reason why the scheduler closes the node once the grace period is over, or an empty string."""
    now = [0.0]
    plugin_nodes = PluginNodes(clock=lambda: now[0], resource=observed.resource)
    if observed.advertised is None and observed.resource in observed.node.status.allocatable:
        return f"its allocatable {observed.resource} cannot be read"
    plugin_nodes.set_node(observed.node)
    now[0] += 2 * GRACE_SECONDS
    rejection = plugin_nodes.rejections().get(observed.name)
    return rejection.text if rejection is not None else ""


def _plugin_mig_cards(observed: _ObservedNode, inventory: NodeInventory | None) -> Iterable[Finding]:
    cards = [
        card.uuid
        for card in (inventory.cards if inventory is not None else ())
        if card.is_mig_enabled and card.instances_by == "plugin"
    ]
    if cards:
        yield observed.finding(
            "changes",
            f"a device plugin manages cards in MIG mode, which are left out: {', '.join(cards)}",
            "leave them to HAMi until the node is drained (docs/agent.md#mig)",
        )


def _inventory(observed: _ObservedNode) -> NodeInventory | None:
    if observed.status is not None:
        return observed.status.inventory()
    annotations = observed.node.metadata.annotations
    try:
        text = annotations[HAMI_REGISTER]
        return inventories.read(observed.name, text, annotations.get(HAMI_SCORES, ""))
    except (KeyError, AllocationError):
        return None


def _delivery(observed: _ObservedNode) -> NodeDelivery | None:
    """Return the delivery that the node's agent reports; an older agent reports none."""
    status = observed.status.status if observed.status is not None else None
    return None if status is None or status.delivery is msgspec.UNSET else status.delivery


def _drain(observed: _ObservedNode) -> str:
    return f"{_DRAIN}; {observed.holders} GPU pods are there" if observed.holders else _DRAIN


def _advertised(node: Node, resource: str) -> int | None:
    text = node.status.allocatable.get(resource)
    try:
        return None if text is None else quantity.unit_capacity(text)
    except AllocationError:
        return None


def _mig_resources(observed: _ObservedNode) -> list[str]:
    return sorted(name for name in observed.node.status.allocatable if name.startswith(_NVIDIA_MIG))
