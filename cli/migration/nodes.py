"""In which mode each node would be, by the table of docs/plugin-nodes.md, and what is in the way."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from allocation import quantity
from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.names import HAMI_LOCK, HAMI_REGISTER, HAMI_SCORES
from cli.agents import Agents, Life
from cli.migration.findings import Finding
from cli.migration.hami_objects import Plugin
from cli.migration.survey import Survey
from cluster.gpu_node_status import GpuNodeStatus
from scheduler import inventories
from scheduler.objects import Node
from scheduler.plugin_nodes import GRACE_SECONDS, PluginNodes

Mode = Literal["ours", "ours, with a device plugin", "HAMi's plugin", "nobody", "NVIDIA's plugin only", "unknown"]

_GPU_LABELS: Final = (("gpu", "on"), ("nvidia.com/gpu.present", "true"))
_NVIDIA_MIG: Final = "nvidia.com/mig-"
_START_AGENT: Final = "start our agent there: docs/migration.md"
_DRAIN: Final = "take the node out of plugin mode: cordon, drain, make the kubelet forget (docs/plugin-nodes.md)"


class NodeVerdict(msgspec.Struct, frozen=True, rename={"next_step": "nextStep"}):
    """One node with cards, or with signs of them.

    Attributes:
        cards: how many are known; 0 where nobody reports any.
        shares: how many containers these have slots for.
        advertised: what its kubelet says of the count resource; None where it says nothing.
        agent: `Alive`, `Silent`, `Unknown` where Leases could not be read, or empty where there is none of ours.
        holders: unfinished pods there that ask for a GPU, which a drain would have to move.
        next_step: empty where the node is as it shall be.
    """

    name: str
    mode: Mode
    cards: int
    shares: int
    advertised: int | None
    agent: str
    holders: int
    next_step: str = ""


class _Seen(msgspec.Struct, frozen=True):
    """What is known of one node."""

    node: Node
    status: GpuNodeStatus | None
    agent: Life | None
    advertised: int | None
    plugins: frozenset[Plugin]
    holders: int
    resource: str

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def finding(self, severity: Literal["blocks", "changes", "notes"], what: str, next_step: str = "") -> Finding:
        return Finding(severity, (f"node {self.name}",), what, next_step)


def judge(
    survey: Survey, *, resource: str, plugins: dict[str, frozenset[Plugin]], holders: dict[str, int]
) -> tuple[tuple[NodeVerdict, ...], tuple[Finding, ...]]:
    """Answer the nodes that have anything to do with GPUs, by name, and what was found.

    Args:
        survey: of the cluster.
        resource: what device plugins advertise.
        plugins: whose plugin runs on which node.
        holders: how many unfinished GPU pods each node has.
    """
    verdicts: list[NodeVerdict] = []
    findings: list[Finding] = []
    statuses = {status.metadata.name: status for status in survey.statuses}
    agents = Agents(survey.leases if survey.could_read("leases") else None, now=survey.now)
    for node in sorted(survey.nodes, key=lambda node: node.metadata.name):
        name = node.metadata.name
        status = statuses.pop(name, None)
        seen = _Seen(
            node=node,
            status=status,
            agent=None if status is None else agents.of(name),
            advertised=_advertised(node, resource),
            plugins=plugins.get(name, frozenset()),
            holders=holders.get(name, 0),
            resource=resource,
        )
        found = list(_ours(seen) if status is not None else _theirs(seen))
        mode, inventory = _mode(seen), _inventory(seen)
        if mode is None:
            continue
        findings += found
        if mode in ("ours", "HAMi's plugin"):
            findings += _divided(seen, inventory)
        cards = inventory.cards if inventory is not None else ()
        steps = [each.next_step for each in found if each.next_step and each.severity != "notes"]
        verdicts.append(
            NodeVerdict(
                name=name,
                mode=mode,
                cards=len(cards),
                shares=sum(card.slots for card in cards),
                advertised=seen.advertised,
                agent=seen.agent.agent if seen.agent is not None else "",
                holders=seen.holders,
                next_step=steps[0] if steps else "",
            )
        )
    findings += [
        Finding("notes", (f"GpuNodeStatus {name}",), "its node does not exist", f"kubectl delete gpunodestatus {name}")
        for name in statuses
        if survey.could_read("nodes")
    ]
    return tuple(verdicts), tuple(findings)


def _mode(seen: _Seen) -> Mode | None:
    """Answer the mode, None for a node that shows no sign of a GPU."""
    if seen.status is not None:
        return "ours" if seen.advertised is None else "ours, with a device plugin"
    if HAMI_REGISTER in seen.node.metadata.annotations:
        return "HAMi's plugin" if seen.advertised else "nobody"
    if seen.advertised is not None or seen.plugins or _mig_resources(seen):
        return "NVIDIA's plugin only"
    labels = seen.node.metadata.labels
    return "unknown" if any(labels.get(key) == value for key, value in _GPU_LABELS) else None


def _ours(seen: _Seen) -> Iterator[Finding]:
    """Answer what is wrong on a node with our agent."""
    inventory = _inventory(seen)
    if seen.agent is not None and seen.agent.agent == "Silent":
        what, _, next_step = seen.agent.message.partition("; ")
        yield seen.finding("blocks", f"it takes no pods: {what}", next_step)
    if "HAMi's" in seen.plugins:
        yield seen.finding(
            "blocks",
            "HAMi's device plugin and our agent are both there: both write the node's register annotation",
            "keep one of them: docs/migration.md",
        )
    if seen.advertised is None or inventory is None:
        return
    shares = sum(card.slots for card in inventory.cards)
    if seen.advertised == 0:
        yield seen.finding("blocks", f"its kubelet remembers a device plugin: {seen.resource} is 0", _drain(seen))
    elif seen.advertised < shares:
        yield seen.finding(
            "changes",
            f"its device plugin advertises {seen.advertised} {seen.resource} and its cards have {shares} slots: no more"
            f" than {seen.advertised} shares are placed",
            "raise the plugin's time-slicing replicas, or take the node out of plugin mode (docs/plugin-nodes.md)",
        )
    else:
        yield seen.finding(
            "notes",
            "its device plugin advertises enough and may stay",
            "check that it passes devices by environment variable (DEVICE_LIST_STRATEGY=envvar)",
        )


def _theirs(seen: _Seen) -> Iterator[Finding]:
    """Answer what is wrong on a node without our agent."""
    annotations = seen.node.metadata.annotations
    if HAMI_REGISTER in annotations:
        yield from _registered(seen)
    elif seen.advertised:
        yield seen.finding(
            "changes",
            f"a device plugin advertises {seen.advertised} {seen.resource} and nobody reports cards: no pod of ours is"
            " placed there",
            _START_AGENT,
        )
    elif seen.advertised == 0:
        yield seen.finding("blocks", f"its kubelet remembers a device plugin: {seen.resource} is 0", _drain(seen))
    elif seen.plugins:
        yield seen.finding("changes", "a device plugin runs there and its kubelet advertises nothing", _START_AGENT)
    elif not _mig_resources(seen):
        yield seen.finding("notes", "its labels say that it has GPUs, and nobody reports any", _START_AGENT)
    if found := _mig_resources(seen):
        yield seen.finding(
            "blocks", f"a device plugin divides its cards: it advertises {', '.join(found)}", _drain(seen)
        )


def _registered(seen: _Seen) -> Iterator[Finding]:
    """Answer what is wrong on a node that only its register annotation describes, in the scheduler's words."""
    annotations = seen.node.metadata.annotations
    try:
        inventories.read(seen.name, annotations[HAMI_REGISTER], annotations.get(HAMI_SCORES, ""))
    except AllocationError as error:
        yield seen.finding("blocks", f"it takes no pods: {error}", "see its device plugin's log")
    if closed := _refusal(seen):
        yield seen.finding("blocks", closed, _drain(seen) if seen.advertised == 0 else _START_AGENT)
    if seen.advertised:
        yield seen.finding(
            "changes",
            "HAMi's device plugin serves it: pods start there one at a time, by HAMi's handshake",
            "install with the component manifests/hami-nodes; move the node over later (docs/migration.md)",
        )
    if lock := annotations.get(HAMI_LOCK):
        yield seen.finding("notes", f"it is locked: {lock}", "it is freed when nobody needs it")


