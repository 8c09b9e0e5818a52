"""Who has what of each card, counted as the scheduler counts: inventory plus the allocations of live pods."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from allocation import holding
from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.ledger import CORES, MEMORY, SLOTS, Ledger
from allocation.settings import AllocationSettings
from cli.objects import Pod
from cluster.gpu_node_status import GpuNodeStatus


class Amount(msgspec.Struct, frozen=True):
    """How much is reserved, and how much there is."""

    used: int
    total: int

    def __str__(self) -> str:
        return f"{self.used}/{self.total}"


class Share(msgspec.Struct, frozen=True, rename={"memory_mib": "memoryMiB"}):
    """What one container has of a card: MiB and millicards."""

    namespace: str
    pod: str
    container: str
    memory_mib: int
    cores: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class CardUsage(msgspec.Struct, frozen=True, rename={"memory_mib": "memoryMiB"}):
    """One card: memory in MiB, cores in millicards (1000 is the whole card), slots in containers."""

    index: int
    uuid: str
    model: str
    healthy: bool
    memory_mib: Amount
    cores: Amount
    slots: Amount
    shares: tuple[Share, ...]


class NodeUsage(msgspec.Struct, frozen=True):
    """One node: its cards by index, and why it takes no GPU pods, empty where it does."""

    name: str
    closed: str
    cards: tuple[CardUsage, ...]


class FleetUsage(msgspec.Struct, frozen=True):
    """What `kubectl gpu top -o json` prints: nodes by name, and what could not be counted, in words."""

    nodes: tuple[NodeUsage, ...]
    problems: tuple[str, ...]


class _Pods(msgspec.Struct):
    """What pods hold: shares by node and card, and by node why it is closed."""

    shares: defaultdict[tuple[str, str], list[Share]]
    closed: dict[str, str]


def count(
    statuses: Iterable[GpuNodeStatus], pods: Iterable[Pod], settings: AllocationSettings | None = None
) -> FleetUsage:
    """Answer the use of every card that an agent reports."""
    ledger = Ledger()
    problems: list[str] = []
    for status in sorted(statuses, key=lambda status: status.metadata.name):
        try:
            ledger.set_node(status.inventory())
        except AllocationError as error:
            problems.append(f"the inventory of node {status.metadata.name} is refused: {error}")
    held = _settle(ledger, pods, settings or AllocationSettings())
    return FleetUsage(
        nodes=tuple(
            NodeUsage(node, held.closed.get(node, ""), tuple(_cards(ledger, node, held))) for node in ledger.nodes
        ),
        problems=tuple(problems),
    )


def _settle(ledger: Ledger, pods: Iterable[Pod], settings: AllocationSettings) -> _Pods:
    """Record what each live pod has; one that runs uncounted closes its node."""
    held = _Pods(defaultdict(list), {})
    for pod in sorted(pods, key=str):
        if not pod.live:
            continue
        node = pod.spec.node_name
        try:
            found = holding.of_pod(pod.spec, pod.metadata.annotations, node=node, settings=settings)
        except AllocationError as error:
            held.closed.setdefault(node, f"pod {pod} runs here uncounted: {error}")
            continue
        if found is not None:
            allocation, charges = found
            ledger.record(pod.metadata.uid, node, charges)
            for uuid, share in _shares(pod, allocation):
                held.shares[node, uuid].append(share)
    return held


def _shares(pod: Pod, allocation: Allocation) -> Iterator[tuple[str, Share]]:
    for container, shares in allocation.containers.items():
        for share in shares:
            yield (
                share.uuid,
                Share(pod.metadata.namespace, pod.metadata.name, container, share.memory_mib, share.cores),
            )


def _cards(ledger: Ledger, node: str, held: _Pods) -> Iterator[CardUsage]:
    inventory, row = ledger.inventory(node), ledger.row(node)
    for position, card in enumerate(inventory.cards if inventory else ()):
        used, total = ledger.used[:, row, position], ledger.total[:, row, position]
        memory, cores, slots = (Amount(int(used[kind]), int(total[kind])) for kind in (MEMORY, CORES, SLOTS))
        yield CardUsage(
            index=card.index,
            uuid=card.uuid,
            model=card.model,
            healthy=card.healthy,
            memory_mib=memory,
            cores=cores,
            slots=slots,
            shares=tuple(held.shares[node, card.uuid]),
        )
