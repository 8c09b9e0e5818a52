"""The mode of each node, by the table of docs/hami.md, and the findings about it."""

from collections.abc import Iterator
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.names import HAMI_LOCK, HAMI_REGISTER, HAMI_SCORES
from cli.liveness.agents import Agents
from cli.preflight import delivery, device_plugins, installation, nvidia_software
from cli.preflight.cluster_snapshot import ClusterSnapshot, RuntimeClass
from cli.preflight.device_plugins import START_AGENT, drain
from cli.preflight.findings import Finding
from cli.preflight.hami_objects import Plugin
from cli.preflight.nvidia_software import NvidiaSoftware
from cli.preflight.observed_node import Mode, ObservedNode
from cluster.resource import GPU_NODE_STATUSES
from scheduler.state import inventories
from scheduler.state.plugin_nodes import GRACE_SECONDS, PluginNodes

_LABEL: Final = (
    "label each node with GPUs: kubectl label node NODE gpu=on; the log of the agent that then starts there says which"
    " cards it finds"
)
_SEE_AGENT: Final = (
    "see the agent's pod there: kubectl -n tranche-system get pods -l app.kubernetes.io/component=agent -o wide"
)
_REPAIR: Final = (
    "repair the driver (nvidia-smi on the node shows whether it works); the agent then finds its cards by itself"
)


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
    findings = [*_missing_runtime_class(snapshot, name=runtime_class_name)]
    statuses = {status.metadata.name: status for status in snapshot.statuses}
    agents = Agents(snapshot.leases if snapshot.could_read("leases") else None, now=snapshot.now)
    software = nvidia_software.read(snapshot)
    for node in sorted(snapshot.nodes, key=lambda node: node.metadata.name):
        name = node.metadata.name
        status = statuses.pop(name, None)
        observed = ObservedNode(
            node=node,
            status=status,
            agent=None if status is None else agents.of(name),
            plugins=plugins.get(name, frozenset()),
            software=software.get(name, NvidiaSoftware()),
            holders=holders.get(name, 0),
            resource=resource,
        )
        if (mode := observed.mode) is None:
            continue
        found = [*_findings(observed, snapshot, runtime_class_name)]
        findings += found
        verdicts.append(_verdict(observed, mode, found))
    findings += [
        Finding("notes", (f"GpuNodeStatus {name}",), "its node does not exist", f"kubectl delete gpunodestatus {name}")
        for name in statuses
        if snapshot.could_read("nodes")
    ]
    return tuple(verdicts), tuple(findings)


def without_cards(
    verdicts: tuple[NodeVerdict, ...], snapshot: ClusterSnapshot, *, is_installed: bool
) -> Iterator[Finding]:
    """Return the finding that no node has a card, unless another finding says why that is unknown."""
    if not (snapshot.could_read("nodes") and snapshot.could_read(GPU_NODE_STATUSES.plural)):
        return
    if not is_installed:
        if not verdicts:
            what = "no node shows a sign of a GPU: no label says so, and no device plugin advertises one"
            yield Finding("notes", ("cluster",), what, f"after the installation, {_LABEL}")
        return
    parts = snapshot.liveness.problems if snapshot.liveness is not None else ()
    if not any(verdict.cards for verdict in verdicts) and not any(part.name == "agents" for part in parts):
        yield Finding("blocks", ("cluster",), "no node has a card: no GPU pod is placed", _LABEL)


def _findings(observed: ObservedNode, snapshot: ClusterSnapshot, runtime_class_name: str) -> Iterator[Finding]:
    """Return the findings about a node, the first step to take first."""
    if observed.status is not None:
        if observed.agent is not None and observed.agent.state == "Silent":
            what, _, next_step = observed.agent.message.partition("; ")
            yield observed.finding("blocks", f"it takes no pods: {what}", next_step)
        if observed.status.problem is not None:
            what = f"it takes no pods: its cards cannot be used: {observed.status.problem}"
            yield observed.finding("blocks", what, _REPAIR)
        yield from delivery.evaluate(observed, runtime_class_name=runtime_class_name)
        yield from device_plugins.with_agent(observed)
    else:
        registered = HAMI_REGISTER in observed.node.metadata.annotations
        if observed.mode == "unknown" and observed.should_have_agent and installation.is_installed(snapshot):
            yield observed.finding(
                "blocks", "by its label an agent runs there, but no agent reports its cards", _SEE_AGENT
            )
        else:
            yield from _registered_by_hami(observed) if registered else device_plugins.without_agent(observed)
        yield from device_plugins.managed_instances(observed)
    if observed.inventory is not None and snapshot.runtime_class is not None:
        yield from _runtime_class(observed, snapshot.runtime_class)
    if observed.mode in ("ours", "HAMi's plugin"):
        yield from device_plugins.managed_cards(observed)