def _refusal(seen: _Seen) -> str:
    """Answer why the scheduler would keep pods away once its time of grace is over."""
    hours = [0.0]
    known = PluginNodes(clock=lambda: hours[0], resource=seen.resource)
    if seen.advertised is None and seen.resource in seen.node.status.allocatable:
        return f"its allocatable {seen.resource} cannot be read"
    known.set_node(seen.node)
    hours[0] += 2 * GRACE_SECONDS
    return known.refusals().get(seen.name, "")


def _divided(seen: _Seen, inventory: NodeInventory | None) -> Iterable[Finding]:
    cards = [
        card.uuid
        for card in (inventory.cards if inventory is not None else ())
        if card.is_divided and card.instances_by == "plugin"
    ]
    if cards:
        yield seen.finding(
            "changes",
            f"a device plugin divides cards in MIG mode, which are left out: {', '.join(cards)}",
            "leave them to HAMi until the node is drained (docs/agent.md#mig)",
        )


def _inventory(seen: _Seen) -> NodeInventory | None:
    if seen.status is not None:
        return seen.status.inventory()
    annotations = seen.node.metadata.annotations
    try:
        text = annotations[HAMI_REGISTER]
        return inventories.read(seen.name, text, annotations.get(HAMI_SCORES, ""))
    except (KeyError, AllocationError):
        return None


def _drain(seen: _Seen) -> str:
    return f"{_DRAIN}; {seen.holders} GPU pods are there" if seen.holders else _DRAIN


def _advertised(node: Node, resource: str) -> int | None:
    text = node.status.allocatable.get(resource)
    try:
        return None if text is None else quantity.unit_capacity(text)
    except AllocationError:
        return None


def _mig_resources(seen: _Seen) -> list[str]:
    return sorted(name for name in seen.node.status.allocatable if name.startswith(_NVIDIA_MIG))
