"""Who has what of each card, counted as the scheduler counts: inventory plus the allocations of live pods."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from allocation import holding
from allocation.allocation import Allocation
from allocation.card_table import CORES, MEMORY, SLOTS
from allocation.constraints import words
from allocation.errors import AllocationError
from allocation.ledger import Ledger
from allocation.names import CORDON, HAMI_REGISTER, HAMI_SCORES
from allocation.settings import AllocationSettings
from cli.agents import Agents, Life
from cli.objects import NodeMetadata, Pod
from cli.usage import CORDONED, Amount, CardUsage, Condition, FleetUsage, NodeUsage, Share
from cluster.gpu_node_status import UNHEALTHY, GpuNodeStatus
from scheduler.heartbeats import Lease
from scheduler.inventories import Inventories


class Seen(msgspec.Struct, frozen=True):
    """What the API server shows of a fleet.

    Attributes:
        nodes: None where they may not be read.
        leases: the same.
        now: Unix time by the API server's clock.
    """

    statuses: Iterable[GpuNodeStatus]
    pods: Iterable[Pod]
    nodes: Iterable[NodeMetadata] | None
    leases: Iterable[Lease] | None
    now: float


class _Held(msgspec.Struct):
    """What pods hold: shares by node and card, and by node who runs there uncounted."""

    shares: defaultdict[tuple[str, str], list[Share]]
    uncounted: dict[str, str]


def count(seen: Seen, settings: AllocationSettings) -> FleetUsage:
    """Answer the use of every card that an agent or a register annotation tells of."""
    ledger = Ledger()
    inventories = Inventories(ledger)
    reported, messages = set(), {}
    for status in sorted(seen.statuses, key=lambda status: status.metadata.name):
        reported.add(status.metadata.name)
        if status.status is not None:
            messages.update({device.uuid: device.message for device in status.status.devices})
        inventories.report(status.metadata.name, status.inventory() if status.status is not None else None)
    for node in sorted(seen.nodes or (), key=lambda node: node.metadata.name):
        annotations = node.metadata.annotations
        ledger.set_cordon(node.metadata.name, frozenset(words(annotations.get(CORDON, ""))))
        inventories.register(node.metadata.name, annotations.get(HAMI_REGISTER), annotations.get(HAMI_SCORES, ""))
    agents = Agents(seen.leases, now=seen.now)
    held = _settle(ledger, seen.pods, settings)
    refusals = inventories.refusals
    usages = []
    for name in sorted({*ledger.nodes, *reported, *refusals}):
        life = agents.of(name) if name in reported else Life("None")
        cards = tuple(_cards(ledger, name, held, messages)) if name in ledger.nodes else ()
        conditions = tuple(_conditions(refusals.get(name, ""), life, held.uncounted.get(name, ""), cards))
        usages.append(NodeUsage(name, life.agent, life.since, conditions, cards))
    return FleetUsage(tuple(usages))


def _settle(ledger: Ledger, pods: Iterable[Pod], settings: AllocationSettings) -> _Held:
    """Record what each live pod has; one that runs uncounted closes its node."""
    held = _Held(defaultdict(list), {})
    for pod in sorted(pods, key=str):
        if not pod.live:
            continue
        node = pod.spec.node_name
        try:
            found = holding.of_pod(pod.spec, pod.metadata.annotations, node=node, settings=settings)
        except AllocationError as error:
            held.uncounted.setdefault(node, f"node {node} takes no GPU pods: pod {pod} runs here uncounted: {error}")
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


def _conditions(refusal: str, life: Life, uncounted: str, cards: tuple[CardUsage, ...]) -> Iterator[Condition]:
    if refusal:
        yield Condition("InventoryRefused", refusal)
    if life.agent == "Silent":
        yield Condition("AgentSilent", life.message)
    if uncounted:
        yield Condition("UncountedPod", uncounted)
    for word, chosen in (
        (UNHEALTHY, [card for card in cards if not card.healthy]),
        (CORDONED, [card for card in cards if card.cordoned]),
    ):
        if chosen:
            named = ", ".join(f"card {card.uuid}{f' ({card.message})' if card.message else ''}" for card in chosen)
            yield Condition(word, named, len(chosen))


def _cards(ledger: Ledger, node: str, held: _Held, messages: dict[str, str]) -> Iterator[CardUsage]:
    inventory, row = ledger.inventory(node), ledger.row(node)
    for position, card in enumerate(inventory.cards if inventory else ()):
        used, total = ledger.used[:, row, position], ledger.total[:, row, position]
        memory, cores, slots = (Amount(int(used[kind]), int(total[kind])) for kind in (MEMORY, CORES, SLOTS))
        yield CardUsage(
            index=card.index,
            uuid=card.uuid,
            model=card.model,
            mode=card.mode,
            healthy=card.healthy,
            message="" if card.healthy else messages.get(card.uuid, ""),
            cordoned=bool(ledger.cordoned[row, position]),
            memory_mib=memory,
            cores=cores,
            slots=slots,
            shares=tuple(held.shares[node, card.uuid]),
        )
