"""The mode of each node, by the table of docs/hami.md, and the findings about it."""

from collections.abc import Iterator
from typing import Final

import msgspec

from allocation.names import HAMI_REGISTER
from cli.liveness.agents import Agents
from cli.preflight import delivery, device_plugins, hami_nodes, installation, nvidia_software, runtime_classes
from cli.preflight.cluster_snapshot import ClusterSnapshot
from cli.preflight.findings import Finding
from cli.preflight.hami_objects import Plugin
from cli.preflight.nvidia_software import NvidiaSoftware
from cli.preflight.observed_node import Mode, ObservedNode
from cluster.resource import GPU_NODE_STATUSES

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
    findings = [*runtime_classes.missing(snapshot, name=runtime_class_name)]
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
            yield from hami_nodes.evaluate(observed) if registered else device_plugins.without_agent(observed)
        yield from device_plugins.managed_instances(observed)
    if observed.inventory is not None and snapshot.runtime_class is not None:
        yield from runtime_classes.evaluate(observed, snapshot.runtime_class)
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