def _verdict(observed: ObservedNode, mode: Mode, findings: list[Finding]) -> NodeVerdict:
    inventory, reported = observed.inventory, observed.delivery
    cards = inventory.cards if inventory is not None else ()
    steps = [each.next_step for each in findings if each.next_step and each.severity != "notes"]
    return NodeVerdict(
        name=observed.name,
        mode=mode,
        cards=len(cards),
        shares=sum(card.slots for card in cards),
        advertised=observed.advertised,
        agent=observed.agent.state if observed.agent is not None else "",
        holders=observed.holders,
        delivery=reported.mode if reported is not None else "",
        next_step=steps[0] if steps else "",
    )


def _registered_by_hami(observed: ObservedNode) -> Iterator[Finding]:
    """Return the findings about a node with a register annotation and without our agent."""
    annotations = observed.node.metadata.annotations
    try:
        inventories.read(observed.name, annotations[HAMI_REGISTER], annotations.get(HAMI_SCORES, ""))
    except AllocationError as error:
        yield observed.finding("blocks", f"it takes no pods: {error}", "see its device plugin's log")
    if reason := _closed_reason(observed):
        yield observed.finding("blocks", reason, drain(observed) if observed.advertised == 0 else START_AGENT)
    if observed.advertised:
        yield observed.finding(
            "changes",
            "HAMi's device plugin serves it: pods start there one at a time, through HAMi's handshake",
            "install with the component manifests/hami-nodes (Helm: --set hamiNodes.enabled=true); move the node over"
            " later (docs/hami.md)",
        )
    if lock := annotations.get(HAMI_LOCK):
        yield observed.finding("notes", f"it is locked: {lock}", "the scheduler releases an unused lock")


def _closed_reason(observed: ObservedNode) -> str:
    """Return the reason why the scheduler closes the node once the grace period is over, or an empty string."""
    plugin_nodes = PluginNodes(clock=lambda: 0.0, resource=observed.resource)
    if observed.advertised is None and observed.resource in observed.node.status.allocatable:
        return f"its allocatable {observed.resource} cannot be read"
    plugin_nodes.set_node(observed.node)
    plugin_nodes.refresh(2 * GRACE_SECONDS)
    rejection = plugin_nodes.rejections.get(observed.name)
    return rejection.text if rejection is not None else ""


def _missing_runtime_class(snapshot: ClusterSnapshot, *, name: str) -> Iterator[Finding]:
    """Return the finding about a class that does not exist, unless the check of the installation reports it.

    Args:
        snapshot: the objects of the cluster.
        name: the configured class, or empty.
    """
    is_checked = snapshot.liveness is not None and snapshot.liveness.installed
    if name and snapshot.runtime_class is None and snapshot.could_read("runtimeclasses") and not is_checked:
        yield Finding(
            "blocks",
            (f"RuntimeClass {name}",),
            "does not exist: admission would write it into GPU pods, which the API server then rejects",
            "install the GPU Operator, which creates it, or set webhook.runtime_class_name to nothing"
            " (Helm: --set runtimeClassName=)",
        )


def _runtime_class(observed: ObservedNode, runtime_class: RuntimeClass) -> Iterator[Finding]:
    """Return what keeps GPU pods, which name the class, from being placed on a node or from starting there."""
    name, labels = runtime_class.metadata.name, observed.labels
    selector = runtime_class.scheduling.node_selector if runtime_class.scheduling is not None else {}
    if lacking := [f"{key}={value}" for key, value in sorted(selector.items()) if labels.get(key) != value]:
        yield observed.finding(
            "blocks",
            f"no GPU pod is placed there: RuntimeClass {name}, which admission writes into them, requires"
            f" {', '.join(lacking)} by scheduling.nodeSelector",
            f"kubectl label node {observed.name} {' '.join(lacking)} --overwrite, or remove scheduling.nodeSelector"
            f" from RuntimeClass {name}",
        )
    handlers = {each.name for each in observed.node.status.runtime_handlers}
    if handlers and runtime_class.handler not in handlers:
        yield observed.finding(
            "blocks",
            f"its container runtime has no handler {runtime_class.handler}, which RuntimeClass {name} names: GPU pods"
            " do not start",
            "install NVIDIA's container toolkit there: GPU Operator: --set toolkit.enabled=true; without it: nvidia-ctk"
            " runtime configure --runtime=containerd, then restart containerd",
        )
